"""DescribeQuorum: the leader and the voters of the metadata log (KafkaRaftClient.handleDescribeQuorumRequest).

Every broker is a voter and the controller is the leader, as if all nodes were brokers and controllers. Any broker
answers. The log itself does not exist. Its end grows by two records per second, as with an idle controller.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import MESSAGES
from fakebroker.cluster.features import KRAFT_VERSION
from fakebroker.cluster.handlers.create_topics import CLUSTER_METADATA_TOPIC
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

LEADER_EPOCH = 1
LISTENER = "CONTROLLER"
KIP_853_VERSION = 2
"""The first version with the ids of directories, which belong to kraft.version 1, and with nodes."""

_MS_PER_RECORD = 500
"""Kafka's `metadata.max.idle.interval.ms`."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeQuorumResponse:
    request: DescribeQuorumRequest = call.request
    if error := cluster_error(cluster, call, AclOperation.DESCRIBE):
        return DescribeQuorumResponse(error_code=error, error_message=MESSAGES[error], topics=[], nodes=[])
    requested = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if requested != [(CLUSTER_METADATA_TOPIC, 0)]:
        return _unknown(request)
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[_partition(cluster, call, now_ms)])],
        nodes=[_node(broker) for broker in cluster.brokers.values()] if call.api_version >= KIP_853_VERSION else [],
    )


def _node(broker: BrokerNode) -> Node:
    listener = Listener(name=LISTENER, host=broker.host, port=max(0, broker.port))
    return Node(node_id=broker.node_id, listeners=[listener])


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Return an error for each partition, because the request must be for the metadata log only."""
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[_failed(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _failed(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        error_message=f"expected partition 0 of {CLUSTER_METADATA_TOPIC} only",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _partition(cluster: "Cluster", call: Call, now_ms: float) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=cluster.controller_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=_end_offset(now_ms),
        current_voters=[_voter(cluster, call, broker, int(now_ms)) for broker in cluster.brokers.values()],
        observers=[],
    )


def _voter(cluster: "Cluster", call: Call, broker: BrokerNode, now_ms: int) -> ReplicaState:
    """Describe a voter. As in Kafka, the leader has no fetch time, and voters that are down have unknown values."""
    is_leader = broker.node_id == cluster.controller_id
    has_id = call.api_version >= KIP_853_VERSION and cluster.features.level(KRAFT_VERSION) > 0
    return ReplicaState(
        replica_id=broker.node_id,
        replica_directory_id=directory_id(broker.node_id) if has_id else ZERO_UUID,
        log_end_offset=_end_offset(now_ms) if broker.up else -1,
        last_fetch_timestamp=now_ms if broker.up and not is_leader else -1,
        last_caught_up_timestamp=now_ms if broker.up else -1,
    )


def _end_offset(now_ms: float) -> int:
    return int(now_ms // _MS_PER_RECORD)


def directory_id(node_id: int) -> bytes:
    """Return the id of a broker's log directory. Kafka's is random."""
    return (node_id << 64 | 0x4000_0000_0000_0000 << 64).to_bytes(16, "big")
