"""Compaction, retention and DeleteRecords of logs with transactions (LogCleaner, CleanedTransactionMetadata)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.cluster.logs.compactor import Compactor
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.coordinator.transaction.transaction import Markers
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fakebroker.protocol.records import Record, RecordBatch, decode_records, encode_batch, split_batches
from fakebroker.protocol.transaction_markers import AbortedBatches, encode_marker, marker_in
from tests.cluster.test_transactional_logs import READ_COMMITTED, READ_UNCOMMITTED, fetched
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness
from tests.support.soak import examples, soak

RETENTION_MS = 10
NOW_MS = 1_000


@dataclass
class KeyedLog:
    """A log of records with keys, and the sequence numbers of its producers."""

    log: PartitionLog = field(default_factory=PartitionLog)
    sequences: dict[int, int] = field(default_factory=dict)

    def write(self, producer_id: int, *pairs: str, epoch: int = 0) -> None:
        """Append a batch of records such as "a=1", or "a" for a tombstone: transactional unless the id is -1."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(pairs)
        records = []
        for index, pair in enumerate(pairs):
            key, equals, value = pair.partition("=")
            records.append(Record(index, NOW_MS, key.encode(), value.encode() if equals else None))
        is_producer = producer_id >= 0
        self.log.append(
            encode_batch(
                records,
                producer_id=producer_id,
                producer_epoch=epoch if is_producer else -1,
                base_sequence=sequence if is_producer else -1,
                is_transactional=is_producer,
            ),
            0,
        )

    def end(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
        if epoch:
            self.sequences.pop(producer_id, None)
        marker = encode_marker(producer_id, epoch, is_commit=is_commit, coordinator_epoch=0, now_ms=NOW_MS)
        self.log.append(marker, 0)

    def compact(self, now_ms: float = 0) -> list[str]:
        self.log.compact(now_ms, 0, RETENTION_MS)
        return contents(self.log)

    def forget_producers(self) -> None:
        """Let all producers expire."""
        for days in (0, 2):
            self.log.producers.expire(NOW_MS + days * 86_400_000, 86_400_000)


def contents(log: PartitionLog) -> list[str]:
    """Describe the batches of a log: records with their offsets, markers, and batches without records."""
    return [_text(batch) for batch in log.batches_from(log.log_start_offset)]


def _text(batch: RecordBatch) -> str:
    if (marker := marker_in(batch)) is not None:
        return f"{batch.base_offset}:{'commit' if marker.is_commit else 'abort'} {batch.producer_id}"
    pairs = [
        (each.key or b"").decode() + ("" if each.value is None else f"={each.value.decode()}")
        for each in decode_records(batch)
    ]
    return f"{batch.base_offset}:{' '.join(pairs) or 'empty'}"


def committed(log: PartitionLog) -> dict[bytes, bytes]:
    """Return the last committed value of each key before the last stable offset; tombstones delete keys."""
    aborted = AbortedBatches(log.producers.aborted_in(0, log.log_end_offset))
    values: dict[bytes, bytes] = {}
    for batch in log.batches_from(log.log_start_offset):
        if batch.last_offset >= log.last_stable_offset:
            break
        if aborted.contain(batch) or batch.is_control:
            continue
        for record in decode_records(batch):
            assert record.key is not None
            values.pop(record.key, None)
            if record.value is not None:
                values[record.key] = record.value
    return values


def test_records_of_an_open_transaction_supersede_none() -> None:
    written = KeyedLog()
    written.write(-1, "a=1")
    written.write(1, "a=2")
    written.write(-1, "b=1")
    written.write(-1, "b=2")
    assert written.compact() == ["0:a=1", "1:a=2", "2:b=1", "3:b=2"]
    assert written.log.next_compaction_ms > 0  # nothing to do until the transaction ends
    written.end(1, is_commit=True)
    assert written.log.next_compaction_ms == 0
    assert written.compact() == ["1:a=2", "3:b=2", "4:commit 1"]


def test_records_of_an_aborted_transaction_are_dropped() -> None:
    written = KeyedLog()
    written.write(-1, "a=1")
    written.write(1, "a=2", "b=2")
    written.write(1, "a=3")
    written.end(1, is_commit=False)
    written.write(-1, "c=1")
    assert written.compact() == ["0:a=1", "3:empty", "4:abort 1", "5:c=1"]


def test_the_marker_of_an_aborted_transaction_goes_after_its_last_batch() -> None:
    written = KeyedLog()
    log = written.log
    written.write(1, "a=1")
    written.end(1, is_commit=False)
    written.write(-1, "b=1")
    assert written.compact() == ["0:empty", "1:abort 1", "2:b=1"]
    assert log.producers.has_aborted
    written.write(1, "c=1")  # so the empty batch does not have the last sequence number any more
    written.end(1, is_commit=True)
    written.write(-1, "d=1")
    assert written.compact(100) == ["1:abort 1", "2:b=1", "3:c=1", "4:commit 1", "5:d=1"]
    assert not log.producers.has_aborted
    assert log.next_compaction_ms == 100 + RETENTION_MS
    assert written.compact(100 + RETENTION_MS - 1)[0] == "1:abort 1"
    assert written.compact(100 + RETENTION_MS) == ["2:b=1", "3:c=1", "4:commit 1", "5:d=1"]


def test_the_marker_of_a_committed_transaction_goes_after_its_last_batch() -> None:
    written = KeyedLog()
    written.write(1, "a=1")
    written.end(1, is_commit=True)
    assert written.compact() == ["0:a=1", "1:commit 1"]
    written.write(-1, "a=2")
    assert written.compact() == ["0:empty", "1:commit 1", "2:a=2"]
    written.forget_producers()
    written.write(-1, "b=1")
    assert written.compact(5) == ["1:commit 1", "2:a=2", "3:b=1"]
    assert written.compact(5 + RETENTION_MS) == ["2:a=2", "3:b=1"]


def test_the_last_marker_of_a_producer_stays_without_its_record() -> None:
    """Its batch has the epoch of the producer (KIP-890), which is needed to fence others."""
    written = KeyedLog()
    written.write(1, "a=1")
    written.end(1, is_commit=True, epoch=1)
    written.write(-1, "a=2")
    assert written.compact() == ["1:commit 1", "2:a=2"]
    assert written.compact(RETENTION_MS) == ["1:empty", "2:a=2"]
    log = written.log
    log.truncate_to(2)
    producer = log.producers.get(1)
    assert producer is not None
    assert (producer.epoch, producer.last_sequence) == (1, -1)
    written.write(1, "b=1", epoch=1)
    written.end(1, is_commit=True, epoch=2)
    assert written.compact(RETENTION_MS)[0] == "2:b=1"


def test_the_last_batch_of_an_idempotent_producer_keeps_its_sequence_numbers() -> None:
    written = KeyedLog()
    written.write(1, "a=1", "b=1", "c=1")
    written.end(1, is_commit=True)
    written.write(-1, "c=2")
    written.write(-1, "d=1")
    assert written.compact() == ["0:a=1 b=1", "3:commit 1", "4:c=2", "5:d=1"]
    log = written.log
    assert log.read(0, 0) == next(log.batches_from(0)).data
    (first, *_) = log.batches_from(0)
    assert (first.last_offset, first.record_count) == (2, 2)
    log.truncate_to(3)  # the marker is lost: the state is that of the remaining batches
    producer = log.producers.get(1)
    assert producer is not None
    assert (producer.last_sequence, producer.transaction_offset) == (2, 0)
    assert log.last_stable_offset == 0


def test_a_copy_has_its_own_markers_to_drop() -> None:
    written = KeyedLog()
    written.write(1, "a=1")
    written.end(1, is_commit=False)
    written.write(-1, "b=1")
    written.forget_producers()
    assert written.compact() == ["1:abort 1", "2:b=1"]
    twin = written.log.clone()
    assert written.compact(RETENTION_MS) == ["2:b=1"]
    assert contents(twin) == ["1:abort 1", "2:b=1"]
    assert twin.next_compaction_ms == RETENTION_MS


PAIRS = st.lists(st.sampled_from(["a=1", "a=2", "b=1", "b=2", "c=1", "a", "b"]), min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(-1, 2), PAIRS),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 2), st.integers(0, 1)),
        st.tuples(st.just("compact"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@soak
@given(STEPS)
@settings(max_examples=examples(80, soak=5_000))
def test_cleaning_changes_no_committed_value(steps: Sequence[tuple[str, int, list[str] | int]]) -> None:
    written, epochs, now_ms = KeyedLog(), dict.fromkeys(range(3), 0), 0
    for step, producer_id, argument in steps:
        if isinstance(argument, list):
            written.write(producer_id, *argument, epoch=epochs.get(producer_id, 0))
        elif step == "compact":
            before, stable = committed(written.log), written.log.last_stable_offset
            unstable = [each for each in contents(written.log) if int(each.partition(":")[0]) >= stable]
            now_ms += RETENTION_MS // 2
            after = written.compact(now_ms)
            assert committed(written.log) == before
            assert [each for each in after if int(each.partition(":")[0]) >= stable] == unstable
            assert (written.log.last_stable_offset, len(set(after))) == (stable, len(after))
            written.log.clone().truncate_to(stable)
        else:
            epochs[producer_id] += argument
            written.end(producer_id, is_commit=step == "commit", epoch=epochs[producer_id])


@soak
@given(STEPS)
@settings(max_examples=examples(80, soak=5_000))
def test_compaction_with_each_append_changes_no_committed_value(
    steps: Sequence[tuple[str, int, list[str] | int]],
) -> None:
    plain, compacted = KeyedLog(), KeyedLog(PartitionLog(compactor=Compactor(window_records=2, window_bytes=10_000)))
    for step, producer_id, argument in [each for each in steps if each[0] != "compact"] * 8:
        for written in (plain, compacted):
            if isinstance(argument, list):
                written.write(producer_id, *argument)
            else:
                written.end(producer_id, is_commit=step == "commit")
    assert committed(compacted.log) == committed(plain.log)
    assert compacted.log.last_stable_offset == plain.log.last_stable_offset


def test_compaction_with_each_append_drops_markers() -> None:
    written = KeyedLog(PartitionLog(compactor=Compactor(window_records=2, window_bytes=10_000)))
    for number in range(2_000):
        written.write(1, f"a={number}")
        written.end(1, is_commit=number % 2 == 0)
    assert len(contents(written.log)) < 200
    assert committed(written.log) == {b"a": b"1998"}


# Retention and DeleteRecords do not look at transactions


def delete_records(harness: ClusterHarness, offset: int) -> tuple[str, int]:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="news", partitions=[partition])], timeout_ms=1_000)
    (found,) = harness.ask(request, 2).topics[0].partitions
    return ErrorCode(found.error_code).name, found.low_watermark


def test_delete_records_beside_an_open_transaction(subtests: pytest.Subtests) -> None:
    for offset, expected in ((-1, ("NONE", 3)), (2, ("NONE", 2)), (1, ("NONE", 1)), (4, ("OFFSET_OUT_OF_RANGE", -1))):
        with subtests.test(offset=offset):
            harness = ClusterHarness()
            log = harness.partition().log
            written = KeyedLog(log)
            written.write(-1, "a=1")
            written.write(1, "b=1")
            written.write(-1, "c=1")
            assert delete_records(harness, offset) == expected
            start = max(0, expected[1])
            assert log.last_stable_offset == max(1, start)
            assert fetched(harness, start, READ_COMMITTED).last_stable_offset == max(1, start)
            written.end(1, is_commit=False)
            assert log.last_stable_offset == 4
            found = fetched(harness, start, READ_COMMITTED).aborted_transactions
            assert [(each.producer_id, each.first_offset) for each in found or ()] == [(1, 1)]


def test_retention_beside_an_open_transaction(subtests: pytest.Subtests) -> None:
    configs: dict[str, dict[str, object]] = {
        "size": {"log.retention.bytes": 200, "log.retention.check.interval.ms": 1000},
        "time": {"log.retention.ms": 5_000, "log.retention.check.interval.ms": 1000},
    }
    for name, config in configs.items():
        with subtests.test(name):
            harness = ClusterHarness(config=config)
            log = harness.partition().log
            for producer_id in (1, -1, -1, -1):
                is_producer = producer_id >= 0
                data = encode_batch(
                    [Record(0, int(START_MS), None, b"x" * 50)],
                    producer_id=producer_id,
                    producer_epoch=0 if is_producer else -1,
                    base_sequence=0 if is_producer else -1,
                    is_transactional=is_producer,
                )
                log.append(data, 0)
            harness.cluster.log_manager.schedule(harness.now_ms)
            if name == "size":
                log.retain(200)
                assert log.log_start_offset == log.last_stable_offset == 3
            harness.advance(7_000)
            if name == "time":
                assert log.log_start_offset == log.last_stable_offset == log.log_end_offset == 4
            KeyedLog(log).end(1, is_commit=True)
            assert log.last_stable_offset == log.log_end_offset == 5
            assert len(split_batches(fetched(harness, log.log_start_offset, READ_UNCOMMITTED).records or b"")) >= 1


def test_a_marker_schedules_the_next_compaction() -> None:
    harness = ClusterHarness(config={"log.cleanup.policy": "compact"})
    log, cluster = harness.partition().log, harness.cluster
    written = KeyedLog(log)
    written.write(-1, "a=1")
    written.write(1, "a=2")
    cluster.log_manager.schedule(harness.now_ms)
    harness.advance(15_000)
    assert (contents(log), cluster.next_deadline()) == (["0:a=1", "1:a=2"], None)
    markers = Markers("payments", 1, 0, True, 0, 0, (("news", 0),))
    assert cluster.transactions.write(markers, ("news", 0)) is ErrorCode.NONE
    harness.advance(15_000)
    assert contents(log) == ["1:a=2", "2:commit 1"]
