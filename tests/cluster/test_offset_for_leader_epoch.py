"""OffsetForLeaderEpoch: where epochs ended, and who may say so."""

import pytest

from fakebroker.cluster.controller import Failover
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.cluster.cluster_harness import ClusterHarness, batch

ALL_VERSIONS = [int(version) for version in OffsetForLeaderEpochRequest.VERSIONS]
UNDEFINED = (-1, -1)


def request(
    leader_epoch: int, *, topic: str = "news", index: int = 0, current: int = -1, replica_id: int = -1
) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=leader_epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=replica_id, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )


def ask(
    harness: ClusterHarness, asked: OffsetForLeaderEpochRequest, version: int = 4, broker: int = 1
) -> tuple[ErrorCode, int, int]:
    """The error, the leader epoch and its end offset."""
    (topic,) = harness.ask(asked, version, broker=broker).topics
    (found,) = topic.partitions
    assert (topic.topic, found.partition) == (asked.topics[0].topic, asked.topics[0].partitions[0].partition)
    return ErrorCode(found.error_code), found.leader_epoch, found.end_offset


def filled() -> ClusterHarness:
    """Epoch 2 has the offsets 0 to 2, epoch 4 the offsets 3 and 4, and epoch 5 begins."""
    harness = ClusterHarness(brokers=2)
    log = harness.partition().log
    log.append(batch(b"a"), 2)
    log.append(batch(b"b", b"c"), 2)
    log.append(batch(b"d", b"e"), 4)
    harness.partition().leader_epoch = 5
    return harness


@pytest.mark.parametrize(
    ("leader_epoch", "expected"),
    [
        pytest.param(-1, UNDEFINED, id="undefined"),
        pytest.param(1, (1, 0), id="before all"),
        pytest.param(2, (2, 3), id="ended"),
        pytest.param(3, (2, 3), id="without a record"),
        pytest.param(4, (4, 5), id="the one before"),
        pytest.param(5, (5, 5), id="current, without a record yet"),
        pytest.param(6, UNDEFINED, id="not yet"),
    ],
)
def test_where_an_epoch_ended(subtests: pytest.Subtests, leader_epoch: int, expected: tuple[int, int]) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            found_epoch, end_offset = expected
            found = ask(filled(), request(leader_epoch), version)
            assert found == (ErrorCode.NONE, found_epoch if version >= 1 else -1, end_offset)


def test_the_current_epoch_goes_on() -> None:
    harness = filled()
    ask(harness, request(5))
    harness.partition().log.append(batch(b"f"), 5)
    assert ask(harness, request(5)) == (ErrorCode.NONE, 5, 6)
    assert ask(harness, request(4)) == (ErrorCode.NONE, 4, 5)


def test_an_empty_log() -> None:
    assert ask(ClusterHarness(), request(0)) == (ErrorCode.NONE, 0, 0)


def test_a_new_leader() -> None:
    harness = filled()
    harness.cluster.controller.set_leader(harness.partition(), 2, harness.now_ms, Failover())
    assert ask(harness, request(6, current=6), broker=2) == (ErrorCode.NONE, 6, 5)
    assert ask(harness, request(5, current=6), broker=2) == (ErrorCode.NONE, 4, 5)


def test_deleted_records() -> None:
    harness = filled()
    harness.partition().log.truncate_before(4)
    assert ask(harness, request(2)) == (ErrorCode.NONE, 2, 4)
    assert ask(harness, request(4)) == (ErrorCode.NONE, 4, 5)


@pytest.mark.parametrize(
    ("topic", "index", "current", "broker", "error"),
    [
        ("absent", 0, -1, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("news", 1, -1, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("news", 0, -1, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("news", 0, 4, 1, ErrorCode.FENCED_LEADER_EPOCH),
        ("news", 0, 6, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ("news", 0, 5, 1, ErrorCode.NONE),
    ],
)
def test_who_answers(
    subtests: pytest.Subtests, topic: str, index: int, current: int, broker: int, error: ErrorCode
) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            asked = request(2, topic=topic, index=index, current=current)
            is_checked = version >= 2 or current == -1
            expected = error if is_checked else ErrorCode.NONE
            answer = (expected, 2 if version else -1, 3) if expected is ErrorCode.NONE else (expected, *UNDEFINED)
            assert ask(filled(), asked, version, broker) == answer


@pytest.mark.parametrize("replica_id", [-2, -1, 2])
def test_a_follower_refuses_whoever_asks(replica_id: int) -> None:
    asked = request(2, replica_id=replica_id)
    assert ask(filled(), asked, broker=2)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(filled(), asked, broker=1) == (ErrorCode.NONE, 2, 3)


def test_what_is_named_twice_is_answered_twice() -> None:
    asked = request(2)
    asked.topics[0].partitions.append(OffsetForLeaderPartition(partition=0, leader_epoch=4))
    asked.topics.append(asked.topics[0])
    response = filled().ask(asked, 4)
    ends = [[(each.leader_epoch, each.end_offset) for each in topic.partitions] for topic in response.topics]
    assert ends == [[(2, 3), (4, 5)]] * 2
