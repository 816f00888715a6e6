"""The log of one partition, in memory: whole record batches as they were appended, by offset.

Does not depend on topics, brokers or requests; batches are read by `protocol.records`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from copy import copy
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from fakebroker.cluster.logs.compactor import Compactor
from fakebroker.cluster.logs.producer_state import Producers
from fakebroker.protocol.records import RecordBatch, iterate_records, with_base_offset

DEFAULT_RETENTION_BYTES = 64 * 1024 * 1024
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class TimestampAndOffset(NamedTuple):
    """The offset, the timestamp in milliseconds and the leader epoch of a record that was found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """A leader epoch and its end offset: the one behind its last record."""

    leader_epoch: int
    end_offset: int


class _EpochStart(NamedTuple):
    leader_epoch: int
    start_offset: int


class LeaderEpochs:
    """The start offsets of the leader epochs of a log (Kafka's `LeaderEpochFileCache`)."""

    __slots__ = ("_starts",)

    def __init__(self) -> None:
        self._starts: list[_EpochStart] = []

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Start an epoch at an offset, unless it has started already. Epochs without a record are removed."""
        if self._starts and leader_epoch <= self._starts[-1].leader_epoch:
            return
        self.truncate_from_end(start_offset)
        self._starts.append(_EpochStart(leader_epoch, start_offset))

    def truncate_from_start(self, offset: int) -> None:
        """Remove everything before the offset. The epoch that contains it starts there now."""
        count = bisect_right(self._starts, offset, key=attrgetter("start_offset"))
        if count:
            self._starts[:count] = [_EpochStart(self._starts[count - 1].leader_epoch, offset)]

    def truncate_from_end(self, offset: int) -> None:
        """Remove the epochs that start at the offset or behind it."""
        while self._starts and self._starts[-1].start_offset >= offset:
            self._starts.pop()

    def clone(self) -> "LeaderEpochs":
        """Return an independent copy."""
        twin = LeaderEpochs()
        twin._starts = self._starts.copy()
        return twin

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the end of an epoch, or of the one before it if it has no records (OffsetForLeaderEpoch)."""
        index = bisect_right(self._starts, leader_epoch, key=attrgetter("leader_epoch"))
        if index == len(self._starts) and self._starts and self._starts[-1].leader_epoch == leader_epoch:
            return EpochEndOffset(leader_epoch, log_end_offset)
        if index == len(self._starts) or leader_epoch == UNDEFINED_EPOCH:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        floor_epoch = self._starts[index - 1].leader_epoch if index else leader_epoch
        return EpochEndOffset(floor_epoch, self._starts[index].start_offset)


class PartitionLog:
    """An append-only log of record batches. It drops the oldest ones over a size, or superseded ones by compaction.

    Readers see all of it: the log end offset is also the high watermark.

    Attributes:
        log_start_offset: The first offset that may be read.
        log_end_offset: The offset that the next record gets.
        size_bytes: The size of all batches.
        epochs: The leader epochs of its records. A new leader may `assign` its epoch before it appends.
        producers: The idempotent producers of its records.
        before_read: Called before batches are read or truncated. A writer that postpones appends performs them here.

    Args:
        retention_bytes: How many bytes to keep (Kafka's `retention.bytes`); -1 is all. The newest batch is
            always kept.
        compactor: Compacts the log, which then keeps its start offset and has no retention.
    """

    __slots__ = (
        "_batches",
        "_compactor",
        "_head",
        "_retention_bytes",
        "before_read",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "size_bytes",
    )

    def __init__(self, retention_bytes: int = DEFAULT_RETENTION_BYTES, compactor: Compactor | None = None) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.size_bytes = 0
        self.epochs = LeaderEpochs()
        self.producers = Producers()
        self.before_read: Callable[[], None] | None = None
        self._compactor = compactor
        self._retention_bytes = retention_bytes
        # Batches before the head were dropped. They are deleted once they outnumber the others: that is cheap per
        # append, and keeps a list that can be searched by bisection.
        self._batches: list[RecordBatch] = []
        self._head = 0

    def clone(self) -> "PartitionLog":
        """Return an independent copy. Batches are shared because they are never modified."""
        self._complete()
        twin = copy(self)
        twin.before_read = None
        twin._compactor = None if self._compactor is None else self._compactor.clone()
        twin.epochs = self.epochs.clone()
        twin.producers = self.producers.clone()
        twin._batches = self._batches.copy()
        return twin

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    def append(self, batch: bytes, leader_epoch: int) -> int:
        """Append one valid batch. Only its offsets and its leader epoch are set.

        Returns:
            The offset of its first record.
        """
        base_offset = self.log_end_offset
        stored = RecordBatch.from_bytes(with_base_offset(batch, base_offset, leader_epoch))
        self.epochs.assign(leader_epoch, base_offset)
        self.producers.remember(stored)
        self._batches.append(stored)
        self.size_bytes += stored.size_bytes
        self.log_end_offset = stored.last_offset + 1
        if self._compactor is None:
            self.retain(self._retention_bytes)
        else:
            self.size_bytes -= self._compactor.appended(self._batches, self.size_bytes)
        return base_offset

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> bytes:
        """Return whole batches, from the one that holds the offset, which may start before it, or the next one.

        Args:
            offset: Where to start, from the log start offset to the log end offset.
            max_bytes: The largest size to return.
            at_least_one: Whether to return the first batch even if it is larger than `max_bytes` (KIP-74).

        Raises:
            ValueError: The offset is out of range.
        """
        self._complete()
        self._require_in_range(offset)
        if offset == self.log_end_offset:
            return b""
        chosen: list[bytes] = []
        total_bytes = 0
        for index in range(self._index_of(offset), len(self._batches)):
            batch = self._batches[index]
            total_bytes += batch.size_bytes
            if total_bytes > max_bytes and (chosen or not at_least_one):
                break
            chosen.append(batch.data)
        return b"".join(chosen)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Return the first record with this timestamp or a later one (Kafka's `FileRecords.searchForTimestamp`)."""
        for batch in self._live():
            if batch.max_timestamp_ms < timestamp_ms:
                continue
            for record in iterate_records(batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.log_start_offset:
                    return TimestampAndOffset(record.offset, record.timestamp_ms, batch.partition_leader_epoch)
        return None

    def max_timestamp(self) -> TimestampAndOffset | None:
        """Return the first record with the largest timestamp, or None if there is no record (KIP-734).

        Like Kafka, this trusts the largest timestamp in the header of the batch, and finds the record even if it lies
        before a log start offset inside the batch.
        """
        batch = max(self._live(), key=attrgetter("max_timestamp_ms"), default=None)
        if batch is None:
            return None
        for record in iterate_records(batch):
            if record.timestamp_ms == batch.max_timestamp_ms:
                return TimestampAndOffset(record.offset, record.timestamp_ms, batch.partition_leader_epoch)
        return None

    def retain(self, retention_bytes: int) -> None:
        """Keep this many bytes from now on, and at least one batch. A compacted log has no such limit."""
        if self._compactor is not None:
            return
        self._retention_bytes = retention_bytes
        while self.size_bytes > retention_bytes >= 0 and self._head + 1 < len(self._batches):
            self._drop_oldest()
            self._move_start(self._batches[self._head].base_offset)

    def truncate_before(self, offset: int) -> None:
        """Move the log start offset up to this offset and drop the batches that lie wholly before it (DeleteRecords).

        An offset before the log start offset changes nothing.

        Raises:
            ValueError: The offset is behind the log end offset; or the log is compacted, as in Kafka.
        """
        if self._compactor is not None:
            raise ValueError(f"truncate before offset {offset}: a compacted log loses superseded records alone")
        if offset <= self.log_start_offset:
            return
        self._require_in_range(offset)
        while self._head < len(self._batches) and self._batches[self._head].last_offset < offset:
            self._drop_oldest()
        self._move_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the batches that hold this offset or later ones, as a new leader that never had them does.

        The log end offset is then the end of the last batch before the offset. In a compacted log, records before the
        compactor's window may be gone although the dropped ones superseded them. Producers are not rolled back.

        Raises:
            ValueError: The offset is out of range.
        """
        self._complete()
        self._require_in_range(offset)
        while self._head < len(self._batches) and self._batches[-1].last_offset >= offset:
            self.size_bytes -= self._batches.pop().size_bytes
        has_batches = self._head < len(self._batches)
        self.log_end_offset = self._batches[-1].last_offset + 1 if has_batches else self.log_start_offset
        self.epochs.truncate_from_end(self.log_end_offset)
        if self._compactor is not None:
            self._compactor.truncated(self._batches, self.log_end_offset)

    def _complete(self) -> None:
        """Perform postponed appends."""
        if self.before_read is not None:
            self.before_read()

    def _require_in_range(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ValueError(f"offset {offset}, expected {self.log_start_offset} to {self.log_end_offset}")

    def _index_of(self, offset: int) -> int:
        """Return the index of the batch that holds the offset, or of the next one."""
        return bisect_left(self._batches, offset, key=attrgetter("last_offset"))

    def _live(self) -> Iterator[RecordBatch]:
        self._complete()
        return islice(self._batches, self._head, None)

    def _drop_oldest(self) -> None:
        self.size_bytes -= self._batches[self._head].size_bytes
        self._head += 1
        if self._head * 2 > len(self._batches):
            del self._batches[: self._head]
            self._head = 0

    def _move_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
