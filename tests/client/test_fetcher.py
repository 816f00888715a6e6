"""The fetcher: requests to the leaders of partitions, handling of responses, and decoding of records."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from fakebroker.client.consumer.cluster_metadata import PartitionLeader
from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.consumer.fetcher import Fetcher
from fakebroker.client.consumer.records import RecordTooLarge, decode_fetched
from fakebroker.client.errors import BrokerRefused, OffsetOutOfRange, RecordsUnreadable
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression, compress
from fakebroker.protocol.message_sets import encode_message
from fakebroker.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fakebroker.protocol.records import Record, TimestampType, crc32c, encode_batch
from fakebroker.protocol.transaction_markers import encode_marker

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)
LEADERS = {P0: PartitionLeader(1, 5), P1: PartitionLeader(2, 0), P2: PartitionLeader(1, 0)}
NOW_MS = 1_000.0


def batch(*offsets: int, **options: Any) -> bytes:
    """Encode a batch of records with these offsets."""
    records = [Record(offset, 1, None, b"%d" % offset) for offset in offsets]
    return encode_batch(records, base_offset=offsets[0], **options)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Encode the marker that ends a transaction at this offset."""
    data = encode_marker(producer_id, 0, is_commit=commit, coordinator_epoch=0, now_ms=NOW_MS)
    return offset.to_bytes(8, "big") + data[8:]


def fetch_response(
    index: int, records: bytes = b"", error: int = 0, aborted: Sequence[AbortedTransaction] | None = None
) -> FetchResponse:
    data = PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        records=records,
        aborted_transactions=None if aborted is None else list(aborted),
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def list_offsets_response(index: int, offset: int, error: int = 0) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(partition_index=index, error_code=error, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


class FetcherHarness:
    """A fetcher, and a clock to move.

    Args:
        settings: Settings of the consumer.
    """

    def __init__(self, **settings: Any) -> None:
        self.fetcher = Fetcher(ConsumerSettings(**settings))
        self.now_ms = NOW_MS

    def requests(self) -> list[tuple[int, Any]]:
        """Return new requests with the node ids of their brokers."""
        return self.fetcher.requests(LEADERS, self.now_ms)

    def respond(self, response: Any) -> None:
        """Respond to the only new request."""
        ((node_id, request),) = self.requests()
        self.fetcher.answered(node_id, request, response, self.now_ms)

    def offsets(self) -> list[int]:
        """Take the fetched records, and return their offsets."""
        return [record.offset for record in self.fetcher.take_records(100)]


def test_each_leader_gets_one_request_at_a_time_for_all_its_partitions() -> None:
    harness = FetcherHarness()
    for partition in (P0, P1, P2):
        harness.fetcher.start(partition, 7)
    requests = harness.requests()
    fetched = {
        node_id: [(p.partition, p.fetch_offset) for p in request.topics[0].partitions] for node_id, request in requests
    }
    assert fetched == {1: [(0, 7), (2, 7)], 2: [(1, 7)]}
    assert requests[0][1].topics[0].partitions[0].current_leader_epoch == 5
    assert harness.requests() == []
    harness.fetcher.answered(*requests[0], fetch_response(0, batch(7, 8)), harness.now_ms)
    harness.now_ms += 100  # P2 is missing in the response
    ((_, request),) = harness.requests()
    assert [p.partition for p in request.topics[0].partitions] == [2], "P0 has records that were not taken yet"


def test_a_partition_without_a_known_leader_needs_metadata() -> None:
    harness = FetcherHarness()
    harness.fetcher.start(("else", 0), 0)
    assert (harness.requests(), harness.fetcher.needs_metadata) == ([], True)


def test_paused_partitions_are_neither_fetched_nor_returned() -> None:
    harness = FetcherHarness()
    harness.fetcher.start(P0, 0)
    harness.respond(fetch_response(0, batch(0)))
    harness.fetcher.paused = (P0,)
    assert (harness.offsets(), harness.requests()) == ([], [])
    harness.fetcher.paused = ()
    assert harness.offsets() == [0]


def test_a_response_to_a_request_sent_before_a_seek_is_ignored() -> None:
    harness = FetcherHarness()
    harness.fetcher.start(P0, 0)
    ((node_id, request),) = harness.requests()
    harness.fetcher.start(P0, 5)
    harness.fetcher.answered(node_id, request, fetch_response(0, batch(0, 1)), harness.now_ms)
    assert (harness.offsets(), harness.fetcher.positions()) == ([], {P0: 5})


def test_a_response_for_a_partition_that_was_removed_and_added_again_is_ignored() -> None:
    harness = FetcherHarness()
    harness.fetcher.start(P0, 0)
    ((node_id, request),) = harness.requests()
    harness.fetcher.remove([P0])
    harness.fetcher.start(P0, 0)
    harness.fetcher.answered(node_id, request, fetch_response(0, batch(0, 1)), harness.now_ms)
    assert harness.offsets() == []


def test_a_response_for_a_removed_partition_is_ignored() -> None:
    harness = FetcherHarness()
    harness.fetcher.start(P0, 0)
    ((node_id, request),) = harness.requests()
    harness.fetcher.remove([P0])
    harness.fetcher.answered(node_id, request, fetch_response(0, batch(0, 1)), harness.now_ms)
    assert (harness.offsets(), P0 in harness.fetcher) == ([], False)


def test_a_partition_is_fetched_again_after_a_back_off(subtests: pytest.Subtests) -> None:
    for error, needs_metadata in (
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ):
        with subtests.test(error=error):
            harness = FetcherHarness()
            harness.fetcher.start(P0, 0)
            harness.respond(fetch_response(0, error=error))
            assert (harness.requests(), harness.fetcher.needs_metadata) == ([], needs_metadata)
            assert harness.fetcher.next_deadline() == NOW_MS + 100
            harness.now_ms += 100
            harness.respond(fetch_response(0, batch(0)))
            assert harness.offsets() == [0]


def test_after_a_lost_connection_partitions_are_fetched_after_a_back_off() -> None:
    harness = FetcherHarness()
    harness.fetcher.start(P0, 0)
    ((node_id, request),) = harness.requests()
    harness.fetcher.unanswered(node_id, request, harness.now_ms)
    assert (harness.requests(), harness.fetcher.needs_metadata) == ([], True)
    harness.now_ms += 100
    assert len(harness.requests()) == 1


def test_an_error_that_cannot_be_retried_is_reported_once() -> None:
    harness = FetcherHarness()
    harness.fetcher.start(P0, 0)
    harness.respond(fetch_response(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert harness.requests() == []
    assert isinstance(harness.fetcher.take_failure(), BrokerRefused)
    assert harness.fetcher.take_failure() is None
    assert len(harness.requests()) == 1


def test_an_offset_out_of_range_is_reset_or_reported() -> None:
    harness = FetcherHarness(auto_offset_reset="earliest")
    harness.fetcher.start(P0, 9)
    harness.respond(fetch_response(0, error=1))
    assert harness.fetcher.positions() == {}
    ((node_id, request),) = harness.requests()
    assert isinstance(request, ListOffsetsRequest)
    assert request.topics[0].partitions[0].timestamp == -2
    harness.fetcher.answered(node_id, request, list_offsets_response(0, 3), harness.now_ms)
    ((_, fetch),) = harness.requests()
    assert isinstance(fetch, FetchRequest)
    assert fetch.topics[0].partitions[0].fetch_offset == 3

    harness = FetcherHarness(auto_offset_reset=None)
    harness.fetcher.start(P0, 9)
    harness.respond(fetch_response(0, error=1))
    assert isinstance(harness.fetcher.take_failure(), OffsetOutOfRange)


def test_a_response_to_list_offsets_version_0_is_read() -> None:
    harness = FetcherHarness()
    harness.fetcher.reset(P0, "latest")
    response = list_offsets_response(0, -1)
    response.topics[0].partitions[0].old_style_offsets = [4, 0]
    harness.respond(response)
    assert harness.fetcher.positions() == {P0: 4}


def test_damaged_records_are_reported_and_fetched_again() -> None:
    harness = FetcherHarness()
    harness.fetcher.start(P0, 0)
    harness.respond(fetch_response(0, batch(0)[:-1] + b"?"))
    failure = harness.fetcher.take_failure()
    assert isinstance(failure, RecordsUnreadable)
    assert "t-0 at offset 0: record batch with base offset 0: CRC" in str(failure)
    harness.respond(fetch_response(0, batch(0)))
    assert harness.offsets() == [0]


def test_the_isolation_level_is_requested(subtests: pytest.Subtests) -> None:
    for level, number in (("read_uncommitted", 0), ("read_committed", 1)):
        with subtests.test(level):
            harness = FetcherHarness(isolation_level=level)
            harness.fetcher.start(P0, 0)
            harness.fetcher.reset(P2, "latest")
            assert [request.isolation_level for _, request in harness.requests()] == [number, number]
    assert Fetcher(ConsumerSettings())._isolation_level == 0


def test_a_response_with_aborted_records_only_moves_the_position(subtests: pytest.Subtests) -> None:
    records = transaction(0, 1) + marker(2, 7, commit=False)
    for level, offsets in (("read_uncommitted", [0, 1]), ("read_committed", [])):
        with subtests.test(level):
            harness = FetcherHarness(isolation_level=level)
            harness.fetcher.start(P0, 0)
            harness.respond(fetch_response(0, records, aborted=[AbortedTransaction(producer_id=7, first_offset=0)]))
            assert harness.offsets() == offsets
            assert harness.fetcher.positions() == {P0: 3}
            ((_, request),) = harness.requests()
            assert request.topics[0].partitions[0].fetch_offset == 3


# Records


def transaction(*offsets: int, producer_id: int = 7, **options: Any) -> bytes:
    """Encode a batch of a transaction."""
    settings = {"is_transactional": True, "producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    return batch(*offsets, **(settings | options))


def committed_offsets(data: bytes, *aborted: tuple[int, int], offset: int = 0) -> list[int]:
    """Return the offsets of the committed records; `aborted` are producer ids and first offsets."""
    transactions = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]
    return [record.offset for record in decode_fetched(data, P0, offset, transactions)[0]]


def test_records_of_aborted_transactions_are_skipped(subtests: pytest.Subtests) -> None:
    """As in section "Reading transactional messages" of KIP-98."""
    two = transaction(0) + transaction(1, producer_id=8) + transaction(2)
    cases: list[tuple[str, bytes, list[tuple[int, int]], int, list[int]]] = [
        ("nothing aborted", two + marker(3, 7, commit=True), [], 0, [0, 1, 2]),
        ("one of two producers", two + marker(3, 7, commit=False), [(7, 0)], 0, [1]),
        ("a later one", two + marker(3, 7, commit=False) + transaction(4), [(7, 0)], 0, [1, 4]),
        (
            "the marker ends only its producer's",
            two + marker(3, 8, commit=False) + transaction(4),
            [(8, 1), (7, 0)],
            0,
            [],
        ),
        ("a commit does not", transaction(0) + marker(1, 8, commit=True) + transaction(2), [(7, 0)], 0, []),
        ("before its first offset", transaction(0) + marker(1, 7, commit=True) + transaction(2), [(7, 2)], 0, [0]),
        ("two of one producer", transaction(0) + marker(1, 7, commit=False) + transaction(2), [(7, 2), (7, 0)], 0, []),
        ("from inside", transaction(3, 4, 5), [(7, 0)], 4, []),
        ("other records of the producer", transaction(0, is_transactional=False), [(7, 0)], 0, [0]),
        ("surplus entries", transaction(0), [(9, 0), (7, 5)], 0, [0]),
    ]
    for name, data, aborted, offset, expected in cases:
        with subtests.test(name):
            assert committed_offsets(data, *aborted, offset=offset) == expected


def test_a_control_batch_that_compaction_has_emptied_is_skipped() -> None:
    """Compaction keeps the last batch of a producer without its records."""
    checked = marker(1, 7, commit=False)[21:57] + bytes(4)  # the header, with a count of 0
    length = len(checked) + 9
    emptied = struct.pack(">qiibI", 1, length, 0, 2, crc32c(checked)) + checked
    assert decode_offsets(batch(0) + emptied + batch(2)) == ([0, 2], 3)


def decode_offsets(data: bytes, offset: int = 0) -> tuple[list[int], int]:
    """Decode records from an offset on; return their offsets, and the next offset to fetch."""
    records, next_offset = decode_fetched(data, P0, offset)
    return [record.offset for record in records], next_offset


def test_records_before_the_offset_and_an_incomplete_batch_are_skipped() -> None:
    assert decode_offsets(batch(0, 1, 2) + batch(3, 5) + batch(6)[:-1], offset=2) == ([2, 3, 5], 6)


def test_control_batches_are_skipped() -> None:
    assert decode_offsets(batch(0) + batch(1, is_control=True, is_transactional=True, producer_id=1)) == ([0], 2)


def test_message_sets_are_decoded(subtests: pytest.Subtests) -> None:
    for magic in (0, 1):
        for compression in (Compression.NONE, Compression.GZIP, Compression.SNAPPY):
            with subtests.test(magic=magic, compression=compression):
                first = 0 if magic and compression else 10  # offsets in a compressed wrapper of magic 1 start at 0
                inner = b"".join(encode_message(Record(first + index, 1, None, b"v"), magic) for index in range(3))
                if compression:
                    wrapper = Record(12, 9, None, compress(compression, inner))
                    inner = encode_message(wrapper, magic, compression=compression)
                assert decode_offsets(inner, offset=11) == ([11, 12], 13)


def test_log_append_time_is_the_timestamp_of_the_wrapper() -> None:
    inner = compress(Compression.GZIP, encode_message(Record(0, 1, None, b"v"), 1))
    options: dict[str, Any] = {"compression": Compression.GZIP, "timestamp_type": TimestampType.LOG_APPEND_TIME}
    records, _ = decode_fetched(encode_message(Record(5, 9, None, inner), 1, **options), P0, 0)
    assert [(record.offset, record.timestamp_ms) for record in records] == [(5, 9)]


def test_message_sets_may_be_followed_by_batches() -> None:
    assert decode_offsets(encode_message(Record(0, 1, None, b"v"), 1) + batch(1)) == ([0, 1], 2)


def test_a_record_larger_than_the_fetch_limit_is_an_error() -> None:
    with pytest.raises(RecordTooLarge, match="t-0 at offset 4: 20 bytes fetched, expected a whole record"):
        decode_fetched(batch(4)[:20], P0, 4)
