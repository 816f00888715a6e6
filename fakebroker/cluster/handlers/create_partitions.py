"""CreatePartitions: Kafka's checks in its order (ReplicationControlManager.createPartitions); any broker answers."""

from collections import Counter
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.controller_requests import (
    MAX_RECORDS_PER_USER_OP,
    new_replicas_fault,
    timeout_fault,
)
from fakebroker.cluster.topics import Assignment, Topic, growth_fault
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Fault = tuple[ErrorCode, str]


def handle(cluster: "Cluster", call: Call, now_ms: float) -> CreatePartitionsResponse:
    request: CreatePartitionsRequest = call.request
    times = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if times[topic.name] == 1]
    late = timeout_fault(request.timeout_ms)
    if once and late is not None:
        results = [_result(topic.name, (ErrorCode.REQUEST_TIMED_OUT, late)) for topic in request.topics]
        return CreatePartitionsResponse(results=results)
    results = [_result(name, _twice(name, count)) for name, count in times.items() if count > 1]
    results += [_result(asked.name, _grow(cluster, asked, validate_only=request.validate_only)) for asked in once]
    return CreatePartitionsResponse(results=results)


def _twice(name: str, count: int) -> Fault:
    return ErrorCode.INVALID_REQUEST, f"topic {name!r} {count} times in one request: expected once"


def _grow(cluster: "Cluster", asked: CreatePartitionsTopic, *, validate_only: bool) -> Fault | None:
    topic = cluster.topics.get(asked.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}"
    plan = _plan(cluster, topic, asked)
    if isinstance(plan, tuple):
        return plan
    if not validate_only:
        cluster.topics.grow(topic, plan)
    return None


def _plan(cluster: "Cluster", topic: Topic, asked: CreatePartitionsTopic) -> Assignment | Fault:
    """Return the replicas of the partitions to add, or why they cannot be added."""
    fault = growth_fault(topic, asked.count)
    if fault is not None:
        return ErrorCode.INVALID_REQUEST if topic.is_internal else ErrorCode.INVALID_PARTITIONS, fault
    added = asked.count - len(topic.partitions)
    if asked.assignments is not None and len(asked.assignments) != added:
        message = (
            f"{len(asked.assignments)} assignments of partitions of {topic.name!r}: expected {added}, one for each"
        )
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    if added > MAX_RECORDS_PER_USER_OP:
        message = f"{added} more partitions of {topic.name!r}: expected at most {MAX_RECORDS_PER_USER_OP}"
        return ErrorCode.POLICY_VIOLATION, message
    if asked.assignments is None:
        return cluster.place_partitions(topic, added)
    return _checked(cluster, topic, [each.broker_ids for each in asked.assignments])


def _checked(cluster: "Cluster", topic: Topic, assignment: Assignment) -> Assignment | Fault:
    factor = len(topic.partitions[0].replicas)
    for index, replicas in enumerate(assignment, len(topic.partitions)):
        fault = new_replicas_fault(cluster, index, replicas, factor)
        if fault is not None:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault
    return assignment


def _result(name: str, fault: Fault | None) -> CreatePartitionsTopicResult:
    error, message = fault or (ErrorCode.NONE, None)
    return CreatePartitionsTopicResult(name=name, error_code=error, error_message=message)
