"""Topics that grow, come and go under a group of three real consumers, one of each client."""

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.aiokafka_client import AIO
from tests.support.kafka_clients.client import Client, Consumer, Record, StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import CLIENTS, committed_total, poll_until, shares, values

pytestmark = pytest.mark.slow

METADATA_MAX_AGE_MS = 200

# Not kafka-python, which is the third in each group: if a join of its own is answered after the poll that asked for it,
# it may lead without knowing, and looks for no changes.
with_each_leader = pytest.mark.parametrize("leader", [CONFLUENT, AIO], ids=lambda client: client.name)


def start_three(leader: Client, start_consumer: StartConsumer) -> list[Consumer]:
    """One consumer of each client, that of the leader first."""
    clients = (leader, *(client for client in CLIENTS if client is not leader))
    return [start_consumer(client, group_id="g", metadata_max_age_ms=METADATA_MAX_AGE_MS) for client in clients]


def wait_for_shares(cluster: FakeCluster, expected: list[int], *consumers: Consumer) -> None:
    """Until the group's shares are as expected, and the consumers have learned theirs."""

    def have_shares(_: list[Record]) -> bool:
        return shares(cluster, "g") == expected == sorted(len(consumer.assignment()) for consumer in consumers)

    poll_until(cluster, f"shares of {expected}", have_shares, *consumers)


def join(cluster: FakeCluster, pattern: str, expected: list[int], consumers: list[Consumer]) -> None:
    """Let the first consumer join alone, so that it leads, then the others."""
    leader, *others = consumers
    leader.subscribe_pattern(pattern)
    wait_for_shares(cluster, [sum(expected)], leader)
    for other in others:
        other.subscribe_pattern(pattern)
    wait_for_shares(cluster, expected, *consumers)


def produce_one_each(cluster: FakeCluster, topic: str, partitions: range) -> set[bytes]:
    """A record for each of these partitions of a topic; returns their values."""
    records = [Record(value=f"{topic} {number}".encode(), partition=number) for number in partitions]
    CONFLUENT.produce(cluster.bootstrap_servers, topic, records, None)
    return set(values(records))


def read(cluster: FakeCluster, expected: set[bytes], consumers: list[Consumer]) -> None:
    """Until all of these have been read; some perhaps again, where a client asks for one more rebalance."""
    poll_until(cluster, f"{len(expected)} records", lambda records: set(values(records)) == expected, *consumers)


@with_each_leader
@pytest.mark.fake_cluster(topics={"orders": 3})
def test_new_partitions(leader: Client, fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    consumers = start_three(leader, start_consumer)
    join(fake_cluster, "^orders$", [1, 1, 1], consumers)
    before = fake_cluster.group("g")
    fake_cluster.create_partitions("orders", 6)
    wait_for_shares(fake_cluster, [2, 2, 2], *consumers)
    read(fake_cluster, produce_one_each(fake_cluster, "orders", range(6)), consumers)
    after = fake_cluster.group("g")
    assert after.generation_id > before.generation_id
    assert {member.member_id for member in after.members} == {member.member_id for member in before.members}


@with_each_leader
@pytest.mark.fake_cluster(topics={"orders": 3})
def test_a_new_topic_matches_a_pattern(
    leader: Client, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumers = start_three(leader, start_consumer)
    join(fake_cluster, "^orders.*", [1, 1, 1], consumers)
    before = fake_cluster.group("g")
    fake_cluster.create_topic("payments", 3)
    fake_cluster.create_topic("orders-late", 3)
    wait_for_shares(fake_cluster, [2, 2, 2], *consumers)
    read(fake_cluster, produce_one_each(fake_cluster, "orders-late", range(3)), consumers)
    assert {topic for consumer in consumers for topic, _ in consumer.assignment()} == {"orders", "orders-late"}
    assert fake_cluster.group("g").generation_id > before.generation_id


@with_each_leader
@pytest.mark.fake_cluster(topics={"orders": 3, "returns": 3})
def test_a_deleted_topic_takes_its_offsets_along(
    leader: Client, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    consumers = start_three(leader, start_consumer)
    join(fake_cluster, "^(orders|returns)$", [2, 2, 2], consumers)
    for topic in ("orders", "returns"):
        read(fake_cluster, produce_one_each(fake_cluster, topic, range(3)), consumers)
    for consumer in consumers:
        consumer.commit()
    assert committed_total(fake_cluster, "g") == 6
    kept = {place: offset for place, offset in fake_cluster.offsets("g").items() if place[0] == "orders"}

    fake_cluster.delete_topic("returns")
    assert fake_cluster.offsets("g") == kept
    wait_for_shares(fake_cluster, [1, 1, 1], *consumers)
    # Loaded again, where it is: the log too has them no more.
    fake_cluster.move_coordinator("g", to=fake_cluster.coordinator_of("g").node_id)
    assert fake_cluster.offsets("g") == kept
