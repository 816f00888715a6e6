"""The log of one partition, in memory: whole record batches as they came, by offset.

Knows no topic, broker or request, and nothing of a batch but what `protocol.records` reads from it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from copy import copy
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Self

from fakebroker.cluster.logs.producer_state import Producers
from fakebroker.protocol.records import RecordBatch, iterate_records, with_base_offset

DEFAULT_RETENTION_BYTES = 64 * 1024 * 1024
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class TimestampAndOffset(NamedTuple):
    """A record found by its time: its offset, its timestamp in milliseconds, the leader epoch it was appended in."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """Where a leader epoch ended: the offset behind its last record."""

    leader_epoch: int
    end_offset: int


class _EpochStart(NamedTuple):
    leader_epoch: int
    start_offset: int


class LeaderEpochs:
    """Which leader epoch each part of a log was appended in (Kafka's `LeaderEpochFileCache`)."""

    __slots__ = ("_starts",)

    def __init__(self) -> None:
        self._starts: list[_EpochStart] = []

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Let an epoch start here, unless it has begun already. Epochs without a record are forgotten."""
        if self._starts and leader_epoch <= self._starts[-1].leader_epoch:
            return
        self.truncate_from_end(start_offset)
        self._starts.append(_EpochStart(leader_epoch, start_offset))

    def truncate_from_start(self, offset: int) -> None:
        """Forget what lies before the offset; the epoch that it lies in starts there now."""
        count = bisect_right(self._starts, offset, key=attrgetter("start_offset"))
        if count:
            self._starts[:count] = [_EpochStart(self._starts[count - 1].leader_epoch, offset)]

    def truncate_from_end(self, offset: int) -> None:
        """Forget the epochs that start at the offset or behind it."""
        while self._starts and self._starts[-1].start_offset >= offset:
            self._starts.pop()

    def clone(self) -> "LeaderEpochs":
        """The same epochs, which go their own way from here."""
        twin = LeaderEpochs()
        twin._starts = self._starts.copy()
        return twin

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where an epoch ended, as OffsetForLeaderEpoch answers: for an epoch without a record, the one before it."""
        index = bisect_right(self._starts, leader_epoch, key=attrgetter("leader_epoch"))
        if index == len(self._starts) and self._starts and self._starts[-1].leader_epoch == leader_epoch:
            return EpochEndOffset(leader_epoch, log_end_offset)
        if index == len(self._starts) or leader_epoch == UNDEFINED_EPOCH:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        floor_epoch = self._starts[index - 1].leader_epoch if index else leader_epoch
        return EpochEndOffset(floor_epoch, self._starts[index].start_offset)


class PartitionLog:
    """An append-only log of record batches whose oldest may be dropped.

    Readers see all of it, so that the log end offset is the high watermark too.

    Attributes:
        log_start_offset: The first offset that may be read.
        log_end_offset: The offset that the next record gets.
        size_bytes: The bytes of all batches held.
        epochs: The leader epochs of its records. A new leader may `assign` its epoch before it appends.
        producers: The idempotent producers of its records.

    Args:
        retention_bytes: How many bytes to keep (Kafka's `retention.bytes`); -1 is all. The newest batch stays whatever
            its size.
    """

    __slots__ = (
        "_batches",
        "_head",
        "_retention_bytes",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "size_bytes",
    )

    def __init__(self, retention_bytes: int = DEFAULT_RETENTION_BYTES) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.size_bytes = 0
        self.epochs = LeaderEpochs()
        self.producers = Producers()
        self._retention_bytes = retention_bytes
        # The batches before the head are dropped ones. They are deleted once they outnumber the others: that is cheap
        # per append, and leaves a list, which can be searched by halves.
        self._batches: list[RecordBatch] = []
        self._head = 0

    def clone(self) -> Self:
        """The same log, which goes its own way from here; the batches are shared, for nobody changes them."""
        twin = copy(self)
        twin.epochs = self.epochs.clone()
        twin.producers = self.producers.clone()
        twin._batches = self._batches.copy()
        return twin

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    def append(self, batch: bytes, leader_epoch: int) -> int:
        """Append one valid batch: it gets the next offsets and the leader epoch, the rest of it stays untouched.

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
        self.retain(self._retention_bytes)
        return base_offset

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> bytes:
        """Whole batches from the one that holds the offset, which may start before it, or else the next one.

        Args:
            offset: Where to start, from the log start offset up to the log end offset.
            max_bytes: Where to stop.
            at_least_one: Whether the first batch comes even if it is larger than `max_bytes` (KIP-74).

        Raises:
            ValueError: The offset is out of range.
        """
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
        """The first record with this timestamp or a later one, or None (Kafka's `FileRecords.searchForTimestamp`)."""
        for batch in self._live():
            if batch.max_timestamp_ms < timestamp_ms:
                continue
            for record in iterate_records(batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.log_start_offset:
                    return TimestampAndOffset(record.offset, record.timestamp_ms, batch.partition_leader_epoch)
        return None

    def max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp, or None if there is no record (KIP-734).

        Like Kafka, this takes the batch's word for its largest timestamp, and finds the record even if it lies before a
        log start offset inside the batch.
        """
        batch = max(self._live(), key=attrgetter("max_timestamp_ms"), default=None)
        if batch is None:
            return None
        for record in iterate_records(batch):
            if record.timestamp_ms == batch.max_timestamp_ms:
                return TimestampAndOffset(record.offset, record.timestamp_ms, batch.partition_leader_epoch)
        return None

    def retain(self, retention_bytes: int) -> None:
        """Keep this many bytes from now on: drop the oldest batches until the log has no more, or one batch is left."""
        self._retention_bytes = retention_bytes
        while self.size_bytes > retention_bytes >= 0 and self._head + 1 < len(self._batches):
            self._drop_oldest()
            self._move_start(self._batches[self._head].base_offset)

    def truncate_before(self, offset: int) -> None:
        """Move the log start offset up to this offset and drop the batches that lie wholly before it (DeleteRecords).

        An offset before the log start offset changes nothing.

        Raises:
            ValueError: The offset is behind the log end offset.
        """
        if offset <= self.log_start_offset:
            return
        self._require_in_range(offset)
        while self._head < len(self._batches) and self._batches[self._head].last_offset < offset:
            self._drop_oldest()
        self._move_start(offset)

    def _require_in_range(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ValueError(f"offset {offset}, expected {self.log_start_offset} to {self.log_end_offset}")

    def _index_of(self, offset: int) -> int:
        """Where the batch with this offset stands, or else the first one behind it."""
        return bisect_left(self._batches, offset, key=attrgetter("last_offset"))

    def _live(self) -> Iterator[RecordBatch]:
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
