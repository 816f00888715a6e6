"""Real clients with emulated releases of Kafka: as old as each client supports, mixed, and during upgrades."""

from typing import Any

import pytest
from aiokafka.errors import CorruptRecordException
from kafka import OffsetAndMetadata, TopicPartition

from fakebroker import Broker, FakeCluster
from fakebroker.protocol.releases import RELEASES as TABLE, release as named
from tests.support.kafka_clients.aiokafka_client import AIO
from tests.support.kafka_clients.client import KafkaClient, Record, StartAdmin, StartConsumer
from tests.support.kafka_clients.helpers import (
    CLIENTS,
    committed_total,
    numbered,
    partitions_per_member,
    poll_records,
    poll_until,
    values,
    with_each_client,
)
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON, PythonAdmin

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 6})]

RELEASES = ("0.10.2", "1.1", "2.2", "2.8", "3.0", "3.9", "4.0", "4.2")


def produce_read_and_rebalance(client: KafkaClient, cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    """Produce, read in a group, commit; a second member joins, and both continue at the committed offsets."""
    client.produce(cluster.bootstrap_servers, "orders", numbered(range(60)), None)
    first = start_consumer(client, group_id="g", client_id="first")
    first.subscribe("orders")
    read = poll_records(cluster, 60, first)
    assert values(read) == values(numbered(range(60)))
    first.commit()
    assert committed_total(cluster, "g") == 60

    second = start_consumer(client, group_id="g", client_id="second")
    second.subscribe("orders")
    poll_until(cluster, "three each", lambda _: partitions_per_member(cluster, "g") == [3, 3], first, second)
    client.produce(cluster.bootstrap_servers, "orders", numbered(range(60, 120)), None)
    expected = set(values(numbered(range(60, 120))))
    poll_until(cluster, "60 more", lambda records: set(values(records)) == expected, first, second)
    for consumer in (first, second):
        consumer.commit()
    assert committed_total(cluster, "g") == 120


# aiokafka 0.14 always produces record batches, which brokers before 0.11 reject as corrupt messages.
TOO_OLD = (("0.10.2", AIO),)


def of_release(release: str, *more: Any) -> Any:
    return pytest.param(release, *more, marks=pytest.mark.fake_cluster(topics={"orders": 6}, as_version=release))


@pytest.mark.parametrize(
    ("release", "client"),
    [of_release(each, client) for each in RELEASES for client in CLIENTS if (each, client) not in TOO_OLD],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_group_with_each_release(
    release: str, client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    produce_read_and_rebalance(client, fake_cluster, start_consumer)
    joins = {call.api_version for call in fake_cluster.journal.requests("JoinGroup")}
    assert joins <= set(TABLE[named(release)]["JoinGroup"])


@pytest.mark.fake_cluster(topics={"orders": 6}, as_version="0.10.2")
def test_record_batches_are_corrupt_messages_before_0_11(fake_cluster: FakeCluster) -> None:
    with pytest.raises(CorruptRecordException):
        AIO.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(1)), None)


@with_each_client
@pytest.mark.fake_cluster(
    topics={"orders": 6},
    brokers=[Broker(as_version="2.2"), Broker(as_version="2.8"), Broker(as_version="3.9"), Broker()],
)
def test_a_group_with_mixed_releases(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    produce_read_and_rebalance(client, fake_cluster, start_consumer)


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 6}, as_version="2.8")
def test_a_rolling_upgrade_causes_no_rebalance(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumer = start_consumer(client, group_id="g")
    consumer.subscribe("orders")

    def exchange(number: int) -> None:
        records = numbered(range(60 * number, 60 * number + 60))
        client.produce(fake_cluster.bootstrap_servers, "orders", records, None)
        assert values(poll_records(fake_cluster, 60, consumer)) == values(records)
        consumer.commit()
        assert committed_total(fake_cluster, "g") == 60 * (number + 1)

    # librdkafka 2.16 selects the version of a request when it is queued. If the request then goes to another
    # coordinator, an older one, librdkafka refuses it as unsupported; an OffsetFetch even ends the process (SIGSEGV in
    # `rd_kafka_assignment_handle_OffsetFetch`). So none is queued while the coordinator moves.
    exchange(0)
    for number, broker in enumerate(fake_cluster.brokers, 1):
        fake_cluster.broker(broker.node_id).upgrade("3.9")
        beats, home = len(fake_cluster.journal.requests("Heartbeat")), fake_cluster.group("g").coordinator().node_id

        def knows_coordinator(_: list[Record], beats: int = beats, home: int = home) -> bool:
            later = fake_cluster.journal.requests("Heartbeat")[beats:]
            return any(call.node_id == home and call.response and not call.response.error_code for call in later)

        poll_until(fake_cluster, "a heartbeat to the coordinator", knows_coordinator, consumer)
        exchange(number)
    assert fake_cluster.group("g").describe().generation_id == 1, "moves of the coordinator cause no rebalance"


GROUPS = ("a", "b", "c")


@pytest.mark.parametrize("release", [of_release("2.8"), of_release("3.0")])
def test_an_admin_client_requests_many_groups_at_once_since_3_0(
    release: str, fake_cluster: FakeCluster, start_admin: StartAdmin
) -> None:
    admin = start_admin(KAFKA_PYTHON)
    assert isinstance(admin, PythonAdmin)
    place = TopicPartition("orders", 0)
    for number, group in enumerate(GROUPS, 1):
        admin.inner.alter_group_offsets(group, {place: OffsetAndMetadata(number, "", -1)})
    admin.close()

    reader = start_admin(KAFKA_PYTHON)
    assert isinstance(reader, PythonAdmin)
    before = len(fake_cluster.journal.requests())
    found: dict[str, Any] = {}
    for batch in [GROUPS] if release == "3.0" else [[group] for group in GROUPS]:
        found |= reader.inner.list_group_offsets(list(batch))
    assert {group: offsets[place].offset for group, offsets in found.items()} == {"a": 1, "b": 2, "c": 3}

    since = fake_cluster.journal.requests()[before:]
    lookups = [call.request for call in since if call.api.name == "FindCoordinator"]
    fetches = [call.request for call in since if call.api.name == "OffsetFetch"]
    if release == "3.0":
        homes = {fake_cluster.group(group).coordinator().node_id for group in GROUPS}
        assert [request.coordinator_keys for request in lookups] == [list(GROUPS)]
        assert sorted(group.group_id for request in fetches for group in request.groups) == list(GROUPS)
        assert len(fetches) == len(homes)
    else:
        assert [request.key for request in lookups] == list(GROUPS)
        assert [request.group_id for request in fetches] == list(GROUPS)
