"""The partition log: compared with a list of batches, and single methods."""

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakebroker.cluster.logs.partition_log import EpochEndOffset, LeaderEpochs, PartitionLog, TimestampAndOffset
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.produced_batches import validate_batch
from fakebroker.protocol.records import (
    Record,
    RecordBatch,
    TimestampType,
    decode_records,
    encode_batch,
    split_batches,
)
from tests.support.soak import examples, soak


def a_batch(
    *timestamps_ms: int, compression: Compression = Compression.NONE, value: bytes = b"", append_time: bool = False
) -> bytes:
    """Return a batch as produced, with a record for each timestamp."""
    records = [Record(offset, timestamp_ms, None, value) for offset, timestamp_ms in enumerate(timestamps_ms)]
    return encode_batch(records, compression=compression, timestamp_type=TimestampType(append_time))


def a_log(*batches: bytes, retention_bytes: int = -1) -> PartitionLog:
    log = PartitionLog(retention_bytes)
    for batch in batches:
        log.append(batch, leader_epoch=0)
    return log


def base_offsets(data: bytes) -> list[int]:
    return [batch.base_offset for batch in split_batches(data)]


class PartitionLogMachine(RuleBasedStateMachine):
    """A log compared with `kept`, a list of the batches that it must contain."""

    @initialize(retention_bytes=st.sampled_from([-1, 0, 80, 300, 1000]))
    def start(self, retention_bytes: int) -> None:
        self.retention_bytes = retention_bytes
        self.log = PartitionLog(retention_bytes)
        self.kept: list[RecordBatch] = []
        self.deleted: list[RecordBatch] = []  # By DeleteRecords, from a segment that still has them.
        self.start_offset = self.end_offset = self.leader_epoch = 0

    @rule(
        timestamps_ms=st.lists(st.integers(-1, 50), min_size=1, max_size=4),
        compression=st.sampled_from(Compression),
        value=st.binary(max_size=40),
        append_time=st.booleans(),
        new_epoch=st.booleans(),
    )
    def append(
        self, timestamps_ms: list[int], compression: Compression, value: bytes, append_time: bool, new_epoch: bool
    ) -> None:
        self.leader_epoch += new_epoch
        batch = a_batch(*timestamps_ms, compression=compression, value=value, append_time=append_time)
        assert self.log.append(batch, self.leader_epoch) == self.end_offset
        (stored,) = split_batches(self.log.read(self.end_offset, 0))
        validate_batch(stored)
        assert stored.data[16:] == batch[16:]
        assert (stored.base_offset, stored.partition_leader_epoch) == (self.end_offset, self.leader_epoch)
        self.kept.append(stored)
        self.end_offset += len(timestamps_ms)
        while 0 <= self.retention_bytes < sum(batch.size_bytes for batch in self.kept) and len(self.kept) > 1:
            self.kept.pop(0)
            self.deleted = []
            self.start_offset = self.kept[0].base_offset

    @rule(data=st.data())
    def truncate_before(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end_offset))
        self.log.truncate_before(offset)
        self.start_offset = max(self.start_offset, offset)
        self.deleted += [batch for batch in self.kept if batch.last_offset < self.start_offset]
        self.kept = [batch for batch in self.kept if batch.last_offset >= self.start_offset]

    @rule(data=st.data(), max_bytes=st.integers(0, 500), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset))
        expected = b""
        for batch in self.kept:
            if batch.last_offset < offset:
                continue
            if len(expected) + batch.size_bytes > max_bytes and (expected or not at_least_one):
                break
            expected += batch.data
        assert self.log.read(offset, max_bytes, at_least_one=at_least_one) == expected

    @rule(timestamp_ms=st.integers(-1, 51))
    def offset_for_timestamp(self, timestamp_ms: int) -> None:
        candidates = [
            (record.offset, record.timestamp_ms, batch.partition_leader_epoch)
            for batch in self.kept
            for record in decode_records(batch)
            if record.timestamp_ms >= timestamp_ms and record.offset >= self.start_offset
        ]
        assert self.log.offset_for_timestamp(timestamp_ms) == (candidates[0] if candidates else None)

    @precondition(lambda self: self.kept or self.deleted)
    @rule()
    def max_timestamp(self) -> None:
        records = [
            (record.offset, record.timestamp_ms, batch.partition_leader_epoch)
            for batch in [*self.deleted, *self.kept]
            for record in decode_records(batch)
        ]
        latest_ms = max(timestamp_ms for _, timestamp_ms, _ in records)
        assert self.log.max_timestamp() == next(each for each in records if each[1] == latest_ms)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def end_offset_for_epoch(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from([batch.partition_leader_epoch for batch in self.kept]))
        later = [batch.base_offset for batch in self.kept if batch.partition_leader_epoch > epoch]
        expected = later[0] if later else self.end_offset
        assert self.log.epochs.end_offset_for(epoch, self.end_offset) == (epoch, expected)

    @invariant()
    def bounds_and_size_agree(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start_offset, self.end_offset)
        assert self.log.high_watermark == self.end_offset
        assert self.log.size_bytes == sum(batch.size_bytes for batch in self.kept)


PartitionLogMachine.TestCase.settings = settings(max_examples=examples(15, soak=2000), stateful_step_count=30)
TestPartitionLog = soak(PartitionLogMachine.TestCase)


def test_an_empty_log() -> None:
    log = PartitionLog()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert log.read(0, 1000) == b""
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None


def test_reading_out_of_range_is_an_error(subtests: pytest.Subtests) -> None:
    for start_offset, offset in [(0, -1), (0, 4), (2, 1)]:
        with subtests.test(start_offset=start_offset, offset=offset):
            log = a_log(a_batch(1, 2, 3))
            log.truncate_before(start_offset)
            with pytest.raises(ValueError, match=f"offset {offset}, expected {start_offset} to 3"):
                log.read(offset, 1000)


def test_truncating_behind_the_end_is_an_error() -> None:
    log = a_log(a_batch(1, 2, 3))
    with pytest.raises(ValueError, match="offset 4, expected 0 to 3"):
        log.truncate_before(4)


def test_read_starts_with_the_batch_that_holds_the_offset_and_stops_at_max_bytes() -> None:
    log = a_log(a_batch(1, 2), a_batch(3, 4), a_batch(5))
    size_bytes = len(a_batch(1, 2))
    assert base_offsets(log.read(1, 10_000)) == [0, 2, 4]
    assert base_offsets(log.read(3, 10_000)) == [2, 4]
    assert base_offsets(log.read(0, 2 * size_bytes)) == [0, 2]
    assert base_offsets(log.read(0, 2 * size_bytes - 1)) == [0]
    assert base_offsets(log.read(0, 1)) == [0]
    assert log.read(0, 1, at_least_one=False) == b""


def test_retention_drops_the_oldest_whole_batches() -> None:
    batch = a_batch(1, 2)
    log = a_log(*[batch] * 10, retention_bytes=3 * len(batch))
    assert (log.log_start_offset, log.log_end_offset) == (14, 20)
    assert base_offsets(log.read(14, 10_000)) == [14, 16, 18]


def test_retention_keeps_the_newest_batch_whatever_its_size() -> None:
    log = a_log(a_batch(1), a_batch(2, value=bytes(1000)), retention_bytes=100)
    assert base_offsets(log.read(log.log_start_offset, 10_000)) == [1]


def test_dropped_batches_are_released() -> None:
    batch = a_batch(1)
    log = a_log(*[batch] * 1000, retention_bytes=10 * len(batch))
    # A private attribute, because dropped batches are not visible in any other way.
    assert len(log._batches) <= 21


def test_offset_for_timestamp_finds_the_record_in_its_batch(subtests: pytest.Subtests) -> None:
    for compression in Compression:
        with subtests.test(compression=compression):
            log = a_log(a_batch(10, 30, 20, compression=compression), a_batch(25, 40, compression=compression))
            assert log.offset_for_timestamp(11) == TimestampAndOffset(1, 30, 0)
            assert log.offset_for_timestamp(31) == TimestampAndOffset(4, 40, 0)
            assert log.offset_for_timestamp(41) is None
            log.truncate_before(2)
            assert log.offset_for_timestamp(11) == TimestampAndOffset(2, 20, 0)


def test_max_timestamp_is_the_first_record_that_has_it() -> None:
    log = a_log(a_batch(10, 40, 40), a_batch(40), a_batch(20))
    assert log.max_timestamp() == TimestampAndOffset(1, 40, 0)


def test_a_batch_whose_header_has_a_later_timestamp_than_its_records_is_skipped() -> None:
    batch = bytearray(a_batch(1))
    batch[42] = 200  # The last byte of the maximum timestamp.
    log = a_log(bytes(batch), a_batch(150))
    assert log.offset_for_timestamp(100) == TimestampAndOffset(1, 150, 0)
    assert log.max_timestamp() is None


def test_end_offset_of_an_epoch(subtests: pytest.Subtests) -> None:
    epochs = LeaderEpochs()
    for known_epoch, start_offset in [(1, 10), (2, 20), (3, 20), (4, 30), (4, 33)]:
        epochs.assign(known_epoch, start_offset)
    for leader_epoch, expected in [
        (-1, (-1, -1)),
        (0, (0, 10)),  # Older than the first known epoch: the start of that epoch.
        (1, (1, 20)),
        (2, (1, 20)),  # Without records: the epoch before it.
        (3, (3, 30)),
        (4, (4, 35)),  # The current epoch: the log end offset.
        (5, (-1, -1)),
    ]:
        with subtests.test(leader_epoch=leader_epoch):
            assert epochs.end_offset_for(leader_epoch, 35) == EpochEndOffset(*expected)


def test_epochs_before_the_log_start_offset_are_removed() -> None:
    epochs = LeaderEpochs()
    for known_epoch, start_offset in [(1, 0), (2, 10), (3, 20)]:
        epochs.assign(known_epoch, start_offset)
    epochs.truncate_from_start(15)
    assert epochs.end_offset_for(1, 30) == EpochEndOffset(1, 15)
    assert epochs.end_offset_for(2, 30) == EpochEndOffset(2, 20)


def test_a_new_log_has_no_epochs() -> None:
    assert PartitionLog().epochs.end_offset_for(0, 0) == EpochEndOffset(-1, -1)
