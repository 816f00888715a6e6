"""`Cleaner`: compaction of a topic at a time of the brokers' clock (`cleanup.policy=compact`, Kafka's LogCleaner).

Works on a list of record batches and their producers. `Compactor` is the other kind of compaction: of
__consumer_offsets, with each append. Does not depend on logs, topics or a clock.
"""

from bisect import bisect_left
from collections.abc import Iterable
from copy import copy
from math import inf
from operator import attrgetter

from fakebroker.cluster.logs.producer_state import Producers
from fakebroker.cluster.logs.segments import without
from fakebroker.protocol.records import RecordBatch, emptied, iterate_records
from fakebroker.protocol.transaction_markers import AbortedBatches


class Cleaner:
    """Keeps the last record of each key of one log. Offsets do not change.

    Each batch is treated as a segment, and the newest one as if it had just been rolled, so all batches are compacted.
    The last record of the log is always kept, so that the log end offset can be reached. Records without a key, from
    the time before a topic was compacted, are dropped.

    Batches from the last stable offset on are not compacted. The records of aborted transactions are dropped, and do
    not supersede others. A marker stays until no batch of its transaction is left, and then as long as a tombstone. The
    newest batch of each producer stays, without records if need be, because it has the producer's last sequence number.
    """

    __slots__ = ("_end_offset", "_kept", "_last_offsets", "_markers", "_tombstones")

    def __init__(self) -> None:
        self._start_over()

    def _start_over(self) -> None:
        # The end of the part that is compacted, the offset of the last record of each key in it, and when those
        # without a value are dropped.
        self._end_offset = 0
        self._last_offsets: dict[bytes, int] = {}
        self._tombstones: dict[int, tuple[bytes, float]] = {}
        # The offsets of the markers of which no batch is left, and when they are dropped.
        self._markers: dict[int, float] = {}
        # Offsets to drop as soon as they are not the last offset of the log: at most one.
        self._kept: set[int] = set()

    def clone(self) -> "Cleaner":
        """Return an independent copy."""
        twin = copy(self)
        twin._last_offsets = self._last_offsets.copy()
        twin._tombstones = self._tombstones.copy()
        twin._markers = self._markers.copy()
        twin._kept = self._kept.copy()
        return twin

    def next_ms(self, stable_offset: int, log_end_offset: int) -> float:
        """Return when the next call may drop a record, in milliseconds of the brokers' time; infinity for never.

        Args:
            stable_offset: The last stable offset. If not all records before it are compacted, the result is 0.
            log_end_offset: The log end offset.
        """
        if self._end_offset < stable_offset:
            return 0
        due = [due_ms for offset, (_, due_ms) in self._tombstones.items() if offset < log_end_offset - 1]
        due += [due_ms for offset, due_ms in self._markers.items() if offset < log_end_offset - 1]
        return min(due, default=inf)

    def clean(
        self,
        batches: list[RecordBatch],
        producers: Producers,
        now_ms: float,
        min_lag_ms: int,
        delete_retention_ms: int,
    ) -> list[RecordBatch]:
        """Return the batches of the log without superseded records.

        Args:
            batches: All batches of the log.
            producers: The producers of the log. Aborted transactions without records are removed.
            now_ms: The brokers' time in milliseconds.
            min_lag_ms: Compaction stops before the first batch with a timestamp later than `now_ms - min_lag_ms`; 0 for
                no limit.
            delete_retention_ms: How long tombstones, and the markers of transactions without records, are kept after
                they were first compacted.
        """
        if not batches:
            return batches
        last_offset = batches[-1].last_offset
        dropped, self._kept = self._kept, set()
        due_ms, stable_offset = now_ms + delete_retention_ms, producers.first_unstable_offset
        aborted = AbortedBatches(producers.aborted_in(self._end_offset, last_offset + 1))
        for batch in batches[_index_of(batches, self._end_offset) :]:
            is_too_new = min_lag_ms > 0 and batch.max_timestamp_ms > now_ms - min_lag_ms
            if is_too_new or (stable_offset is not None and batch.last_offset >= stable_offset):
                break
            if aborted.contain(batch):
                dropped.update(range(batch.base_offset, batch.last_offset + 1))
            elif not batch.is_control:
                self._add(batch, dropped, due_ms)
            self._end_offset = batch.last_offset + 1
        for offset, (key, tombstone_due_ms) in list(self._tombstones.items()):
            if tombstone_due_ms <= now_ms and offset != last_offset:
                del self._tombstones[offset], self._last_offsets[key]
                dropped.add(offset)
        if last_offset in dropped:
            dropped.remove(last_offset)
            self._kept.add(last_offset)
        return self._without_ended(_without_all(batches, dropped, producers), producers, now_ms, due_ms)

    def _without_ended(
        self, batches: list[RecordBatch], producers: Producers, now_ms: float, due_ms: float
    ) -> list[RecordBatch]:
        """Drop the markers, and the batches without records, that are not needed any more."""
        kept: list[RecordBatch] = []
        markers: dict[int, float] = {}
        in_transaction: set[int] = set()
        for batch in batches:
            if batch.producer_id < 0 or batch.last_offset >= self._end_offset or batch is batches[-1]:
                kept.append(batch)
                continue
            is_needed = producers.needs(batch)
            if not batch.record_count and not is_needed:
                continue
            if batch.is_control and batch.record_count and batch.producer_id not in in_transaction:
                offset = batch.base_offset
                producers.forget_aborted_at(offset)
                markers[offset] = self._markers.get(offset, due_ms)
                if markers[offset] <= now_ms:
                    del markers[offset]
                    if not is_needed:
                        continue
                    batch = emptied(batch)
            if batch.is_control:
                in_transaction.discard(batch.producer_id)
            elif batch.is_transactional:
                in_transaction.add(batch.producer_id)
            kept.append(batch)
        self._markers = markers
        return kept

    def truncated(self, log_end_offset: int) -> None:
        """Adapt to a log that was truncated: if compacted records were cut, the next call compacts the whole log."""
        if log_end_offset < self._end_offset:
            self._start_over()

    def _add(self, batch: RecordBatch, dropped: set[int], due_ms: float) -> None:
        """Add a batch to the compacted part. The records that it supersedes, or that have no key, are dropped."""
        for record in iterate_records(batch):
            if record.key is None:
                dropped.add(record.offset)
                continue
            before = self._last_offsets.get(record.key)
            if before is not None:
                dropped.add(before)
                self._tombstones.pop(before, None)
            self._last_offsets[record.key] = record.offset
            if record.value is None:
                self._tombstones[record.offset] = record.key, due_ms


def _index_of(batches: list[RecordBatch], offset: int) -> int:
    """Return the index of the batch that contains the offset, or of the next batch if none does."""
    return bisect_left(batches, offset, key=attrgetter("last_offset"))


def _without_all(batches: list[RecordBatch], offsets: Iterable[int], producers: Producers) -> list[RecordBatch]:
    """Return batches without some of their records. Offsets that no batch contains are ignored."""
    by_index: dict[int, set[int]] = {}
    for offset in offsets:
        index = _index_of(batches, offset)
        if index < len(batches) and batches[index].base_offset <= offset:
            by_index.setdefault(index, set()).add(offset)
    kept: list[RecordBatch] = []
    for index, batch in enumerate(batches):
        dropped = by_index.get(index)
        remaining = batch if dropped is None else without(batch, dropped)
        if remaining is not None:
            kept.append(remaining)
        elif producers.needs(batch):
            kept.append(emptied(batch))
    return kept
