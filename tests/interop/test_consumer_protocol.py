"""confluent-kafka with `group.protocol=consumer` (KIP-848): members share, leave, crash, fail over and resume."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from fakebroker import FakeCluster
from fakebroker.errors import ErrorCode
from tests.interop.conftest import closed_together
from tests.support.kafka_clients.client import FETCH_WAIT_MS, Record
from tests.support.kafka_clients.confluent_client import CONFLUENT, ConfluentConsumer
from tests.support.kafka_clients.helpers import (
    committed_total,
    numbered,
    partitions_per_member,
    poll_records,
    poll_until,
    values,
)

SESSION_S = 45
MANY = 40
ONE_EACH = [Record(value=b"%d" % partition, partition=partition) for partition in range(6)]
"""A record for each partition of "orders"."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.fake_cluster(
        topics={"orders": 6}, clock="manual", config={"group.consumer.heartbeat.interval.ms": 100}
    ),
]

CRASHING = """
import sys
from confluent_kafka import Consumer

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "group.protocol": "consumer"})
consumer.subscribe(["orders"])
while True:
    consumer.poll(0.05)
"""
"""A consumer in another process, which the test kills."""


class Kip848Consumer(ConfluentConsumer):
    """A consumer of group "g" that uses the consumer protocol. Its timeouts are those of the brokers."""

    def __init__(self, servers: str, **more: str) -> None:
        self.inner = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                **more,
            }
        )


StartMember = Callable[..., Kip848Consumer]


@pytest.fixture
def start_member(fake_cluster: FakeCluster) -> Iterator[StartMember]:
    """A function that starts a member; closed after the test."""
    with closed_together() as consumers:

        def start(**more: str) -> Kip848Consumer:
            consumer = Kip848Consumer(fake_cluster.bootstrap_servers, **more)
            consumers.append(consumer)
            consumer.subscribe("orders")
            return consumer

        yield start


def wait_for(cluster: FakeCluster, partitions: list[int], *members: Kip848Consumer) -> list[Record]:
    """Poll until the members have these numbers of partitions, and know."""

    def is_shared(_: list[Record]) -> bool:
        known = sorted(len(member.assignment()) for member in members)
        return partitions_per_member(cluster, "g") == partitions and set(known) <= set(partitions)

    return poll_until(cluster, f"{partitions} partitions per member", is_shared, *members)


def test_members_share_and_leave_and_offsets_resume(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(60)), None)
    first = start_member()
    read = poll_records(fake_cluster, 60, first)
    assert values(read) == values(numbered(range(60)))
    first.commit()
    assert committed_total(fake_cluster, "g") == 60
    assert fake_cluster.wait(fake_cluster.group("g").stable(members=1)).generation_id == 2
    ((topic, partition), committed), *_ = fake_cluster.group("g").offsets().items()
    assert (
        fake_cluster.wait(fake_cluster.group("g").committed(f"{topic}-{partition}", at_least=committed.offset))
        == committed
    )

    second = start_member()
    wait_for(fake_cluster, [3, 3], first, second)
    first.close()
    wait_for(fake_cluster, [6], second)
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(60, 66)), None)
    assert values(poll_records(fake_cluster, 6, second)) == values(numbered(range(60, 66)))


def test_a_crashed_member_is_removed_after_its_session(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    steady = start_member()
    wait_for(fake_cluster, [6], steady)
    with subprocess.Popen([sys.executable, "-c", CRASHING, fake_cluster.bootstrap_servers]) as process:
        try:
            wait_for(fake_cluster, [3, 3], steady)
        finally:
            process.kill()
    fake_cluster.advance(SESSION_S - 1)

    def is_alive(_: list[Record]) -> bool:
        sessions = [each.in_s for each in fake_cluster.deadlines() if each.kind == "session"]
        return sorted(sessions) == [1, SESSION_S]

    poll_until(fake_cluster, "a heartbeat", is_alive, steady)
    (expired,) = fake_cluster.advance_to_next_deadline() or []
    assert (expired.kind, len(expired.removes)) == ("session", 1)
    wait_for(fake_cluster, [6], steady)


def test_the_group_survives_its_coordinator(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    members = start_member(), start_member()
    wait_for(fake_cluster, [3, 3], *members)
    before = fake_cluster.group("g").describe()
    fake_cluster.broker(fake_cluster.group("g").coordinator().node_id).stop()
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(12)), None)
    poll_records(fake_cluster, 12, *members)
    for member in members:
        member.commit()
    assert committed_total(fake_cluster, "g") == 12
    after = fake_cluster.group("g").describe()
    assert (after.members, after.generation_id) == (before.members, before.generation_id)


def test_a_static_member_returns_to_its_partitions(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    other, static = start_member(), start_member(**{"group.instance.id": "i"})
    wait_for(fake_cluster, [3, 3], other, static)
    epoch, mine = fake_cluster.group("g").describe().generation_id, static.assignment()
    static.close()
    again = start_member(**{"group.instance.id": "i"})
    poll_until(fake_cluster, "its partitions", lambda _: again.assignment() == mine, other, again)
    assert fake_cluster.group("g").describe().generation_id == epoch


def test_a_slow_member_stops_only_the_partitions_that_it_gives_up(
    fake_cluster: FakeCluster, start_member: StartMember
) -> None:
    first, slow = start_member(), start_member()
    wait_for(fake_cluster, [3, 3], first, slow)
    third = start_member()

    def has_moved(_: list[Record]) -> bool:
        return (len(first.assignment()), len(third.assignment())) == (2, 1)

    poll_until(fake_cluster, "the partition that the first member gives up", has_moved, first, third)
    mine = [place[1] for place in first.assignment() + third.assignment()]
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", ONE_EACH, None)
    read = poll_records(fake_cluster, 3, first, third)
    assert sorted(record.partition or 0 for record in read) == sorted(mine)
    assert fake_cluster.group("g").describe().state == "Reconciling", "the slow member has not noticed yet"

    read += poll_until(fake_cluster, "the rest", lambda rest: len(rest) >= 3, first, slow, third)
    assert values(read) == values(ONE_EACH)
    wait_for(fake_cluster, [2, 2, 2], first, slow, third)


def test_a_topic_that_is_created_by_a_producer_is_picked_up(fake_cluster: FakeCluster) -> None:
    member = Kip848Consumer(fake_cluster.bootstrap_servers)
    try:
        member.subscribe("created-later")
        poll_until(fake_cluster, "a member", lambda _: partitions_per_member(fake_cluster, "g") == [0], member)
        CONFLUENT.produce(fake_cluster.bootstrap_servers, "created-later", numbered(range(5)), None)
        assert values(poll_records(fake_cluster, 5, member)) == values(numbered(range(5)))
    finally:
        member.close()


class PolledTogether:
    """Many members, each of which is polled without waiting."""

    def __init__(self, members: Sequence[Kip848Consumer]) -> None:
        self.members = members

    def poll(self) -> list[Record]:
        assert [message for member in self.members if (message := member.inner.poll(0)) is not None] == []
        return []


@pytest.mark.fake_cluster(
    1, topics={"orders": MANY}, clock="manual", config={"group.consumer.heartbeat.interval.ms": 300}
)
def test_many_members_have_one_partition_each(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    members = [start_member() for _ in range(MANY)]

    def has(partitions: list[int]) -> Callable[[list[Record]], bool]:
        return lambda _: partitions_per_member(fake_cluster, "g") == partitions

    poll_until(fake_cluster, "a partition for each member", has([1] * MANY), PolledTogether(members))
    members[0].close()
    poll_until(fake_cluster, "another owner", has([1] * (MANY - 2) + [2]), PolledTogether(members[1:]))


def test_an_admin_client_describes_and_deletes_the_group(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    member = start_member()
    wait_for(fake_cluster, [6], member)
    admin = AdminClient({"bootstrap.servers": fake_cluster.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert (described.state.name, described.type.name, described.partition_assignor) == (
        "STABLE",
        "CONSUMER",
        "uniform",
    )
    assert len(described.members[0].assignment.topic_partitions) == 6
    member.close()
    admin.delete_consumer_groups(["g"])["g"].result()
    assert fake_cluster.group("g").describe().state == "Dead"


def test_a_regular_expression_picks_up_topics_that_are_created_later(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("payments").create(1)
    consumer = Kip848Consumer(fake_cluster.bootstrap_servers)

    def has_topics(*topics: str) -> Callable[[list[Record]], bool]:
        return lambda _: {each.topic for each in consumer.inner.assignment()} == set(topics)

    try:
        consumer.subscribe_pattern("^orders.*")
        poll_until(fake_cluster, "orders", has_topics("orders"), consumer)
        fake_cluster.topic("orders-eu").create(1)
        fake_cluster.advance(10.001)
        poll_until(fake_cluster, "the new topic", has_topics("orders", "orders-eu"), consumer)
        CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders-eu", numbered(range(3)), None)
        assert values(poll_records(fake_cluster, 3, consumer)) == values(numbered(range(3)))
    finally:
        consumer.close()
    assert fake_cluster.group("g").describe().state == "Empty"


def test_a_fenced_client_loses_its_partitions_and_rejoins(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    member = start_member()
    wait_for(fake_cluster, [6], member)
    (member_id,) = (each.member_id for each in fake_cluster.group("g").describe().members)
    fake_cluster.group("g").fence_epoch(member_id)

    def has_rejoined(_: list[Record]) -> bool:
        errors = [
            call.response.error_code
            for call in fake_cluster.journal.requests("ConsumerGroupHeartbeat")
            if call.response
        ]
        return ErrorCode.FENCED_MEMBER_EPOCH in errors and partitions_per_member(fake_cluster, "g") == [6]

    poll_until(fake_cluster, "the client was fenced and has rejoined", has_rejoined, member)
    wait_for(fake_cluster, [6], member)
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(6)), None)
    assert values(poll_records(fake_cluster, 6, member)) == values(numbered(range(6)))
