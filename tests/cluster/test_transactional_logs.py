"""Logs with transactions: markers, the last stable offset, and what readers of committed records get."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.client.consumer.records import decode_fetched
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.logs.producer_state import AbortedTransaction
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fakebroker.protocol.records import Record, RecordBatch, encode_batch, split_batches
from fakebroker.protocol.transaction_markers import Marker, encode_marker, marker_in
from tests.support.annotated_hex import annotated_hex
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.soak import examples, soak

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, MAX_TIMESTAMP = -1, -3

NOW_MS = 1_700_000_000_000


@dataclass
class TransactionalLog:
    """A log and the sequence numbers of its producers."""

    log: PartitionLog = field(default_factory=PartitionLog)
    sequences: dict[int, int] = field(default_factory=dict)

    def write(self, producer_id: int, *values: bytes, epoch: int = 0, in_transaction: bool = True) -> int:
        """Append a batch of a producer; of none if its id is -1."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(values)
        data = encode_batch(
            [Record(index, NOW_MS + index, None, value) for index, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=in_transaction and producer_id >= 0,
        )
        return self.log.append(data, 0)

    def end(self, producer_id: int, *, is_commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> int:
        """Append a marker."""
        marker = encode_marker(
            producer_id, epoch, is_commit=is_commit, coordinator_epoch=coordinator_epoch, now_ms=NOW_MS
        )
        return self.log.append(marker, 0)


def test_markers_have_kafka_s_bytes(subtests: pytest.Subtests) -> None:
    commit = annotated_hex("""
        00 00 00 00 00 00 00 2a  00 00 00 42  00 00 00 05  02  36 7c 83 6e  00 30  00 00 00 00
        00 00 01 8b cf e5 68 00  00 00 01 8b cf e5 68 00  00 00 00 00 00 00 0f a0  00 07  ff ff ff ff  00 00 00 01
        20 00 00 00 08 00 00 00 01 0c 00 00 00 00 00 03 00
    """)
    log = PartitionLog()
    log.log_start_offset = log.log_end_offset = 42
    log.append(encode_marker(4000, 7, is_commit=True, coordinator_epoch=3, now_ms=NOW_MS + 0.9), 5)
    with subtests.test("commit"):
        assert log.read(42, 1000) == commit
        assert marker_in(RecordBatch(commit)) == Marker(is_commit=True, coordinator_epoch=3)
    with subtests.test("abort"):
        data = encode_marker(4000, 7, is_commit=False, coordinator_epoch=3, now_ms=NOW_MS)
        assert data.endswith(annotated_hex("20 00 00 00 08 00 00 00 00 0c 00 00 00 00 00 03 00"))
        assert marker_in(RecordBatch(data)) == Marker(is_commit=False, coordinator_epoch=3)


def test_other_control_records_are_no_markers() -> None:
    other = encode_batch([Record(0, 0, b"\0\0\0\2", bytes(6))], producer_id=1, producer_epoch=0, is_control=True)
    assert marker_in(RecordBatch(other)) is None
    short = encode_batch([Record(0, 0, b"\0", None)], producer_id=1, producer_epoch=0, is_control=True)
    assert marker_in(RecordBatch(short)) is None


def test_the_last_stable_offset_is_that_of_the_oldest_open_transaction() -> None:
    written = TransactionalLog()
    log = written.log
    written.write(-1, b"plain")
    assert log.last_stable_offset == 1
    written.write(1, b"a")
    written.write(2, b"b")
    written.write(1, b"c")
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    written.end(1, is_commit=True)
    assert log.last_stable_offset == 2
    written.end(2, is_commit=False)
    assert log.last_stable_offset == log.high_watermark == 6
    aborted = AbortedTransaction(producer_id=2, first_offset=2, marker_offset=5)
    assert [log.producers.aborted_in(*each) for each in ((0, 6), (5, 6), (0, 3))] == [[aborted]] * 3
    assert [log.producers.aborted_in(*each) for each in ((0, 2), (6, 7))] == [[], []]
    log.truncate_before(3)
    written.write(3, b"d")
    log.truncate_before(7)
    assert (log.last_stable_offset, log.log_start_offset) == (7, 7)
    assert log.producers.aborted_in(0, 9) == []


def test_a_marker_without_transaction_is_kept() -> None:
    written = TransactionalLog()
    assert written.end(1, is_commit=False, epoch=4, coordinator_epoch=2) == 0
    producer = written.log.producers.get(1)
    assert producer is not None
    assert (producer.epoch, producer.coordinator_epoch, producer.last_sequence) == (4, 2, -1)
    assert written.log.producers.aborted_in(0, 1) == []


def test_a_marker_in_a_higher_epoch_clears_the_sequence(subtests: pytest.Subtests) -> None:
    for epoch, expected in ((0, 1), (1, -1)):
        with subtests.test(epoch=epoch):
            written = TransactionalLog()
            written.write(1, b"a", b"b")
            written.end(1, is_commit=True, epoch=epoch)
            producer = written.log.producers.get(1)
            assert producer is not None
            assert (producer.epoch, producer.last_sequence) == (epoch, expected)


def test_markers_that_are_refused(subtests: pytest.Subtests) -> None:
    written = TransactionalLog()
    written.write(1, b"a", epoch=5)
    written.end(1, is_commit=True, epoch=5, coordinator_epoch=7)
    for is_open in (False, True):
        if is_open:
            written.write(1, b"b", epoch=5)
        for epoch, coordinator_epoch, raises_epoch, error in (
            (4, 7, False, ErrorCode.INVALID_PRODUCER_EPOCH),
            (5, 7, False, ErrorCode.NONE),
            (5, 7, True, ErrorCode.INVALID_PRODUCER_EPOCH if is_open else ErrorCode.NONE),
            (6, 7, True, ErrorCode.NONE),
            (5, 6, False, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
            (5, 8, False, ErrorCode.NONE),
        ):
            with subtests.test(is_open=is_open, epoch=epoch, coordinator=coordinator_epoch, raises=raises_epoch):
                found = written.log.producers.marker_error(1, epoch, coordinator_epoch, raises_epoch=raises_epoch)
                assert found is error
    assert written.log.producers.marker_error(2, 0, 0, raises_epoch=True) is ErrorCode.NONE


def test_lost_records_open_their_transactions_again() -> None:
    written = TransactionalLog()
    log = written.log
    written.write(1, b"a")
    written.end(1, is_commit=False)
    written.write(1, b"b")
    end = written.end(1, is_commit=False)
    written.write(2, b"c")
    log.truncate_to(end)
    assert (log.last_stable_offset, log.log_end_offset) == (2, 3)
    assert log.producers.aborted_in(0, 3) == [AbortedTransaction(1, 0, 1)]
    log.truncate_to(1)
    assert (log.last_stable_offset, log.producers.has_aborted) == (0, False)
    written.end(1, is_commit=True)
    assert log.last_stable_offset == log.high_watermark == 2


def test_lost_records_restore_their_producers(subtests: pytest.Subtests) -> None:
    """As by a new leader that did not replicate them: epochs, sequence numbers and coordinator epochs, too."""
    written = TransactionalLog()
    log = written.log
    written.write(1, b"a", b"b")
    written.end(1, is_commit=True, coordinator_epoch=4)
    written.write(2, b"c")
    written.write(1, b"d")
    written.end(1, is_commit=False, epoch=1, coordinator_epoch=5)
    written.write(3, b"e")
    log.truncate_before(4)  # the first records of 1, and those of 2, are deleted
    for end, expected in (
        (7, [(1, 1, -1, 5), (2, 0, 0, -1), (3, 0, 0, -1)]),
        (6, [(1, 1, -1, 5), (2, 0, 0, -1)]),
        (5, [(1, 0, 2, -1), (2, 0, 0, -1)]),
        (4, [(2, 0, 0, -1)]),
    ):
        with subtests.test(end=end):
            twin = log.clone()
            twin.truncate_to(end)
            found = [
                (each.producer_id, each.epoch, each.last_sequence, each.coordinator_epoch)
                for each in twin.producers.all()
            ]
            assert found == expected
            assert twin.last_stable_offset == 4  # the transaction of 2 is open since before the start of the log
            assert twin.producers.has_aborted is (end >= 6)


def test_open_transactions_are_restored_in_their_order() -> None:
    written = TransactionalLog()
    written.write(1, b"a")
    written.end(1, is_commit=True)
    written.write(2, b"b")
    written.write(1, b"c")
    written.write(3, b"d")
    written.log.truncate_to(4)
    assert written.log.last_stable_offset == 2
    for producer_id, stable in ((2, 3), (1, 6)):
        written.end(producer_id, is_commit=True)
        assert written.log.last_stable_offset == stable


def test_a_copy_of_a_log_has_its_own_transactions() -> None:
    written = TransactionalLog()
    written.write(1, b"a")
    twin = written.log.clone()
    written.end(1, is_commit=False)
    assert (twin.last_stable_offset, twin.producers.has_aborted) == (0, False)
    assert written.log.last_stable_offset == 2


def test_producers_with_an_open_transaction_do_not_expire() -> None:
    written = TransactionalLog()
    written.write(1, b"a")
    written.write(2, b"b")
    written.end(2, is_commit=True)
    day_ms = 24 * 3600 * 1000
    for days in (0, 2):
        written.log.producers.expire(NOW_MS + days * day_ms, day_ms)
    assert [each.producer_id for each in written.log.producers.all()] == [1]


# Readers


def fetched(harness: ClusterHarness, offset: int, isolation: int, max_bytes: int = 2**20) -> PartitionData:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=[FetchTopic(topic="news", partitions=[partition])]
    )
    response = harness.ask(request, 12)
    data: PartitionData = response.responses[0].partitions[0]
    return data


def visible(data: PartitionData, offset: int) -> tuple[list[bytes], int]:
    """Return the committed values in a response, and the next offset."""
    records, next_offset = decode_fetched(data.records or b"", ("news", 0), offset, data.aborted_transactions or ())
    return [record.value or b"" for record in records], next_offset


def list_offset(harness: ClusterHarness, timestamp: int, isolation: int) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name="news", partitions=[partition])
    response = harness.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic]), 7)
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset


def test_each_isolation_level_reads_to_its_end() -> None:
    harness = ClusterHarness()
    written = TransactionalLog(harness.partition().log)
    written.write(-1, b"plain")
    written.write(1, b"a")
    dirty, clean = (fetched(harness, 0, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED))
    assert [len(split_batches(data.records or b"")) for data in (dirty, clean)] == [2, 1]
    assert [data.last_stable_offset for data in (dirty, clean)] == [1, 1]
    assert [data.high_watermark for data in (dirty, clean)] == [2, 2]
    assert (dirty.aborted_transactions, clean.aborted_transactions) == (None, [])
    assert fetched(harness, 2, READ_COMMITTED).records == b""
    assert fetched(harness, 3, READ_COMMITTED).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_readers_skip_only_the_transactional_batches_of_an_aborted_transaction() -> None:
    harness = ClusterHarness()
    written = TransactionalLog(harness.partition().log)
    written.write(1, b"plain before", in_transaction=False)
    written.write(1, b"aborted")
    written.write(2, b"of another producer", in_transaction=False)
    written.write(1, b"plain", in_transaction=False)
    written.end(1, is_commit=False)
    written.write(1, b"committed")
    written.end(1, is_commit=True)
    values, next_offset = visible(fetched(harness, 0, READ_COMMITTED), 0)
    assert (values, next_offset) == ([b"plain before", b"of another producer", b"plain", b"committed"], 7)


def test_an_offset_inside_of_an_aborted_transaction_lists_it() -> None:
    harness = ClusterHarness()
    written = TransactionalLog(harness.partition().log)
    for value in (b"a", b"b", b"c"):
        written.write(1, value)
    written.end(1, is_commit=False)
    found = fetched(harness, 2, READ_COMMITTED).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in found or ()] == [(1, 0)]


def test_offsets_for_timestamps_are_stable_ones(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    written = TransactionalLog(harness.partition().log)
    written.write(-1, b"plain")
    written.write(1, b"a", b"b")  # with a later timestamp at offset 2
    for timestamp, uncommitted, committed in (
        (LATEST, 3, 1),
        (MAX_TIMESTAMP, 2, -1),
        (NOW_MS, 0, 0),
        (NOW_MS + 1, 2, -1),
    ):
        with subtests.test(timestamp=timestamp):
            assert list_offset(harness, timestamp, READ_UNCOMMITTED) == (0, uncommitted)
            assert list_offset(harness, timestamp, READ_COMMITTED) == (0, committed)
    written.end(1, is_commit=True)
    assert list_offset(harness, LATEST, READ_COMMITTED) == (0, 4)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(-1, 3), st.integers(1, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 3), st.just(0)),
    ),
    max_size=25,
)


@soak
@given(STEPS, st.integers(60, 400))
@settings(max_examples=examples(60, soak=5_000))
def test_readers_see_exactly_the_committed_records(steps: Sequence[tuple[str, int, int]], max_bytes: int) -> None:
    harness = ClusterHarness()
    written = TransactionalLog(harness.partition().log)
    open_values: dict[int, list[tuple[int, bytes]]] = {}
    committed: list[tuple[int, bytes]] = []
    for step, producer_id, count in steps:
        if step == "write":
            values = [b"%d" % (1000 * written.log.log_end_offset + index) for index in range(count)]
            first = written.write(producer_id, *values)
            added = [(first + index, value) for index, value in enumerate(values)]
            if producer_id < 0:
                committed += added
            else:
                open_values.setdefault(producer_id, []).extend(added)
        else:
            written.end(producer_id, is_commit=step == "commit")
            ended = open_values.pop(producer_id, [])
            committed += ended if step == "commit" else []
    stable = min([values[0][0] for values in open_values.values()], default=written.log.log_end_offset)
    assert written.log.last_stable_offset == stable
    for start in range(stable + 1):
        offset, read = start, list[bytes]()
        while True:
            data = fetched(harness, offset, READ_COMMITTED, max_bytes)
            values, next_offset = visible(data, offset)
            read += values
            if next_offset == offset:
                break
            offset = next_offset
        assert read == [value for at, value in sorted(committed) if start <= at < stable]
