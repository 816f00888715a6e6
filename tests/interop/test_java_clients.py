"""What Kafka's Java clients have and others have not: all assignors, patterns of brokers, Kafka Streams."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fakebroker import FakeCluster, predicate
from fakebroker.server.fake_cluster import internals
from tests.interop.conftest import closed_together
from tests.support.kafka_clients.client import Record, Settings
from tests.support.kafka_clients.driver import DriverError, java_clients
from tests.support.kafka_clients.helpers import committed_total, numbered, partitions_per_member, poll_until, values
from tests.support.kafka_clients.java_client import (
    JavaConsumer,
    JavaTransformer,
    Kip848JavaConsumer,
    WordCount,
    produce,
)
from tests.support.soak import IS_SOAK, soak

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("java", "javac", "mvn"),
    pytest.mark.fake_cluster(
        topics={"a": 3, "b": 3}, clock="manual", config={"group.consumer.heartbeat.interval.ms": 100}
    ),
]

StartMember = Callable[..., JavaConsumer]

ASSIGNORS = {
    "range": ("RangeAssignor", [2, 4], [2, 2, 2]),
    "roundrobin": ("RoundRobinAssignor", [3, 3], [2, 2, 2]),
    "sticky": ("StickyAssignor", [3, 3], [2, 2, 2]),
    "cooperative-sticky": ("CooperativeStickyAssignor", [3, 3], [2, 2, 2]),
}
"""By the names in JoinGroup: the class, and the partitions per member of two and of three members."""


@pytest.fixture
def start_member(fake_cluster: FakeCluster) -> Iterator[StartMember]:
    """A function that starts a member of group "g" from a class, fields of `Settings`, and more configuration."""
    with closed_together() as members:

        def start(make: type[JavaConsumer], config: dict[str, Any] | None = None, **settings: Any) -> JavaConsumer:
            member = make(fake_cluster.bootstrap_servers, Settings(group_id="g", **settings), **(config or {}))
            members.append(member)
            return member

        yield start


def wait_for(cluster: FakeCluster, partitions: list[int], *members: JavaConsumer) -> list[Record]:
    """Poll until the members have these numbers of partitions, and know."""

    def is_shared(_: list[Record]) -> bool:
        known = sorted(len(member.assignment()) for member in members)
        return partitions_per_member(cluster, "g") == partitions == known

    return poll_until(cluster, f"{partitions} partitions per member", is_shared, *members)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_each_assignor(fake_cluster: FakeCluster, start_member: StartMember, assignor: str) -> None:
    name, two, three = ASSIGNORS[assignor]
    config = {"partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{name}"}
    members = [start_member(JavaConsumer, config) for _ in range(3)]
    for member in members[:2]:
        member.subscribe_pattern("^[ab]$")
    wait_for(fake_cluster, two, *members[:2])
    assert fake_cluster.group("g").describe().protocol_name == assignor
    before = {id(member): member.assignment() for member in members[:2]}

    members[2].subscribe_pattern("^[ab]$")
    wait_for(fake_cluster, three, *members)
    if "sticky" in assignor:
        assert all(set(member.assignment()) < set(before[id(member)]) for member in members[:2])
    for topic in "ab":
        produce(fake_cluster.bootstrap_servers, topic, numbered(range(30)))
    read = poll_until(fake_cluster, "60 records", lambda records: len(records) >= 60, *members)
    assert values(read) == values([*numbered(range(30)), *numbered(range(30))])
    for member in members:
        member.commit()
    assert committed_total(fake_cluster, "g") == 60

    members[2].close()
    wait_for(fake_cluster, two, *members[:2])


def test_a_second_instance_fences_the_first(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    first, second = (start_member(JavaConsumer, instance_id="one") for _ in range(2))
    first.subscribe("a")
    wait_for(fake_cluster, [3], first)
    produce(fake_cluster.bootstrap_servers, "a", numbered(range(3)))
    poll_until(fake_cluster, "3 records", lambda records: len(records) == 3, first)
    second.subscribe("a")
    poll_until(fake_cluster, "all partitions", lambda _: len(second.assignment()) == 3, second)
    # The second one, if a heartbeat was refused first.
    with pytest.raises(DriverError, match=r"FencedInstanceIdException|CommitFailedException"):
        first.commit()
    assert sum(fake_cluster.journal.count(api, error="FENCED_INSTANCE_ID") for api in ("Heartbeat", "OffsetCommit")) > 0
    assert fake_cluster.group("g").offsets() == {}


def test_a_second_instance_waits_with_the_consumer_protocol(
    fake_cluster: FakeCluster, start_member: StartMember
) -> None:
    first, second = (start_member(Kip848JavaConsumer, instance_id="one") for _ in range(2))
    first.subscribe("a")
    wait_for(fake_cluster, [3], first)
    second.subscribe("a")
    with pytest.raises(DriverError, match="UnreleasedInstanceIdException"):
        poll_until(fake_cluster, "an error", lambda _: False, second)
    assert len(first.assignment()) == 3


def test_brokers_evaluate_a_regular_expression(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    member = start_member(Kip848JavaConsumer)
    member.subscribe_pattern("orders-.*|b")
    wait_for(fake_cluster, [3], member)
    fake_cluster.topic("orders-eu").create(2)
    fake_cluster.advance(10.001)
    wait_for(fake_cluster, [5], member)
    produce(fake_cluster.bootstrap_servers, "orders-eu", numbered(range(10)))
    read = poll_until(fake_cluster, "10 records", lambda records: len(records) >= 10, member)
    assert values(read) == values(numbered(range(10)))


@pytest.mark.fake_cluster(topics={"lines": 2, "counts": 2})
def test_kafka_streams_counts_words_and_resumes(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    def counts() -> dict[bytes, int]:
        """Return the last count of each word."""
        return {each.key or b"": int(each.value or b"0") for each in fake_cluster.topic("counts").records()}

    def send(*lines: bytes) -> None:
        produce(fake_cluster.bootstrap_servers, "lines", [Record(line, line) for line in lines])

    def run_until(words: WordCount, expected: dict[bytes, int]) -> None:
        fake_cluster.wait(predicate(f"{expected}", lambda: counts() == expected), timeout_s=30)
        assert words.call("state") == "RUNNING"

    words = WordCount(fake_cluster.bootstrap_servers, str(tmp_path))
    send(b"to be or not", b"to be")
    run_until(words, {b"to": 2, b"be": 2, b"or": 1, b"not": 1})
    fake_cluster.broker(fake_cluster.group("words").coordinator().node_id).stop()
    send(b"or not")
    run_until(words, {b"to": 2, b"be": 2, b"or": 2, b"not": 2})
    assert words.call("close")
    assert fake_cluster.group("words").describe().state == "Empty"
    assert committed_total(fake_cluster, "words") >= 3
    assert {each.state for each in fake_cluster.transactions()} == {"CompleteCommit"}

    send(b"to be")
    again = WordCount(fake_cluster.bootstrap_servers, str(tmp_path))
    run_until(again, {b"to": 3, b"be": 3, b"or": 2, b"not": 2})
    assert again.call("close")


@pytest.mark.fake_cluster(
    topics={"a": 4, "b": 1},
    as_version=("4.2", "4.3", "4.4"),
    config={"group.consumer.heartbeat.interval.ms": 100, "group.consumer.assignment.interval.ms": 300},
    clock="real",
)
@soak
@pytest.mark.parametrize("release", ["4.2", "4.3", "4.4"] if IS_SOAK else ["4.4"])
def test_clients_and_brokers_of_several_releases(
    fake_cluster: FakeCluster, start_member: StartMember, release: str
) -> None:
    """Members of both protocols share partitions, one leaves, and a transaction commits offsets of a member."""
    servers = fake_cluster.bootstrap_servers
    with java_clients(release), ExitStack() as stack:
        one, two = start_member(Kip848JavaConsumer), start_member(Kip848JavaConsumer)
        one.subscribe("a")
        wait_for(fake_cluster, [4], one)
        two.subscribe("a")
        wait_for(fake_cluster, [2, 2], one, two)
        classic = start_member(JavaConsumer)
        classic.subscribe("a")
        wait_for(fake_cluster, [1, 1, 2], one, two, classic)
        produce(servers, "a", numbered(range(12)))
        read = poll_until(fake_cluster, "12 records", lambda records: len(records) >= 12, one, two, classic)
        assert values(read) == values(numbered(range(12)))
        for member in (one, two, classic):
            member.commit()
        assert committed_total(fake_cluster, "g") == 12
        two.close()
        wait_for(fake_cluster, [2, 2], one, classic)

        settings = Settings(group_id="h", isolation_level="read_committed")
        application = JavaTransformer(Kip848JavaConsumer, servers, settings, "b", "t")
        stack.callback(application.close)
        application.subscribe("a")
        copied: list[Record] = []
        while len(copied) < 12:
            copied += application.transform()
        written = sorted(each.value or b"" for each in fake_cluster.topic("b").records())
        assert written == sorted(each.value or b"" for each in copied)
        assert values(copied) == values(numbered(range(12)))
        assert committed_total(fake_cluster, "h") == 12
    versions = {each.api_version for each in fake_cluster.journal.requests("TxnOffsetCommit")}
    as_both = min(release, str(internals(fake_cluster).cluster.brokers[1].release))
    assert versions == {6 if as_both == "4.4" else 5}
