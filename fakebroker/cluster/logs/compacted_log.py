"""The log of a partition with `cleanup.policy=compact`: of the records of one key, the last is kept.

Knows of a record no more than its offset, its key and whether it is a tombstone; and no clock: what is done, is done
while batches are appended, a little each time.
"""

from typing import Self

from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.protocol.records import RecordBatch, encode_batch, iterate_records

DEFAULT_WINDOW_RECORDS = 512
DEFAULT_WINDOW_BYTES = 4 * 1024 * 1024
STEP_RECORDS = 64
"""How many records are appended between two steps of compaction."""

SWEEP_FACTOR = 4
"""How many records a step sweeps for each one appended: for 4 that a pass sweeps, 1 more comes during the pass."""


class CompactedLog(PartitionLog):
    """A partition log that drops superseded records. Offsets never change, and the log start offset stays.

    The newest records are in a window that is left alone, as Kafka leaves the active segment alone: none of them is
    dropped, and none makes an older one superseded. So truncating within it gives back exactly what was there before. A
    batch leaves the window when newer ones fill it; then each of its records supersedes the last one of its key.
    A tombstone and a record without a key are superseded at once themselves.

    Once there are more superseded records than live ones, a pass from the oldest batch to the newest drops those that
    are superseded by then, a few at each append. No record is superseded, and so none is dropped, later than a newer
    one of its key: a tombstone stays for as long as anything that it deletes.

    Args:
        window_records: How many of the newest records are left alone, at least 1; up to `STEP_RECORDS` more may be.
        window_bytes: With how many bytes, at least 1, the window is full even if these are fewer records. The newest
            batch is in it whatever its size.
    """

    __slots__ = (
        "_clean_bytes",
        "_clean_end_offset",
        "_dropping",
        "_due_records",
        "_last_offsets",
        "_superseded",
        "_sweep_offset",
        "_window_bytes",
        "_window_records",
    )

    def __init__(self, window_records: int = DEFAULT_WINDOW_RECORDS, window_bytes: int = DEFAULT_WINDOW_BYTES) -> None:
        super().__init__(retention_bytes=-1)
        self._window_records = window_records
        self._window_bytes = window_bytes
        self._due_records = 0  # Those appended since the last step.
        # What has left the window: where it ends, its size, and the offset of the last record of each key in it.
        self._clean_end_offset = 0
        self._clean_bytes = 0
        self._last_offsets: dict[bytes, int] = {}
        # Offsets of records that the next pass is to drop, and that the present one has still to drop, from where on.
        self._superseded: set[int] = set()
        self._dropping: set[int] = set()
        self._sweep_offset = 0

    def clone(self) -> Self:
        twin = super().clone()
        twin._last_offsets = self._last_offsets.copy()
        twin._superseded = self._superseded.copy()
        twin._dropping = self._dropping.copy()
        return twin

    def append(self, batch: bytes, leader_epoch: int) -> int:
        """As of any partition log; and now and then, a step of compaction."""
        base_offset = super().append(batch, leader_epoch)
        self._due_records += self.log_end_offset - base_offset
        if self._due_records >= STEP_RECORDS or self.size_bytes - self._clean_bytes > self._window_bytes:
            self._move_window()
            self._sweep(SWEEP_FACTOR * self._due_records)
            self._due_records = 0
        return base_offset

    def retain(self, retention_bytes: int) -> None:
        """Nothing to do: a compacted log loses superseded records alone, whatever its size."""

    def truncate_to(self, offset: int) -> None:
        """Drop what lies at this offset and behind it, as a new leader that never had it does.

        A batch is dropped as a whole, as it was appended as a whole; so the log end offset is where the last batch
        before the offset ends. Behind the window there may be little before it, and what the dropped records had
        superseded may be gone as well.

        Raises:
            ValueError: The offset is out of range.
        """
        self._require_in_range(offset)
        while self._batches and self._batches[-1].last_offset >= offset:
            self.size_bytes -= self._batches.pop().size_bytes
        self.log_end_offset = self._batches[-1].last_offset + 1 if self._batches else self.log_start_offset
        self.epochs.truncate_from_end(self.log_end_offset)
        if self.log_end_offset < self._clean_end_offset:
            self._start_anew()

    def truncate_before(self, offset: int) -> None:
        """Refused, as Kafka refuses DeleteRecords for a topic that is compacted only.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"truncate before offset {offset}: a compacted log loses superseded records alone")

    def _move_window(self) -> None:
        """Let the oldest batches leave the window, as long as it is full without them."""
        for index in range(self._index_of(self._clean_end_offset), len(self._batches)):
            batch = self._batches[index]
            records_left = self.log_end_offset - batch.last_offset - 1
            bytes_left = self.size_bytes - self._clean_bytes - batch.size_bytes
            if records_left < self._window_records and bytes_left < self._window_bytes:
                return
            self._leave_window(batch)

    def _leave_window(self, batch: RecordBatch) -> None:
        """Note which records are superseded now that this batch counts; the next one is the oldest of the window."""
        self._clean_end_offset = batch.last_offset + 1
        self._clean_bytes += batch.size_bytes
        for record in iterate_records(batch):
            if record.key is not None:
                before = self._last_offsets.get(record.key)
                if before is not None:
                    self._superseded.add(before)
                if record.value is not None:
                    self._last_offsets[record.key] = record.offset
                    continue
                self._last_offsets.pop(record.key, None)
            self._superseded.add(record.offset)

    def _sweep(self, records: int) -> None:
        """Go on with a pass by so many records, to the end of a batch; or start one if it is time for it."""
        if not self._dropping:
            if len(self._superseded) <= len(self._last_offsets):
                return
            self._dropping, self._superseded = self._superseded, set()
            self._sweep_offset = self.log_start_offset
        start = end = self._index_of(self._sweep_offset)
        kept: list[RecordBatch] = []
        freed_bytes = 0
        while self._dropping and records > 0:
            batch = self._batches[end]
            end += 1
            records -= batch.record_count
            freed_bytes += batch.size_bytes
            swept = self._swept(batch)
            if swept is not None:
                freed_bytes -= swept.size_bytes
                kept.append(swept)
            self._sweep_offset = batch.last_offset + 1
        self._batches[start:end] = kept
        self.size_bytes -= freed_bytes
        self._clean_bytes -= freed_bytes

    def _swept(self, batch: RecordBatch) -> RecordBatch | None:
        """The batch without the records to drop, or None if none is left."""
        dropped = self._dropping.intersection(range(batch.base_offset, batch.last_offset + 1))
        if not dropped:
            return batch
        self._dropping -= dropped
        if len(dropped) == batch.record_count:
            return None
        return _without(batch, dropped)

    def _start_anew(self) -> None:
        """Find out again what is superseded, after truncating more than the window."""
        self._clean_end_offset = self.log_start_offset
        self._clean_bytes = 0
        self._last_offsets = {}
        self._superseded = set()
        self._dropping = set()
        for batch in self._batches:
            self._leave_window(batch)


def _without(batch: RecordBatch, offsets: set[int]) -> RecordBatch:
    """A batch without some of its records; what it says of its producer, epoch and transaction stays."""
    kept = [record for record in iterate_records(batch) if record.offset not in offsets]
    data = encode_batch(
        kept,
        base_offset=batch.base_offset,
        compression=batch.compression,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        timestamp_type=batch.timestamp_type,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )
    return RecordBatch.from_bytes(data)
