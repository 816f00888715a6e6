"""DescribeCluster, DescribeTopicPartitions and DescribeLogDirs: brokers, partitions and log directories."""

from typing import Any

import pytest

from fakebroker.cluster.configs.resolution import LOG_DIR
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_cluster import DescribeClusterRequest
from fakebroker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from fakebroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import NOT_REQUESTED, ClusterHarness, batch, versions
from tests.support.cluster.replicas import stop_brokers

# DescribeCluster


def test_describe_cluster_in_each_version(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(brokers=3)
    stop_brokers(harness, 1)
    for version in versions("DescribeCluster"):
        for operations, expected in [(True, 8096), (False, NOT_REQUESTED)]:
            with subtests.test(version=version, operations=operations):
                request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
                response = harness.ask(request, version, broker=2)
                assert (response.error_code, response.error_message, response.endpoint_type) == (0, None, 1)
                assert (response.cluster_id, response.controller_id) == (harness.cluster.cluster_id, 2)
                assert response.cluster_authorized_operations == expected
                assert [(each.broker_id, each.host, each.port, each.rack) for each in response.brokers] == [
                    (2, "localhost", 9002, None),
                    (3, "localhost", 9003, None),
                ]


def test_brokers_that_are_down_are_fenced() -> None:
    harness = ClusterHarness(brokers=3)
    stop_brokers(harness, 2)
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    response = harness.ask(request, 2)
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [(1, False), (2, True), (3, False)]


def test_endpoint_types_other_than_broker_are_errors(subtests: pytest.Subtests) -> None:
    for version in versions("DescribeCluster")[1:]:
        for endpoint_type, error in [
            (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        ]:
            with subtests.test(version=version, endpoint_type=endpoint_type):
                request = DescribeClusterRequest(
                    include_cluster_authorized_operations=False, endpoint_type=endpoint_type
                )
                response = ClusterHarness().ask(request, version)
                assert (response.error_code, response.brokers, response.controller_id) == (error, [], -1)
                assert response.error_message == f"endpoint type {endpoint_type}: expected 1 (broker)"


# DescribeTopicPartitions


def describe(harness: ClusterHarness, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    """Describe topics, or all topics, from a cursor on: a topic and the number of a partition."""
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return harness.ask(request, 0, broker=harness.cluster.controller_id)


def pages(harness: ClusterHarness, *names: str, limit: int) -> list[list[tuple[str, list[int]]]]:
    """Return all pages, each as a list of topics with the numbers of their partitions."""
    found = []
    cursor = None
    while True:
        page = describe(harness, *names, limit=limit, cursor=cursor)
        found.append([(topic.name, [each.partition_index for each in topic.partitions]) for topic in page.topics])
        if page.next_cursor is None:
            return found
        cursor = (page.next_cursor.topic_name, page.next_cursor.partition_index)


def test_describe_a_topic_with_its_partitions() -> None:
    harness = ClusterHarness({"news": 2}, brokers=3)
    stop_brokers(harness, 1)
    response = describe(harness, "news")
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.NONE, "news", harness.topic().topic_id)
    assert (topic.is_internal, topic.topic_authorized_operations, response.next_cursor) == (False, 3576, None)
    first = topic.partitions[0]
    assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 2, harness.partition().leader_epoch)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1, 2, 3], [2, 3], [1])
    assert (first.eligible_leader_replicas, first.last_known_elr) == ([], [])


def test_a_partition_without_leader_has_no_error() -> None:
    harness = ClusterHarness({"news": 1}, brokers=2, config={"default.replication.factor": 1})
    stop_brokers(harness, 1)
    (partition,) = describe(harness, "news").topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.isr_nodes) == (ErrorCode.NONE, -1, [1])


def test_all_topics_are_described_in_the_order_of_their_names() -> None:
    harness = ClusterHarness({"b": 1, "a": 1})
    assert pages(harness, limit=10) == [[("a", [0]), ("b", [0])]]
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    response = describe(harness)
    assert [(topic.name, topic.is_internal) for topic in response.topics] == [
        ("__consumer_offsets", True),
        ("a", False),
        ("b", False),
    ]


def test_partitions_are_described_page_by_page() -> None:
    harness = ClusterHarness({"a": 3, "b": 2, "c": 1})
    assert pages(harness, limit=2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1]), ("c", [0])]]
    assert pages(harness, limit=3) == [[("a", [0, 1, 2])], [("b", [0, 1]), ("c", [0])]]
    assert pages(harness, "c", "a", "a", limit=3) == [[("a", [0, 1, 2])], [("c", [0])]]


def test_a_page_has_at_least_1_and_at_most_2000_partitions() -> None:
    for limit in (0, -1):
        assert pages(ClusterHarness({"a": 2}), limit=limit) == [[("a", [0])], [("a", [1])]], limit
    page = describe(ClusterHarness({"a": 2001}), limit=10_000)
    assert len(page.topics[0].partitions) == 2000
    assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == ("a", 2000)


def test_topics_that_do_not_exist_have_an_error_each() -> None:
    response = describe(ClusterHarness({"news": 1}), "zero", "a/b", "news", "__transaction_state")
    assert [(topic.name, ErrorCode(topic.error_code), topic.is_internal) for topic in response.topics] == [
        ("__transaction_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("news", ErrorCode.NONE, False),
        ("zero", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]
    assert response.topics[0].topic_id == ZERO_UUID


def test_cursors_of_missing_topics_and_partitions() -> None:
    harness = ClusterHarness({"a": 2, "c": 1})
    assert [topic.name for topic in describe(harness, cursor=("b", 1)).topics] == ["c"]
    assert describe(harness, cursor=("a", 7)).topics[0].partitions == []
    for names, cursor in [(["a", "c"], ("b", 0)), (["a"], ("a", -1))]:
        response = describe(harness, *names, cursor=cursor)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            (name, ErrorCode.INVALID_REQUEST) for name in names
        ]
    assert describe(harness, cursor=("a", -1)).topics == []


# DescribeLogDirs


def log_dirs(harness: ClusterHarness, partitions: dict[str, list[int]] | None, version: int, broker: int = 1) -> Any:
    """Describe replicas of a broker by topic, None for all. Returns the result of its only log directory."""
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in partitions.items()]
    response = harness.ask(DescribeLogDirsRequest(topics=topics), version, broker=broker)
    assert response.error_code == ErrorCode.NONE
    (result,) = response.results
    return result


def sizes(result: Any) -> dict[str, int]:
    """Return the size of each replica in bytes, by partition."""
    return {
        f"{topic.name}-{each.partition_index}": each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


def test_all_replicas_of_the_broker_are_described_in_each_version(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness({"news": 3, "sports": 1}, brokers=3, config={"default.replication.factor": 2})
    data = batch(b"one", b"two")
    harness.partition(1).log.append(data, 0)
    for version in versions("DescribeLogDirs"):
        with subtests.test(version=version):
            result = log_dirs(harness, None, version, broker=2)
            assert (result.error_code, result.log_dir) == (ErrorCode.NONE, LOG_DIR)
            assert (result.total_bytes, result.usable_bytes) == (-1, -1)
            assert sizes(result) == {"news-0": 0, "news-1": len(data), "sports-0": 0}
            first = result.topics[0].partitions[0]
            assert (first.offset_lag, first.is_future_key) == (0, False)
            assert sizes(log_dirs(harness, None, version, broker=1)) == {"news-0": 0, "news-2": 0}


def test_requested_replicas_that_the_broker_does_not_have_are_omitted(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness({"news": 3, "sports": 1}, brokers=3, config={"default.replication.factor": 1})
    for version in versions("DescribeLogDirs"):
        with subtests.test(version=version):
            requested = {"news": [0, 1, 9], "none": [0], "sports": []}
            assert sizes(log_dirs(harness, requested, version)) == {"news-0": 0}
            assert log_dirs(harness, {}, version).topics == []


def test_the_offsets_topic_is_included_after_a_coordinator_was_found() -> None:
    harness = ClusterHarness({})
    assert sizes(log_dirs(harness, None, 4)) == {}
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    assert sizes(log_dirs(harness, None, 4)) == {"__consumer_offsets-0": 0, "__consumer_offsets-1": 0}
