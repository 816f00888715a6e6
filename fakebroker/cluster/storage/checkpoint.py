"""The whole state of a cluster as entries: collected at once, and written later, because batches are never modified."""

from collections.abc import Callable, Sequence

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.logs.segments import Segment
from fakebroker.cluster.storage.entries import PARTITION, Kind, StoredLog, StoredProducer, encode
from fakebroker.cluster.storage.state_writer import StateWriter
from fakebroker.protocol.records import RecordBatch

Write = Callable[[int, Sequence[bytes | memoryview]], object]
"""Writes an entry: its kind and its parts."""

Entries = list[tuple[Kind, bytes, Sequence[RecordBatch | Segment]]]
"""Kinds and contents of entries, and the batches that follow: in a BATCHES entry all of its partition, see `write`."""

_BATCHES_BYTES = 256 * 1024
"""About the size of an entry with several batches."""


def live_bytes(cluster: Cluster) -> int:
    """Return the approximate size of a checkpoint in bytes: the size of all batches."""
    return sum(partition.log.size_bytes for topic in cluster.topics.all() for partition in topic.partitions)


def collect(cluster: Cluster, writer: StateWriter) -> Entries:
    """Return the entries that restore a cluster."""
    entries: Entries = []
    writer.write_all(lambda kind, content: entries.append((kind, content, ())))
    for topic in cluster.topics.all():
        for partition in topic.partitions:
            log, key = partition.log, PARTITION.pack(topic.topic_id, partition.index)
            if log.log_end_offset or log.producers.all():
                entries.append((Kind.LOG, key + encode(_stored(log)), ()))
                entries.append((Kind.BATCHES, key, log.chunks()))
    return entries


def write(entries: Entries, write_entry: Write) -> None:
    """Write collected entries. May run in another thread than the cluster's thread."""
    for kind, content, chunks in entries:
        if kind is not Kind.BATCHES:
            write_entry(kind, (content,))
            continue
        joined, size_bytes = [content], 0
        for chunk in chunks:
            joined.append(chunk.data)
            size_bytes += len(joined[-1])
            if size_bytes >= _BATCHES_BYTES:
                write_entry(kind, joined)
                joined, size_bytes = [content], 0
        if size_bytes:
            write_entry(kind, joined)


def _stored(log: PartitionLog) -> StoredLog:
    producers = [
        StoredProducer(
            each.producer_id,
            each.epoch,
            each.last_timestamp_ms,
            each.last_offset,
            list(each.batches),
            each.coordinator_epoch,
            each.transaction_offset,
        )
        for each in log.producers.all()
    ]
    aborted = log.producers.aborted_in(0, log.log_end_offset)
    return StoredLog(log.log_start_offset, log.log_end_offset, list(log.epochs), producers, aborted)
