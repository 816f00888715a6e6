"""The log of one partition: record batches in memory, in the order of their offsets.

Does not depend on topics, brokers or requests.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import chain, islice
from math import inf
from operator import attrgetter
from typing import NamedTuple, Protocol

from fakebroker.cluster.logs.cleaner import Cleaner
from fakebroker.cluster.logs.compactor import Compactor
from fakebroker.cluster.logs.producer_state import Producers
from fakebroker.cluster.logs.segments import Segment
from fakebroker.protocol.records import NO_TIMESTAMP, RecordBatch, iterate_records, with_base_offset

DEFAULT_RETENTION_BYTES = 64 * 1024 * 1024
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class TimestampAndOffset(NamedTuple):
    """The offset, the timestamp in milliseconds and the leader epoch of a record that was found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """A leader epoch and its end offset: the offset after its last record."""

    leader_epoch: int
    end_offset: int


class _EpochStart(NamedTuple):
    leader_epoch: int
    start_offset: int


class LogStorage(Protocol):
    """Where the changes of one log are recorded before they are made, so that they survive the process.

    Compaction is not recorded: a restored log is compacted again.
    """

    def append(self, batch: RecordBatch) -> None:
        """Record an append.

        Raises:
            DiskFullError: There is no space. The log does not change.
        """
        ...

    def move_start(self, offset: int) -> None:
        """Record a new log start offset."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Record a truncation at the end of the log."""
        ...


class LeaderEpochs:
    """The start offsets of the leader epochs of a log (Kafka's `LeaderEpochFileCache`).

    Args:
        starts: Leader epochs and the offsets at which they start, in ascending order.
    """

    __slots__ = ("_starts",)

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        self._starts = [_EpochStart(*start) for start in starts]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the leader epochs and the offsets at which they start."""
        return iter(self._starts)

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Start an epoch at an offset, unless it or a later one has started already. Removes epochs without records."""
        if self._starts and leader_epoch <= self._starts[-1].leader_epoch:
            return
        self.truncate_from_end(start_offset)
        self._starts.append(_EpochStart(leader_epoch, start_offset))

    def truncate_from_start(self, offset: int) -> None:
        """Remove the epochs that end at the offset or before it. The epoch that contains it then starts there."""
        count = bisect_right(self._starts, offset, key=attrgetter("start_offset"))
        if count:
            self._starts[:count] = [_EpochStart(self._starts[count - 1].leader_epoch, offset)]

    def truncate_from_end(self, offset: int) -> None:
        """Remove the epochs that start at the offset or after it."""
        while self._starts and self._starts[-1].start_offset >= offset:
            self._starts.pop()

    def clone(self) -> "LeaderEpochs":
        """Return an independent copy."""
        twin = LeaderEpochs()
        twin._starts = self._starts.copy()
        return twin

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the end offset of an epoch (OffsetForLeaderEpoch).

        If this epoch has no records, the result is the end offset of the last epoch before it that has records.
        """
        index = bisect_right(self._starts, leader_epoch, key=attrgetter("leader_epoch"))
        if index == len(self._starts) and self._starts and self._starts[-1].leader_epoch == leader_epoch:
            return EpochEndOffset(leader_epoch, log_end_offset)
        if index == len(self._starts) or leader_epoch == UNDEFINED_EPOCH:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        floor_epoch = self._starts[index - 1].leader_epoch if index else leader_epoch
        return EpochEndOffset(floor_epoch, self._starts[index].start_offset)


class PartitionLog:
    """An append-only log of record batches.

    Without a compactor, the log drops its oldest batches when it exceeds a size. With a compactor, it drops superseded
    records instead. All records can be read at once: the high watermark is the log end offset.

    A writer that postpones appends to a compacted log raises `log_end_offset` before the batches exist. Therefore every
    method that reads or truncates the batches of such a log calls `_complete` first.

    Attributes:
        log_start_offset: The first offset that may be read.
        log_end_offset: The offset that the next record gets.
        size_bytes: The size of all batches.
        epochs: The leader epochs of its records. A new leader may `assign` its epoch before it appends.
        producers: The idempotent producers of its records.
        before_read: Called before batches are read or truncated, so that a writer can perform appends that it has
            postponed.
        storage: Where changes are recorded; None if they are not.

    Args:
        retention_bytes: How many bytes to keep (Kafka's `retention.bytes`); -1 for all. The newest batch always stays.
        compactor: Compacts the log. A compacted log has no retention, and its start offset does not change.
    """

    __slots__ = (
        "_batches",
        "_cleaner",
        "_compactor",
        "_deleted_max",
        "_head",
        "_retention_bytes",
        "before_read",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "size_bytes",
        "storage",
    )

    def __init__(self, retention_bytes: int = DEFAULT_RETENTION_BYTES, compactor: Compactor | None = None) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.size_bytes = 0
        self.epochs = LeaderEpochs()
        self.producers = Producers()
        self.before_read: Callable[[], None] | None = None
        self.storage: LogStorage | None = None
        self._compactor = compactor
        self._cleaner: Cleaner | None = None
        self._retention_bytes = retention_bytes
        self._deleted_max: TimestampAndOffset | None = None
        # Batches before `_head` have been dropped. They are removed from the list when they outnumber the others, which
        # takes constant time per append on average. A list, unlike a deque, can be bisected. The compactor has the
        # older batches of a compacted log.
        self._batches: list[RecordBatch] = []
        self._head = 0

    def clone(self) -> "PartitionLog":
        """Return an independent copy. Batches are shared because they are never modified."""
        self._complete()
        twin = copy(self)
        twin.before_read = twin.storage = None
        twin._compactor = None if self._compactor is None else self._compactor.clone()
        twin._cleaner = None if self._cleaner is None else self._cleaner.clone()
        twin.epochs = self.epochs.clone()
        twin.producers = self.producers.clone()
        twin._batches = self._batches.copy()
        return twin

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset before which all transactions have ended, at most the high watermark (KIP-98)."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        if unstable >= self.log_start_offset:
            return unstable
        # The start of the batch with the log start offset (`UnifiedLog.maybeIncrementFirstUnstableOffset`).
        return next((batch.base_offset for batch in self._batches[self._head : self._head + 1]), self.log_start_offset)

    def end_of_epoch(self, leader_epoch: int, current_epoch: int) -> EpochEndOffset:
        """Return the end offset of an epoch, for a leader that is asked in its current epoch.

        Kafka assigns the start offset of an epoch when the leader is elected (Partition.makeLeader). Here, the first
        append or look-up in the epoch assigns it.
        """
        self.epochs.assign(current_epoch, self.log_end_offset)
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def append(self, batch: bytes, leader_epoch: int) -> int:
        """Append one batch. It is not validated. Its base offset and leader epoch are overwritten.

        Returns:
            The offset of its first record.

        Raises:
            DiskFullError: The storage has no space. Nothing has changed.
        """
        base_offset = self.log_end_offset
        stored = RecordBatch(with_base_offset(batch, base_offset, leader_epoch))
        self.append_batch(stored, leader_epoch, of_producer=True)
        return base_offset

    def append_batch(self, batch: RecordBatch, leader_epoch: int, *, of_producer: bool = False) -> None:
        """Append a batch with the log end offset as its base offset and with this leader epoch.

        Args:
            batch: The batch.
            leader_epoch: The leader epoch.
            of_producer: Whether it may be a batch of a producer or a marker, which `producers` has to know.

        Raises:
            DiskFullError: The storage has no space. Nothing has changed.
        """
        if self.storage is not None:
            self.storage.append(batch)
        if of_producer:
            self.producers.remember(batch)
        self.epochs.assign(leader_epoch, batch.base_offset)
        self._batches.append(batch)
        self.size_bytes += len(batch.data)
        self.log_end_offset = batch.last_offset + 1
        if self._compactor is None:
            self.retain(self._retention_bytes)
        else:
            self.size_bytes -= self._compactor.appended(self._batches, self.size_bytes, self.producers)

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, end_offset: int | None = None) -> bytes:
        """Return whole batches. The first one contains the offset, or is the next one if compaction removed the record.

        Args:
            offset: Where to start, from the log start offset to the log end offset.
            max_bytes: The largest size to return.
            at_least_one: Whether to return the first batch even if it is larger than `max_bytes` (KIP-74).
            end_offset: If given, only batches before this offset are returned.

        Raises:
            ValueError: The offset is out of range.
        """
        self._complete()
        self._require_in_range(offset)
        if offset == self.log_end_offset:
            return b""
        end_offset = self.log_end_offset if end_offset is None else end_offset
        chosen: list[bytes] = []
        total_bytes = 0
        for batch in self._batches_from(offset):
            total_bytes += batch.size_bytes
            if batch.last_offset >= end_offset or (total_bytes > max_bytes and (chosen or not at_least_one)):
                break
            chosen.append(batch.data)
        return b"".join(chosen)

    def batches_from(self, offset: int) -> Iterator[RecordBatch]:
        """Return the batches, from the first batch that ends at the offset or after it."""
        self._complete()
        return self._batches_from(offset)

    def chunks(self) -> list[RecordBatch | Segment]:
        """Return all batches in order, one or several in each item, which never change."""
        self._complete()
        return [*(() if self._compactor is None else self._compactor.segments), *self._batches[self._head :]]

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

        Like Kafka, it relies on the maximum timestamp in the batch header, and may return a record before the log start
        offset: DeleteRecords leaves it in its segment.
        """
        with_records = (batch for batch in self._live() if batch.record_count)
        batch = max(with_records, key=attrgetter("max_timestamp_ms"), default=None)
        found = None if batch is None else _first_newest(batch)
        deleted = self._deleted_max
        return deleted if deleted and (found is None or deleted.timestamp_ms >= found.timestamp_ms) else found

    def retain(self, retention_bytes: int) -> None:
        """Set the number of bytes to keep, and drop the oldest batches accordingly. Does not affect a compacted log."""
        if self._compactor is not None:
            return
        self._retention_bytes = retention_bytes
        while self.size_bytes > retention_bytes >= 0 and self._head + 1 < len(self._batches):
            self._drop_oldest()
            self._move_start(self._batches[self._head].base_offset)

    @property
    def oldest_timestamp_ms(self) -> float:
        """The largest timestamp of the oldest batch; infinity if it has none or there is no batch."""
        oldest_ms = next((batch.max_timestamp_ms for batch in self._live()), NO_TIMESTAMP)
        return inf if oldest_ms == NO_TIMESTAMP else oldest_ms

    def delete_before(self, timestamp_ms: float) -> None:
        """Drop the oldest batches as long as their largest timestamp is before a time (`retention.ms`).

        Batches without a timestamp are kept, with those after them.
        """
        while self.oldest_timestamp_ms < timestamp_ms:
            start_offset = self._batches[self._head].last_offset + 1
            self._drop_oldest()
            self._move_start(start_offset)

    @property
    def next_compaction_ms(self) -> float:
        """When `compact` may drop a record next, in milliseconds of the brokers' time; infinity if never."""
        if self._head == len(self._batches):
            return inf
        if self._cleaner is None:
            return 0
        return self._cleaner.next_ms(self.last_stable_offset, self.log_end_offset)

    def compact(self, now_ms: float, min_lag_ms: int, delete_retention_ms: int) -> None:
        """Drop the records that newer ones with the same key supersede; see `Cleaner.clean`."""
        if self.next_compaction_ms > now_ms:
            return
        self._cleaner = self._cleaner or Cleaner()
        live = self._batches[self._head :]
        self._batches = self._cleaner.clean(live, self.producers, now_ms, min_lag_ms, delete_retention_ms)
        self._head = 0
        self.size_bytes = sum(batch.size_bytes for batch in self._batches)

    def truncate_before(self, offset: int) -> None:
        """Set the log start offset to this offset, and drop the batches that end before it (DeleteRecords).

        An offset before the log start offset has no effect.

        Raises:
            ValueError: The offset is after the log end offset, or the log is compacted.
        """
        if self._compactor is not None:
            raise ValueError(
                f"truncate before offset {offset}: only superseded records are removed from a compacted log"
            )
        if offset <= self.log_start_offset:
            return
        self._require_in_range(offset)
        newest = self._deleted_max
        while self._head < len(self._batches) and self._batches[self._head].last_offset < offset:
            batch = self._batches[self._head]
            found = _first_newest(batch) if batch.record_count else None
            if found and (newest is None or found.timestamp_ms > newest.timestamp_ms):
                newest = found
            self._drop_oldest()
        self._deleted_max = newest
        self._move_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the batches that contain this offset or later ones, as if a new leader had not replicated them.

        The log end offset becomes the end of the last remaining batch. Producers and transactions are restored from the
        remaining batches. If more than the compactor's window of a compacted log is dropped, older records may be
        missing: the records that the dropped records have superseded.

        Raises:
            ValueError: The offset is out of range.
        """
        self._complete()
        self._require_in_range(offset)
        if self.storage is not None:
            self.storage.truncate_to(offset)
        restarts = self._compactor is not None and self._compactor.release(self._batches, offset)
        while self._head < len(self._batches) and self._batches[-1].last_offset >= offset:
            self.size_bytes -= self._batches.pop().size_bytes
        self.log_end_offset = self._end_of_batches()
        self.epochs.truncate_from_end(self.log_end_offset)
        self.producers.truncated(self._live(), self.log_end_offset)
        if self._compactor is not None and restarts:
            self._compactor.restart(self._batches)
        if self._cleaner is not None:
            self._cleaner.truncated(self.log_end_offset)

    def _complete(self) -> None:
        """Perform postponed appends."""
        if self.before_read is not None:
            self.before_read()

    def _require_in_range(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ValueError(f"offset {offset}, expected {self.log_start_offset} to {self.log_end_offset}")

    def _end_of_batches(self) -> int:
        last_offset = self.log_start_offset - 1
        if self._head < len(self._batches):
            last_offset = self._batches[-1].last_offset
        elif self._compactor is not None:
            last_offset = max(last_offset, self._compactor.last_offset)
        return last_offset + 1

    def _batches_from(self, offset: int) -> Iterator[RecordBatch]:
        index = bisect_left(self._batches, offset, key=attrgetter("last_offset"))
        batches = islice(self._batches, max(self._head, index), None)
        return batches if self._compactor is None else chain(self._compactor.batches_from(offset), batches)

    def _live(self) -> Iterator[RecordBatch]:
        return self.batches_from(self.log_start_offset)

    def _drop_oldest(self) -> None:
        self.size_bytes -= self._batches[self._head].size_bytes
        self._head += 1
        self._deleted_max = None  # Retention removes segments, with deleted records in them.
        if self._head * 2 > len(self._batches):
            del self._batches[: self._head]
            self._head = 0

    def _move_start(self, offset: int) -> None:
        if self.storage is not None:
            self.storage.move_start(offset)
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producers.forget_aborted(offset)


def _first_newest(batch: RecordBatch) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp of a batch."""
    for record in iterate_records(batch):
        if record.timestamp_ms == batch.max_timestamp_ms:
            return TimestampAndOffset(record.offset, record.timestamp_ms, batch.partition_leader_epoch)
    return None
