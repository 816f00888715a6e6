"""Fetch: what is read, within which limits, what is refused, and when a request waits."""

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


def wanted(index: int = 0, offset: int = 0, *, max_bytes: int = 2**20, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


def request(
    harness: ClusterHarness,
    version: int,
    *partitions: FetchPartition,
    topic: str = "news",
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 2**30,
    isolation_level: int = 0,
) -> FetchRequest:
    known = harness.cluster.topics.get(topic)
    named = FetchTopic(
        topic=topic if version < 13 else "",
        topic_id=(b"?" * 16 if known is None else known.topic_id) if version >= 13 else ZERO_UUID,
        partitions=list(partitions),
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[named] if partitions else [],
    )


def append(harness: ClusterHarness, *batches: bytes, index: int = 0) -> None:
    """Produce over the wire, so that those who wait are woken."""
    for records in batches:
        data = TopicProduceData(name="news", partition_data=[PartitionProduceData(index=index, records=records)])
        answer = harness.ask(ProduceRequest(acks=1, timeout_ms=0, topic_data=[data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def partitions(answer: Any) -> list[Any]:
    return [partition for topic in answer.responses for partition in topic.partitions]


def offsets(records: bytes) -> list[int]:
    return [each.base_offset for each in split_batches(records)]


def test_reads(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            append(harness, batch(b"a", b"b"), ONE)
            harness.partition().log.truncate_before(1)
            answer = harness.ask(request(harness, version, wanted(offset=1)), version)
            (topic,) = answer.responses
            by_id = version >= 13
            assert (topic.topic, topic.topic_id) == (("", harness.topic().topic_id) if by_id else ("news", ZERO_UUID))
            (told,) = topic.partitions
            assert (told.error_code, told.high_watermark, told.last_stable_offset) == (ErrorCode.NONE, 3, 3)
            assert told.log_start_offset == (1 if version >= 5 else -1)
            assert offsets(told.records) == [0, 2]
            assert told.aborted_transactions is None
            assert told.current_leader.leader_id == told.preferred_read_replica == -1
            assert (answer.error_code, answer.session_id, answer.node_endpoints) == (ErrorCode.NONE, 0, [])


def test_read_committed_is_told_of_no_aborted_transactions(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            append(harness, ONE)
            answer = harness.ask(request(harness, version, wanted(), isolation_level=1), version)
            assert partitions(answer)[0].aborted_transactions == []


@pytest.mark.parametrize(("topic", "index"), [("absent", 0), ("news", 5)])
def test_unknown_partitions(subtests: pytest.Subtests, topic: str, index: int) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            (told,) = partitions(harness.ask(request(harness, version, wanted(index), topic=topic), version))
            no_id = version >= 13 and topic == "absent"
            assert told.error_code == (ErrorCode.UNKNOWN_TOPIC_ID if no_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert (told.high_watermark, told.records) == (-1, b"")


@pytest.mark.parametrize(("offset", "is_valid"), [(-1, False), (0, False), (1, True), (3, True), (4, False)])
def test_offsets_out_of_range(subtests: pytest.Subtests, offset: int, is_valid: bool) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            append(harness, ONE, ONE, ONE)
            harness.partition().log.truncate_before(1)
            asked = request(harness, version, wanted(offset=offset), max_wait_ms=0 if is_valid else 500)
            (told,) = partitions(harness.ask(asked, version))
            assert told.error_code == (ErrorCode.NONE if is_valid else ErrorCode.OFFSET_OUT_OF_RANGE)


def test_who_may_answer(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(brokers=3, config={"default.replication.factor": 2})
            harness.partition().leader_epoch = 6
            asked = request(harness, version, wanted(), max_wait_ms=0)
            answers = [harness.ask(asked, version, broker=broker) for broker in (1, 2, 3)]
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
            by_follower = ErrorCode.NONE if version >= 11 else refused
            assert [partitions(each)[0].error_code for each in answers] == [ErrorCode.NONE, by_follower, refused]
            leader = partitions(answers[2])[0].current_leader
            endpoints = [(node.node_id, node.host, node.port) for node in answers[2].node_endpoints]
            told = ((leader.leader_id, leader.leader_epoch), endpoints)
            assert told == (((1, 6), [(1, "localhost", 9001)]) if version >= 16 else ((-1, -1), []))


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
            (told,) = partitions(harness.ask(request(harness, version, wanted(epoch=epoch), max_wait_ms=0), version))
            assert told.error_code == error
            is_told = version >= 16 and error is ErrorCode.FENCED_LEADER_EPOCH
            assert told.current_leader.leader_epoch == (6 if is_told else -1)


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes", "expected"),
    [
        pytest.param(2**20, 2**20, [3, 3], id="all"),
        pytest.param(2**20, 2 * 69, [2, 2], id="limit of each partition"),
        pytest.param(4 * 69 + 1, 2**20, [3, 1], id="limit of the response"),
        pytest.param(1, 2**20, [1, 0], id="one batch at least"),
        pytest.param(2**20, 1, [1, 0], id="one batch at least, for the first partition alone"),
    ],
)
def test_limits(max_bytes: int, partition_max_bytes: int, expected: list[int]) -> None:
    harness = ClusterHarness({"news": 3})
    for index in (1, 2):
        append(harness, ONE, ONE, ONE, index=index)
    asked = [wanted(index, max_bytes=partition_max_bytes) for index in range(3)]
    told = partitions(harness.ask(request(harness, 12, *asked, max_bytes=max_bytes), 12))
    assert [len(offsets(each.records)) for each in told] == [0, *expected]


def test_the_broker_limits_bytes_too() -> None:
    harness = ClusterHarness(config={"fetch.max.bytes": 1024})
    append(harness, *[ONE] * 20)
    asked = request(harness, 12, wanted(), min_bytes=2000)
    assert len(partitions(harness.ask(asked, 12))[0].records) == 14 * 69


def park(
    harness: ClusterHarness, *asked: FetchPartition, version: int = 12, peer: Peer | None = None, **fields: Any
) -> Call:
    call = harness.send(request(harness, version, *asked, **fields), version, peer=peer)
    assert call.response is None
    return call


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        pytest.param([wanted(offset=1)], {"max_wait_ms": 0}, id="does not want to wait"),
        pytest.param([wanted(offset=1)], {"min_bytes": 0}, id="wants no bytes"),
        pytest.param([], {}, id="wants no partition"),
        pytest.param([wanted()], {"min_bytes": 69}, id="enough bytes"),
        pytest.param([wanted(offset=1), wanted(1, offset=9)], {}, id="an error"),
        pytest.param([wanted(9)], {}, id="nothing that exists"),
    ],
)
def test_answered_at_once(asked: list[FetchPartition], fields: dict[str, Any]) -> None:
    harness = ClusterHarness({"news": 2})
    append(harness, ONE)
    call = harness.send(request(harness, 12, *asked, **fields), 12)
    assert len(partitions(response(call))) == len(asked)
    assert len(harness.cluster.purgatory) == 0


def test_waits_for_an_append(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            call = park(harness, wanted(), version=version)
            append(harness, ONE)
            assert offsets(partitions(response(call))[0].records) == [0]
            assert harness.cluster.purgatory.next_deadline() is None


def test_waits_until_its_time_is_up(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            call = park(harness, wanted(), version=version)
            assert harness.cluster.purgatory.next_deadline() == harness.now_ms + 500
            harness.advance(499)
            assert call.response is None
            harness.advance(1)
            (told,) = partitions(response(call))
            assert (told.error_code, told.records) == (ErrorCode.NONE, b"")
            assert harness.cluster.purgatory.next_deadline() is None


def test_an_unknown_partition_does_not_end_the_wait_for_others() -> None:
    harness = ClusterHarness()
    call = park(harness, wanted(9), wanted())
    harness.advance(500)
    assert [(each.partition_index, each.error_code) for each in partitions(response(call))] == [
        (0, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_waits_for_min_bytes_of_all_its_partitions() -> None:
    harness = ClusterHarness({"news": 3})
    append(harness, ONE)
    call = park(harness, wanted(0), wanted(1), min_bytes=3 * 69)
    append(harness, ONE, index=2)
    append(harness, ONE, index=1)
    assert call.response is None
    append(harness, ONE, index=0)
    assert [len(offsets(each.records)) for each in partitions(response(call))] == [2, 1]


def test_bytes_over_a_partition_limit_do_not_count() -> None:
    harness = ClusterHarness({"news": 2})
    call = park(harness, wanted(0, max_bytes=69), wanted(1, max_bytes=69), min_bytes=2 * 69)
    append(harness, ONE, ONE, ONE)
    assert call.response is None
    append(harness, ONE, index=1)
    assert [len(offsets(each.records)) for each in partitions(response(call))] == [1, 1]


def test_min_bytes_over_the_response_limit_can_be_met() -> None:
    harness = ClusterHarness()
    call = park(harness, wanted(), min_bytes=1000, max_bytes=69)
    append(harness, ONE)
    assert len(partitions(response(call))[0].records) == 69


def test_batches_that_do_not_fit_count_for_min_bytes() -> None:
    harness = ClusterHarness({"news": 2})
    append(harness, ONE, ONE)
    append(harness, ONE, index=1)
    asked = request(harness, 12, wanted(0, max_bytes=100), wanted(1), min_bytes=169, max_bytes=169)
    told = partitions(harness.ask(asked, 12))
    assert [len(each.records) for each in told] == [69, 69]


def test_retention_can_end_a_wait() -> None:
    harness = ClusterHarness(config={"log.retention.bytes": 69})
    call = park(harness, wanted(), min_bytes=2 * 69)
    append(harness, ONE, ONE)
    assert partitions(response(call))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_those_who_wait_are_answered_in_order() -> None:
    harness = ClusterHarness({"news": 2})
    late = park(harness, wanted(1), max_wait_ms=900)
    first, second = park(harness, wanted()), park(harness, wanted())
    early = park(harness, wanted(1), max_wait_ms=100)
    harness.cluster.answered.clear()
    append(harness, ONE)
    assert harness.cluster.answered[:2] == [first, second]
    harness.cluster.answered.clear()
    harness.advance(1000)
    assert harness.cluster.answered == [early, late]


def test_a_closed_connection_waits_no_longer() -> None:
    harness = ClusterHarness()
    peer = harness.peer()
    call = park(harness, wanted(), peer=peer)
    harness.cluster.purgatory.discard(peer)
    harness.cluster.purgatory.discard(peer)
    append(harness, ONE)
    harness.advance(1000)
    assert call.response is None
    assert len(harness.cluster.purgatory) == 0


def test_the_end_of_a_topic_ends_the_wait() -> None:
    harness = ClusterHarness()
    call = park(harness, wanted(), version=18)
    harness.cluster.delete_topic(harness.topic())
    assert (harness.cluster.purgatory.next_deadline() or 0) <= harness.now_ms
    harness.advance(0)
    assert partitions(response(call))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_answered_requests_do_not_pile_up() -> None:
    harness = ClusterHarness()
    for offset in range(300):
        call = park(harness, wanted(offset=offset), max_wait_ms=2**31 - 1)
        append(harness, ONE)
        assert response(call)
    assert len(harness.cluster.purgatory._timers._heap) < 100
