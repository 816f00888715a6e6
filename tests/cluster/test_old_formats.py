"""Brokers of older releases: message sets in Produce and Fetch, several offsets in ListOffsets."""

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


def old(as_version: str = "0.10.2", topics: dict[str, int] | None = None, **config: object) -> ClusterHarness:
    named = {name.replace("_", "."): value for name, value in config.items()}
    return ClusterHarness(topics, config=named, as_version=as_version)


def message_set(*values: bytes, magic: int = 1, timestamp_ms: int = 1000) -> bytes:
    """Messages as producers number them, without compression; their timestamps go up by 1 ms."""
    records = [Record(index, timestamp_ms + index, None, value) for index, value in enumerate(values)]
    return b"".join(encode_message(record, magic) for record in records)


def wrapped(*values: bytes, magic: int = 1, codec: Compression = Compression.GZIP) -> bytes:
    inner = compress(codec, message_set(*values, magic=magic))
    return encode_message(Record(len(values) - 1, 1000, None, inner), magic, compression=codec)


def send(harness: ClusterHarness, version: int, records: bytes | None, *, index: int = 0, acks: int = -1) -> Call:
    data = TopicProduceData(name="news", partition_data=[PartitionProduceData(index=index, records=records)])
    return harness.send(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]), version)


def produce(harness: ClusterHarness, version: int, records: bytes | None, *, index: int = 0) -> Any:
    """The response for the one partition."""
    return response(send(harness, version, records, index=index)).responses[0].partition_responses[0]


def stored(harness: ClusterHarness) -> list[Record]:
    return [record for each in split_batches(harness.partition().log.read(0, 2**31)) for record in decode_records(each)]


@pytest.mark.parametrize("as_version", RELEASES)
@pytest.mark.parametrize("magic", [0, 1])
def test_appends_message_sets(as_version: str, subtests: pytest.Subtests, magic: int) -> None:
    for version in [0, 1, 2]:
        with subtests.test(version=version):
            harness = old(as_version)
            answers = [produce(harness, version, message_set(b"a", b"b", magic=magic)) for _ in range(2)]

            assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 2)]
            assert [each.log_append_time_ms for each in answers] == [-1, -1]
            times = [1000, 1001] if magic else [-1, -1]
            assert [(each.offset, each.timestamp_ms, each.value) for each in stored(harness)] == [
                (0, times[0], b"a"),
                (1, times[1], b"b"),
                (2, times[0], b"a"),
                (3, times[1], b"b"),
            ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", NOT_ZSTD)
def test_appends_wrappers(magic: int, codec: Compression) -> None:
    harness = old()

    assert produce(harness, 2, wrapped(b"a", b"b", magic=magic, codec=codec)).error_code == ErrorCode.NONE
    assert [each.value for each in stored(harness)] == [b"a", b"b"]
    assert split_batches(harness.partition().log.read(0, 2**31))[0].compression is codec


def test_message_sets_are_refused_since_4_0(subtests: pytest.Subtests) -> None:
    for version in [0, 1, 2]:
        with subtests.test(version=version):
            for as_version in ("4.0", "4.2", None):
                harness = ClusterHarness(as_version=as_version)

                assert produce(harness, version, message_set(b"a")).error_code == ErrorCode.UNSUPPORTED_VERSION
                assert stored(harness) == []


@pytest.mark.parametrize("records", [None, b"", message_set(b"a")[:-1]])
def test_no_whole_message_is_no_error(records: bytes | None) -> None:
    harness = old()
    answer = produce(harness, 2, records)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)
    assert stored(harness) == []


@pytest.mark.parametrize(("as_version", "error"), [("0.10.2", ErrorCode.CORRUPT_MESSAGE), ("0.11", ErrorCode.NONE)])
def test_record_batches_in_requests_of_older_versions(as_version: str, error: ErrorCode) -> None:
    assert produce(old(as_version), 2, batch(b"a")).error_code == error


@pytest.mark.parametrize("as_version", ["0.11", "3.9", "4.2"])
def test_message_sets_in_requests_of_newer_versions(as_version: str) -> None:
    is_new = as_version != "0.11"
    expected = ErrorCode.INVALID_RECORD if is_new else ErrorCode.CORRUPT_MESSAGE

    assert produce(old(as_version), 3, message_set(b"a")).error_code == expected


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
def test_what_is_refused(as_version: str, records: bytes, before_2_4: ErrorCode, error: ErrorCode) -> None:
    harness = old(as_version, message_max_bytes=1000)
    refused = produce(harness, 2, records)

    assert refused.error_code == (error if as_version in ("2.8", "3.9") else before_2_4)
    assert (refused.base_offset, stored(harness)) == (-1, [])


def test_where_nothing_may_be_written() -> None:
    harness = ClusterHarness({"news": 2}, brokers=2, as_version="0.10.2")
    # The second partition is the other broker's; what is wrong with the bytes is not looked at.
    codes = [produce(harness, 2, b"?" * 40, index=index).error_code for index in (1, 2)]

    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(("records", "closes"), [(message_set(b"a"), False), (message_set(b"a")[:-1] + b"?", True)])
def test_acks_0(records: bytes, closes: bool) -> None:
    call = send(old(), 2, records, acks=0)

    assert (call.response, call.closes_connection) == (None, closes)


def fetch_request(offset: int = 0, *, index: int = 0, max_bytes: int = 2**20, min_bytes: int = 1) -> FetchRequest:
    asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(max_wait_ms=500, min_bytes=min_bytes, topics=[FetchTopic(topic="news", partitions=[asked])])


def fetch(harness: ClusterHarness, version: int, offset: int = 0, *, max_bytes: int = 2**20) -> Any:
    """The one partition of the response."""
    return harness.ask(fetch_request(offset, max_bytes=max_bytes), version).responses[0].partitions[0]


def filled(*batches: bytes, as_version: str = "0.10.2") -> ClusterHarness:
    harness = old(as_version)
    for each in batches:
        harness.partition().log.append(each, 0)
    return harness


def told(messages: list[LegacyRecord]) -> list[tuple[int, bytes | None]]:
    return [(message.offset, message.value) for message in messages]


@pytest.mark.parametrize("as_version", RELEASES)
@pytest.mark.parametrize("codec", [Compression.NONE, *NOT_ZSTD])
def test_fetches_message_sets(as_version: str, subtests: pytest.Subtests, codec: Compression) -> None:
    for version in range(4):
        with subtests.test(version=version):
            harness = filled(batch(b"a", b"b", compression=codec), batch(b"c"), as_version=as_version)
            answer = fetch(harness, version, 1)
            messages = split_messages(answer.records)

            assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 3)
            assert told(messages) == [(1, b"b"), (2, b"c")]
            assert [(each.magic, each.timestamp_ms) for each in messages] == (
                [(0, -1)] * 2 if version < 2 else [(1, 1001), (1, 1000)]
            )


def test_what_was_produced_as_messages_is_fetched_as_batches() -> None:
    harness = old("0.11")
    produce(harness, 2, wrapped(b"a", b"b"))

    (read,) = split_batches(fetch(harness, 4).records)
    assert [(each.offset, each.value) for each in decode_records(read)] == [(0, b"a"), (1, b"b")]


ONE = 12 + 22 + 1
"""The bytes of a message of magic 1 with a value of one byte."""


@pytest.mark.parametrize(
    ("version", "max_bytes", "expected"),
    [
        (2, 3 * ONE, 3 * ONE),
        (2, 3 * ONE - 1, 3 * ONE - 1),
        (2, 1, 1),
        (2, 0, 0),
        (2, -1, 0),
        (3, 3 * ONE, 3 * ONE),
        (3, 3 * ONE - 1, 2 * ONE),
        (3, ONE, ONE),
        (3, 1, ONE),
        (3, 0, ONE),
    ],
)
def test_limits(version: int, max_bytes: int, expected: int) -> None:
    harness = filled(batch(b"a", b"b", b"c"))

    assert len(fetch(harness, version, max_bytes=max_bytes).records) == expected


@pytest.mark.parametrize(("version", "expected"), [(2, [1, 1]), (3, [ONE, 0])])
def test_one_whole_message_at_least_comes_of_one_partition_alone(version: int, expected: list[int]) -> None:
    harness = old(topics={"news": 2})
    for index in (0, 1):
        harness.partition(index).log.append(batch(b"a"), 0)
    asked = fetch_request(max_bytes=1)
    asked.topics[0].partitions += fetch_request(index=1, max_bytes=1).topics[0].partitions

    assert [len(each.records) for each in harness.ask(asked, version).responses[0].partitions] == expected


def test_the_limit_of_the_response_counts_messages() -> None:
    harness = old(topics={"news": 2})
    for index in (0, 1):
        harness.partition(index).log.append(batch(b"a", b"b", b"c"), 0)
    asked = fetch_request()
    asked.topics[0].partitions += fetch_request(index=1).topics[0].partitions
    asked.max_bytes = 4 * ONE

    # What is left for the second partition has no room for the batch that it holds.
    assert [len(each.records) for each in harness.ask(asked, 3).responses[0].partitions] == [3 * ONE, 0]


def test_waits_for_messages(subtests: pytest.Subtests) -> None:
    for version in range(4):
        with subtests.test(version=version):
            harness = old()
            call = harness.send(fetch_request(), version)
            assert call.response is None
            produce(harness, 2, message_set(b"a"))

            (partition,) = response(call).responses[0].partitions
            assert told(split_messages(partition.records)) == [(0, b"a")]


def test_does_not_wait_for_more_than_the_limit(subtests: pytest.Subtests) -> None:
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
            refused = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

            assert fetch(harness, version, 0).error_code == (
                refused if is_configured and version < 10 else ErrorCode.NONE
            )
            is_refused = version < 4 or (is_configured and version < 10)
            assert fetch(harness, version, 1).error_code == (refused if is_refused else ErrorCode.NONE)


def test_no_sessions(subtests: pytest.Subtests) -> None:
    for version in range(7):
        with subtests.test(version=version):
            harness = filled(batch(b"a"))
            fetch(harness, version)

            assert len(harness.cluster.brokers[1].fetch_sessions) == 0


def offsets_before(
    harness: ClusterHarness, timestamp: int, count: int = 9, *, index: int = 0, broker: int = 1
) -> tuple[int, list[int]]:
    """What ListOffsets says in version 0."""
    asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp, max_num_offsets=count)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="news", partitions=[asked])])
    found = harness.ask(request, 0, broker=broker).topics[0].partitions[0]
    return found.error_code, found.old_style_offsets


NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("timestamp", "count", "expected"),
    [
        (-1, 1, [5]),
        (-1, 2, [5, 1]),
        (-1, 0, []),
        (-1, -1, []),
        (-2, 2, [1]),
        (NOW_MS, 2, [5, 1]),
        (NOW_MS - 1, 2, [1]),
        (1001, 2, [1]),
        (1000, 2, []),
    ],
)
def test_offsets_before(timestamp: int, count: int, expected: list[int]) -> None:
    harness = filled(batch(b"a", b"b"), batch(b"c", b"d"), batch(b"e"))
    harness.partition().log.truncate_before(1)

    assert offsets_before(harness, timestamp, count) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("timestamp", [-1, -2, 0])
def test_offsets_before_in_an_empty_log(timestamp: int) -> None:
    assert offsets_before(old(), timestamp) == (ErrorCode.NONE, [0])


def test_records_from_the_future() -> None:
    harness = filled(batch(b"a", timestamp_ms=NOW_MS + 5))

    assert offsets_before(harness, NOW_MS) == (ErrorCode.NONE, [1, 0])


def test_offsets_before_that_are_refused() -> None:
    harness = ClusterHarness({"news": 2}, brokers=2, as_version="0.10.2", config={"default.replication.factor": 1})

    assert offsets_before(harness, -3) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert offsets_before(harness, -1, index=2) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert offsets_before(harness, -1, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
