"""Topics that get partitions, are created and deleted while three consumers, one of each client, read them."""

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.aiokafka_client import AIO
from tests.support.kafka_clients.client import Consumer, KafkaClient, Record, StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import CLIENTS, committed_total, partitions_per_member, poll_until, values

pytestmark = pytest.mark.slow

METADATA_MAX_AGE_MS = 200

# kafka-python is the third member of each group, but not the leader: if its JoinGroup is answered after the poll that
# sent it, it does not know that it leads, and does not detect changes.
with_each_leader = pytest.mark.parametrize("leader", [CONFLUENT, AIO], ids=lambda client: client.name)


def start_three(leader: KafkaClient, start_consumer: StartConsumer) -> list[Consumer]:
    """Start one consumer of each client, that of the leader first."""
    clients = (leader, *(client for client in CLIENTS if client is not leader))
    return [start_consumer(client, group_id="g", metadata_max_age_ms=METADATA_MAX_AGE_MS) for client in clients]


def wait_for_partitions(cluster: FakeCluster, expected: list[int], *consumers: Consumer) -> None:
    """Wait until each member has the expected number of partitions, and the consumers know."""

    def are_assigned(_: list[Record]) -> bool:
        return (
            partitions_per_member(cluster, "g")
            == expected
            == sorted(len(consumer.assignment()) for consumer in consumers)
        )

    poll_until(cluster, f"{expected} partitions per member", are_assigned, *consumers)


def join(cluster: FakeCluster, pattern: str, expected: list[int], consumers: list[Consumer]) -> None:
    """Let the first consumer join alone, so that it becomes the leader, then the others."""
    leader, *others = consumers
    leader.subscribe_pattern(pattern)
    wait_for_partitions(cluster, [sum(expected)], leader)
    for other in others:
        other.subscribe_pattern(pattern)
    wait_for_partitions(cluster, expected, *consumers)


def produce_one_each(cluster: FakeCluster, topic: str, partitions: range) -> set[bytes]:
    """Produce one record to each of these partitions, and return their values."""
    records = [Record(value=f"{topic} {number}".encode(), partition=number) for number in partitions]
    CONFLUENT.produce(cluster.bootstrap_servers, topic, records, None)
    return set(values(records))


def read(cluster: FakeCluster, expected: set[bytes], consumers: list[Consumer]) -> None:
    """Wait until all values have been read. Some may be read twice, if a client causes another rebalance."""
    poll_until(cluster, f"{len(expected)} records", lambda records: set(values(records)) == expected, *consumers)


@with_each_leader
@pytest.mark.fake_cluster(topics={"orders": 3})
def test_new_partitions_are_assigned(
    leader: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumers = start_three(leader, start_consumer)
    join(fake_cluster, "^orders$", [1, 1, 1], consumers)
    before = fake_cluster.group("g").describe()
    fake_cluster.topic("orders").create_partitions(6)
    wait_for_partitions(fake_cluster, [2, 2, 2], *consumers)
    read(fake_cluster, produce_one_each(fake_cluster, "orders", range(6)), consumers)
    after = fake_cluster.group("g").describe()
    assert after.generation_id > before.generation_id
    assert {member.member_id for member in after.members} == {member.member_id for member in before.members}


@with_each_leader
@pytest.mark.fake_cluster(topics={"orders": 3})
def test_a_new_topic_that_matches_a_pattern_is_assigned(
    leader: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumers = start_three(leader, start_consumer)
    join(fake_cluster, "^orders.*", [1, 1, 1], consumers)
    before = fake_cluster.group("g").describe()
    fake_cluster.topic("payments").create(3)
    fake_cluster.topic("orders-late").create(3)
    wait_for_partitions(fake_cluster, [2, 2, 2], *consumers)
    read(fake_cluster, produce_one_each(fake_cluster, "orders-late", range(3)), consumers)
    assert {topic for consumer in consumers for topic, _ in consumer.assignment()} == {"orders", "orders-late"}
    assert fake_cluster.group("g").describe().generation_id > before.generation_id


@with_each_leader
@pytest.mark.fake_cluster(topics={"orders": 3, "returns": 3})
def test_offsets_of_a_deleted_topic_are_deleted(
    leader: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumers = start_three(leader, start_consumer)
    join(fake_cluster, "^(orders|returns)$", [2, 2, 2], consumers)
    for topic in ("orders", "returns"):
        read(fake_cluster, produce_one_each(fake_cluster, topic, range(3)), consumers)
    for consumer in consumers:
        consumer.commit()
    assert committed_total(fake_cluster, "g") == 6
    kept = {place: offset for place, offset in fake_cluster.group("g").offsets().items() if place[0] == "orders"}

    fake_cluster.topic("returns").delete()
    assert fake_cluster.group("g").offsets() == kept
    wait_for_partitions(fake_cluster, [1, 1, 1], *consumers)
    # Load the group again: the offsets have been removed from the log, too.
    fake_cluster.group("g").move_coordinator(to=fake_cluster.group("g").coordinator().node_id)
    assert fake_cluster.group("g").offsets() == kept
