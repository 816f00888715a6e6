"""What tests of the consumer over TCP share: a consumer in a hurry, and records put straight into the logs."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import trio

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.cluster.handlers import fetch
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.topic_partition import TopicPartition

T = TypeVar("T")

DEADLINE_S = 10.0
_HASTY: dict[str, Any] = {
    "group_id": "g",
    "client_id": "c",
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 50,
    "commit_interval_ms": 0,
    "fetch_max_wait_ms": 50,
    "metadata_max_age_ms": 50,
    "retry_backoff_ms": 5,
}

P0, P1, P2 = ("orders", 0), ("orders", 1), ("orders", 2)


def consumer(cluster: FakeCluster, **settings: Any) -> Consumer:
    """A member of the group "g" that begins at the beginning and does not wait long for anything."""
    return Consumer(cluster.bootstrap_servers, **(_HASTY | settings))


def append(cluster: FakeCluster, place: TopicPartition, batch: bytes) -> None:
    """Put a batch into a log, as its leader."""

    def put() -> None:
        topic = cluster.cluster.topics.get(place[0])
        assert topic is not None
        partition = topic.partitions[place[1]]
        partition.log.append(batch, partition.leader_epoch)
        fetch.wake(cluster.cluster, partition, len(batch), cluster.clock.now_ms())

    cluster.call(put)


def produce(cluster: FakeCluster, place: TopicPartition, *values: bytes, **how: Any) -> None:
    """Put records with these values into a log, as one batch."""
    records = [Record(index, 1_000 + index, None, value) for index, value in enumerate(values)]
    append(cluster, place, encode_batch(records, **how))


async def poll_until(
    consumers: Iterable[Consumer], holds: Callable[[], bool], read: list[ConsumerRecord] | None = None
) -> None:
    """Poll them in turn until something holds."""
    with trio.fail_after(DEADLINE_S):
        while not holds():
            for each in consumers:
                records = await each.poll(0.005)
                if read is not None:
                    read += records


async def read(consumer: Consumer, size: int) -> list[bytes | None]:
    """The values of so many records."""
    records: list[ConsumerRecord] = []
    await poll_until([consumer], lambda: len(records) >= size, records)
    return [record.value for record in records]


def committed(cluster: FakeCluster, place: TopicPartition) -> int | None:
    """What the group has committed."""
    offset = cluster.offsets("g").get(place)
    return None if offset is None else offset.offset
