"""Idempotent producers: appended, duplicate and rejected batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakebroker.cluster.call import Call
from fakebroker.cluster.logs.producer_state import EXPIRATION_CHECK_INTERVAL_MS, RETAINED_BATCHES
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import Record, decode_records, encode_batch, split_batches
from fakebroker.protocol.releases import NEWEST, Release
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness, versions
from tests.support.soak import examples, soak

IDEMPOTENT_VERSIONS = [version for version in versions("Produce") if version >= 3]
LAST_SEQUENCE = 2**31 - 1
EXPIRATION_MS = 86_400_000
NOW = int(START_MS)


def a_batch(
    sequence: int, *values: bytes, producer_id: int = 7, epoch: int = 0, timestamp_ms: int = NOW, count: int = 1
) -> bytes:
    """Return a batch with these values, or `count` empty ones. Its first record has the sequence number `sequence`."""
    records = [Record(index, timestamp_ms + index, None, value) for index, value in enumerate(values or [b""] * count)]
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def send(
    harness: ClusterHarness, records: bytes, version: int = 9, *, index: int = 0, broker: int = 1, acks: int = -1
) -> Call:
    topic = harness.topic()
    data = TopicProduceData(
        **({"topic_id": topic.topic_id} if version >= 13 else {"name": "news"}),
        partition_data=[PartitionProduceData(index=index, records=records)],
    )
    return harness.send(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]), version, broker=broker)


def produce(harness: ClusterHarness, records: bytes, version: int = 9, **where: int) -> Any:
    """Produce to one partition and return its part of the response."""
    return send(harness, records, version, **where).response.responses[0].partition_responses[0]


def result(harness: ClusterHarness, records: bytes, version: int = 9, **where: int) -> tuple[ErrorCode, int]:
    """Produce to one partition, and return error and base offset."""
    produced = produce(harness, records, version, **where)
    return ErrorCode(produced.error_code), produced.base_offset


def end_offset(harness: ClusterHarness, index: int = 0) -> int:
    return harness.partition(index).log.log_end_offset


APPENDED = ErrorCode.NONE
REFUSED = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_a_duplicate_gets_the_offset_of_the_first_append(subtests: pytest.Subtests) -> None:
    for version in IDEMPOTENT_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            produce(harness, a_batch(0, count=3))
            first = produce(harness, a_batch(3, count=2), version)
            assert (first.error_code, first.base_offset, first.log_append_time_ms) == (0, 3, -1)
            again = produce(harness, a_batch(3, count=2), version)
            assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 3, NOW + 1)
            assert again.log_start_offset == 0
            assert end_offset(harness) == 5


def test_the_last_five_batches_are_recognized_as_duplicates() -> None:
    harness = ClusterHarness()
    for sequence in range(7):
        assert result(harness, a_batch(sequence)) == (APPENDED, sequence)
    assert [result(harness, a_batch(sequence)) for sequence in range(7)] == [
        *[REFUSED] * 2,
        *[(APPENDED, offset) for offset in range(2, 7)],
    ]
    assert end_offset(harness) == 7


@pytest.mark.parametrize(
    ("sequence", "count"),
    [
        pytest.param(6, 1, id="a gap"),
        pytest.param(0, 1, id="the start of an appended batch"),
        pytest.param(0, 5, id="two appended batches in one"),
        pytest.param(4, 2, id="the end of an appended batch and more"),
        pytest.param(LAST_SEQUENCE, 1, id="before the first one"),
    ],
)
def test_sequence_numbers_out_of_order(subtests: pytest.Subtests, sequence: int, count: int) -> None:
    for version in IDEMPOTENT_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            produce(harness, a_batch(0, count=3))
            produce(harness, a_batch(3, count=2))
            harness.partition().log.truncate_before(2)
            produced = produce(harness, a_batch(sequence, count=count), version)
            assert (produced.error_code, produced.base_offset) == REFUSED
            assert produced.log_start_offset == 2
            assert produced.error_message is None
            assert end_offset(harness) == 5


def test_producer_epochs(subtests: pytest.Subtests) -> None:
    for version in IDEMPOTENT_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            assert result(harness, a_batch(0, epoch=3), version) == (APPENDED, 0)
            assert result(harness, a_batch(1, epoch=2), version) == FENCED
            assert result(harness, a_batch(0, epoch=2), version) == FENCED
            assert result(harness, a_batch(1, epoch=4), version) == REFUSED
            assert result(harness, a_batch(0, epoch=4), version) == (APPENDED, 1)
            assert result(harness, a_batch(0, epoch=3), version) == FENCED
            assert result(harness, a_batch(0, epoch=4), version) == (APPENDED, 1)
            assert result(harness, a_batch(1, epoch=4), version) == (APPENDED, 2)
            assert end_offset(harness) == 3


def test_a_fenced_producer_gets_no_error_message() -> None:
    harness = ClusterHarness()
    produce(harness, a_batch(0, epoch=3))
    produced = produce(harness, a_batch(1, epoch=2))
    assert (produced.error_code, produced.error_message) == (ErrorCode.INVALID_PRODUCER_EPOCH, None)


@pytest.mark.parametrize(
    ("release", "error"),
    [
        (Release(0, 11), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (Release(1, 0), ErrorCode.UNKNOWN_PRODUCER_ID),
        (Release(2, 4), ErrorCode.UNKNOWN_PRODUCER_ID),
        (Release(2, 5), ErrorCode.NONE),
        (NEWEST, ErrorCode.NONE),
    ],
)
def test_a_later_sequence_number_of_an_unknown_producer(release: Release, error: ErrorCode) -> None:
    harness = ClusterHarness()
    harness.cluster.brokers[1].release = release
    produced = produce(harness, a_batch(4))
    assert produced.error_code == error
    assert produced.log_start_offset == 0
    assert result(harness, a_batch(5 if error is ErrorCode.NONE else 0)) == (APPENDED, end_offset(harness) - 1)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sequence_numbers_wrap_around(count: int) -> None:
    """With 2 records a batch ends at the last number, with 3 it goes on from 0."""
    harness = ClusterHarness()
    batches = [a_batch(LAST_SEQUENCE - 1, count=count), a_batch((LAST_SEQUENCE - 1 + count) % 2**31, count=count)]
    for _ in range(2):
        assert [result(harness, each) for each in batches] == [(APPENDED, 0), (APPENDED, count)]
    assert result(harness, a_batch((LAST_SEQUENCE - 1 + 2 * count) % 2**31)) == (APPENDED, 2 * count)


def test_batches_without_a_producer_id_are_all_appended() -> None:
    harness = ClusterHarness()
    for offset in range(3):
        assert result(harness, a_batch(-1, producer_id=-1, epoch=-1)) == (APPENDED, offset)


def test_producers_and_partitions_are_independent() -> None:
    harness = ClusterHarness({"news": 2})
    assert result(harness, a_batch(0)) == (APPENDED, 0)
    assert result(harness, a_batch(0, producer_id=8)) == (APPENDED, 1)
    assert result(harness, a_batch(0), index=1) == (APPENDED, 0)
    assert result(harness, a_batch(1)) == (APPENDED, 2)
    assert result(harness, a_batch(1, producer_id=8)) == (APPENDED, 3)
    assert result(harness, a_batch(1), index=1) == (APPENDED, 1)


def test_a_wrong_sequence_number_with_acks_0_closes_the_connection() -> None:
    harness = ClusterHarness()
    sent = [send(harness, a_batch(sequence), acks=0) for sequence in (0, 0, 2)]
    assert [call.closes_connection for call in sent] == [False, False, True]
    assert end_offset(harness) == 1


def test_a_duplicate_does_not_change_the_log() -> None:
    harness = ClusterHarness()
    produce(harness, a_batch(0, b"a"))
    log = harness.partition().log
    before = (log.read(0, 2**31), log.size_bytes)
    produce(harness, a_batch(0, b"b"))
    assert (log.read(0, 2**31), log.size_bytes) == before


def test_a_new_leader_has_the_producer_state() -> None:
    harness = ClusterHarness(brokers=2)
    controller, home = harness.cluster.controller, harness.cluster.brokers[1]
    produce(harness, a_batch(0))
    controller.set_leader(harness.partition(), 2, harness.now_ms, Failover())
    assert result(harness, a_batch(0), broker=2) == (APPENDED, 0)
    assert result(harness, a_batch(2), broker=2) == REFUSED
    assert result(harness, a_batch(1), broker=1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    controller.stop_broker(home, harness.now_ms, Failover())
    controller.start_broker(home, harness.now_ms, Failover())
    controller.set_leader(harness.partition(), 1, harness.now_ms, Failover())
    assert result(harness, a_batch(1)) == (APPENDED, 1)
    assert result(harness, a_batch(0)) == (APPENDED, 0)


@pytest.mark.parametrize(
    ("release", "expected"),
    [(Release(2, 3), (ErrorCode.UNKNOWN_PRODUCER_ID, -1)), (Release(2, 4), REFUSED), (NEWEST, REFUSED)],
)
def test_producers_whose_records_were_deleted(release: Release, expected: tuple[ErrorCode, int]) -> None:
    harness = ClusterHarness()
    harness.cluster.brokers[1].release = release
    produce(harness, a_batch(0, count=2))
    harness.partition().log.truncate_before(1)
    assert result(harness, a_batch(3)) == REFUSED
    harness.partition().log.truncate_before(2)
    assert result(harness, a_batch(3)) == expected
    assert end_offset(harness) == 2


def test_a_producer_whose_records_were_deleted_may_start_at_0_until_kafka_2_3() -> None:
    harness = ClusterHarness()
    harness.cluster.brokers[1].release = Release(2, 3)
    produce(harness, a_batch(0))
    harness.partition().log.truncate_before(1)
    for _ in range(2):
        assert result(harness, a_batch(0)) == (APPENDED, 1)


def test_retention_does_not_remove_producers() -> None:
    harness = ClusterHarness(config={"log.retention.bytes": 150})
    assert [result(harness, a_batch(sequence)) for sequence in range(5)] == [(APPENDED, offset) for offset in range(5)]
    assert harness.partition().log.log_start_offset == 3
    assert result(harness, a_batch(0)) == (APPENDED, 0)


def test_a_producer_expires_a_day_after_its_last_batch() -> None:
    harness = ClusterHarness()
    produce(harness, a_batch(0, timestamp_ms=NOW + 1))
    harness.advance(EXPIRATION_MS)
    assert result(harness, a_batch(5)) == REFUSED
    harness.advance(EXPIRATION_CHECK_INTERVAL_MS - 1)
    assert result(harness, a_batch(5)) == REFUSED, "expired, but not removed yet"
    harness.advance(1)
    assert result(harness, a_batch(5)) == (APPENDED, 1)


def test_how_long_producers_are_kept(subtests: pytest.Subtests) -> None:
    """Releases before 3.4 keep producers as long as transactional ids (KIP-854)."""
    hour_ms = 3_600_000
    names = {"producer.id.expiration.ms": hour_ms, "transactional.id.expiration.ms": 2 * hour_ms}
    for as_version, expiration_ms in (("3.3", 2 * hour_ms), ("3.4", hour_ms)):
        with subtests.test(as_version=as_version):
            harness = ClusterHarness(config=dict(names), as_version=as_version)
            produce(harness, a_batch(0))
            harness.advance(expiration_ms - EXPIRATION_CHECK_INTERVAL_MS)
            assert result(harness, a_batch(5)) == REFUSED
            harness.advance(EXPIRATION_CHECK_INTERVAL_MS)
            assert result(harness, a_batch(5)) == (APPENDED, 1)


def test_a_batch_with_an_old_timestamp_is_known_until_the_next_expiry_check() -> None:
    harness = ClusterHarness()
    old_ms = NOW - EXPIRATION_MS
    for _ in range(2):
        assert result(harness, a_batch(0, timestamp_ms=old_ms)) == (APPENDED, 0)
    harness.advance(EXPIRATION_CHECK_INTERVAL_MS)
    assert result(harness, a_batch(0, timestamp_ms=old_ms)) == (APPENDED, 1)


@dataclass(slots=True)
class SentBatch:
    """A batch that a producer has sent. `offset` is its base offset; None while it is not in the log."""

    data: bytes
    values: Sequence[bytes]
    sequence: int
    epoch: int
    offset: int | None = None


@dataclass(slots=True)
class ModelProducer:
    """A model of a producer client, which retries unacknowledged batches and has at most five in flight."""

    producer_id: int
    next_sequence: int
    epoch: int = 0
    sent: list[SentBatch] = field(default_factory=list)
    acknowledged: int = 0

    @property
    def in_flight(self) -> list[SentBatch]:
        return self.sent[self.acknowledged :]

    def send(self, values: Sequence[bytes]) -> SentBatch:
        data = a_batch(self.next_sequence, *values, producer_id=self.producer_id, epoch=self.epoch)
        self.sent.append(SentBatch(data, values, self.next_sequence, self.epoch))
        self.next_sequence = (self.next_sequence + len(values)) % 2**31
        return self.sent[-1]

    def expected(self, batch: SentBatch, end_offset: int) -> tuple[ErrorCode, int]:
        """Return the expected error and base offset of a batch, from the history of its producer."""
        appended = [each for each in self.sent if each.offset is not None]
        newest_epoch = max(each.epoch for each in appended)
        if batch.epoch < newest_epoch:
            return FENCED
        remembered = [each for each in appended if each.epoch == newest_epoch][-RETAINED_BATCHES:]
        if any(batch is each for each in remembered):
            return APPENDED, batch.offset or 0
        if batch.offset is not None:
            return REFUSED
        # Batches that are not in the log have the producer's newest epoch. The log possibly has no batch of this epoch.
        is_next = batch is next(each for each in self.sent if each.offset is None)
        return (APPENDED, end_offset) if is_next else REFUSED


class ProducersMachine(RuleBasedStateMachine):
    """Batches arrive late, more than once and in any order, while leaders change and records are deleted.

    `log` is the list of values that the partition must contain.
    """

    @initialize(starts=st.lists(st.sampled_from([0, 1, LAST_SEQUENCE - 2]), min_size=1, max_size=3))
    def start(self, starts: list[int]) -> None:
        self.harness = ClusterHarness(brokers=2)
        self.log: list[bytes] = []
        self.count = 0
        self.producers = [ModelProducer(producer_id, sequence) for producer_id, sequence in enumerate(starts)]
        for producer in self.producers:
            # An unknown producer may start with any sequence number, so its first batch must arrive first.
            self.deliver(producer, producer.send(self.new_values(1)), is_first=True)

    def new_values(self, count: int) -> list[bytes]:
        self.count += count
        return [b"%d" % number for number in range(self.count - count, self.count)]

    def deliver(self, producer: ModelProducer, batch: SentBatch, *, is_first: bool = False) -> None:
        leader_id = self.harness.partition().leader_id
        expected = (APPENDED, len(self.log)) if is_first else producer.expected(batch, len(self.log))
        assert result(self.harness, batch.data, broker=leader_id) == expected
        if expected == (APPENDED, len(self.log)):
            batch.offset = len(self.log)
            self.log += batch.values

    @rule(data=st.data(), count=st.integers(1, 3))
    def send(self, data: st.DataObject, count: int) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        if len(producer.in_flight) < 5:
            producer.send(self.new_values(count))

    @rule(data=st.data())
    def deliver_in_any_order(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        self.deliver(producer, data.draw(st.sampled_from(producer.in_flight or producer.sent)))

    @rule(data=st.data())
    def deliver_a_duplicate(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        self.deliver(producer, data.draw(st.sampled_from([each for each in producer.sent if each.offset is not None])))

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        while producer.in_flight and producer.in_flight[0].offset is not None:
            producer.acknowledged += 1

    @rule(data=st.data())
    def begin_an_epoch(self, data: st.DataObject) -> None:
        """Start a new epoch: batches that are not in the log are sent again, from sequence number 0."""
        producer = data.draw(st.sampled_from(self.producers))
        to_resend = [each for each in producer.sent if each.offset is None]
        producer.sent = [each for each in producer.sent if each.offset is not None]
        producer.acknowledged, producer.epoch, producer.next_sequence = len(producer.sent), producer.epoch + 1, 0
        for batch in to_resend:
            producer.send(batch.values)

    @rule()
    def move_the_leader(self) -> None:
        partition = self.harness.partition()
        self.harness.cluster.controller.set_leader(partition, 3 - partition.leader_id, self.harness.now_ms, Failover())

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.harness.partition().log.truncate_before(data.draw(st.integers(0, len(self.log))))

    @invariant()
    def no_record_is_lost_or_duplicated(self) -> None:
        log = self.harness.partition().log
        stored = split_batches(log.read(log.log_start_offset, 2**31))
        records = [record for batch in stored for record in decode_records(batch)]
        first_offset = records[0].offset if records else len(self.log)
        assert [record.value for record in records] == self.log[first_offset:]
        assert log.log_end_offset == len(self.log)


ProducersMachine.TestCase.settings = settings(max_examples=examples(25, soak=1000), stateful_step_count=40)
TestProducers = soak(ProducersMachine.TestCase)
