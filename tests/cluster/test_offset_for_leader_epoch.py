"""OffsetForLeaderEpoch: the end offsets of leader epochs, and errors."""

import pytest

from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.cluster.cluster_harness import ClusterHarness, batch

ALL_VERSIONS = [int(version) for version in OffsetForLeaderEpochRequest.VERSIONS]
UNDEFINED = (-1, -1)


def request_of(
    leader_epoch: int, *, topic: str = "news", index: int = 0, current: int = -1, replica_id: int = -1
) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=leader_epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=replica_id, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )


def ask(
    harness: ClusterHarness, request: OffsetForLeaderEpochRequest, version: int = 4, broker: int = 1
) -> tuple[ErrorCode, int, int]:
    """Send a request for one partition, and return error, leader epoch and end offset."""
    (topic,) = harness.ask(request, version, broker=broker).topics
    (result,) = topic.partitions
    assert (topic.topic, result.partition) == (request.topics[0].topic, request.topics[0].partitions[0].partition)
    return ErrorCode(result.error_code), result.leader_epoch, result.end_offset


def filled() -> ClusterHarness:
    """Return a cluster whose log has epoch 2 at offsets 0 to 2, epoch 4 at 3 and 4, and an empty epoch 5."""
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
        pytest.param(1, (1, 0), id="older than all"),
        pytest.param(2, (2, 3), id="with a successor"),
        pytest.param(3, (2, 3), id="without records: the epoch before it"),
        pytest.param(4, (4, 5), id="the latest with records"),
        pytest.param(5, (5, 5), id="current, without records yet"),
        pytest.param(6, UNDEFINED, id="newer than the current one"),
    ],
)
def test_end_offsets_of_epochs(subtests: pytest.Subtests, leader_epoch: int, expected: tuple[int, int]) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            result = ask(filled(), request_of(leader_epoch), version)
            assert result == (ErrorCode.NONE, expected[0] if version >= 1 else -1, expected[1])


def test_the_current_epoch_ends_at_the_log_end_offset() -> None:
    harness = filled()
    ask(harness, request_of(5))
    harness.partition().log.append(batch(b"f"), 5)
    assert ask(harness, request_of(5)) == (ErrorCode.NONE, 5, 6)
    assert ask(harness, request_of(4)) == (ErrorCode.NONE, 4, 5)


def test_an_empty_log() -> None:
    assert ask(ClusterHarness(), request_of(0)) == (ErrorCode.NONE, 0, 0)


def test_a_new_leader() -> None:
    harness = filled()
    harness.cluster.controller.set_leader(harness.partition(), 2, harness.now_ms, Failover())
    assert ask(harness, request_of(6, current=6), broker=2) == (ErrorCode.NONE, 6, 5)
    assert ask(harness, request_of(5, current=6), broker=2) == (ErrorCode.NONE, 4, 5)


def test_deleted_records() -> None:
    harness = filled()
    harness.partition().log.truncate_before(4)
    assert ask(harness, request_of(2)) == (ErrorCode.NONE, 2, 4)
    assert ask(harness, request_of(4)) == (ErrorCode.NONE, 4, 5)


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
def test_leader_epochs_of_requests(
    subtests: pytest.Subtests, topic: str, index: int, current: int, broker: int, error: ErrorCode
) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            has_current_epoch = version >= 2  # Older versions do not send it, so it causes no error.
            expected_error = error if has_current_epoch or current == -1 else ErrorCode.NONE
            found = UNDEFINED if expected_error else (2 if version >= 1 else -1, 3)
            request = request_of(2, topic=topic, index=index, current=current)
            assert ask(filled(), request, version, broker) == (expected_error, *found)


@pytest.mark.parametrize("replica_id", [-2, -1, 2])
def test_a_follower_rejects_consumers_and_replicas(replica_id: int) -> None:
    request = request_of(2, replica_id=replica_id)
    assert ask(filled(), request, broker=2)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(filled(), request, broker=1) == (ErrorCode.NONE, 2, 3)


def test_a_duplicate_partition_is_answered_twice() -> None:
    request = request_of(2)
    request.topics[0].partitions.append(OffsetForLeaderPartition(partition=0, leader_epoch=4))
    request.topics.append(request.topics[0])
    response = filled().ask(request, 4)
    ends = [[(each.leader_epoch, each.end_offset) for each in topic.partitions] for topic in response.topics]
    assert ends == [[(2, 3), (4, 5)]] * 2
