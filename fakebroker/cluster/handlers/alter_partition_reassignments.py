"""AlterPartitionReassignments: moves partitions (ReplicationControlManager.alterPartitionReassignments)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.controller import Failover
from fakebroker.cluster.handlers.controller_requests import replicas_fault, timeout_fault
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Outcome = tuple[ErrorCode, str | None]
"""The error and its message, for one partition or for the whole request."""

_DONE: Outcome = (ErrorCode.NONE, None)


def handle(cluster: "Cluster", call: Call, now_ms: float) -> AlterPartitionReassignmentsResponse:
    request: AlterPartitionReassignmentsRequest = call.request
    late = timeout_fault(request.timeout_ms) if request.topics else None
    whole: Outcome = _DONE if late is None else (ErrorCode.REQUEST_TIMED_OUT, late)
    responses = []
    for topic in request.topics:
        told = []
        for asked in topic.partitions:
            error, message = whole if late is not None else _alter(cluster, request, topic.name, asked, now_ms)
            index = asked.partition_index
            told.append(ReassignablePartitionResponse(partition_index=index, error_code=error, error_message=message))
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=told))
    cluster.settle(now_ms)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=whole[0],
        error_message=whole[1],
        responses=responses,
    )


def _alter(
    cluster: "Cluster",
    request: AlterPartitionReassignmentsRequest,
    name: str,
    asked: ReassignablePartition,
    now_ms: float,
) -> Outcome:
    topic = cluster.topics.get(name)
    partition = None if topic is None else topic.partition(asked.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{asked.partition_index}"
    if asked.replicas is None:
        return _cancel(cluster, partition, now_ms)
    fault = replicas_fault(cluster, partition.index, asked.replicas)
    if fault is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault
    factor = len(partition.target_replicas)
    if not request.allow_replication_factor_change and len(asked.replicas) != factor:
        message = f"{name}-{partition.index} on brokers {asked.replicas}: expected {factor} replicas, as it has"
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    cluster.controller.reassign(partition, asked.replicas, now_ms, Failover())
    return _DONE


def _cancel(cluster: "Cluster", partition: Partition, now_ms: float) -> Outcome:
    name = f"{partition.topic.name}-{partition.index}"
    if not partition.is_reassigning:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name} is not being reassigned"
    if all(node_id in partition.adding for node_id in cluster.in_sync(partition)):
        message = f"{name} cannot go back: of its old replicas none is in sync"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    cluster.controller.cancel_reassignment(partition, now_ms, Failover())
    return _DONE
