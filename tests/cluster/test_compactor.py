"""Compacted logs: compared with a list of all appended batches; their memory, and the work per append."""

import random
import sys
from collections.abc import Iterable

import pytest
from crc32c import crc32c
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakebroker.cluster.logs.compactor import DEFAULT_WINDOW_RECORDS, STEP_RECORDS, SWEEP_FACTOR, Compactor
from fakebroker.cluster.logs.partition_log import EpochEndOffset, PartitionLog, TimestampAndOffset
from fakebroker.cluster.logs.producer_state import Producers
from fakebroker.cluster.logs.segments import Segment, segment_of
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.records import (
    Record,
    RecordBatch,
    TimestampType,
    decode_records,
    encode_batch,
    split_batches,
)
from fakebroker.protocol.transaction_markers import encode_marker, marker_in
from tests.support.soak import cases, examples, soak

Pair = tuple[bytes | None, bytes | None]

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
PAIRS = st.tuples(KEYS | st.none(), st.binary(max_size=3) | st.none())
ALL = 2**31


def a_batch(
    *pairs: Pair, timestamp_ms: int = 0, compression: Compression = Compression.NONE, producer_id: int = -1
) -> bytes:
    """Return a batch with a record for each key and value, which is in a transaction if it has a producer."""
    records = [Record(offset, timestamp_ms, key, value) for offset, (key, value) in enumerate(pairs)]
    return encode_batch(records, compression=compression, producer_id=producer_id, is_transactional=producer_id >= 0)


def a_marker(producer_id: int, *, is_commit: bool = True) -> bytes:
    return encode_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, now_ms=0)


def batches_of(log: PartitionLog) -> list[RecordBatch]:
    return split_batches(log.read(log.log_start_offset, ALL))


def records_of(log: PartitionLog) -> list[Record]:
    return [record for batch in batches_of(log) for record in decode_records(batch)]


def last_values(records: Iterable[Record]) -> dict[bytes, bytes]:
    """Return the last value of each key, without tombstones."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if key is not None and value is not None}


State = tuple[dict[bytes, bytes], dict[tuple[int, bytes], bytes]]
"""The last value of each key, and those of open transactions by producer id and key."""


def state_after(batches: Iterable[RecordBatch]) -> State:
    """Return the state after all batches, as a group coordinator has it (Kafka's `OffsetMetadataManager.replay`)."""
    stored: dict[bytes, tuple[int, bytes]] = {}
    pending: dict[int, dict[bytes, tuple[int, bytes]]] = {}
    for batch in batches:
        if (marker := marker_in(batch)) is not None:
            for key, value in pending.pop(batch.producer_id, {}).items():
                if marker.is_commit and stored.get(key, (-1, b""))[0] < value[0]:
                    stored[key] = value
            continue
        for record in decode_records(batch):
            if record.key is None:
                continue
            if batch.is_transactional:
                pending.setdefault(batch.producer_id, {})[record.key] = record.offset, record.value or b""
            elif record.value is not None:
                stored[record.key] = record.offset, record.value
            else:
                for values in (stored, *pending.values()):
                    values.pop(record.key, None)
    last = {key: value for key, (_, value) in stored.items()}
    return last, {(of, key): value for of, some in pending.items() for key, (_, value) in some.items()}


def fill(log: PartitionLog, key: bytes, count: int) -> None:
    """Append records of one key, each in a batch of its own."""
    for number in range(count):
        log.append(a_batch((key, b"%d" % number)), leader_epoch=0)


class CompactedLogMachine(RuleBasedStateMachine):
    """A compacted log compared with a list of all appended batches, from which only truncation removes batches.

    From `window_start` on, the log must contain all records: they are in the compactor's window.
    """

    @initialize(
        window_records=st.sampled_from([1, 5, 40]),
        window_bytes=st.sampled_from([1, 300, ALL]),
        recent_segments=st.sampled_from([0, 1, 8]),
    )
    def start(self, window_records: int, window_bytes: int, recent_segments: int) -> None:
        self.log = PartitionLog(compactor=Compactor(window_records, window_bytes, recent_segments))
        self.window_records = window_records
        self.window_bytes = window_bytes
        self.window_start = 0
        self.appended: list[RecordBatch] = []
        self.leader_epoch = 0

    @rule(
        batches=st.lists(st.lists(PAIRS, min_size=1, max_size=6), min_size=1, max_size=20),
        compression=st.sampled_from([Compression.NONE, Compression.GZIP]),
        new_epoch=st.booleans(),
    )
    def append(self, batches: list[list[Pair]], compression: Compression, new_epoch: bool) -> None:
        self.leader_epoch += new_epoch
        for pairs in batches:
            end_offset = self.log.log_end_offset
            batch = a_batch(*pairs, timestamp_ms=end_offset, compression=compression)
            assert self.log.append(batch, self.leader_epoch) == end_offset
            (stored,) = split_batches(self.log.read(end_offset, ALL))
            assert stored.data[16:] == batch[16:]
            self.appended.append(stored)
            self.advance_window()

    def advance_window(self) -> None:
        """Move the start of the window. If bytes limit the window, only the newest batch is certain to be in it."""
        if self.window_bytes == ALL:
            start = self.log.log_end_offset - self.window_records
        else:
            start = self.appended[-1].base_offset
        self.window_start = max(self.window_start, start)

    @rule(
        producer_id=st.integers(0, 2),
        pairs=st.lists(st.tuples(KEYS, st.binary(max_size=3)), min_size=1, max_size=3),
        repeats=st.integers(1, 5),
    )
    def append_to_a_transaction(self, producer_id: int, pairs: list[Pair], repeats: int) -> None:
        for _ in range(repeats):
            self.add(a_batch(*pairs, timestamp_ms=self.log.log_end_offset, producer_id=producer_id))

    @rule(producer_id=st.integers(0, 2), is_commit=st.booleans())
    def end_a_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.add(a_marker(producer_id, is_commit=is_commit))

    def add(self, batch: bytes) -> None:
        (stored,) = split_batches(self.log.read(self.log.append(batch, self.leader_epoch), ALL))
        self.appended.append(stored)
        self.advance_window()

    @rule(data=st.data())
    def truncate_within_the_window(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.window_start, self.log.log_end_offset))
        self.log.truncate_to(offset)
        self.appended = [batch for batch in self.appended if batch.last_offset < offset]
        assert state_after(batches_of(self.log)) == state_after(self.appended)
        if self.log.log_end_offset < self.window_start:
            # All of the window was removed, and the last records before it had been dropped.
            self.appended = batches_of(self.log)
            self.window_start = self.log.log_end_offset

    @rule(data=st.data())
    def truncate_anywhere(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.log.log_end_offset))
        before = batches_of(self.log)
        self.log.truncate_to(offset)
        self.window_start = self.log.log_end_offset
        # Records that the removed ones had superseded may be missing, so the list continues from the remaining batches.
        self.appended = [batch for batch in before if batch.last_offset < offset]
        assert [batch.data for batch in batches_of(self.log)] == [batch.data for batch in self.appended]

    @rule(data=st.data(), max_bytes=st.integers(0, 500), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(0, self.log.log_end_offset))
        expected = b""
        for batch in batches_of(self.log):
            if batch.last_offset < offset:
                continue
            if len(expected) + batch.size_bytes > max_bytes and (expected or not at_least_one):
                break
            expected += batch.data
        assert self.log.read(offset, max_bytes, at_least_one=at_least_one) == expected

    @rule(timestamp_ms=st.integers(-1, 500))
    def timestamps(self, timestamp_ms: int) -> None:
        stored = [
            TimestampAndOffset(record.offset, record.timestamp_ms, batch.partition_leader_epoch)
            for batch in batches_of(self.log)
            for record in decode_records(batch)
        ]
        candidates = [each for each in stored if each.timestamp_ms >= timestamp_ms]
        assert self.log.offset_for_timestamp(timestamp_ms) == (candidates[0] if candidates else None)
        assert self.log.max_timestamp() == max(stored, key=lambda each: (each.timestamp_ms, -each.offset), default=None)

    @invariant()
    def stored_records_are_those_appended(self) -> None:
        appended = {record.offset: record for batch in self.appended for record in decode_records(batch)}
        stored = records_of(self.log)
        offsets = [record.offset for record in stored]
        assert offsets == sorted(set(offsets))
        assert stored == [appended[offset] for offset in offsets]

    @invariant()
    def keys_have_the_same_last_values(self) -> None:
        """Also if the log ended at any offset in the window."""
        stored = batches_of(self.log)
        for end in {self.window_start, *(batch.last_offset + 1 for batch in self.appended)}:
            if end >= self.window_start:
                expected = state_after(batch for batch in self.appended if batch.last_offset < end)
                assert state_after(batch for batch in stored if batch.last_offset < end) == expected

    @invariant()
    def the_window_is_complete(self) -> None:
        expected = [batch.data for batch in self.appended if batch.last_offset >= self.window_start]
        assert [batch.data for batch in batches_of(self.log) if batch.last_offset >= self.window_start] == expected

    @invariant()
    def chunks_are_the_bytes_that_are_read(self) -> None:
        chunks = b"".join(chunk.data for chunk in self.log.chunks())
        assert chunks == self.log.read(self.log.log_start_offset, ALL)

    @invariant()
    def the_log_ends_after_the_newest_batch(self) -> None:
        newest_end = self.appended[-1].last_offset + 1 if self.appended else 0
        assert self.log.log_end_offset == newest_end

    @invariant()
    def size_and_checksums_are_right(self) -> None:
        stored = batches_of(self.log)
        assert self.log.size_bytes == sum(batch.size_bytes for batch in stored)
        for batch in stored:
            assert crc32c(batch.data[21:]) == batch.crc


CompactedLogMachine.TestCase.settings = settings(max_examples=examples(20, soak=2000), stateful_step_count=15)
TestCompactedLog = soak(CompactedLogMachine.TestCase)


def kinds(log: PartitionLog) -> list[str]:
    """Return which batches of transactions remain."""
    markers = [(batch, marker_in(batch)) for batch in batches_of(log) if batch.is_transactional]
    return ["records" if marker is None else "commit" if marker.is_commit else "abort" for _, marker in markers]


def test_an_aborted_transaction_is_removed_with_its_marker() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1))
    log.append(a_batch((b"a", b"old")), leader_epoch=0)
    log.append(a_batch((b"a", b"new"), producer_id=1), leader_epoch=0)
    log.append(a_marker(1, is_commit=False), leader_epoch=0)
    fill(log, b"other", 8 * STEP_RECORDS)
    assert kinds(log) == []
    assert last_values(records_of(log))[b"a"] == b"old"


def test_a_committed_transaction_stays_with_its_marker_until_it_is_superseded() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1))
    log.append(a_batch((b"a", b"old")), leader_epoch=0)
    log.append(a_batch((b"a", b"new"), producer_id=1), leader_epoch=0)
    log.append(a_marker(1), leader_epoch=0)
    fill(log, b"other", 8 * STEP_RECORDS)
    assert kinds(log) == ["records", "commit"]
    assert [record.value for record in records_of(log) if record.key == b"a"] == [b"new"]
    log.append(a_batch((b"a", b"newer")), leader_epoch=0)
    fill(log, b"other", 8 * STEP_RECORDS)
    assert kinds(log) == []


def test_an_open_transaction_supersedes_nothing_and_stops_compaction() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1))
    log.append(a_batch((b"a", b"old")), leader_epoch=0)
    log.append(a_batch((b"a", b"new"), producer_id=1), leader_epoch=0)
    log.append(a_batch((b"a", b"by another"), producer_id=2), leader_epoch=0)
    log.append(a_marker(2), leader_epoch=0)
    fill(log, b"other", 8 * STEP_RECORDS)
    assert log.log_end_offset == len(records_of(log))
    log.append(a_marker(1, is_commit=False), leader_epoch=0)
    fill(log, b"other", 8 * STEP_RECORDS)
    assert [record.value for record in records_of(log) if record.key == b"a"] == [b"by another"]
    assert kinds(log) == ["records", "commit"]


def test_a_copied_log_has_transactions_of_its_own() -> None:
    for is_commit in (True, False):
        log = PartitionLog(compactor=Compactor(window_records=1))
        log.append(a_batch((b"a", b"old")), leader_epoch=0)
        log.append(a_batch((b"a", b"1"), producer_id=1), leader_epoch=0)
        fill(log, b"other", STEP_RECORDS)
        twin = log.clone()
        log.append(a_batch((b"a", b"2"), producer_id=1), leader_epoch=0)
        log.append(a_marker(1, is_commit=is_commit), leader_epoch=0)
        fill(log, b"other", 8 * STEP_RECORDS)
        twin.append(a_marker(1, is_commit=not is_commit), leader_epoch=0)
        fill(twin, b"other", 8 * STEP_RECORDS)
        expected = [b"2", b"old"] if is_commit else [b"old", b"1"]
        assert [last_values(records_of(each))[b"a"] for each in (log, twin)] == expected


def test_a_tombstone_is_removed_after_the_records_it_deletes() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1))
    log.append(a_batch((b"deleted", b"1")), leader_epoch=0)
    log.append(a_batch((b"deleted", None)), leader_epoch=0)
    values_over_time = []
    for _ in range(4 * STEP_RECORDS):
        fill(log, b"other", 1)
        values = tuple(record.value for record in records_of(log) if record.key == b"deleted")
        if values not in values_over_time:
            values_over_time.append(values)
    assert values_over_time == [(b"1", None), ()]


def test_a_tombstone_stays_while_it_is_in_the_window() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1_000))
    log.append(a_batch((b"deleted", None)), leader_epoch=0)
    fill(log, b"other", 999)
    assert records_of(log)[0].value is None


def test_records_without_a_key_are_not_kept() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1))
    log.append(a_batch((None, b"1"), (b"a", b"2")), leader_epoch=0)
    fill(log, b"b", 4 * STEP_RECORDS)
    assert records_of(log)[0] == Record(1, 0, b"a", b"2")


def test_compaction_does_not_change_offsets() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1))
    log.append(a_batch((b"first", b"1")), leader_epoch=3)
    fill(log, b"a", 1_000)
    assert (log.log_start_offset, log.log_end_offset) == (0, 1_001)
    (first, second, *_) = batches_of(log)
    assert (first.base_offset, first.partition_leader_epoch) == (0, 3)
    assert second.base_offset > 500
    assert split_batches(log.read(1, 0)) == [second]


@pytest.mark.parametrize("compression", list(Compression))
def test_a_compacted_batch_keeps_its_header(compression: Compression) -> None:
    records = [Record(0, 70, b"a", b"1"), Record(1, 90, b"kept", b"2", (("h", b"v"),)), Record(2, 80, b"a", b"3")]
    batch = encode_batch(
        records,
        compression=compression,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        is_transactional=True,
    )
    log = PartitionLog(compactor=Compactor(window_records=1))
    fill(log, b"x", 10)
    log.append(batch, leader_epoch=4)
    log.append(a_marker(5), leader_epoch=4)
    fill(log, b"a", 8 * STEP_RECORDS)

    compacted = next(batch for batch in batches_of(log) if batch.last_offset >= 10)
    original = RecordBatch(batch)
    assert decode_records(compacted) == [Record(11, 90, b"kept", b"2", (("h", b"v"),))]
    assert (compacted.base_offset, compacted.partition_leader_epoch) == (10, 4)
    assert (compacted.attributes, compacted.producer_id, compacted.producer_epoch) == (original.attributes, 5, 6)
    assert (compacted.base_sequence, compacted.max_timestamp_ms) == (7, 90)


def test_truncating_within_the_window_restores_superseded_records() -> None:
    log = PartitionLog(compactor=Compactor())
    log.append(a_batch((b"a", b"old")), leader_epoch=0)
    fill(log, b"b", 2_000)
    log.append(a_batch((b"a", b"new")), leader_epoch=1)
    fill(log, b"b", DEFAULT_WINDOW_RECORDS - 1)
    assert last_values(records_of(log))[b"a"] == b"new"

    log.truncate_to(2_001)

    assert last_values(records_of(log))[b"a"] == b"old"
    assert log.log_end_offset == 2_001
    assert log.epochs.end_offset_for(0, 2_001) == EpochEndOffset(0, 2_001)
    assert log.epochs.end_offset_for(1, 2_001) == EpochEndOffset(-1, -1)


@soak
@pytest.mark.parametrize("seed", cases(1, soak=200))
def test_a_long_history_with_truncations(seed: int) -> None:
    """The history is long enough for truncations that interrupt compaction passes."""
    generator = random.Random(seed)
    log = PartitionLog(compactor=Compactor(window_records=50, recent_segments=generator.randrange(3)))
    appended: list[Record] = []
    for step in range(8_000):
        key, value = b"%d" % generator.randrange(400), generator.choice([b"1", b"2", None])
        offset = log.append(a_batch((key, value)), leader_epoch=0)
        appended.append(Record(offset, 0, key, value))
        if step % 200 == 199:
            assert last_values(records_of(log)) == last_values(appended)
        if step % 1_000 == 999:
            log.truncate_to(log.log_end_offset - generator.choice([20, 300, 600]))
            appended = records_of(log)


def test_a_batch_is_truncated_as_a_whole() -> None:
    log = PartitionLog(compactor=Compactor())
    log.append(a_batch((b"a", b"1"), (b"b", b"1")), leader_epoch=0)
    log.append(a_batch((b"a", b"2"), (b"b", b"2")), leader_epoch=0)
    log.truncate_to(3)
    assert log.log_end_offset == 2
    assert last_values(records_of(log)) == {b"a": b"1", b"b": b"1"}


def test_a_log_truncated_to_its_start_can_be_appended_to() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1))
    fill(log, b"a", 1_000)
    log.truncate_to(0)
    assert (log.log_end_offset, log.size_bytes, records_of(log)) == (0, 0, [])
    fill(log, b"a", 1_000)
    assert last_values(records_of(log)) == {b"a": b"999"}
    assert len(records_of(log)) < 4 * STEP_RECORDS


def test_records_are_not_deleted_from_the_start() -> None:
    log = PartitionLog(compactor=Compactor())
    fill(log, b"a", 3)
    with pytest.raises(ValueError, match="truncate before offset 1: only superseded records"):
        log.truncate_before(1)


def test_truncating_out_of_range_is_an_error() -> None:
    log = PartitionLog(compactor=Compactor())
    fill(log, b"a", 3)
    for offset in (-1, 4):
        with pytest.raises(ValueError, match=f"offset {offset}, expected 0 to 3"):
            log.truncate_to(offset)


def test_the_window_is_bounded_in_bytes_too() -> None:
    log = PartitionLog(compactor=Compactor(window_records=1_000_000, window_bytes=10_000))
    for _ in range(100):
        log.append(a_batch((b"a", bytes(3_000))), leader_epoch=0)
    # Besides the window, the log contains records that are superseded but not dropped yet.
    assert log.size_bytes < 5 * 10_000
    assert len(batches_of(log)) >= 4


COMMIT_KEYS = 1_000
COMMITS = [a_batch((b"\0\1\0\5group\0\6orders%04d" % number, bytes(30))) for number in range(COMMIT_KEYS)]
MAX_RECORDS = DEFAULT_WINDOW_RECORDS + STEP_RECORDS + 3 * COMMIT_KEYS
"""The maximum number of records in a log with this many keys: its window, the last record of each key, and twice as
many superseded records."""


def key_of(number: int) -> int:
    """Return the key of the nth commit. All keys occur, in an order without a short period."""
    return number * number * 7919 % 999_983 % COMMIT_KEYS


@soak
def test_many_commits_of_a_thousand_keys_are_bounded() -> None:
    commits = examples(20_000, soak=1_000_000)
    compactor = Compactor()
    log = PartitionLog(compactor=compactor)
    for number in range(commits):
        log.append(COMMITS[key_of(number)], leader_epoch=0)
        if number % 500 == 0:
            assert log.size_bytes <= MAX_RECORDS * len(COMMITS[0])
            # Private attributes: the compactor's state must be bounded, too.
            assert len(log._batches) <= DEFAULT_WINDOW_RECORDS + STEP_RECORDS
            assert sum(segment.record_count for segment in compactor._segments) <= 3 * COMMIT_KEYS
            assert len(compactor._segments) <= 2 * 3 * COMMIT_KEYS / STEP_RECORDS
            assert len(compactor._last_offsets) <= COMMIT_KEYS
    assert log.log_end_offset == commits
    assert len(last_values(records_of(log))) == COMMIT_KEYS


class CountingCompactor(Compactor):
    """Counts the records that compaction visits. Overrides private methods, because no public value shows this work."""

    __slots__ = ("visited",)

    def __init__(self) -> None:
        super().__init__()
        self.visited = 0

    def _leave_window(self, batch: RecordBatch) -> int:
        self.visited += batch.record_count
        return super()._leave_window(batch)

    def _visit(self, segment: Segment, producers: Producers) -> int:
        self.visited += segment.record_count
        return super()._visit(segment, producers)


@pytest.mark.parametrize("keys", [10, 1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_work_per_append_does_not_grow_with_the_log(keys: int) -> None:
    compactor = CountingCompactor()
    log = PartitionLog(compactor=compactor)
    most_visited = 0
    for number in range(3 * keys + 5_000):
        before = compactor.visited
        log.append(a_batch((b"%d" % (number % keys), b"")), leader_epoch=0)
        most_visited = max(most_visited, compactor.visited - before)
    # A step visits whole segments.
    assert 0 < most_visited <= (2 + SWEEP_FACTOR) * STEP_RECORDS


@soak
def test_work_of_a_small_append_after_a_large_batch_is_bounded() -> None:
    compactor = CountingCompactor()
    log = PartitionLog(compactor=compactor)
    keys = 2_000
    large = a_batch(*[(b"%d" % key, b"") for key in range(keys)])
    most_visited = 0
    for stride in range(1, examples(4, soak=100) + 1):
        log.append(large, leader_epoch=0)
        for number in range(1_000):
            before = compactor.visited
            log.append(a_batch((b"%d" % (number * stride % keys), b"")), leader_epoch=0)
            most_visited = max(most_visited, compactor.visited - before)
    assert most_visited <= 2 * keys + (2 + SWEEP_FACTOR) * STEP_RECORDS


def memory_bytes(log: PartitionLog) -> int:
    """Return the memory of a log's batches and of its compactor's state, which are private attributes."""
    compactor = log._compactor
    assert compactor is not None
    objects: list[object] = [log._batches, compactor._segments, compactor._last_offsets]
    objects += [*compactor._last_offsets, *compactor._last_offsets.values()]
    for segment in compactor._segments:
        objects += [segment, segment._data, segment._starts, segment.offsets, segment.hashes, segment.doomed]
    for batch in log._batches:
        objects += [batch, batch.data, batch.base_offset, batch.last_offset]
    return sum(map(sys.getsizeof, objects))


@pytest.mark.parametrize("is_compressed", [False, True])
def test_joined_segments_have_the_offsets_of_both(is_compressed: bool) -> None:
    records = [Record(offset, 0, b"key", b"value") for offset in range(4)]
    batches = [RecordBatch(encode_batch([each], base_offset=each.offset)) for each in records]
    first, second = (segment_of(pair, None) for pair in (batches[:2], batches[2:]))
    if is_compressed:
        first, second = first.compressed(), second.compressed()
    joined = first.followed_by(second)
    assert joined.last_offset == 3
    assert [*joined.batches(1)] == batches[1:]
    assert [*joined.batches(3)] == batches[3:]


def test_records_of_many_keys_are_compressed() -> None:
    """Also after a pass that has dropped some of each segment."""
    log, count = PartitionLog(compactor=Compactor()), 10_000
    values = [b"a member of group %07d with the subscription of each other one" % key for key in range(count)]
    for key in [*range(count), *range(0, count, 2)]:
        log.append(a_batch((b"group-%07d" % key, values[key])), leader_epoch=0)
    assert last_values(records_of(log)) == {b"group-%07d" % key: value for key, value in enumerate(values)}
    assert log.size_bytes > 130 * count
    assert memory_bytes(log) < 110 * count


@pytest.mark.slow
@soak
def test_commits_of_a_thousand_keys_in_50_partitions_stay_under_50_megabytes() -> None:
    partitions, commits = 50, examples(200_000, soak=1_000_000)
    logs = [PartitionLog(compactor=Compactor()) for _ in range(partitions)]
    most_bytes = 0
    for number in range(commits):
        key = key_of(number)
        logs[key % partitions].append(COMMITS[key], leader_epoch=0)
        if number % 10_000 == 0:
            most_bytes = max(most_bytes, sum(map(memory_bytes, logs)))
    assert sum(log.log_end_offset for log in logs) == commits
    assert 500_000 < most_bytes < 50_000_000
