"""Fetch: the records that are read, size limits, errors, and requests that wait for records."""

from typing import Any

import pytest

from fakebroker.cluster.call import Call, Peer
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import split_batches
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, batch, response, versions

ALL_VERSIONS = versions("Fetch")
ONE = batch(b"a")
"""A batch of 69 bytes."""


def partition_request(index: int = 0, offset: int = 0, *, max_bytes: int = 2**20, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


def request_of(
    harness: ClusterHarness,
    version: int,
    *partitions: FetchPartition,
    topic: str = "news",
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 2**30,
    isolation_level: int = 0,
) -> FetchRequest:
    known_topic = harness.cluster.topics.get(topic)
    fetch_topic = FetchTopic(
        topic=topic if version < 13 else "",
        topic_id=(b"?" * 16 if known_topic is None else known_topic.topic_id) if version >= 13 else ZERO_UUID,
        partitions=list(partitions),
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[fetch_topic] if partitions else [],
    )


def append(harness: ClusterHarness, *batches: bytes, index: int = 0) -> None:
    """Append with Produce requests, which complete waiting fetches."""
    for records in batches:
        data = TopicProduceData(name="news", partition_data=[PartitionProduceData(index=index, records=records)])
        produced = harness.ask(ProduceRequest(acks=1, timeout_ms=0, topic_data=[data]), 9)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def partitions(fetched: Any) -> list[Any]:
    """Return the partitions in a response."""
    return [partition for topic in fetched.responses for partition in topic.partitions]


def offsets(records: bytes) -> list[int]:
    """Return the base offsets of batches."""
    return [each.base_offset for each in split_batches(records)]


def test_records_are_read(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            append(harness, batch(b"a", b"b"), ONE)
            harness.partition().log.truncate_before(1)
            fetched = harness.ask(request_of(harness, version, partition_request(offset=1)), version)
            (topic,) = fetched.responses
            by_id = version >= 13
            assert (topic.topic, topic.topic_id) == (("", harness.topic().topic_id) if by_id else ("news", ZERO_UUID))
            (partition,) = topic.partitions
            assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (
                ErrorCode.NONE,
                3,
                3,
            )
            assert partition.log_start_offset == (1 if version >= 5 else -1)
            assert offsets(partition.records) == [0, 2]
            assert partition.aborted_transactions is None
            assert partition.current_leader.leader_id == partition.preferred_read_replica == -1
            assert (fetched.error_code, fetched.session_id, fetched.node_endpoints) == (ErrorCode.NONE, 0, [])


def test_read_committed_has_an_empty_list_of_aborted_transactions(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            append(harness, ONE)
            fetched = harness.ask(request_of(harness, version, partition_request(), isolation_level=1), version)
            assert partitions(fetched)[0].aborted_transactions == []


@pytest.mark.parametrize(("topic", "index"), [("absent", 0), ("news", 5)])
def test_unknown_partitions(subtests: pytest.Subtests, topic: str, index: int) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            (partition,) = partitions(
                harness.ask(request_of(harness, version, partition_request(index), topic=topic), version)
            )
            is_unknown_id = version >= 13 and topic == "absent"
            expected = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert partition.error_code == expected
            assert (partition.high_watermark, partition.records) == (-1, b"")


@pytest.mark.parametrize(("offset", "is_valid"), [(-1, False), (0, False), (1, True), (3, True), (4, False)])
def test_offsets_out_of_range(subtests: pytest.Subtests, offset: int, is_valid: bool) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            append(harness, ONE, ONE, ONE)
            harness.partition().log.truncate_before(1)
            request = request_of(harness, version, partition_request(offset=offset), max_wait_ms=0 if is_valid else 500)
            (partition,) = partitions(harness.ask(request, version))
            assert partition.error_code == (ErrorCode.NONE if is_valid else ErrorCode.OFFSET_OUT_OF_RANGE)


def test_leader_and_newer_followers_answer(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(brokers=3, config={"default.replication.factor": 2})
            harness.partition().leader_epoch = 6
            request = request_of(harness, version, partition_request(), max_wait_ms=0)
            by_leader, by_follower, by_other = (harness.ask(request, version, broker=broker) for broker in (1, 2, 3))
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert partitions(by_leader)[0].error_code == ErrorCode.NONE
            assert partitions(by_follower)[0].error_code == (ErrorCode.NONE if version >= 11 else refused)
            assert partitions(by_other)[0].error_code == refused
            leader = partitions(by_other)[0].current_leader
            endpoints = [(node.node_id, node.host, node.port) for node in by_other.node_endpoints]
            has_leader = version >= 16
            assert (leader.leader_id, leader.leader_epoch) == ((1, 6) if has_leader else (-1, -1))
            assert endpoints == ([(1, "localhost", 9001)] if has_leader else [])


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NONE),
        (5, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.NONE),
        (7, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epochs(subtests: pytest.Subtests, epoch: int, error: ErrorCode) -> None:
    for version in range(9, 19):
        with subtests.test(version=version):
            harness = ClusterHarness()
            harness.partition().leader_epoch = 6
            (partition,) = partitions(
                harness.ask(request_of(harness, version, partition_request(epoch=epoch), max_wait_ms=0), version)
            )
            assert partition.error_code == error
            has_leader = version >= 16 and error is ErrorCode.FENCED_LEADER_EPOCH
            assert partition.current_leader.leader_epoch == (6 if has_leader else -1)


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes", "expected"),
    [
        pytest.param(2**20, 2**20, [3, 3], id="all"),
        pytest.param(2**20, 2 * 69, [2, 2], id="limit of each partition"),
        pytest.param(4 * 69 + 1, 2**20, [3, 1], id="limit of the response"),
        pytest.param(1, 2**20, [1, 0], id="at least one batch"),
        pytest.param(2**20, 1, [1, 0], id="at least one batch of the first partition only"),
    ],
)
def test_size_limits(max_bytes: int, partition_max_bytes: int, expected: list[int]) -> None:
    harness = ClusterHarness({"news": 3})
    for index in (1, 2):
        append(harness, ONE, ONE, ONE, index=index)
    requested = [partition_request(index, max_bytes=partition_max_bytes) for index in range(3)]
    fetched = partitions(harness.ask(request_of(harness, 12, *requested, max_bytes=max_bytes), 12))
    assert [len(offsets(each.records)) for each in fetched] == [0, *expected]


def test_fetch_max_bytes_of_the_broker() -> None:
    harness = ClusterHarness(config={"fetch.max.bytes": 1024})
    append(harness, *[ONE] * 20)
    request = request_of(harness, 12, partition_request(), min_bytes=2000)
    assert len(partitions(harness.ask(request, 12))[0].records) == 14 * 69


def park(
    harness: ClusterHarness, *requested: FetchPartition, version: int = 12, peer: Peer | None = None, **fields: Any
) -> Call:
    """Send a request that has to wait for records."""
    call = harness.send(request_of(harness, version, *requested, **fields), version, peer=peer)
    assert call.response is None
    return call


@pytest.mark.parametrize(
    ("requested", "fields"),
    [
        pytest.param([partition_request(offset=1)], {"max_wait_ms": 0}, id="max_wait_ms 0"),
        pytest.param([partition_request(offset=1)], {"min_bytes": 0}, id="min_bytes 0"),
        pytest.param([], {}, id="no partition"),
        pytest.param([partition_request()], {"min_bytes": 69}, id="enough bytes"),
        pytest.param([partition_request(offset=1), partition_request(1, offset=9)], {}, id="an error"),
        pytest.param([partition_request(9)], {}, id="unknown partitions only"),
    ],
)
def test_requests_that_do_not_wait(requested: list[FetchPartition], fields: dict[str, Any]) -> None:
    harness = ClusterHarness({"news": 2})
    append(harness, ONE)
    call = harness.send(request_of(harness, 12, *requested, **fields), 12)
    assert len(partitions(response(call))) == len(requested)
    assert len(harness.cluster.purgatory) == 0


def test_a_fetch_waits_for_an_append(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            call = park(harness, partition_request(), version=version)
            append(harness, ONE)
            assert offsets(partitions(response(call))[0].records) == [0]
            assert harness.cluster.wire_timers.next_deadline() is None


def test_a_fetch_waits_no_longer_than_max_wait_ms(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            call = park(harness, partition_request(), version=version)
            assert harness.cluster.wire_timers.next_deadline() == harness.now_ms + 500
            harness.advance(499)
            assert call.response is None
            harness.advance(1)
            (partition,) = partitions(response(call))
            assert (partition.error_code, partition.records) == (ErrorCode.NONE, b"")
            assert harness.cluster.wire_timers.next_deadline() is None


def test_an_unknown_partition_does_not_end_the_wait_for_others() -> None:
    harness = ClusterHarness()
    call = park(harness, partition_request(9), partition_request())
    harness.advance(500)
    assert [(each.partition_index, each.error_code) for each in partitions(response(call))] == [
        (0, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_min_bytes_counts_all_partitions_of_the_request() -> None:
    harness = ClusterHarness({"news": 3})
    append(harness, ONE)
    call = park(harness, partition_request(0), partition_request(1), min_bytes=3 * 69)
    append(harness, ONE, index=2)
    append(harness, ONE, index=1)
    assert call.response is None
    append(harness, ONE, index=0)
    assert [len(offsets(each.records)) for each in partitions(response(call))] == [2, 1]


def test_min_bytes_does_not_count_bytes_beyond_a_partition_limit() -> None:
    harness = ClusterHarness({"news": 2})
    call = park(harness, partition_request(0, max_bytes=69), partition_request(1, max_bytes=69), min_bytes=2 * 69)
    append(harness, ONE, ONE, ONE)
    assert call.response is None
    append(harness, ONE, index=1)
    assert [len(offsets(each.records)) for each in partitions(response(call))] == [1, 1]


def test_min_bytes_larger_than_max_bytes_can_be_reached() -> None:
    harness = ClusterHarness()
    call = park(harness, partition_request(), min_bytes=1000, max_bytes=69)
    append(harness, ONE)
    assert len(partitions(response(call))[0].records) == 69


def test_min_bytes_counts_batches_that_do_not_fit() -> None:
    harness = ClusterHarness({"news": 2})
    append(harness, ONE, ONE)
    append(harness, ONE, index=1)
    request = request_of(
        harness, 12, partition_request(0, max_bytes=100), partition_request(1), min_bytes=169, max_bytes=169
    )
    fetched = partitions(harness.ask(request, 12))
    assert [len(each.records) for each in fetched] == [69, 69]


def test_retention_can_complete_a_waiting_fetch() -> None:
    harness = ClusterHarness(config={"log.retention.bytes": 69})
    call = park(harness, partition_request(), min_bytes=2 * 69)
    append(harness, ONE, ONE)
    assert partitions(response(call))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_waiting_fetches_are_answered_in_order() -> None:
    harness = ClusterHarness({"news": 2})
    late = park(harness, partition_request(1), max_wait_ms=900)
    first, second = park(harness, partition_request()), park(harness, partition_request())
    early = park(harness, partition_request(1), max_wait_ms=100)
    harness.cluster.requests.answered.clear()
    append(harness, ONE)
    assert harness.cluster.requests.answered[:2] == [first, second]
    harness.cluster.requests.answered.clear()
    harness.advance(1000)
    assert harness.cluster.requests.answered == [early, late]


def test_closing_the_connection_cancels_a_waiting_fetch() -> None:
    harness = ClusterHarness()
    peer = harness.peer()
    call = park(harness, partition_request(), peer=peer)
    harness.cluster.purgatory.discard(peer)
    harness.cluster.purgatory.discard(peer)
    append(harness, ONE)
    harness.advance(1000)
    assert call.response is None
    assert len(harness.cluster.purgatory) == 0


def test_deleting_the_topic_completes_a_waiting_fetch() -> None:
    harness = ClusterHarness()
    call = park(harness, partition_request(), version=18)
    harness.cluster.delete_topic(harness.topic())
    assert (harness.cluster.wire_timers.next_deadline() or 0) <= harness.now_ms
    harness.advance(0)
    (found,) = partitions(response(call))
    # The name of its topic was found before.
    assert (found.error_code, found.aborted_transactions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


def test_answered_fetches_leave_no_timers() -> None:
    harness = ClusterHarness()
    for offset in range(300):
        call = park(harness, partition_request(offset=offset), max_wait_ms=2**31 - 1)
        append(harness, ONE)
        assert response(call)
    assert len(harness.cluster.wire_timers._heap) < 100
