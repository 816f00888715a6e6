"""AlterPartitionReassignments: move partitions (ReplicationControlManager.alterPartitionReassignments)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.controller_requests import is_expired, replicas_error
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Outcome = tuple[ErrorCode, str | None]
"""The error and its message, for one partition or for the whole request."""

_DONE: Outcome = (ErrorCode.NONE, None)


def handle(cluster: "Cluster", call: Call, now_ms: float) -> AlterPartitionReassignmentsResponse:
    request: AlterPartitionReassignmentsRequest = call.request
    of_request = _DONE
    if request.topics and is_expired(request.timeout_ms):
        of_request = ErrorCode.REQUEST_TIMED_OUT, None
    if error := cluster_error(cluster, call, AclOperation.ALTER):
        of_request = error, needs_cluster(AclOperation.ALTER)
    is_idle = of_request is not _DONE or not request.topics
    responses = []
    for topic in request.topics:
        results = []
        for target in topic.partitions:
            outcome = of_request
            if outcome is _DONE:
                outcome = _alter(cluster, request, topic.name, target, now_ms)
            code, message = outcome
            index = target.partition_index
            results.append(ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message))
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    cluster.requests.settle(now_ms)
    return AlterPartitionReassignmentsResponse(
        # Kafka repeats what was asked only if its controller had something to do.
        allow_replication_factor_change=request.allow_replication_factor_change or is_idle,
        error_code=of_request[0],
        error_message=of_request[1] if request.topics else "",
        responses=responses,
    )


def _alter(
    cluster: "Cluster",
    request: AlterPartitionReassignmentsRequest,
    name: str,
    target: ReassignablePartition,
    now_ms: float,
) -> Outcome:
    topic = cluster.topics.get(name)
    partition = None if topic is None else topic.partition(target.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{target.partition_index}"
    if target.replicas is None:
        return _cancel(cluster, partition, now_ms)
    message = replicas_error(cluster, partition.index, target.replicas)
    if message is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    factor = len(partition.target_replicas)
    if not request.allow_replication_factor_change and len(target.replicas) != factor:
        message = f"{name}-{partition.index} on brokers {target.replicas}: expected {factor} replicas, as before"
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    cluster.controller.reassign(partition, target.replicas, now_ms, Failover())
    return _DONE


def _cancel(cluster: "Cluster", partition: Partition, now_ms: float) -> Outcome:
    if not partition.is_reassigning:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if all(node_id in partition.adding for node_id in cluster.in_sync(partition)):
        name = f"{partition.topic.name}-{partition.index}"
        message = f"the reassignment of {name} cannot be canceled: none of its old replicas is in sync"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    cluster.controller.cancel_reassignment(partition, now_ms, Failover())
    return _DONE
