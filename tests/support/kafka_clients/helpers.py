"""Helpers of the interoperability tests: the clients, polling until a condition holds, views of the cluster."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.aiokafka_client import AIO
from tests.support.kafka_clients.client import Poller, Record
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON

CLIENTS = (CONFLUENT, AIO, KAFKA_PYTHON)
TIMEOUT_S = 30
"""Maximum wait for something that must happen; reached only if a test fails."""

with_each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def poll_until(
    cluster: FakeCluster, what: str, condition: Callable[[list[Record]], bool], *consumers: Poller
) -> list[Record]:
    """Poll the consumers in turn until a condition holds.

    Args:
        cluster: Its report is part of the error.
        what: Describes the condition in the error.
        condition: Gets all records received so far. Evaluated after each consumer has polled once.
        consumers: At least one.

    Returns:
        The records that were received.
    """
    records: list[Record] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition(records):
        if time.monotonic() > deadline_s:
            pytest.fail(f"timeout: expected {what}; received {len(records)} records\n{cluster.report()}")
        for consumer in consumers:
            records += consumer.poll()
    return records


def poll_records(cluster: FakeCluster, count: int, *consumers: Poller) -> list[Record]:
    """Poll until at least this number of records was received."""
    return poll_until(cluster, f"{count} records", lambda records: len(records) >= count, *consumers)


def partitions_per_member(cluster: FakeCluster, group_id: str) -> list[int] | None:
    """Return the number of partitions of each member, sorted; None if the group is not stable, or members overlap."""
    group = cluster.group(group_id).describe()
    if group.state != "Stable":
        return None
    assignments = [member.assigned_partitions or () for member in group.members]
    places = Counter(place for assignment in assignments for place in assignment)
    return sorted(map(len, assignments)) if set(places.values()) <= {1} else None


def committed_total(cluster: FakeCluster, group_id: str) -> int:
    """Return the sum of a group's committed offsets: the number of processed records, for logs that begin at 0."""
    return sum(offset.offset for offset in cluster.group(group_id).offsets().values())


def numbered(numbers: Iterable[int]) -> list[Record]:
    """Return records with numbers in their keys and values."""
    return [Record(value=b"value %d" % number, key=b"key %d" % number) for number in numbers]


def values(records: Iterable[Record]) -> list[bytes]:
    """Return the values of records, sorted."""
    return sorted(record.value or b"" for record in records)
