"""CreatePartitions: add partitions to topics. Any broker answers.

Checks and their order are Kafka's (ReplicationControlManager.createPartitions).
"""

from collections import Counter
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.controller_requests import (
    MAX_RECORDS_PER_USER_OP,
    QUOTA_EXCEEDED,
    is_expired,
    new_replicas_error,
)
from fakebroker.cluster.quotas import MutationQuota
from fakebroker.cluster.topics import Assignment, Topic, partition_count_error
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

STRICT_QUOTA_SINCE = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

Error = tuple[ErrorCode, str | None]
"""An error code and its message. As in Kafka, some have none."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> CreatePartitionsResponse:
    request: CreatePartitionsRequest = call.request
    counts = Counter(topic.name for topic in request.topics)
    unique = [topic for topic in request.topics if counts[topic.name] == 1]
    if unique and is_expired(request.timeout_ms):
        results = [_result(topic.name, (ErrorCode.REQUEST_TIMED_OUT, None)) for topic in request.topics]
        return CreatePartitionsResponse(results=results)
    results = [_result(name, _duplicate(name, count)) for name, count in counts.items() if count > 1]
    quota = cluster.quotas.mutations(call, strict_since=STRICT_QUOTA_SINCE)
    results += [
        _result(topic.name, (error, None))
        if (error := topic_error(cluster, call, AclOperation.ALTER, topic.name))
        else _result(topic.name, _grow(cluster, topic, quota, now_ms, validate_only=request.validate_only))
        for topic in unique
    ]
    call.throttle_ms = quota.throttle_ms
    return CreatePartitionsResponse(results=results)


def _duplicate(name: str, count: int) -> Error:
    return ErrorCode.INVALID_REQUEST, f"topic {name!r} {count} times in one request: expected once"


def _grow(
    cluster: "Cluster", requested: CreatePartitionsTopic, quota: MutationQuota, now_ms: float, *, validate_only: bool
) -> Error | None:
    """Add the partitions of one topic, or return the error."""
    topic = cluster.topics.get(requested.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    plan = _plan(cluster, topic, requested)
    if isinstance(plan, tuple):
        return plan
    if not quota.allows(len(plan), now_ms):
        return QUOTA_EXCEEDED
    if not validate_only:
        cluster.topics.grow(topic, plan)
    return None


def _plan(cluster: "Cluster", topic: Topic, requested: CreatePartitionsTopic) -> Assignment | Error:
    """Return the assignment for the partitions to add, or the error if they cannot be added."""
    count_error = partition_count_error(topic, requested.count)
    if count_error is not None:
        return ErrorCode.INVALID_REQUEST if topic.is_internal else ErrorCode.INVALID_PARTITIONS, count_error
    added = requested.count - len(topic.partitions)
    if requested.assignments is not None and len(requested.assignments) != added:
        message = (
            f"{len(requested.assignments)} assignments of partitions of {topic.name!r}: "
            f"expected {added}, one for each new partition"
        )
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    if added > MAX_RECORDS_PER_USER_OP:
        message = f"{added} more partitions of {topic.name!r}: expected at most {MAX_RECORDS_PER_USER_OP}"
        return ErrorCode.POLICY_VIOLATION, message
    if requested.assignments is None:
        return cluster.placement.place_partitions(topic, added)
    return _checked(cluster, topic, [each.broker_ids for each in requested.assignments])


def _checked(cluster: "Cluster", topic: Topic, assignment: Assignment) -> Assignment | Error:
    factor = len(topic.partitions[0].replicas)
    for index, replicas in enumerate(assignment, len(topic.partitions)):
        message = new_replicas_error(cluster, index, replicas, factor)
        if message is not None:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return assignment


def _result(name: str, error: Error | None) -> CreatePartitionsTopicResult:
    code, message = error or (ErrorCode.NONE, None)
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
