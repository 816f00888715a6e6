"""OffsetForLeaderEpoch: the end offset of a leader epoch, so that clients detect truncation (KIP-320).

As in Kafka, only the leader answers. It checks the leader epoch that the client knows, and ignores the replica id.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.lookup import find_partition, leadership_error
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> OffsetForLeaderEpochResponse:
    request: OffsetForLeaderEpochRequest = call.request
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(cluster, call, topic.topic, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_offset(cluster: "Cluster", call: Call, name: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    # Brokers have the first permission, consumers the second one.
    if cluster_error(cluster, call, AclOperation.CLUSTER_ACTION) and (
        refused := topic_error(cluster, call, AclOperation.DESCRIBE, name)
    ):
        return EpochEndOffset(partition=requested.partition, error_code=refused)
    partition = find_partition(cluster, name, ZERO_UUID, requested.partition, by_id=False)
    if isinstance(partition, ErrorCode):
        return EpochEndOffset(partition=requested.partition, error_code=partition)
    error = leadership_error(partition, call.broker, requested.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return EpochEndOffset(partition=requested.partition, error_code=error)
    found = partition.log.end_of_epoch(requested.leader_epoch, partition.leader_epoch)
    return EpochEndOffset(
        partition=requested.partition,
        error_code=ErrorCode.NONE,
        leader_epoch=found.leader_epoch,
        end_offset=found.end_offset,
    )
