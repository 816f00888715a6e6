"""DeleteRecords: deleted records, errors, and later requests."""

from typing import Any

import pytest

from fakebroker.cluster.handlers.delete_records import HIGH_WATERMARK
from fakebroker.cluster.handlers.list_offsets import EARLIEST
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fakebroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fakebroker.protocol.records import split_batches
from tests.support.cluster.cluster_harness import ClusterHarness, batch, versions

ALL_VERSIONS = versions("DeleteRecords")


def filled(topics: dict[str, int] | None = None, brokers: int = 1) -> ClusterHarness:
    """Return a cluster with three batches in partition 0: offsets 0-1, 2-3 and 4."""
    harness = ClusterHarness(topics, brokers)
    for values in ([b"a", b"b"], [b"c", b"d"], [b"e"]):
        harness.partition().log.append(batch(*values), 0)
    return harness


def delete(
    harness: ClusterHarness, *partitions: tuple[str, int, int], version: int = 2, broker: int = 1
) -> list[tuple[str, int, ErrorCode, int]]:
    """Delete the records before an offset; return topic, partition, error and low watermark of each result.

    Args:
        harness: The cluster.
        partitions: Topics, partition indexes and offsets.
        version: The version of DeleteRecords.
        broker: The broker that gets the request.
    """
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for name, index, offset in partitions
    ]
    response = harness.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version, broker=broker)
    return [
        (topic.name, each.partition_index, ErrorCode(each.error_code), each.low_watermark)
        for topic in response.topics
        for each in topic.partitions
    ]


def fetch(harness: ClusterHarness, offset: int) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="news", partitions=[partition])])
    return harness.ask(request, 12).responses[0].partitions[0]


def earliest_offset(harness: ClusterHarness) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="news", partitions=[partition])])
    offset: int = harness.ask(request, 6).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize(
    ("offset", "start_offset", "base_offsets"),
    [(0, 0, [0, 2, 4]), (1, 1, [0, 2, 4]), (2, 2, [2, 4]), (5, 5, []), (HIGH_WATERMARK, 5, [])],
)
def test_records_before_the_offset_are_deleted(
    subtests: pytest.Subtests, offset: int, start_offset: int, base_offsets: list[int]
) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = filled()
            assert delete(harness, ("news", 0, offset), version=version) == [("news", 0, ErrorCode.NONE, start_offset)]
            assert earliest_offset(harness) == start_offset
            partition = fetch(harness, start_offset)
            assert (partition.error_code, partition.log_start_offset) == (ErrorCode.NONE, start_offset)
            assert [each.base_offset for each in split_batches(partition.records)] == base_offsets
            if start_offset > 0:
                assert fetch(harness, start_offset - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("offset", [0, 2])
def test_an_offset_before_the_log_start_offset_changes_nothing(offset: int) -> None:
    harness = filled()
    delete(harness, ("news", 0, 3))
    assert delete(harness, ("news", 0, offset)) == [("news", 0, ErrorCode.NONE, 3)]


@pytest.mark.parametrize("offset", [-2, 6])
def test_offsets_out_of_range(offset: int) -> None:
    harness = filled()
    assert delete(harness, ("news", 0, offset)) == [("news", 0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert earliest_offset(harness) == 0


@pytest.mark.parametrize(
    ("topic", "index", "error"),
    [
        ("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("news", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("news", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("news", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_rejected_partitions(subtests: pytest.Subtests, topic: str, index: int, error: ErrorCode) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = filled({"news": 3}, brokers=3)
            harness.cluster.topics.show_offsets_topic()
            assert delete(harness, (topic, index, -1), version=version) == [(topic, index, error, -1)]


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("delete", ErrorCode.NONE),
        ("compact,delete", ErrorCode.NONE),
        ("delete, compact", ErrorCode.NONE),
    ],
)
def test_only_topics_with_the_cleanup_policy_delete_allow_it(policy: str, error: ErrorCode) -> None:
    harness = ClusterHarness()
    configs = [CreatableTopicConfig(name="cleanup.policy", value=policy)]
    topic = CreatableTopic(name="table", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    harness.ask(CreateTopicsRequest(topics=[topic]), 7)
    harness.partition(0, "table").log.append(batch(b"a"), 0)
    low_watermark = 1 if error is ErrorCode.NONE else -1
    assert delete(harness, ("table", 0, 1)) == [("table", 0, error, low_watermark)]


def test_the_last_offset_of_a_duplicate_partition_is_used() -> None:
    harness = filled({"news": 2, "sports": 1})
    partitions = [("news", 0, 4), ("sports", 0, 0), ("news", 1, 0), ("news", 0, 2)]
    assert delete(harness, *partitions) == [
        ("news", 0, ErrorCode.NONE, 2),
        ("news", 1, ErrorCode.NONE, 0),
        ("sports", 0, ErrorCode.NONE, 0),
    ]


def test_later_records_continue_at_the_log_end_offset() -> None:
    harness = filled()
    delete(harness, ("news", 0, HIGH_WATERMARK))
    assert harness.partition().log.append(batch(b"f"), 0) == 5
