"""Decoded records of topics, without a client."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ConfigError, check_integer, one_of
from fakebroker.protocol.records import Header, RecordBatch, iterate_records


class RecordView(msgspec.Struct, frozen=True):
    """One record.

    Attributes:
        timestamp: Milliseconds since the Unix epoch; -1 for none.
        key: None for a record without a key.
        value: None for a tombstone.
        headers: Pairs of name and value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class BatchView(NamedTuple):
    """One record batch of a partition, which does not change afterwards.

    Attributes:
        topic: The topic.
        partition: Number of the partition.
        batch: The batch.
        first_offset: Records before this offset have been deleted, or are not wanted.
    """

    topic: str
    partition: int
    batch: RecordBatch
    first_offset: int

    def records(self) -> Iterator[RecordView]:
        """Decode the records."""
        for record in iterate_records(self.batch):
            if record.offset >= self.first_offset:
                yield RecordView(
                    self.topic,
                    self.partition,
                    record.offset,
                    record.timestamp_ms,
                    record.key,
                    record.value,
                    record.headers,
                )


def batches_of(cluster: Cluster, topic: str, partition: int | None = None, offset: int = 0) -> list[BatchView]:
    """Return the batches of a topic that a consumer could read now, without control batches.

    Args:
        cluster: The cluster.
        topic: The topic.
        partition: The partition; None for all.
        offset: Where to start in each partition, if the log does not start later.

    Raises:
        ConfigError: There is no such topic or partition.
    """
    return [
        BatchView(topic, each.index, batch, max(offset, each.log.log_start_offset))
        for each in _partitions(cluster, topic, partition)
        for batch in each.log.batches_from(max(offset, each.log.log_start_offset))
        if not batch.is_control
    ]


def _partitions(cluster: Cluster, name: str, partition: int | None) -> list[Partition]:
    topic = cluster.topics.get(name)
    if topic is None:
        known = [each.name for each in cluster.topics]
        raise ConfigError.of("topic", name, one_of(known, name))
    if partition is None:
        return topic.partitions
    check_integer("partition", partition, least=0, most=len(topic.partitions) - 1, where=f"topic {name!r}")
    return [topic.partitions[partition]]
