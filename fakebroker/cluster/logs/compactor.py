"""Log compaction (`cleanup.policy=compact`): only the last record of each key is kept, as by Kafka's LogCleaner.

Works on a list of record batches, a few with each append. Does not depend on logs, partitions or a clock.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from operator import attrgetter

from fakebroker.cluster.logs.producer_state import Producers
from fakebroker.cluster.logs.segments import Segment, segment_of, without
from fakebroker.protocol.records import RecordBatch
from fakebroker.protocol.transaction_markers import marker_in

DEFAULT_WINDOW_RECORDS = 512
DEFAULT_WINDOW_BYTES = 4 * 1024 * 1024
DEFAULT_RECENT_SEGMENTS = 8
"""The last segments are not compressed: the few of a log that does not grow change with each pass."""
STEP_RECORDS = 64
"""How many records are appended between two steps of compaction."""

SWEEP_FACTOR = 8
"""How many records a compaction step visits for each record appended: a pass needs memory until it ends."""


class Compactor:
    """Drops superseded records from the batches of one log. The offsets of other records do not change.

    The newest records form a window that is not compacted, like Kafka's active segment: they are not dropped, and they
    do not supersede older records. So truncating the log within the window restores its earlier contents.

    A batch leaves the window when newer batches fill it, and becomes part of a segment. When more records have left the
    window than remained after the last pass, the next pass begins, as Kafka's cleaner does when half of a log is dirty.
    It first finds the last offset of each key in the new segments. Then it visits all segments, the oldest first, and
    drops the records that are superseded by these, tombstones, and records without a key. It does so a few with each
    append. Of two records with the same key, the newer is never dropped before the older. So a tombstone stays for as
    long as the records that it deletes.

    Records of a transaction supersede others when its marker has left the window, if it was committed; if it was
    aborted, they are superseded. Until then all later batches wait, so a transaction that is never ended stops the
    compaction, as in Kafka. A marker is dropped in a pass that finds no batch of its transaction.

    Args:
        window_records: The number of records in the window, at least 1; up to `STEP_RECORDS` more are possible.
        window_bytes: The size, at least 1, at which the window is full even with fewer records. The newest batch is
            always in the window.
        recent_segments: How many segments at the end are not compressed.
    """

    __slots__ = (
        "_aborted",
        "_clean_bytes",
        "_clean_end_offset",
        "_compacted",
        "_due_records",
        "_has_transactions",
        "_last_offsets",
        "_live_records",
        "_map_at",
        "_new_records",
        "_open",
        "_pass_end",
        "_recent_segments",
        "_segments",
        "_sweep_at",
        "_transactions_kept",
        "_waiting",
        "_window_bytes",
        "_window_records",
    )

    def __init__(
        self,
        window_records: int = DEFAULT_WINDOW_RECORDS,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
        recent_segments: int = DEFAULT_RECENT_SEGMENTS,
    ) -> None:
        self._window_records = window_records
        self._window_bytes = window_bytes
        self._recent_segments = recent_segments
        self._due_records = 0  # Appended since the last step.
        self._has_transactions = False
        self._start_over()

    def _start_over(self) -> None:
        # The part before the window: its end offset, its size, and its batches, except those that wait for the end of a
        # transaction. The records of the first `_compacted` segments have different keys.
        self._clean_end_offset = 0
        self._clean_bytes = 0
        self._segments: list[Segment] = []
        self._compacted = 0
        # The numbers of records in those segments, and in the others.
        self._live_records = self._new_records = 0
        # The current pass: the number of its segments, the next one to find last offsets in, the next one to visit, and
        # the last offset of the hash of each key in the new segments. Without a pass, the last two numbers are equal.
        self._pass_end = self._map_at = self._sweep_at = 0
        self._last_offsets: dict[int, int] = {}
        # The waiting batches; the base offsets of those in transactions that are open at the start of the window, by
        # producer id in the order of their first ones; and the base offsets of those that were aborted.
        self._waiting: deque[RecordBatch] = deque()
        self._open: dict[int, list[int]] = {}
        self._aborted: set[int] = set()
        # The producers of which the current pass has kept batches of a transaction, until it comes to the marker.
        self._transactions_kept: set[int] = set()

    def clone(self) -> "Compactor":
        """Return an independent copy."""
        twin = copy(self)
        twin._segments = self._segments.copy()
        twin._last_offsets = self._last_offsets.copy()
        twin._waiting = self._waiting.copy()
        twin._open = {producer_id: offsets.copy() for producer_id, offsets in self._open.items()}
        twin._aborted = self._aborted.copy()
        twin._transactions_kept = self._transactions_kept.copy()
        return twin

    @property
    def last_offset(self) -> int:
        """The last offset of the batches in segments; -1 if there are none."""
        return self._segments[-1].last_offset if self._segments else -1

    def batches_from(self, offset: int) -> Iterator[RecordBatch]:
        """Yield the batches in segments, from the first batch that ends at the offset or after it."""
        for index in range(bisect_left(self._segments, offset, key=attrgetter("last_offset")), len(self._segments)):
            yield from self._segments[index].batches(offset)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first."""
        return self._segments

    def appended(self, batches: list[RecordBatch], size_bytes: int, producers: Producers) -> int:
        """Continue compaction after an append.

        Args:
            batches: The batches of the log that are not in segments; the last one was just appended. Those that become
                part of a segment are removed.
            size_bytes: The size of all batches, including those in segments.
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
        freed_bytes = self._continue_pass(SWEEP_FACTOR * self._due_records, producers)
        self._due_records = 0
        return freed_bytes

    def release(self, batches: list[RecordBatch], offset: int) -> bool:
        """Prepare for a truncation. If more than the window is cut, move the batches in segments back to the others.

        Args:
            batches: The batches of the log that are not in segments.
            offset: The first offset that is cut.

        Returns:
            Whether the caller has to call `restart` after the truncation.
        """
        if offset >= self._clean_end_offset:
            return False
        batches[:0] = self.batches_from(0)
        self._start_over()
        return True

    def restart(self, batches: list[RecordBatch]) -> None:
        """Move all batches of a log that was truncated out of the window, so that superseded ones are found again."""
        self._seal(batches, sum(map(self._leave_window, batches)))

    def _move_window(self, batches: list[RecordBatch], size_bytes: int) -> None:
        """Move the oldest batches out of the window while the others are enough to fill it."""
        log_end_offset = batches[-1].last_offset + 1
        decided = 0
        for index in range(_index_of(batches, self._clean_end_offset), len(batches)):
            batch = batches[index]
            records_left = log_end_offset - batch.last_offset - 1
            bytes_left = size_bytes - self._clean_bytes - batch.size_bytes
            if records_left < self._window_records and bytes_left < self._window_bytes:
                break
            decided += self._leave_window(batch)
        self._seal(batches, decided)

    def _leave_window(self, batch: RecordBatch) -> int:
        """Move the oldest batch out of the window. Return how many batches can become part of a segment then."""
        self._clean_end_offset = batch.last_offset + 1
        self._clean_bytes += batch.size_bytes
        return self._decided_after(batch) if self._has_transactions else 1

    def _decided_after(self, batch: RecordBatch) -> int:
        """Return how many batches can supersede others when the next batch has left the window, oldest first.

        None if that batch is after the start of an open transaction; many if it is the marker that others wait for.
        """
        self._waiting.append(batch)
        if (marker := marker_in(batch)) is not None:
            offsets = self._open.pop(batch.producer_id, ())
            if not marker.is_commit:
                self._aborted.update(offsets)
        elif batch.is_transactional:
            self._open.setdefault(batch.producer_id, []).append(batch.base_offset)
        first_open = next(iter(self._open.values()))[0] if self._open else self._clean_end_offset
        decided = 0
        while self._waiting and self._waiting[0].base_offset < first_open:
            self._waiting.popleft()
            decided += 1
        return decided

    def _seal(self, batches: list[RecordBatch], count: int) -> None:
        """Move the first batches to a new segment."""
        if not count:
            return
        sealed = batches[:count]
        del batches[:count]
        self._segments.append(segment_of(sealed, self._aborted if self._has_transactions else None))
        self._new_records += self._segments[-1].record_count
        self._compress(len(self._segments) - 1 - self._recent_segments)
        if self._aborted:
            self._aborted.difference_update(batch.base_offset for batch in sealed)

    def _continue_pass(self, records: int, producers: Producers) -> int:
        """Visit this many records, to the end of a segment, in this pass or a new one. Return the bytes freed."""
        if self._sweep_at == self._pass_end:
            if self._new_records <= self._live_records:
                return 0
            self._pass_end, self._map_at, self._sweep_at = len(self._segments), self._compacted, 0
            self._new_records = self._live_records = 0
            self._transactions_kept.clear()
        freed_bytes = 0
        while records > 0 and self._sweep_at < self._pass_end:
            if self._map_at < self._pass_end:
                segment = self._segments[self._map_at]
                self._last_offsets.update(zip(segment.hashes, segment.offsets, strict=True))
                self._map_at += 1
            else:
                segment = self._segments[self._sweep_at]
                freed_bytes += segment.size_bytes - self._visit(segment, producers)
            records -= segment.record_count
        if self._sweep_at == self._pass_end:
            self._compacted, self._last_offsets = self._pass_end, {}
        self._clean_bytes -= freed_bytes
        return freed_bytes

    def _visit(self, segment: Segment, producers: Producers) -> int:
        """Compact the next segment, and join it with the previous one if both are small. Return its size."""
        at = self._sweep_at
        compacted = self._compacted_segment(segment, producers)
        if compacted is None:
            del self._segments[at]
            self._pass_end -= 1
            return 0
        self._live_records += compacted.record_count
        previous = self._segments[at - 1] if at else None
        if previous is not None and previous.record_count + compacted.record_count <= STEP_RECORDS:
            self._segments[at - 1 : at + 1] = [previous.followed_by(compacted)]
            self._pass_end -= 1
        else:
            self._segments[at] = compacted
            self._sweep_at += 1
            self._compress(at - 1)
        return compacted.size_bytes

    def _compress(self, at: int) -> None:
        """Compress a segment, unless it is a recent one."""
        if 0 <= at < len(self._segments) - self._recent_segments:
            self._segments[at] = self._segments[at].compressed()

    def _compacted_segment(self, segment: Segment, producers: Producers) -> Segment | None:
        """Return a segment without the records to drop; None if nothing is left."""
        dropped = segment.superseded(self._last_offsets)
        if not segment.is_transactional:
            return segment.without(dropped) if dropped else segment
        kept: list[RecordBatch] = []
        for batch in segment.batches():
            compacted = without(batch, dropped)
            if batch.is_transactional:
                compacted = self._of_transaction(batch, compacted, producers)
            if compacted is not None:
                kept.append(compacted)
        return segment.with_batches(kept, dropped)

    def _of_transaction(
        self, batch: RecordBatch, compacted: RecordBatch | None, producers: Producers
    ) -> RecordBatch | None:
        """Return what remains of a transactional batch; of a marker None if it is not needed."""
        if not batch.is_control:
            if compacted is not None:
                self._transactions_kept.add(batch.producer_id)
            return compacted
        if batch.producer_id in self._transactions_kept:
            self._transactions_kept.remove(batch.producer_id)
            return batch
        producers.forget_aborted_at(batch.base_offset)
        return None


def _index_of(batches: list[RecordBatch], offset: int) -> int:
    """Return the index of the batch that contains the offset, or of the next batch if none does."""
    return bisect_left(batches, offset, key=attrgetter("last_offset"))
