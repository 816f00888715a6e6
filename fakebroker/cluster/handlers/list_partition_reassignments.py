"""ListPartitionReassignments: those that wait for brokers that are down; all others are completed at once (KIP-455)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.controller_requests import timeout_fault
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ListPartitionReassignmentsResponse:
    request: ListPartitionReassignmentsRequest = call.request
    late = timeout_fault(request.timeout_ms)
    if late is not None and request.topics != []:
        error = ErrorCode.REQUEST_TIMED_OUT
        return ListPartitionReassignmentsResponse(error_code=error, error_message=late, topics=[])
    told = []
    for name, partitions in _asked(cluster, request):
        ongoing = [_ongoing(partition) for partition in partitions if partition.is_reassigning]
        if ongoing:
            told.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(error_message=None, topics=told)


def _asked(cluster: "Cluster", request: ListPartitionReassignmentsRequest) -> list[tuple[str, Sequence[Partition]]]:
    """Return the requested partitions, or all; unknown ones are omitted."""
    if request.topics is None:
        return [(topic.name, topic.partitions) for topic in cluster.topics]
    found: list[tuple[str, Sequence[Partition]]] = []
    for asked in request.topics:
        topic = cluster.topics.get(asked.name)
        if topic is not None:
            partitions = [topic.partition(index) for index in asked.partition_indexes]
            found.append((asked.name, [partition for partition in partitions if partition is not None]))
    return found


def _ongoing(partition: Partition) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
