"""Brokers that emulate older releases: message sets in Produce and Fetch, several offsets in ListOffsets."""

from itertools import product
from typing import Any

import pytest

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression, compress
from fakebroker.protocol.message_sets import LegacyRecord, encode_message, split_messages
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import Record, TimestampType, decode_records, split_batches
from tests.support.cluster.cluster_harness import ClusterHarness, batch, response

RELEASES = ["0.10.0", "0.10.2", "0.11", "2.8", "3.9"]
NOT_ZSTD = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def old_cluster(as_version: str = "0.10.2", topics: dict[str, int] | None = None, **config: object) -> ClusterHarness:
    named = {name.replace("_", "."): value for name, value in config.items()}
    return ClusterHarness(topics, config=named, as_version=as_version)


def message_set(*values: bytes, magic: int = 1, timestamp_ms: int = 1000) -> bytes:
    """Return uncompressed messages with a producer's offsets; timestamps increase by 1 ms."""
    records = [Record(index, timestamp_ms + index, None, value) for index, value in enumerate(values)]
    return b"".join(encode_message(record, magic) for record in records)


def wrapped(*values: bytes, magic: int = 1, codec: Compression = Compression.GZIP) -> bytes:
    """Return a compressed message that contains a message set."""
    inner = compress(codec, message_set(*values, magic=magic))
    return encode_message(Record(len(values) - 1, 1000, None, inner), magic, compression=codec)


def send(harness: ClusterHarness, version: int, records: bytes | None, *, index: int = 0, acks: int = -1) -> Call:
    data = TopicProduceData(name="news", partition_data=[PartitionProduceData(index=index, records=records)])
    return harness.send(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]), version)


def produce(harness: ClusterHarness, version: int, records: bytes | None, *, index: int = 0) -> Any:
    """Produce to one partition and return its part of the response."""
    return response(send(harness, version, records, index=index)).responses[0].partition_responses[0]


def stored(harness: ClusterHarness) -> list[Record]:
    return [record for each in split_batches(harness.partition().log.read(0, 2**31)) for record in decode_records(each)]


def test_message_sets_are_appended(subtests: pytest.Subtests) -> None:
    for magic, as_version, version in product([0, 1], RELEASES, [0, 1, 2]):
        with subtests.test(magic=magic, as_version=as_version, version=version):
            harness = old_cluster(as_version)
            results = [produce(harness, version, message_set(b"a", b"b", magic=magic)) for _ in range(2)]

            assert [(each.error_code, each.base_offset) for each in results] == [(0, 0), (0, 2)]
            assert [each.log_append_time_ms for each in results] == [-1, -1]
            first_ms, second_ms = (1000, 1001) if magic else (-1, -1)  # Messages of magic 0 have no timestamps.
            assert [(each.offset, each.timestamp_ms, each.value) for each in stored(harness)] == [
                (0, first_ms, b"a"),
                (1, second_ms, b"b"),
                (2, first_ms, b"a"),
                (3, second_ms, b"b"),
            ]


def test_compressed_message_sets_are_appended(subtests: pytest.Subtests) -> None:
    for codec, magic in product(NOT_ZSTD, [0, 1]):
        with subtests.test(codec=codec, magic=magic):
            harness = old_cluster()

            assert produce(harness, 2, wrapped(b"a", b"b", magic=magic, codec=codec)).error_code == ErrorCode.NONE
            assert [each.value for each in stored(harness)] == [b"a", b"b"]
            assert split_batches(harness.partition().log.read(0, 2**31))[0].compression is codec


def test_message_sets_are_rejected_since_4_0(subtests: pytest.Subtests) -> None:
    for as_version, version in product(["4.0", "4.2", None], [0, 1, 2]):
        with subtests.test(as_version=as_version, version=version):
            harness = ClusterHarness(as_version=as_version)

            assert produce(harness, version, message_set(b"a")).error_code == ErrorCode.UNSUPPORTED_VERSION
            assert stored(harness) == []


@pytest.mark.parametrize("records", [None, b"", message_set(b"a")[:-1]])
def test_an_incomplete_message_set_appends_nothing(records: bytes | None) -> None:
    harness = old_cluster()
    result = produce(harness, 2, records)

    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, -1)
    assert stored(harness) == []


@pytest.mark.parametrize(("as_version", "error"), [("0.10.2", ErrorCode.CORRUPT_MESSAGE), ("0.11", ErrorCode.NONE)])
def test_record_batches_in_requests_of_older_versions(as_version: str, error: ErrorCode) -> None:
    assert produce(old_cluster(as_version), 2, batch(b"a")).error_code == error


@pytest.mark.parametrize("as_version", ["0.11", "3.9", "4.2"])
def test_message_sets_in_requests_of_newer_versions(as_version: str) -> None:
    expected = ErrorCode.CORRUPT_MESSAGE if as_version == "0.11" else ErrorCode.INVALID_RECORD

    assert produce(old_cluster(as_version), 3, message_set(b"a")).error_code == expected


LOG_APPEND_TIME = encode_message(Record(0, 1000, None, b""), 1, timestamp_type=TimestampType.LOG_APPEND_TIME)


@pytest.mark.parametrize("as_version", RELEASES)
@pytest.mark.parametrize(
    ("records", "before_2_4", "error"),
    [
        pytest.param(
            message_set(b"a")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE, id="flipped byte"
        ),
        pytest.param(
            wrapped(b"a") + wrapped(b"b"), ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, id="two wrappers"
        ),
        pytest.param(LOG_APPEND_TIME, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP, id="LogAppendTime"),
        pytest.param(
            message_set(b"a", bytes(967)), ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE, id="one large"
        ),
        pytest.param(
            message_set(bytes(500), bytes(500)),
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.MESSAGE_TOO_LARGE,
            id="large",
        ),
    ],
)
def test_invalid_message_sets_are_rejected(
    as_version: str, records: bytes, before_2_4: ErrorCode, error: ErrorCode
) -> None:
    harness = old_cluster(as_version, message_max_bytes=1000)
    refused = produce(harness, 2, records)

    assert refused.error_code == (error if as_version in ("2.8", "3.9") else before_2_4)
    assert (refused.base_offset, stored(harness)) == (-1, [])


def test_errors_of_the_partition_come_before_errors_of_the_records() -> None:
    harness = ClusterHarness({"news": 2}, brokers=2, as_version="0.10.2")
    # Broker 2 is the leader of partition 1, and partition 2 does not exist. The invalid bytes are not read.
    codes = [produce(harness, 2, b"?" * 40, index=index).error_code for index in (1, 2)]

    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(("records", "closes"), [(message_set(b"a"), False), (message_set(b"a")[:-1] + b"?", True)])
def test_acks_0(records: bytes, closes: bool) -> None:
    call = send(old_cluster(), 2, records, acks=0)

    assert (call.response, call.closes_connection) == (None, closes)


def fetch_request(offset: int = 0, *, index: int = 0, max_bytes: int = 2**20, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = FetchTopic(topic="news", partitions=[partition])
    return FetchRequest(max_wait_ms=500, min_bytes=min_bytes, topics=[topic])


def fetch(harness: ClusterHarness, version: int, offset: int = 0, *, max_bytes: int = 2**20) -> Any:
    """Fetch one partition and return its part of the response."""
    return harness.ask(fetch_request(offset, max_bytes=max_bytes), version).responses[0].partitions[0]


def filled(*batches: bytes, as_version: str = "0.10.2") -> ClusterHarness:
    """Return a cluster with these batches in its log."""
    harness = old_cluster(as_version)
    for each in batches:
        harness.partition().log.append(each, 0)
    return harness


def offsets_and_values(messages: list[LegacyRecord]) -> list[tuple[int, bytes | None]]:
    return [(message.offset, message.value) for message in messages]


def test_message_sets_are_fetched(subtests: pytest.Subtests) -> None:
    for codec, as_version, version in product([Compression.NONE, *NOT_ZSTD], RELEASES, range(4)):
        with subtests.test(codec=codec, as_version=as_version, version=version):
            harness = filled(batch(b"a", b"b", compression=codec), batch(b"c"), as_version=as_version)
            partition = fetch(harness, version, 1)
            messages = split_messages(partition.records)

            assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 3)
            assert offsets_and_values(messages) == [(1, b"b"), (2, b"c")]
            assert [(each.magic, each.timestamp_ms) for each in messages] == (
                [(0, -1)] * 2 if version < 2 else [(1, 1001), (1, 1000)]
            )


def test_produced_messages_are_fetched_as_record_batches() -> None:
    harness = old_cluster("0.11")
    produce(harness, 2, wrapped(b"a", b"b"))

    (read,) = split_batches(fetch(harness, 4).records)
    assert [(each.offset, each.value) for each in decode_records(read)] == [(0, b"a"), (1, b"b")]


ONE_BYTES = 12 + 22 + 1
"""The size of a message of magic 1 with a value of one byte."""


def test_size_limits(subtests: pytest.Subtests) -> None:
    for version, max_bytes, expected in [
        (2, 3 * ONE_BYTES, 3 * ONE_BYTES),
        (2, 3 * ONE_BYTES - 1, 3 * ONE_BYTES - 1),
        (2, 1, 1),
        (2, 0, 0),
        (2, -1, 0),
        (3, 3 * ONE_BYTES, 3 * ONE_BYTES),
        (3, 3 * ONE_BYTES - 1, 2 * ONE_BYTES),
        (3, ONE_BYTES, ONE_BYTES),
        (3, 1, ONE_BYTES),
        (3, 0, ONE_BYTES),
    ]:
        with subtests.test(version=version, max_bytes=max_bytes, expected=expected):
            harness = filled(batch(b"a", b"b", b"c"))

            assert len(fetch(harness, version, max_bytes=max_bytes).records) == expected


@pytest.mark.parametrize(("version", "expected"), [(2, [1, 1]), (3, [ONE_BYTES, 0])])
def test_at_least_one_message_of_the_first_partition_with_records(version: int, expected: list[int]) -> None:
    harness = old_cluster(topics={"news": 2})
    for index in (0, 1):
        harness.partition(index).log.append(batch(b"a"), 0)
    request = fetch_request(max_bytes=1)
    request.topics[0].partitions += fetch_request(index=1, max_bytes=1).topics[0].partitions

    assert [len(each.records) for each in harness.ask(request, version).responses[0].partitions] == expected


def test_the_response_limit_counts_converted_messages() -> None:
    harness = old_cluster(topics={"news": 2})
    for index in (0, 1):
        harness.partition(index).log.append(batch(b"a", b"b", b"c"), 0)
    request = fetch_request()
    request.topics[0].partitions += fetch_request(index=1).topics[0].partitions
    request.max_bytes = 4 * ONE_BYTES

    # The first partition leaves too few bytes for the batch in the second.
    assert [len(each.records) for each in harness.ask(request, 3).responses[0].partitions] == [3 * ONE_BYTES, 0]


def test_a_fetch_waits_for_messages(subtests: pytest.Subtests) -> None:
    for version in range(4):
        with subtests.test(version=version):
            harness = old_cluster()
            call = harness.send(fetch_request(), version)
            assert call.response is None
            produce(harness, 2, message_set(b"a"))

            (partition,) = response(call).responses[0].partitions
            assert offsets_and_values(split_messages(partition.records)) == [(0, b"a")]


def test_min_bytes_is_capped_by_the_response_limit(subtests: pytest.Subtests) -> None:
    for version in range(4):
        with subtests.test(version=version):
            harness = filled(batch(b"a", b"b", b"c"))
            (partition,) = harness.ask(fetch_request(max_bytes=10, min_bytes=11), version).responses[0].partitions

            assert partition.error_code == ErrorCode.NONE


@pytest.mark.parametrize("is_configured", [False, True])
def test_zstd(subtests: pytest.Subtests, is_configured: bool) -> None:
    for version in range(12):
        with subtests.test(version=version):
            harness = filled(batch(b"a"), batch(b"b", compression=Compression.ZSTD), as_version="2.8")
            if is_configured:
                harness.topic().configs = {"compression.type": "zstd"}
            error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

            is_topic_refused = is_configured and version < 10
            assert fetch(harness, version, 0).error_code == (error if is_topic_refused else ErrorCode.NONE)
            is_batch_refused = is_topic_refused or version < 4
            assert fetch(harness, version, 1).error_code == (error if is_batch_refused else ErrorCode.NONE)


def test_releases_without_fetch_sessions(subtests: pytest.Subtests) -> None:
    for version in range(7):
        with subtests.test(version=version):
            harness = filled(batch(b"a"))
            fetch(harness, version)

            assert len(harness.cluster.brokers[1].fetch_sessions) == 0


def offsets_before(
    harness: ClusterHarness, timestamp: int, count: int = 9, *, index: int = 0, broker: int = 1
) -> tuple[int, list[int]]:
    """Send ListOffsets in version 0, which returns up to `count` offsets; return error and offsets."""
    partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp, max_num_offsets=count)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="news", partitions=[partition])])
    result = harness.ask(request, 0, broker=broker).topics[0].partitions[0]
    return result.error_code, result.old_style_offsets


NOW_MS = 1_700_000_000_000


def test_offsets_before_a_timestamp(subtests: pytest.Subtests) -> None:
    for timestamp, count, expected in [
        (-1, 1, [5]),
        (-1, 2, [5, 1]),
        (-1, 0, []),
        (-1, -1, []),
        (-2, 2, [1]),
        (NOW_MS, 2, [5, 1]),
        (NOW_MS - 1, 2, [1]),
        (1001, 2, [1]),
        (1000, 2, []),
    ]:
        with subtests.test(timestamp=timestamp, count=count, expected=expected):
            harness = filled(batch(b"a", b"b"), batch(b"c", b"d"), batch(b"e"))
            harness.partition().log.truncate_before(1)

            assert offsets_before(harness, timestamp, count) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("timestamp", [-1, -2, 0])
def test_offsets_before_a_timestamp_in_an_empty_log(timestamp: int) -> None:
    assert offsets_before(old_cluster(), timestamp) == (ErrorCode.NONE, [0])


def test_offsets_before_with_timestamps_in_the_future() -> None:
    harness = filled(batch(b"a", timestamp_ms=NOW_MS + 5))

    assert offsets_before(harness, NOW_MS) == (ErrorCode.NONE, [1, 0])


def test_errors_of_offsets_before() -> None:
    harness = ClusterHarness({"news": 2}, brokers=2, as_version="0.10.2", config={"default.replication.factor": 1})

    assert offsets_before(harness, -3) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert offsets_before(harness, -1, index=2) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert offsets_before(harness, -1, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
