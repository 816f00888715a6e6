"""ListPartitionReassignments: the reassignments in progress, which wait for brokers that are down (KIP-455)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ListPartitionReassignmentsResponse:
    request: ListPartitionReassignmentsRequest = call.request
    if refused := cluster_error(cluster, call, AclOperation.DESCRIBE):
        return _refused(request, refused)
    topics = []
    for name, partitions in _requested(cluster, request):
        ongoing = [_ongoing(partition) for partition in partitions if partition.is_reassigning]
        if ongoing:
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _refused(request: ListPartitionReassignmentsRequest, error: ErrorCode) -> ListPartitionReassignmentsResponse:
    """Return the error of the whole request, with the requested partitions as Kafka has them: without replicas."""
    return ListPartitionReassignmentsResponse(
        error_code=error,
        error_message=needs_cluster(AclOperation.DESCRIBE),
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ],
    )


def _requested(cluster: "Cluster", request: ListPartitionReassignmentsRequest) -> list[tuple[str, Sequence[Partition]]]:
    """Return the requested partitions by topic, or all partitions. Unknown partitions are omitted."""
    if request.topics is None:
        return [(topic.name, topic.partitions) for topic in cluster.topics]
    found: list[tuple[str, Sequence[Partition]]] = []
    for requested in request.topics:
        topic = cluster.topics.get(requested.name)
        if topic is not None:
            partitions = [topic.partition(index) for index in requested.partition_indexes]
            found.append((requested.name, [partition for partition in partitions if partition is not None]))
    return found


def _ongoing(partition: Partition) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
