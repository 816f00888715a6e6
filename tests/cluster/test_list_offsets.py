"""ListOffsets: the ends of a log, and offsets for timestamps."""

from typing import Any

import pytest

from fakebroker.cluster.handlers.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.cluster.cluster_harness import ClusterHarness, batch, versions

ALL_VERSIONS = versions("ListOffsets")
UNKNOWN = (ErrorCode.NONE, -1, -1, -1)
CONSUMER, DEBUGGING_CONSUMER = -1, -2  # Replica ids; broker 2 is the follower.
REFUSED = (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


def request_of(
    timestamp: int, *, topic: str = "news", index: int = 0, epoch: int = -1, replica_id: int = -1
) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])


def list_offset(
    harness: ClusterHarness, version: int, request: ListOffsetsRequest, broker: int = 1
) -> tuple[int, int, int, int]:
    """Send a request for one partition, and return error, timestamp, offset and leader epoch."""
    (topic,) = harness.ask(request, version, broker=broker).topics
    (result,) = topic.partitions
    return result.error_code, result.timestamp, result.offset, result.leader_epoch


def filled() -> ClusterHarness:
    """Return a cluster whose log has offsets 1 to 4: epoch 2 up to offset 2, then epoch 3; timestamp 5001 at 2."""
    harness = ClusterHarness()
    log = harness.partition().log
    log.append(batch(b"a", timestamp_ms=1000), 2)
    log.append(batch(b"b", b"c", timestamp_ms=5000), 2)
    log.append(batch(b"d", b"e", timestamp_ms=3000), 3)
    log.truncate_before(1)
    harness.partition().leader_epoch = 3
    return harness


def test_offsets_for_timestamps(subtests: pytest.Subtests) -> None:
    for timestamp, since, expected in [  # `since` is the first version that supports the timestamp.
        (LATEST, 1, (0, -1, 5, 3)),
        (EARLIEST, 1, (0, -1, 1, 2)),
        (MAX_TIMESTAMP, 7, (0, 5001, 2, 2)),
        (EARLIEST_LOCAL, 8, (0, -1, 1, 2)),
        (LATEST_TIERED, 9, UNKNOWN),
        (EARLIEST_PENDING_UPLOAD, 11, UNKNOWN),
        (-7, 99, UNKNOWN),
        (0, 1, (0, 5000, 1, 2)),
        (5001, 1, (0, 5001, 2, 2)),
        (5002, 1, UNKNOWN),
    ]:
        for version in ALL_VERSIONS:
            with subtests.test(timestamp=timestamp, version=version):
                error, found_ms, offset, leader_epoch = expected if version >= since else REFUSED
                has_leader_epoch = version >= 4
                found = (error, found_ms, offset, leader_epoch if has_leader_epoch else -1)
                assert list_offset(filled(), version, request_of(timestamp)) == found


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(LATEST, (0, -1, 0, 4)), (EARLIEST, (0, -1, 0, 4)), (MAX_TIMESTAMP, UNKNOWN), (0, UNKNOWN)],
)
def test_an_empty_log(timestamp: int, expected: tuple[int, int, int, int]) -> None:
    harness = ClusterHarness()
    harness.partition().leader_epoch = 4
    assert list_offset(harness, 11, request_of(timestamp)) == expected


@pytest.mark.parametrize(("topic", "index"), [("absent", 0), ("news", 1)])
def test_unknown_partitions(subtests: pytest.Subtests, topic: str, index: int) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            found = list_offset(ClusterHarness(), version, request_of(LATEST, topic=topic, index=index))
            assert found == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epochs(subtests: pytest.Subtests, epoch: int, error: ErrorCode) -> None:
    for version in range(4, 12):
        with subtests.test(version=version):
            assert list_offset(filled(), version, request_of(LATEST, epoch=epoch))[0] == error


def test_followers_reject_consumers_except_debugging_consumers(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(brokers=3, config={"default.replication.factor": 2})
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
            for replica_id, expected in [(CONSUMER, [0, refused, refused]), (DEBUGGING_CONSUMER, [0, 0, refused])]:
                request = request_of(LATEST, replica_id=replica_id)
                assert [list_offset(harness, version, request, broker)[0] for broker in (1, 2, 3)] == expected


def test_a_duplicate_partition_is_rejected(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 2})
            request = request_of(LATEST)
            request.topics += request_of(EARLIEST).topics + request_of(LATEST, index=1).topics
            topics: list[Any] = harness.ask(request, version).topics
            assert [(each.partition_index, each.error_code) for topic in topics for each in topic.partitions] == [
                (0, ErrorCode.INVALID_REQUEST),
                (1, ErrorCode.NONE),
            ]
