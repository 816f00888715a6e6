"""ElectLeaders: elect the preferred leader, or any replica that is up (ReplicationControlManager.electLeaders)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.controller_requests import is_expired
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

# Kafka's ElectionType.
PREFERRED, UNCLEAN = 0, 1

_FIRST_VERSION_OF_TOP_LEVEL_ERRORS = 1


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ElectLeadersResponse:
    request: ElectLeadersRequest = call.request
    if error := cluster_error(cluster, call, AclOperation.ALTER):
        return _refused(call, error, needs_cluster(AclOperation.ALTER))
    if request.topic_partitions == []:
        return ElectLeadersResponse(replica_election_results=[])
    if is_expired(request.timeout_ms):
        return _refused(call, ErrorCode.REQUEST_TIMED_OUT, None)
    if request.election_type not in (PREFERRED, UNCLEAN):
        message = f"election type {request.election_type}: expected 0 (preferred) or 1 (unclean)"
        return _refused(call, ErrorCode.INVALID_REQUEST, message)
    elect = _elect_all if request.topic_partitions is None else _elect_requested
    results = elect(cluster, request, now_ms)
    cluster.requests.settle(now_ms)
    return ElectLeadersResponse(replica_election_results=results)


def _refused(call: Call, error: ErrorCode, message: str | None) -> ElectLeadersResponse:
    request: ElectLeadersRequest = call.request
    return ElectLeadersResponse(
        error_code=error if call.api_version >= _FIRST_VERSION_OF_TOP_LEVEL_ERRORS else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=requested.topic,
                partition_result=[_result(index, error, message) for index in requested.partitions],
            )
            for requested in request.topic_partitions or []
        ],
    )


def _elect_all(cluster: "Cluster", request: ElectLeadersRequest, now_ms: float) -> list[ReplicaElectionResult]:
    """Return a result for each topic, with those partitions that needed an election."""
    topics = []
    for topic in cluster.topics:
        results = [_elect(cluster, each, request.election_type, now_ms) for each in topic.partitions]
        needed = [result for result in results if result.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        topics.append(ReplicaElectionResult(topic=topic.name, partition_result=needed))
    return topics


def _elect_requested(cluster: "Cluster", request: ElectLeadersRequest, now_ms: float) -> list[ReplicaElectionResult]:
    topics = []
    for requested in request.topic_partitions or []:
        results = []
        topic = cluster.topics.get(requested.topic)
        for index in requested.partitions:
            partition = None if topic is None else topic.partition(index)
            if partition is None:
                message = f"there is no partition {requested.topic}-{index}"
                results.append(_result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
            else:
                results.append(_elect(cluster, partition, request.election_type, now_ms))
        topics.append(ReplicaElectionResult(topic=requested.topic, partition_result=results))
    return topics


def _elect(cluster: "Cluster", partition: Partition, election_type: int, now_ms: float) -> PartitionResult:
    """Elect a leader for one partition. Without a leader, a preferred election may elect any replica that is up."""
    name, preferred = f"{partition.topic.name}-{partition.index}", partition.replicas[0]
    has_leader = cluster.leader_of(partition) is not None
    if has_leader and (election_type == UNCLEAN or partition.leader_id == preferred):
        message = f"broker {partition.leader_id} is the leader of {name} already"
        return _result(partition.index, ErrorCode.ELECTION_NOT_NEEDED, message)
    up = cluster.controller.eligible(partition)
    if not up and election_type == UNCLEAN:
        message = f"no replica of {name} is up: expected one of {list(partition.replicas)}"
        return _result(partition.index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    if not up or (has_leader and preferred not in up):
        message = f"broker {preferred}, the preferred leader of {name}, is down"
        return _result(partition.index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    cluster.controller.set_leader(partition, up[0], now_ms, Failover())
    return _result(partition.index, ErrorCode.NONE, None)


def _result(index: int, error: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error, error_message=message)
