"""What the tests share: the clients, waiting without a clock that decides, and looks into the fake cluster."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.consumer_protocol import decode_assignment
from tests.support.kafka_clients.aiokafka_client import AIO
from tests.support.kafka_clients.client import GroupConsumer, Record
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON

CLIENTS = (CONFLUENT, AIO, KAFKA_PYTHON)
PATIENCE_S = 30
"""How long a test waits for what must come; only a broken cluster or client makes it wait so long."""

with_each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def poll_until(
    cluster: FakeCluster, what: str, condition: Callable[[list[Record]], bool], *consumers: GroupConsumer
) -> list[Record]:
    """Poll the consumers in turn until a condition holds.

    Args:
        cluster: Tells what it saw if the condition never holds.
        what: What is waited for, for a person whose test has failed.
        condition: Is given the records that have come, after each round.
        consumers: At least one: their polls are what passes the time.

    Returns:
        The records that came.
    """
    records: list[Record] = []
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition(records):
        if time.monotonic() > give_up_s:
            pytest.fail(f"never came: {what}; {len(records)} records came\n{cluster.report()}")
        for consumer in consumers:
            records += consumer.poll()
    return records


def poll_records(cluster: FakeCluster, count: int, *consumers: GroupConsumer) -> list[Record]:
    """Poll until so many records have come; more are among them if they came in the same round."""
    return poll_until(cluster, f"{count} records", lambda records: len(records) >= count, *consumers)


def shares(cluster: FakeCluster, group_id: str) -> list[int] | None:
    """How many partitions each member of a stable group has, sorted; None while it is not stable, or they overlap."""
    group = cluster.group(group_id)
    if group.state != "Stable":
        return None
    assignments = [decode_assignment(member.assignment) for member in group.members]
    places = Counter(place for assignment in assignments for place in assignment)
    return sorted(map(len, assignments)) if set(places.values()) <= {1} else None


def committed_total(cluster: FakeCluster, group_id: str) -> int:
    """The sum of a group's committed offsets: how many records it is done with, if logs begin at 0."""
    return sum(offset.offset for offset in cluster.offsets(group_id).values())


def numbered(numbers: Iterable[int]) -> list[Record]:
    """Records that are told apart by number, in their key and in their value."""
    return [Record(value=b"value %d" % number, key=b"key %d" % number) for number in numbers]


def values(records: Iterable[Record]) -> list[bytes]:
    """The records' values, sorted."""
    return sorted(record.value or b"" for record in records)
