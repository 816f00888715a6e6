"""Produce requests that are handled in parts: what may happen between the parts."""

import struct

import pytest

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers import produce as handler
from fakebroker.errors import ErrorCode
from fakebroker.protocol.checksum import crc32c
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.records import DEFAULT_DECOMPRESSED_LIMIT_BYTES
from tests.support.cluster.cluster_harness import ClusterHarness, batch

KIB = 1024
PARTITIONS = 5


@pytest.fixture
def harness() -> ClusterHarness:
    """A cluster in which a request reads two compressed batches of 1 KiB before others are served."""
    harness = ClusterHarness(topics={"news": PARTITIONS})
    harness.cluster.part_bytes = 2 * KIB
    return harness


def produce(harness: ClusterHarness, *, acks: int = 1, records: bytes | None = None) -> Call:
    """Produce a batch to each partition, in the last version with names of topics."""
    data = [
        PartitionProduceData(
            index=index, records=batch(bytes(KIB), compression=Compression.GZIP) if records is None else records
        )
        for index in range(PARTITIONS)
    ]
    topic = TopicProduceData(name="news", partition_data=data)
    return harness.send(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), 12)


def proceed(harness: ClusterHarness) -> None:
    harness.cluster.continue_request(harness.now_ms, harness.now_ms)


def end_offsets(harness: ClusterHarness) -> list[int]:
    return [harness.partition(index).log.high_watermark for index in range(PARTITIONS)]


def errors(call: Call) -> list[int]:
    assert isinstance(call.response, ProduceResponse)
    return [each.error_code for each in call.response.responses[0].partition_responses]


def test_each_part_appends_and_the_last_one_answers(harness: ClusterHarness) -> None:
    call = produce(harness)
    assert end_offsets(harness) == [1, 1, 0, 0, 0]
    assert not call.has_response
    proceed(harness)
    assert end_offsets(harness) == [1, 1, 1, 1, 0]
    assert harness.cluster.answered == []
    proceed(harness)
    assert errors(call) == [0] * PARTITIONS
    assert harness.cluster.answered == [call]
    assert not harness.cluster.unfinished


def test_requests_take_turns(harness: ClusterHarness) -> None:
    first, second = produce(harness), produce(harness)
    assert [call for call, _ in harness.cluster.unfinished] == [first, second]
    for _ in range(2):
        proceed(harness)
        proceed(harness)
    assert harness.cluster.answered == [first, second]
    assert end_offsets(harness) == [2] * PARTITIONS


def test_batches_that_cannot_be_decompressed_count_as_the_largest(harness: ClusterHarness) -> None:
    """Whether they are bombs is known when as much was decompressed."""
    harness.cluster.part_bytes = DEFAULT_DECOMPRESSED_LIMIT_BYTES
    bad = bytearray(batch(bytes(KIB), compression=Compression.GZIP)[:61] + b"garbage")
    struct.pack_into(">i", bad, 8, len(bad) - 12)
    struct.pack_into(">I", bad, 17, crc32c(bytes(bad[21:])))
    call = produce(harness, records=bytes(bad))
    for _ in range(PARTITIONS - 1):
        assert not call.has_response
        proceed(harness)
    assert errors(call) == [ErrorCode.INVALID_RECORD] * PARTITIONS


def test_a_request_without_acknowledgment_is_continued_too(harness: ClusterHarness) -> None:
    call = produce(harness, acks=0)
    proceed(harness)
    proceed(harness)
    assert end_offsets(harness) == [1] * PARTITIONS
    assert harness.cluster.answered == [call]
    assert not call.closes_connection


def test_a_topic_that_is_deleted_meanwhile_is_unknown(harness: ClusterHarness) -> None:
    call = produce(harness)
    harness.cluster.delete_named_topic("news")
    harness.cluster.create_new_topic("news", PARTITIONS)
    proceed(harness)
    assert errors(call) == [0, 0, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3]
    assert end_offsets(harness) == [0] * PARTITIONS


def test_a_broker_that_stops_meanwhile_appends_no_more(harness: ClusterHarness) -> None:
    call = produce(harness)
    harness.cluster.brokers[1].stops += 1
    proceed(harness)
    assert end_offsets(harness) == [1, 1, 0, 0, 0]
    assert not call.has_response
    assert not harness.cluster.unfinished


def test_an_error_closes_the_connection_of_the_request_only(
    harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Exception] = []
    harness.cluster.faults.actions.log = lambda _, error: logged.append(error)
    call = produce(harness)
    failure = RuntimeError("a bug")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(handler, "append", fail)
    proceed(harness)
    assert logged == [failure]
    assert call.closes_connection
    assert harness.cluster.answered == [call]
