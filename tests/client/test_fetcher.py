"""Reading partitions without sockets: whom to ask for what, and what an answer means."""

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
from fakebroker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fakebroker.protocol.records import Record, TimestampType, encode_batch

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)
LEADERS = {P0: PartitionLeader(1, 5), P1: PartitionLeader(2, 0), P2: PartitionLeader(1, 0)}
NOW_MS = 1_000.0


def batch(*offsets: int, **how: Any) -> bytes:
    return encode_batch([Record(offset, 1, None, b"%d" % offset) for offset in offsets], base_offset=offsets[0], **how)


def fetched(index: int, records: bytes = b"", error: int = 0) -> FetchResponse:
    data = PartitionData(partition_index=index, error_code=error, high_watermark=-1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def placed(index: int, offset: int, error: int = 0) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(partition_index=index, error_code=error, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


class Desk:
    """Partitions being read, and the requests for them."""

    def __init__(self, **settings: Any) -> None:
        self.fetching = Fetcher(ConsumerSettings(**settings))
        self.now_ms = NOW_MS

    def asks(self) -> list[tuple[int, Any]]:
        return self.fetching.requests(LEADERS, self.now_ms)

    def answer(self, response: Any) -> None:
        """Start at P0's leader, with this answer to the one request."""
        ((node_id, request),) = self.asks()
        self.fetching.answered(node_id, request, response, self.now_ms)

    def offsets(self) -> list[int]:
        return [record.offset for record in self.fetching.take_records(100)]


def test_each_leader_is_asked_once_at_a_time_for_all_that_it_leads() -> None:
    desk = Desk()
    for place in (P0, P1, P2):
        desk.fetching.start(place, 7)
    asks = desk.asks()
    asked = {
        node_id: [(p.partition, p.fetch_offset) for p in request.topics[0].partitions] for node_id, request in asks
    }
    assert asked == {1: [(0, 7), (2, 7)], 2: [(1, 7)]}
    assert asks[0][1].topics[0].partitions[0].current_leader_epoch == 5
    assert desk.asks() == []
    desk.fetching.answered(*asks[0], fetched(0, batch(7, 8)), desk.now_ms)
    desk.now_ms += 100  # P2 was not told of
    ((_, request),) = desk.asks()
    assert [p.partition for p in request.topics[0].partitions] == [2], "P0 has records that were not taken yet"


def test_a_partition_whose_leader_is_not_known_wants_metadata() -> None:
    desk = Desk()
    desk.fetching.start(("else", 0), 0)
    assert (desk.asks(), desk.fetching.needs_metadata) == ([], True)


def test_what_is_paused_is_neither_asked_for_nor_handed_out() -> None:
    desk = Desk()
    desk.fetching.start(P0, 0)
    desk.answer(fetched(0, batch(0)))
    desk.fetching.paused = (P0,)
    assert (desk.offsets(), desk.asks()) == ([], [])
    desk.fetching.paused = ()
    assert desk.offsets() == [0]


def test_an_answer_to_what_was_asked_before_a_seek_is_dropped() -> None:
    desk = Desk()
    desk.fetching.start(P0, 0)
    ((node_id, request),) = desk.asks()
    desk.fetching.start(P0, 5)
    desk.fetching.answered(node_id, request, fetched(0, batch(0, 1)), desk.now_ms)
    assert (desk.offsets(), desk.fetching.positions()) == ([], {P0: 5})


def test_an_answer_for_a_partition_that_went_and_came_back_is_dropped() -> None:
    desk = Desk()
    desk.fetching.start(P0, 0)
    ((node_id, request),) = desk.asks()
    desk.fetching.remove([P0])
    desk.fetching.start(P0, 0)
    desk.fetching.answered(node_id, request, fetched(0, batch(0, 1)), desk.now_ms)
    assert desk.offsets() == []


def test_an_answer_for_a_partition_that_went_is_dropped() -> None:
    desk = Desk()
    desk.fetching.start(P0, 0)
    ((node_id, request),) = desk.asks()
    desk.fetching.remove([P0])
    desk.fetching.answered(node_id, request, fetched(0, batch(0, 1)), desk.now_ms)
    assert (desk.offsets(), P0 in desk.fetching) == ([], False)


@pytest.mark.parametrize(
    ("error", "wants_metadata"), [(6, True), (3, True), (74, True), (56, True), (75, True), (-1, False)]
)
def test_what_passes_is_asked_again_after_a_while(error: int, wants_metadata: bool) -> None:
    desk = Desk()
    desk.fetching.start(P0, 0)
    desk.answer(fetched(0, error=error))
    assert (desk.asks(), desk.fetching.needs_metadata) == ([], wants_metadata)
    assert desk.fetching.next_deadline() == NOW_MS + 100
    desk.now_ms += 100
    desk.answer(fetched(0, batch(0)))
    assert desk.offsets() == [0]


def test_a_lost_connection_is_asked_again_after_a_while() -> None:
    desk = Desk()
    desk.fetching.start(P0, 0)
    ((node_id, request),) = desk.asks()
    desk.fetching.unanswered(node_id, request, desk.now_ms)
    assert (desk.asks(), desk.fetching.needs_metadata) == ([], True)
    desk.now_ms += 100
    assert len(desk.asks()) == 1


def test_what_does_not_pass_is_told_once_and_asked_again() -> None:
    desk = Desk()
    desk.fetching.start(P0, 0)
    desk.answer(fetched(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert desk.asks() == []
    assert isinstance(desk.fetching.take_failure(), BrokerRefused)
    assert desk.fetching.take_failure() is None
    assert len(desk.asks()) == 1


def test_an_offset_out_of_range_is_looked_up_or_told() -> None:
    desk = Desk(auto_offset_reset="earliest")
    desk.fetching.start(P0, 9)
    desk.answer(fetched(0, error=1))
    assert desk.fetching.positions() == {}
    ((node_id, request),) = desk.asks()
    assert isinstance(request, ListOffsetsRequest)
    assert request.topics[0].partitions[0].timestamp == -2
    desk.fetching.answered(node_id, request, placed(0, 3), desk.now_ms)
    ((_, again),) = desk.asks()
    assert isinstance(again, FetchRequest)
    assert again.topics[0].partitions[0].fetch_offset == 3

    desk = Desk(auto_offset_reset=None)
    desk.fetching.start(P0, 9)
    desk.answer(fetched(0, error=1))
    assert isinstance(desk.fetching.take_failure(), OffsetOutOfRange)


def test_a_lookup_in_the_old_style_is_understood() -> None:
    desk = Desk()
    desk.fetching.reset(P0, "latest")
    response = placed(0, -1)
    response.topics[0].partitions[0].old_style_offsets = [4, 0]
    desk.answer(response)
    assert desk.fetching.positions() == {P0: 4}


def test_damaged_records_are_told_of_and_asked_for_again() -> None:
    desk = Desk()
    desk.fetching.start(P0, 0)
    desk.answer(fetched(0, batch(0)[:-1] + b"?"))
    failure = desk.fetching.take_failure()
    assert isinstance(failure, RecordsUnreadable)
    assert "t-0 at offset 0: record batch with base offset 0: CRC" in str(failure)
    desk.answer(fetched(0, batch(0)))
    assert desk.offsets() == [0]


# Records


def decoded(data: bytes, offset: int = 0) -> tuple[list[int], int]:
    records, next_offset = decode_fetched(data, P0, offset)
    return [record.offset for record in records], next_offset


def test_what_lies_before_the_offset_and_a_cut_end_are_left_out() -> None:
    assert decoded(batch(0, 1, 2) + batch(3, 5) + batch(6)[:-1], offset=2) == ([2, 3, 5], 6)


def test_control_batches_take_up_offsets_and_give_nothing() -> None:
    assert decoded(batch(0) + batch(1, is_control=True, is_transactional=True, producer_id=1)) == ([0], 2)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.SNAPPY])
def test_messages_of_old_brokers(magic: int, compression: Compression) -> None:
    first = 0 if magic and compression else 10  # magic 1 numbers those in a wrapper from 0 on
    inner = b"".join(encode_message(Record(first + index, 1, None, b"v"), magic) for index in range(3))
    if compression:
        inner = encode_message(Record(12, 9, None, compress(compression, inner)), magic, compression=compression)
    assert decoded(inner, offset=11) == ([11, 12], 13)


def test_the_time_of_appending_is_the_wrappers() -> None:
    inner = compress(Compression.GZIP, encode_message(Record(0, 1, None, b"v"), 1))
    how: dict[str, Any] = {"compression": Compression.GZIP, "timestamp_type": TimestampType.LOG_APPEND_TIME}
    records, _ = decode_fetched(encode_message(Record(5, 9, None, inner), 1, **how), P0, 0)
    assert [(record.offset, record.timestamp_ms) for record in records] == [(5, 9)]


def test_a_log_may_hold_old_and_new_formats() -> None:
    assert decoded(encode_message(Record(0, 1, None, b"v"), 1) + batch(1)) == ([0, 1], 2)


def test_a_message_that_is_larger_than_asked_for_is_an_error() -> None:
    with pytest.raises(RecordTooLarge, match="t-0 at offset 4: 20 bytes fetched, expected a whole record"):
        decode_fetched(batch(4)[:20], P0, 4)
