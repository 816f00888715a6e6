"""DescribeCluster, DescribeTopicPartitions and DescribeLogDirs: what is where, as admin clients ask for it."""

from typing import Any

import pytest

from fakebroker.cluster.controller import Failover
from fakebroker.cluster.handlers.describe_log_dirs import LOG_DIR
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
from tests.support.cluster.cluster_harness import ClusterHarness, batch, versions

NOT_ASKED = -(2**31)


def stop(harness: ClusterHarness, node_id: int) -> None:
    broker = harness.cluster.brokers[node_id]
    harness.cluster.controller.stop_broker(broker, harness.now_ms, Failover())


# DescribeCluster


@pytest.mark.parametrize("version", versions("DescribeCluster"))
@pytest.mark.parametrize("asks_operations", [True, False])
def test_the_cluster(version: int, asks_operations: bool) -> None:
    harness = ClusterHarness(brokers=3)
    stop(harness, 1)
    request = DescribeClusterRequest(include_cluster_authorized_operations=asks_operations)
    told = harness.ask(request, version, broker=2)
    assert (told.error_code, told.error_message, told.endpoint_type) == (ErrorCode.NONE, None, 1)
    assert (told.cluster_id, told.controller_id) == (harness.cluster.cluster_id, 2)
    assert told.cluster_authorized_operations == (8096 if asks_operations else NOT_ASKED)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in told.brokers] == [
        (2, "localhost", 9002, None),
        (3, "localhost", 9003, None),
    ]


def test_fenced_brokers() -> None:
    harness = ClusterHarness(brokers=3)
    stop(harness, 2)
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    told = harness.ask(request, 2)
    assert [(each.broker_id, each.is_fenced) for each in told.brokers] == [(1, False), (2, True), (3, False)]


@pytest.mark.parametrize("version", versions("DescribeCluster")[1:])
@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_other_endpoints(version: int, endpoint_type: int, error: ErrorCode) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    told = ClusterHarness().ask(request, version)
    assert (told.error_code, told.brokers, told.controller_id) == (error, [], -1)
    assert told.error_message == f"endpoint type {endpoint_type}: expected 1, for this is a broker"


# DescribeTopicPartitions


def describe(harness: ClusterHarness, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    broker = harness.cluster.controller_id
    return harness.ask(request, 0, broker=broker)


def pages(harness: ClusterHarness, *names: str, limit: int) -> list[list[tuple[str, list[int]]]]:
    """All pages, each as its topics with the numbers of their partitions."""
    found = []
    cursor = None
    while True:
        told = describe(harness, *names, limit=limit, cursor=cursor)
        found.append([(topic.name, [each.partition_index for each in topic.partitions]) for topic in told.topics])
        if told.next_cursor is None:
            return found
        cursor = (told.next_cursor.topic_name, told.next_cursor.partition_index)


def test_a_topic_with_its_partitions() -> None:
    harness = ClusterHarness({"news": 2}, brokers=3)
    stop(harness, 1)
    told = describe(harness, "news")
    (topic,) = told.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.NONE, "news", harness.topic().topic_id)
    assert (topic.is_internal, topic.topic_authorized_operations, told.next_cursor) == (False, 3576, None)
    first = topic.partitions[0]
    assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 2, harness.partition().leader_epoch)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1, 2, 3], [2, 3], [1])
    assert (first.eligible_leader_replicas, first.last_known_elr) == ([], [])


def test_a_partition_without_leader_has_no_error() -> None:
    harness = ClusterHarness({"news": 1}, brokers=2, config={"default.replication.factor": 1})
    stop(harness, 1)
    (partition,) = describe(harness, "news").topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.isr_nodes) == (ErrorCode.NONE, -1, [1])


def test_all_topics_in_order() -> None:
    harness = ClusterHarness({"b": 1, "a": 1})
    assert pages(harness, limit=10) == [[("a", [0]), ("b", [0])]]
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    told = describe(harness)
    assert [(topic.name, topic.is_internal) for topic in told.topics] == [
        ("__consumer_offsets", True),
        ("a", False),
        ("b", False),
    ]


def test_pages() -> None:
    harness = ClusterHarness({"a": 3, "b": 2, "c": 1})
    assert pages(harness, limit=2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1]), ("c", [0])]]
    assert pages(harness, limit=3) == [[("a", [0, 1, 2])], [("b", [0, 1]), ("c", [0])]]
    assert pages(harness, "c", "a", "a", limit=3) == [[("a", [0, 1, 2])], [("c", [0])]]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_partition(limit: int) -> None:
    assert pages(ClusterHarness({"a": 2}), limit=limit) == [[("a", [0])], [("a", [1])]]


def test_a_page_has_at_most_so_many_partitions_as_the_broker_allows() -> None:
    told = describe(ClusterHarness({"a": 2001}), limit=10_000)
    assert len(told.topics[0].partitions) == 2000
    assert (told.next_cursor.topic_name, told.next_cursor.partition_index) == ("a", 2000)


def test_topics_that_are_not_there() -> None:
    told = describe(ClusterHarness({"news": 1}), "zero", "a/b", "news", "__transaction_state")
    assert [(topic.name, ErrorCode(topic.error_code), topic.is_internal) for topic in told.topics] == [
        ("__transaction_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("news", ErrorCode.NONE, False),
        ("zero", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]
    assert told.topics[0].topic_id == ZERO_UUID


def test_cursors_that_point_nowhere() -> None:
    harness = ClusterHarness({"a": 2, "c": 1})
    assert [topic.name for topic in describe(harness, cursor=("b", 1)).topics] == ["c"]
    assert describe(harness, cursor=("a", 7)).topics[0].partitions == []
    for names, cursor in [(["a", "c"], ("b", 0)), (["a"], ("a", -1))]:
        told = describe(harness, *names, cursor=cursor)
        assert [(topic.name, topic.error_code) for topic in told.topics] == [
            (name, ErrorCode.INVALID_REQUEST) for name in names
        ]
    assert describe(harness, cursor=("a", -1)).topics == []


# DescribeLogDirs


def log_dirs(harness: ClusterHarness, asked: dict[str, list[int]] | None, version: int, broker: int = 1) -> Any:
    topics = None
    if asked is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in asked.items()]
    told = harness.ask(DescribeLogDirsRequest(topics=topics), version, broker=broker)
    assert told.error_code == ErrorCode.NONE
    (result,) = told.results
    return result


def sizes(result: Any) -> dict[str, int]:
    return {
        f"{topic.name}-{each.partition_index}": each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", versions("DescribeLogDirs"))
def test_the_replicas_of_the_asked_broker(version: int) -> None:
    harness = ClusterHarness({"news": 3, "sports": 1}, brokers=3, config={"default.replication.factor": 2})
    data = batch(b"one", b"two")
    harness.partition(1).log.append(data, 0)
    result = log_dirs(harness, None, version, broker=2)
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, LOG_DIR)
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    assert sizes(result) == {"news-0": 0, "news-1": len(data), "sports-0": 0}
    first = result.topics[0].partitions[0]
    assert (first.offset_lag, first.is_future_key) == (0, False)
    assert sizes(log_dirs(harness, None, version, broker=3)) == {"news-1": len(data), "news-2": 0}


@pytest.mark.parametrize("version", versions("DescribeLogDirs"))
def test_what_is_asked_for(version: int) -> None:
    harness = ClusterHarness({"news": 3, "sports": 1}, brokers=3, config={"default.replication.factor": 1})
    asked = {"news": [0, 1, 9], "none": [0], "sports": []}
    assert sizes(log_dirs(harness, asked, version)) == {"news-0": 0}
    assert log_dirs(harness, {}, version).topics == []


def test_the_offsets_topic_is_there_once_it_is_used() -> None:
    harness = ClusterHarness({})
    assert sizes(log_dirs(harness, None, 4)) == {}
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    assert sizes(log_dirs(harness, None, 4)) == {"__consumer_offsets-0": 0, "__consumer_offsets-1": 0}
