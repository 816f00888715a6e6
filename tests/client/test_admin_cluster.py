"""What the admin client tells of brokers and topics, and how it creates topics."""

import pytest
import trio
import trio.testing

from fakebroker.client.admin.descriptions import NewTopic, PartitionDescription
from fakebroker.client.errors import BrokerError, TopicError, UnsupportedVersion
from fakebroker.errors import ConfigError, ErrorCode, WaitTimeout
from tests.support.client.admin_harness import administered
from tests.support.trio_runner import in_trio_with_sockets

releases = pytest.mark.parametrize("release", ["0.10.2", "1.0", "2.3", "2.8", "3.0", "4.2", None])


@releases
@in_trio_with_sockets
async def test_the_cluster_is_described(release: str | None) -> None:
    async with administered(2, as_version=release) as (cluster, admin):
        told = await admin.describe_cluster()
        assert [(node.node_id, node.host, node.port) for node in told.nodes] == [
            (broker.node_id, broker.host, broker.port) for broker in cluster.brokers
        ]
        assert told.controller_id == 1
        assert told.cluster_id == cluster.cluster.cluster_id


@in_trio_with_sockets
async def test_a_topic_to_be_created_is_no_mere_name() -> None:
    async with administered(1) as (_, admin):
        with pytest.raises(
            ConfigError, match=r"^topics\[0\]='news': expected a NewTopic, such as NewTopic\('orders', 3\)$"
        ):
            await admin.create_topics(["news"])  # type: ignore[list-item]  # wrong on purpose


@in_trio_with_sockets
async def test_groups_are_listed_though_a_connection_is_lost_on_the_way() -> None:
    async with administered(2) as (cluster, admin):
        cluster.seed_group("g", offsets={"orders-0": 5})
        for api in ("Metadata", "ListGroups"):
            lost = cluster.fail(api, drop=True, times=1)
            assert [group.group_id for group in await admin.list_groups()] == ["g"]
            assert lost.hits == 1


@releases
@in_trio_with_sockets
async def test_topics_are_created_and_listed(release: str | None) -> None:
    async with administered(2, as_version=release) as (cluster, admin):
        wanted = [NewTopic("news", 2, 2, {"retention.ms": "5000"}), NewTopic("orders", 1, 1), NewTopic("many", 1, 9)]
        created = await admin.create_topics(wanted)
        assert list(created) == ["news", "orders", "many"]
        assert {name: error.error for name, error in created.errors.items()} == {
            "orders": ErrorCode.TOPIC_ALREADY_EXISTS,
            "many": ErrorCode.INVALID_REPLICATION_FACTOR,
        }
        failed = created["orders"]
        assert isinstance(failed, TopicError)
        assert failed.topic == "orders"
        topics = await admin.list_topics()
        assert list(topics) == ["orders", "news"]
        assert [partition.partition for partition in topics["news"].partitions] == [0, 1]
        assert all(len(partition.replicas) == 2 for partition in topics["news"].partitions)
        await admin.find_coordinators(["g"])  # Kafka creates its topic for groups when it is first needed
        assert "__consumer_offsets" not in await admin.list_topics()
        assert "__consumer_offsets" in await admin.list_topics(internal=True)
        assert cluster.cluster.topics.get("news") is not None


@in_trio_with_sockets
async def test_a_topic_is_told_with_its_id_and_leaders() -> None:
    async with administered(1, topics={"one": 1}) as (_, admin):
        (topic,) = (await admin.list_topics()).values()
        assert topic.topic_id is not None
        assert len(topic.topic_id) == 16
        assert topic.partitions == (PartitionDescription(partition=0, leader=1, replicas=(1,), isr=(1,)),)


@in_trio_with_sockets
async def test_brokers_choose_where_they_can() -> None:
    async with administered(1) as (_, admin):
        assert (await admin.create_topics([NewTopic("seen")], validate_only=True)).all() == {"seen": None}
        assert list(await admin.list_topics()) == ["orders"]
        (await admin.create_topics([NewTopic("made")])).all()
        assert len((await admin.list_topics())["made"].partitions) == 1
    async with administered(1, as_version="2.3") as (_, admin):
        with pytest.raises(UnsupportedVersion, match=r"^CreateTopics: broker .* speaks 0-3, this client 4-7$"):
            await admin.create_topics([NewTopic("made")])


@in_trio_with_sockets
async def test_a_topic_named_twice_is_refused() -> None:
    async with administered(1) as (_, admin):
        with pytest.raises(ConfigError, match=r"^topics\[1\]\.name='a': expected each topic once$"):
            await admin.create_topics([NewTopic("a", 1, 1), NewTopic("a", 2, 1)])


@in_trio_with_sockets
async def test_another_controller_is_looked_for() -> None:
    async with administered(2) as (cluster, admin):
        cluster.fail("CreateTopics", error="NOT_CONTROLLER", times=2)
        assert (await admin.create_topics([NewTopic("news", 1, 1)])).all() == {"news": None}
        assert (cluster.count("CreateTopics"), cluster.count("Metadata")) == (3, 3)


@in_trio_with_sockets
async def test_topics_that_are_not_created_in_time_tell_why() -> None:
    async with administered(1, admin={"default_api_timeout_ms": 50}) as (cluster, admin):
        cluster.fail("CreateTopics", error="NOT_CONTROLLER")
        (failed,) = (await admin.create_topics([NewTopic("news", 1, 1)])).errors.values()
        assert failed.error is ErrorCode.REQUEST_TIMED_OUT
        assert str(failed).endswith("CreateTopics: not done in 50 ms; last seen: topics news put off by the controller")


@in_trio_with_sockets
async def test_brokers_that_load_are_asked_for_their_groups_again() -> None:
    async with administered(2) as (cluster, admin):
        cluster.seed_group("g", offsets={"orders-0": 5})
        cluster.fail("ListGroups", broker=2, error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        assert [group.group_id for group in await admin.list_groups()] == ["g"]
        assert (cluster.count("ListGroups", broker=1), cluster.count("ListGroups", broker=2)) == (1, 3)


@in_trio_with_sockets
async def test_listing_fails_where_a_broker_refuses_or_never_tells() -> None:
    async with administered(2, admin={"default_api_timeout_ms": 50}) as (cluster, admin):
        with cluster.fail("ListGroups", broker=2, error="CLUSTER_AUTHORIZATION_FAILED"):
            sentence = "^broker '2': ListGroups failed with CLUSTER_AUTHORIZATION_FAILED$"
            with pytest.raises(BrokerError, match=sentence):
                await admin.list_groups()
        with cluster.fail("ListGroups", broker=2, error="COORDINATOR_NOT_AVAILABLE"):
            sentence = "^ListGroups: not done in 50 ms; last seen: broker '2': .*COORDINATOR_NOT_AVAILABLE$"
            with pytest.raises(WaitTimeout, match=sentence):
                await admin.list_groups()


@in_trio_with_sockets
async def test_a_cluster_that_is_gone_is_waited_for_as_long_as_a_call_may_take() -> None:
    async with administered(2, admin={"default_api_timeout_ms": 50}) as (cluster, admin):
        for node_id in (1, 2):
            cluster.stop_broker(node_id)
        with pytest.raises(WaitTimeout, match=r"^Metadata: not done in 50 ms; last seen: none of the brokers"):
            await admin.describe_cluster()
        (failed,) = (await admin.describe_groups(["g"])).errors.values()
        assert failed.error is ErrorCode.REQUEST_TIMED_OUT
        assert "last seen: FindCoordinator failed with NETWORK_EXCEPTION: none of the brokers" in str(failed)


@in_trio_with_sockets
async def test_a_cluster_that_comes_back_is_found_again() -> None:
    async with administered(1) as (cluster, admin):
        cluster.stop_broker(1)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                assert (await admin.describe_cluster()).controller_id == 1

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            cluster.start_broker(1)
