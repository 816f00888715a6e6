"""Produce requests that are handled in parts: what may happen between the parts."""

import struct

import pytest

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers import produce as handler
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.produced_batches import RECORD_BYTES
from fakebroker.protocol.records import DEFAULT_DECOMPRESSED_LIMIT_BYTES, Record, crc32c, decode_records, encode_batch
from tests.support.cluster.cluster_harness import ClusterHarness, batch

KIB = 1024
PARTITIONS = 5


@pytest.fixture
def harness() -> ClusterHarness:
    """A cluster in which a request reads two compressed batches of a record of 1 KiB before others are served."""
    harness = ClusterHarness(topics={"news": PARTITIONS})
    harness.cluster.part_bytes = 2 * (KIB + RECORD_BYTES)
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
    harness.cluster.requests.continue_next(harness.now_ms, harness.now_ms)


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
    assert harness.cluster.requests.answered == []
    proceed(harness)
    assert errors(call) == [0] * PARTITIONS
    assert harness.cluster.requests.answered == [call]
    assert not harness.cluster.requests.unfinished


def test_requests_take_turns(harness: ClusterHarness) -> None:
    first, second = produce(harness), produce(harness)
    assert [call for call, _ in harness.cluster.requests.unfinished] == [first, second]
    for _ in range(2):
        proceed(harness)
        proceed(harness)
    assert harness.cluster.requests.answered == [first, second]
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
    assert harness.cluster.requests.answered == [call]
    assert not call.closes_connection


def test_a_topic_that_is_deleted_meanwhile_is_unknown(harness: ClusterHarness) -> None:
    call = produce(harness)
    harness.cluster.delete_topic(harness.cluster.existing_topic("news"))
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
    assert not harness.cluster.requests.unfinished


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
    assert harness.cluster.requests.answered == [call]


MANY = 2000
PART_RECORDS = 512
HEADERS = (("h", b"x"),)
LARGE: dict[str, tuple[dict[str, str], tuple[tuple[str, bytes | None], ...], int]] = {
    "plain records": ({}, (), 4),
    "records with headers": ({}, HEADERS, 4),
    "keys": ({"cleanup.policy": "compact"}, (), 7),
    "another codec": ({"compression.type": "zstd"}, (), 7),
}
"""Configs of the topic, headers of records, and the number of parts: 4 for validation, 3 to read the records again."""


def many_records(headers: tuple[tuple[str, bytes | None], ...] = ()) -> list[Record]:
    return [Record(offset, 1000 + offset % 3, b"k", bytes(offset % 7), headers) for offset in range(MANY)]


def produce_many(harness: ClusterHarness, records: list[Record], compression: Compression = Compression.NONE) -> Call:
    """Produce one batch to one partition."""
    harness.cluster.part_bytes = PART_RECORDS * RECORD_BYTES
    data = PartitionProduceData(index=0, records=encode_batch(records, compression=compression))
    topic = TopicProduceData(name="news", partition_data=[data])
    return harness.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 12)


@pytest.mark.parametrize("kind", LARGE)
def test_a_batch_with_many_records_is_checked_in_parts(harness: ClusterHarness, kind: str) -> None:
    configs, headers, expected = LARGE[kind]
    harness.partition(0).topic.configs = configs
    call = produce_many(harness, many_records(headers))
    parts = 1
    while not call.has_response:
        assert end_offsets(harness)[0] == 0
        proceed(harness)
        parts += 1
    assert errors(call) == [0]
    assert parts == expected
    (stored,) = harness.partition(0).log.batches_from(0)
    assert decode_records(stored) == many_records(headers)


def test_sizes_of_decompressed_records_are_checked_in_parts(harness: ClusterHarness) -> None:
    harness.partition(0).topic.configs = {"max.decompressed.message.bytes": "20"}
    call = produce_many(harness, many_records(), Compression.GZIP)
    parts = 1
    while not call.has_response:
        proceed(harness)
        parts += 1
    assert errors(call) == [0]
    assert parts == 4 + MANY // PART_RECORDS


def test_the_last_part_of_a_batch_finds_what_is_wrong(harness: ClusterHarness) -> None:
    records = many_records()
    records[-1].offset += 1
    call = produce_many(harness, records)
    while not call.has_response:
        proceed(harness)
    assert errors(call) == [ErrorCode.INVALID_RECORD]


def test_a_topic_that_is_deleted_while_its_batch_is_checked_is_unknown(harness: ClusterHarness) -> None:
    call = produce_many(harness, many_records())
    harness.cluster.delete_topic(harness.cluster.existing_topic("news"))
    while not call.has_response:
        proceed(harness)
    assert errors(call) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_leader_that_moves_while_a_batch_is_checked_refuses_it() -> None:
    harness = ClusterHarness(brokers=2, topics={"news": 1})
    partition = harness.partition(0)
    call = produce_many(harness, many_records())
    assert not call.has_response
    partition.leader_id = 3 - partition.leader_id
    while not call.has_response:
        proceed(harness)
    assert errors(call) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert partition.log.high_watermark == 0
