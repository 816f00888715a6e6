"""Log compaction (`cleanup.policy=compact`): only the last record of each key is kept, as by Kafka's LogCleaner.

Works on a list of record batches, a few with each append. Does not depend on logs, partitions or a clock.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from copy import copy
from operator import attrgetter

from fakebroker.cluster.logs.producer_state import Producers
from fakebroker.protocol.records import RecordBatch, encode_batch, iterate_records, record_keys
from fakebroker.protocol.transaction_markers import marker_in

DEFAULT_WINDOW_RECORDS = 512
DEFAULT_WINDOW_BYTES = 4 * 1024 * 1024
STEP_RECORDS = 64
"""How many records are appended between two steps of compaction."""

SWEEP_FACTOR = 4
"""How many records a compaction step visits for each record appended. Visiting 4 takes as long as appending 1."""


class Compactor:
    """Drops superseded records from the batches of one log. The offsets of other records do not change.

    The newest records form a window that is not compacted, like Kafka's active segment: they are not dropped, and they
    do not supersede older records. So truncating the log within the window restores its earlier contents.

    A batch leaves the window when newer batches fill it. Then each of its records supersedes the previous record with
    the same key. Tombstones and records without a key are superseded as soon as they leave the window.

    When more records are superseded than live, a pass begins. It visits all batches, the oldest first, a few with each
    append, and drops the records that were superseded at its beginning. Of two records with the same key, the newer is
    never superseded or dropped before the older. So a tombstone stays for as long as the records that it deletes.

    Records of a transaction supersede others when its marker has left the window, if it was committed; if it was
    aborted, they are superseded. Until then all later batches wait, so a transaction that is never ended stops the
    compaction, as in Kafka. A marker is dropped in a pass that finds no batch of its transaction.

    Args:
        window_records: The number of records in the window, at least 1; up to `STEP_RECORDS` more are possible.
        window_bytes: The size, at least 1, at which the window is full even with fewer records. The newest batch is
            always in the window.
    """

    __slots__ = (
        "_aborted",
        "_clean_bytes",
        "_clean_end_offset",
        "_dropping",
        "_due_records",
        "_has_transactions",
        "_last_offsets",
        "_open",
        "_superseded",
        "_sweep_offset",
        "_transactions_kept",
        "_waiting",
        "_window_bytes",
        "_window_records",
    )

    def __init__(self, window_records: int = DEFAULT_WINDOW_RECORDS, window_bytes: int = DEFAULT_WINDOW_BYTES) -> None:
        self._window_records = window_records
        self._window_bytes = window_bytes
        self._due_records = 0  # Appended since the last step.
        # The part before the window: its end offset, its size, and the offset of the last record of each key in it,
        # except in the batches that wait for the end of a transaction.
        self._clean_end_offset = 0
        self._clean_bytes = 0
        self._last_offsets: dict[bytes, int] = {}
        # Offsets of the records that the next pass will drop, offsets of those that the current pass has yet to drop,
        # and the offset at which the current pass continues.
        self._superseded: set[int] = set()
        self._dropping: set[int] = set()
        self._sweep_offset = 0
        # The waiting batches; the base offsets of those in transactions that are open at the start of the window, by
        # producer id in the order of their first ones; and the base offsets of those that were aborted.
        self._waiting: deque[RecordBatch] = deque()
        self._open: dict[int, list[int]] = {}
        self._aborted: set[int] = set()
        # The producers of which the current pass has kept batches of a transaction, until it comes to the marker.
        self._transactions_kept: set[int] = set()
        self._has_transactions = False

    def clone(self) -> "Compactor":
        """Return an independent copy."""
        twin = copy(self)
        twin._last_offsets = self._last_offsets.copy()
        twin._superseded = self._superseded.copy()
        twin._dropping = self._dropping.copy()
        twin._waiting = self._waiting.copy()
        twin._open = {producer_id: offsets.copy() for producer_id, offsets in self._open.items()}
        twin._aborted = self._aborted.copy()
        twin._transactions_kept = self._transactions_kept.copy()
        return twin

    def appended(self, batches: list[RecordBatch], size_bytes: int, producers: Producers) -> int:
        """Continue compaction after an append.

        Args:
            batches: All batches of the log; the last one was just appended. The list is changed in place.
            size_bytes: The size of all batches.
            producers: The producers of the log. Aborted transactions whose markers are dropped are removed.

        Returns:
            The number of bytes freed.
        """
        newest = batches[-1]
        self._has_transactions = self._has_transactions or newest.is_transactional
        self._due_records += newest.last_offset + 1 - newest.base_offset
        if self._due_records < STEP_RECORDS and size_bytes - self._clean_bytes <= self._window_bytes:
            return 0
        self._move_window(batches, size_bytes)
        freed_bytes = self._sweep(batches, SWEEP_FACTOR * self._due_records, producers)
        self._due_records = 0
        return freed_bytes

    def truncated(self, batches: list[RecordBatch], log_end_offset: int) -> None:
        """Adapt to a log that was truncated. If more than the window was cut, find the superseded records again.

        Args:
            batches: The remaining batches.
            log_end_offset: The new log end offset.
        """
        if log_end_offset >= self._clean_end_offset:
            return
        self._clean_end_offset = self._clean_bytes = 0
        self._last_offsets = {}
        self._superseded = set()
        self._dropping = set()
        self._waiting.clear()
        self._open = {}
        self._aborted = set()
        for batch in batches:
            self._leave_window(batch)

    def _move_window(self, batches: list[RecordBatch], size_bytes: int) -> None:
        """Move the oldest batches out of the window while the others are enough to fill it."""
        log_end_offset = batches[-1].last_offset + 1
        for index in range(_index_of(batches, self._clean_end_offset), len(batches)):
            batch = batches[index]
            records_left = log_end_offset - batch.last_offset - 1
            bytes_left = size_bytes - self._clean_bytes - batch.size_bytes
            if records_left < self._window_records and bytes_left < self._window_bytes:
                return
            self._leave_window(batch)

    def _leave_window(self, batch: RecordBatch) -> None:
        """Move the oldest batch out of the window, and mark the records that are superseded then."""
        self._clean_end_offset = batch.last_offset + 1
        self._clean_bytes += batch.size_bytes
        for each in self._decided_after(batch) if self._has_transactions else (batch,):
            for offset, key, has_value in record_keys(each):
                if key is not None:
                    before = self._last_offsets.get(key)
                    if before is not None:
                        self._superseded.add(before)
                    if has_value:
                        self._last_offsets[key] = offset
                        continue
                    self._last_offsets.pop(key, None)
                self._superseded.add(offset)

    def _decided_after(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield the batches that supersede others when the next batch has left the window, oldest first.

        None if that batch is after the start of an open transaction; many if it is the marker that others wait for.
        Records of aborted transactions are superseded.
        """
        self._waiting.append(batch)
        if (marker := marker_in(batch)) is not None:
            offsets = self._open.pop(batch.producer_id, ())
            if not marker.is_commit:
                self._aborted.update(offsets)
        elif batch.is_transactional:
            self._open.setdefault(batch.producer_id, []).append(batch.base_offset)
        first_open = next(iter(self._open.values()))[0] if self._open else self._clean_end_offset
        while self._waiting and self._waiting[0].base_offset < first_open:
            decided = self._waiting.popleft()
            if decided.base_offset in self._aborted:
                self._aborted.remove(decided.base_offset)
                self._superseded.update(offset for offset, _, _ in record_keys(decided))
            elif not decided.is_control:
                yield decided

    def _sweep(self, batches: list[RecordBatch], records: int, producers: Producers) -> int:
        """Visit this many records, to the end of a batch, in the current pass or a new one. Return the bytes freed."""
        if not self._dropping:
            if len(self._superseded) <= len(self._last_offsets):
                return 0
            self._dropping, self._superseded = self._superseded, set()
            self._sweep_offset = 0
            self._transactions_kept.clear()
        start = end = _index_of(batches, self._sweep_offset)
        kept: list[RecordBatch] = []
        freed_bytes = 0
        while self._dropping and records > 0:
            batch = batches[end]
            end += 1
            records -= batch.record_count
            freed_bytes += batch.size_bytes
            is_transactional = self._has_transactions and batch.is_transactional
            compacted = self._of_transaction(batch, producers) if is_transactional else self._without_dropped(batch)
            if compacted is not None:
                freed_bytes -= compacted.size_bytes
                kept.append(compacted)
            self._sweep_offset = batch.last_offset + 1
        batches[start:end] = kept
        self._clean_bytes -= freed_bytes
        return freed_bytes

    def _of_transaction(self, batch: RecordBatch, producers: Producers) -> RecordBatch | None:
        """Return a transactional batch without the records to drop, or a marker; None if the marker is not needed."""
        if not batch.is_control:
            compacted = self._without_dropped(batch)
            if compacted is not None:
                self._transactions_kept.add(batch.producer_id)
            return compacted
        if batch.producer_id in self._transactions_kept:
            self._transactions_kept.remove(batch.producer_id)
            return batch
        producers.forget_aborted_at(batch.base_offset)
        return None

    def _without_dropped(self, batch: RecordBatch) -> RecordBatch | None:
        """Return the batch without the records to drop; None if no record is left."""
        dropped = self._dropping.intersection(range(batch.base_offset, batch.last_offset + 1))
        if not dropped:
            return batch
        self._dropping -= dropped
        return None if len(dropped) == batch.record_count else without(batch, dropped)


def _index_of(batches: list[RecordBatch], offset: int) -> int:
    """Return the index of the batch that contains the offset, or of the next batch if none does."""
    return bisect_left(batches, offset, key=attrgetter("last_offset"))


def without(batch: RecordBatch, offsets: set[int]) -> RecordBatch | None:
    """Return a batch without some of its records, or None if no record is left.

    Its offsets and its header fields for producers and transactions do not change.
    """
    kept = [record for record in iterate_records(batch) if record.offset not in offsets]
    if not kept:
        return None
    data = encode_batch(
        kept,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        compression=batch.compression,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        timestamp_type=batch.timestamp_type,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )
    return RecordBatch(data)
