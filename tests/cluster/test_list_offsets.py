"""ListOffsets: places in a log and offsets for timestamps."""

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
REFUSED = (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


def request(
    timestamp: int, *, topic: str = "news", index: int = 0, epoch: int = -1, replica_id: int = -1
) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def ask(harness: ClusterHarness, version: int, asked: ListOffsetsRequest, broker: int = 1) -> tuple[int, int, int, int]:
    """The error, timestamp, offset and leader epoch."""
    (topic,) = harness.ask(asked, version, broker=broker).topics
    (found,) = topic.partitions
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


def filled() -> ClusterHarness:
    """Offsets 1 to 4 left; epoch 2 from 0, epoch 3 from 3 on; the newest timestamp, 5001, at offset 2."""
    harness = ClusterHarness()
    log = harness.partition().log
    log.append(batch(b"a", timestamp_ms=1000), 2)
    log.append(batch(b"b", b"c", timestamp_ms=5000), 2)
    log.append(batch(b"d", b"e", timestamp_ms=3000), 3)
    log.truncate_before(1)
    harness.partition().leader_epoch = 3
    return harness


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
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
    ],
)
def test_where(subtests: pytest.Subtests, timestamp: int, since: int, expected: tuple[int, int, int, int]) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            answer = expected if version >= since else REFUSED
            if version < 4:
                answer = (*answer[:3], -1)
            assert ask(filled(), version, request(timestamp)) == answer


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(LATEST, (0, -1, 0, 4)), (EARLIEST, (0, -1, 0, 4)), (MAX_TIMESTAMP, UNKNOWN), (0, UNKNOWN)],
)
def test_an_empty_log(timestamp: int, expected: tuple[int, int, int, int]) -> None:
    harness = ClusterHarness()
    harness.partition().leader_epoch = 4
    assert ask(harness, 11, request(timestamp)) == expected


@pytest.mark.parametrize(("topic", "index"), [("absent", 0), ("news", 1)])
def test_unknown_partitions(subtests: pytest.Subtests, topic: str, index: int) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert ask(ClusterHarness(), version, request(LATEST, topic=topic, index=index)) == (error, -1, -1, -1)


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
            assert ask(filled(), version, request(LATEST, epoch=epoch))[0] == error


def test_only_the_leader_answers_but_for_debugging(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(brokers=3, config={"default.replication.factor": 2})
            asked = {replica_id: request(LATEST, replica_id=replica_id) for replica_id in (-1, -2)}
            errors = [[ask(harness, version, asked[who], broker)[0] for broker in (1, 2, 3)] for who in (-1, -2)]
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert errors == [[0, refused, refused], [0, 0, refused]]


def test_a_partition_asked_for_twice(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 2})
            asked = request(LATEST)
            asked.topics += request(EARLIEST).topics + request(LATEST, index=1).topics
            topics: list[Any] = harness.ask(asked, version).topics
            assert [(each.partition_index, each.error_code) for topic in topics for each in topic.partitions] == [
                (0, ErrorCode.INVALID_REQUEST),
                (0, ErrorCode.INVALID_REQUEST),
                (1, ErrorCode.NONE),
            ]
