"""@platformatic/kafka in Node.js with the consumer protocol (KIP-848): members share, leave and crash."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import Record
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import (
    committed_total,
    numbered,
    partitions_per_member,
    poll_records,
    poll_until,
    values,
)
from tests.support.kafka_clients.platformatic_member import PlatformaticMember

SESSION_S = 45

StartMember = Callable[[], PlatformaticMember]


@pytest.fixture
def start_member(fake_cluster: FakeCluster) -> Iterator[StartMember]:
    """A function that starts a member, whose process ends after the test."""
    with ExitStack() as stack:

        def start() -> PlatformaticMember:
            member = PlatformaticMember(fake_cluster.bootstrap_servers, "g", "orders")
            stack.callback(member.crash)
            return member

        yield start


def wait_for(cluster: FakeCluster, partitions: list[int], *members: PlatformaticMember) -> list[Record]:
    """Poll until the members have these numbers of partitions."""
    return poll_until(cluster, f"{partitions}", lambda _: partitions_per_member(cluster, "g") == partitions, *members)


@pytest.mark.slow
@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual", config={"group.consumer.heartbeat.interval.ms": 100})
def test_members_share_leave_and_crash(fake_cluster: FakeCluster, start_member: StartMember) -> None:
    def produce(numbers: range) -> None:
        CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(numbers), None)

    produce(range(60))
    first = start_member()
    read = poll_records(fake_cluster, 60, first)
    poll_until(fake_cluster, "commits", lambda _: committed_total(fake_cluster, "g") == 60, first)

    assert values(read) == values(numbered(range(60)))

    second = start_member()
    assert wait_for(fake_cluster, [3, 3], first, second) == []
    produce(range(60, 120))
    # A Fetch of the first member that still waits may return records of partitions that it has given up.
    expected = {record.value for record in numbered(range(60, 120))}
    poll_until(fake_cluster, "60 records", lambda found: {each.value for each in found} == expected, first, second)
    poll_until(fake_cluster, "commits", lambda _: committed_total(fake_cluster, "g") == 120, first, second)

    assert {each.value for each in first.leave()} <= expected
    wait_for(fake_cluster, [6], second)
    produce(range(120, 126))
    assert values(poll_records(fake_cluster, 6, second)) == values(numbered(range(120, 126)))
    poll_until(fake_cluster, "commits", lambda _: committed_total(fake_cluster, "g") == 126, second)

    second.crash()
    assert fake_cluster.group("g").describe().state == "Stable"
    fake_cluster.advance(SESSION_S)
    assert fake_cluster.group("g").describe().state == "Empty"
