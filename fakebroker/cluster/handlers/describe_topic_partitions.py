"""DescribeTopicPartitions: topics in the order of their names, page by page (KIP-966).

Follows DescribeTopicPartitionsRequestHandler.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import NOT_REQUESTED, operations, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.topics import INTERNAL_TOPICS, NO_LEADER, Partition, Topic
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation, ResourceType
from fakebroker.topic_partition import is_legal_name

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

MAX_REQUEST_PARTITION_SIZE_LIMIT = 2000
"""Kafka's default of `max.request.partition.size.limit`."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeTopicPartitionsResponse:
    request: DescribeTopicPartitionsRequest = call.request
    cursor = request.cursor or Cursor(topic_name="", partition_index=0)
    requested = [topic.name for topic in request.topics]
    if cursor.partition_index < 0 or (request.cursor is not None and requested and cursor.topic_name not in requested):
        return _refused(request, ErrorCode.INVALID_REQUEST)
    wanted = requested or [topic.name for topic in cluster.topics]
    names = sorted({name for name in wanted if name >= cursor.topic_name})
    errors = {name: topic_error(cluster, call, AclOperation.DESCRIBE, name) for name in names}
    if request.cursor is None and errors.get("") == ErrorCode.NONE:
        return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, which fails here
    response = _page(cluster, call, [name for name in names if not errors[name]], cursor, _limit(request))
    if requested:
        response.topics += [_failed(name, error, NOT_REQUESTED) for name, error in errors.items() if error]
    return response


def _refused(request: DescribeTopicPartitionsRequest, error: ErrorCode) -> DescribeTopicPartitionsResponse:
    """Return the response in which all topics have the error. It has no field for a message."""
    failed = [_failed(topic.name, error, NOT_REQUESTED) for topic in request.topics]
    return DescribeTopicPartitionsResponse(topics=failed)


def _limit(request: DescribeTopicPartitionsRequest) -> int:
    return max(1, min(request.response_partition_limit, MAX_REQUEST_PARTITION_SIZE_LIMIT))


def _page(
    cluster: "Cluster", call: Call, names: list[str], cursor: Cursor, remaining: int
) -> DescribeTopicPartitionsResponse:
    """Return a page of at most `remaining` partitions of these topics, from the cursor on.

    If topics or partitions are left for a next page, the response has its cursor.
    """
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        start = cursor.partition_index if name == cursor.topic_name else 0
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = cluster.topics.get(name)
        if topic is None:
            failed = _failed(name, _error(name), operations(cluster, call, ResourceType.TOPIC, name))
            failed.is_internal = name in INTERNAL_TOPICS
            response.topics.append(failed)
            continue
        page = topic.partitions[start : start + remaining]
        response.topics.append(_described(cluster, call, topic, page))
        remaining -= len(page)
        if start + len(page) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + len(page))
            break
    return response


def _error(name: str) -> ErrorCode:
    """Return the error for a topic that does not exist."""
    if is_legal_name(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _failed(name: str, error: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=False,
        partitions=[],
        topic_authorized_operations=operations,
    )


def _described(
    cluster: "Cluster", call: Call, topic: Topic, page: list[Partition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(cluster, partition) for partition in page],
        topic_authorized_operations=operations(cluster, call, ResourceType.TOPIC, topic.name),
    )


def _partition(cluster: "Cluster", partition: Partition) -> DescribeTopicPartitionsResponsePartition:
    """Describe one partition. As in Kafka, a partition without a leader has no error."""
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=NO_LEADER if cluster.leader_of(partition) is None else partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=cluster.in_sync(partition),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[node_id for node_id in partition.replicas if not cluster.brokers[node_id].up],
    )
