"""Three members share six partitions; one leaves, one is killed, the last takes over. Each record is read once."""

from pathlib import Path

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import Consumer, KafkaClient, Record, StartConsumer
from tests.support.kafka_clients.helpers import (
    committed_total,
    numbered,
    partitions_per_member,
    poll_records,
    poll_until,
    values,
    with_each_client,
)
from tests.support.kafka_clients.reader_process import Reader, reader_process

pytestmark = pytest.mark.slow

KILLED_SESSION_MS = 10_000
"""Shorter than the sessions of the other members, so that it expires alone when the brokers' clock is advanced."""


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual")
def test_partitions_of_lost_members_are_taken_over(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer, tmp_path: Path
) -> None:
    staying, leaving = (start_consumer(client, group_id="g", client_id=name) for name in ("staying", "leaving"))
    staying.subscribe("orders")
    leaving.subscribe("orders")
    read: list[Record] = []
    with reader_process(client, fake_cluster, "g", "orders", KILLED_SESSION_MS, tmp_path) as killed:
        wait_for_partitions(fake_cluster, [2, 2, 2], staying, leaving)
        produce(client, fake_cluster, range(400))
        read_and_commit(fake_cluster, 400, read, killed, staying, leaving)

        leaving.close()
        wait_for_partitions(fake_cluster, [3, 3], staying)
        produce(client, fake_cluster, range(400, 700))
        read_and_commit(fake_cluster, 700, read, killed, staying)

        killed.kill()
        staying.committed(("orders", 0))  # The last heartbeat of the killed member is handled before this request.
        fake_cluster.advance(KILLED_SESSION_MS / 1000 - 0.001)
        assert partitions_per_member(fake_cluster, "g") == [3, 3]
        fake_cluster.advance(0.001)
        wait_for_partitions(fake_cluster, [6], staying)
        produce(client, fake_cluster, range(700, 1000))
        read_and_commit(fake_cluster, 1000, read, killed, staying)
        assert sorted(values(read) + killed.values()) == values(numbered(range(1000)))

    assert_session_expired(fake_cluster, "reader")
    staying.close()
    assert_the_group_resumes(client, fake_cluster, start_consumer)


def produce(client: KafkaClient, cluster: FakeCluster, numbers: range) -> None:
    client.produce(cluster.bootstrap_servers, "orders", numbered(numbers), None)


def wait_for_partitions(cluster: FakeCluster, expected: list[int], *consumers: Consumer) -> None:
    records = poll_until(
        cluster,
        f"{expected} partitions per member",
        lambda _: partitions_per_member(cluster, "g") == expected,
        *consumers,
    )
    assert records == []


def read_and_commit(cluster: FakeCluster, total: int, read: list[Record], killed: Reader, *consumers: Consumer) -> None:
    """Read until all members together have read `total` records; add those of the consumers to `read`, and commit."""

    def is_all_read(records: list[Record]) -> bool:
        return len(read) + len(records) + len(killed.values()) >= total

    read += poll_until(cluster, f"{total} records", is_all_read, *consumers)
    for consumer in consumers:
        consumer.commit()
    read += poll_until(cluster, "all commits", lambda _: committed_total(cluster, "g") == total, *consumers)


def assert_session_expired(cluster: FakeCluster, client_id: str) -> None:
    """Check that a member has not left, and that its session has expired."""
    assert cluster.journal.requests("LeaveGroup", client_id) == []
    expired = [moment.cause for moment in cluster.group("g").timeline().moments if "session" in moment.cause]
    assert len(expired) == 1, expired


def assert_the_group_resumes(client: KafkaClient, cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    """Check that a new member of the empty group reads only records after the committed offsets."""
    assert cluster.group("g").describe().state == "Empty"
    produce(client, cluster, range(1000, 1001))
    newcomer = start_consumer(client, group_id="g", client_id="newcomer")
    newcomer.subscribe("orders")
    assert values(poll_records(cluster, 1, newcomer)) == [b"value 1000"]
