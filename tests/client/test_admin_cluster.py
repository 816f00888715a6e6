"""The admin client's calls about brokers and topics, and calls to all brokers."""

import pytest
import trio
import trio.testing

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import NewTopic, PartitionDescription
from fakebroker.client.errors import BrokerError, TopicError, UnsupportedVersion
from fakebroker.errors import ConfigError, ErrorCode, WaitTimeout
from fakebroker.server.fake_cluster import internals
from tests.support.client.admin_harness import answered, cluster_and_admin
from tests.support.trio_runner import in_trio_with_sockets

RELEASES = ("0.10.2", "1.0", "2.3", "2.8", "3.0", "4.2", None)


@in_trio_with_sockets
async def test_the_cluster_is_described(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            async with cluster_and_admin(2, as_version=release) as (cluster, admin):
                described = await admin.describe_cluster()
                assert [(node.node_id, node.host, node.port) for node in described.nodes] == [
                    (broker.node_id, broker.host, broker.port) for broker in cluster.brokers
                ]
                assert described.controller_id == 1
                assert described.cluster_id == internals(cluster).cluster.cluster_id


@in_trio_with_sockets
async def test_a_topic_name_is_not_a_new_topic() -> None:
    async with cluster_and_admin(1) as (_, admin):
        with pytest.raises(
            ConfigError, match=r"^topics\[0\]='news': expected a NewTopic, such as NewTopic\('orders', 3\)$"
        ):
            await admin.create_topics(["news"])  # type: ignore[list-item]  # wrong on purpose


@in_trio_with_sockets
async def test_groups_are_listed_despite_a_lost_connection() -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        cluster.group("g").seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        for api in ("Metadata", "ListGroups"):
            fault = cluster.inject_fault(api, drop=True, times=1)
            assert [group.group_id for group in await admin.list_groups()] == ["g"]
            assert fault.hits == 1


@in_trio_with_sockets
async def test_topics_are_created_and_listed(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            async with cluster_and_admin(2, as_version=release) as (cluster, admin):
                await check_creation_of_topics(cluster, admin)


async def check_creation_of_topics(cluster: FakeCluster, admin: Admin) -> None:
    topics = [NewTopic("news", 2, 2, {"retention.ms": "5000"}), NewTopic("orders", 1, 1), NewTopic("many", 1, 9)]
    created = await admin.create_topics(topics)
    assert list(created) == ["news", "orders", "many"]
    assert {name: error.error for name, error in created.errors.items()} == {
        "orders": ErrorCode.TOPIC_ALREADY_EXISTS,
        "many": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    failed = created["orders"]
    assert isinstance(failed, TopicError)
    assert failed.topic == "orders"
    listed = await admin.list_topics()
    assert list(listed) == ["orders", "news"]
    assert [partition.partition for partition in listed["news"].partitions] == [0, 1]
    assert all(len(partition.replicas) == 2 for partition in listed["news"].partitions)
    await admin.find_coordinators(["g"])  # the first look-up creates __consumer_offsets
    assert "__consumer_offsets" not in await admin.list_topics()
    assert "__consumer_offsets" in await admin.list_topics(internal=True)
    assert internals(cluster).cluster.topics.get("news") is not None


@in_trio_with_sockets
async def test_topics_are_listed_with_id_and_leaders() -> None:
    async with cluster_and_admin(1, topics={"one": 1}) as (_, admin):
        (topic,) = (await admin.list_topics()).values()
        assert topic.topic_id is not None
        assert len(topic.topic_id) == 16
        assert topic.partitions == (PartitionDescription(partition=0, leader=1, replicas=(1,), isr=(1,)),)


@in_trio_with_sockets
async def test_brokers_choose_partition_counts_and_replication_if_they_support_it() -> None:
    async with cluster_and_admin(1) as (_, admin):
        assert (await admin.create_topics([NewTopic("seen")], validate_only=True)).all() == {"seen": None}
        assert list(await admin.list_topics()) == ["orders"]
        (await admin.create_topics([NewTopic("made")])).all()
        assert len((await admin.list_topics())["made"].partitions) == 1
    async with cluster_and_admin(1, as_version="2.3") as (_, admin):
        with pytest.raises(UnsupportedVersion, match=r"^CreateTopics: broker .* supports 0-3, this client 4-7$"):
            await admin.create_topics([NewTopic("made")])


@in_trio_with_sockets
async def test_duplicate_topics_are_rejected() -> None:
    async with cluster_and_admin(1) as (_, admin):
        with pytest.raises(ConfigError, match=r"^topics\[1\]\.name='a': expected each topic once$"):
            await admin.create_topics([NewTopic("a", 1, 1), NewTopic("a", 2, 1)])


@in_trio_with_sockets
async def test_the_controller_is_looked_up_again() -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        cluster.inject_fault("CreateTopics", error="NOT_CONTROLLER", times=2)
        assert (await admin.create_topics([NewTopic("news", 1, 1)])).all() == {"news": None}
        assert (cluster.journal.count("CreateTopics"), cluster.journal.count("Metadata")) == (3, 3)


@in_trio_with_sockets
async def test_the_error_of_a_timeout_contains_the_last_error() -> None:
    async with cluster_and_admin(1, admin={"default_api_timeout_ms": 50}) as (cluster, admin):
        cluster.inject_fault("CreateTopics", error="NOT_CONTROLLER")
        (failed,) = (await answered(lambda: admin.create_topics([NewTopic("news", 1, 1)]))).errors.values()
        assert failed.error is ErrorCode.REQUEST_TIMED_OUT
        assert str(failed).endswith(
            "CreateTopics: timed out after 50 ms; last error: the controller has not created topics news"
        )


@in_trio_with_sockets
async def test_list_groups_is_repeated_at_brokers_that_are_loading() -> None:
    async with cluster_and_admin(2) as (cluster, admin):
        cluster.group("g").seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
        cluster.inject_fault("ListGroups", broker=2, error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        assert [group.group_id for group in await admin.list_groups()] == ["g"]
        assert (cluster.journal.count("ListGroups", broker=1), cluster.journal.count("ListGroups", broker=2)) == (1, 3)


@in_trio_with_sockets
async def test_list_groups_raises_the_error_of_a_broker() -> None:
    async with cluster_and_admin(2, admin={"default_api_timeout_ms": 50}) as (cluster, admin):
        with cluster.inject_fault("ListGroups", broker=2, error="CLUSTER_AUTHORIZATION_FAILED"):
            message = "^broker '2': ListGroups failed with CLUSTER_AUTHORIZATION_FAILED$"
            with pytest.raises(BrokerError, match=message):
                await answered(admin.list_groups)
        with cluster.inject_fault("ListGroups", broker=2, error="COORDINATOR_NOT_AVAILABLE"):
            message = "^ListGroups: timed out after 50 ms; last error: broker '2': .*COORDINATOR_NOT_AVAILABLE$"
            with pytest.raises(WaitTimeout, match=message):
                await answered(admin.list_groups)


@in_trio_with_sockets
async def test_an_unreachable_cluster_is_retried_until_the_timeout() -> None:
    async with cluster_and_admin(2, admin={"default_api_timeout_ms": 50}) as (cluster, admin):
        for node_id in (1, 2):
            cluster.broker(node_id).stop()
        closed = "the broker has closed the connection"
        with pytest.raises(WaitTimeout, match=r"^Metadata: timed out after 50 ms; last error: brokers"):
            await answered(admin.describe_cluster, closed)
        (failed,) = (await answered(lambda: admin.describe_groups(["g"]), closed)).errors.values()
        assert failed.error is ErrorCode.REQUEST_TIMED_OUT
        assert "last error: FindCoordinator failed with NETWORK_EXCEPTION: brokers" in str(failed)


@in_trio_with_sockets
async def test_a_call_continues_when_the_cluster_returns() -> None:
    async with cluster_and_admin(1) as (cluster, admin):
        cluster.broker(1).stop()
        async with trio.open_nursery() as nursery:

            async def describe_cluster() -> None:
                assert (await admin.describe_cluster()).controller_id == 1

            nursery.start_soon(describe_cluster)
            await trio.testing.wait_all_tasks_blocked()
            cluster.broker(1).start()
