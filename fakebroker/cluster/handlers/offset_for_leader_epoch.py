"""OffsetForLeaderEpoch: the end offset of a leader epoch, so that clients detect truncation (KIP-320).

As in Kafka only the leader answers. It checks the epoch that the client knows, not a replica id.
"""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> OffsetForLeaderEpochResponse:
    request: OffsetForLeaderEpochRequest = call.request
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(cluster, call, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_offset(cluster: "Cluster", call: Call, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = find_partition(cluster, name, ZERO_UUID, asked.partition, by_id=False)
    if isinstance(partition, ErrorCode):
        return EpochEndOffset(partition=asked.partition, error_code=partition)
    error = leadership_error(partition, call.broker, asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return EpochEndOffset(partition=asked.partition, error_code=error)
    log = partition.log
    # Kafka assigns the start offset when a leader is elected (Partition.makeLeader). If nothing was appended in this
    # epoch, it still starts here; otherwise it is assigned already.
    log.epochs.assign(partition.leader_epoch, log.log_end_offset)
    found = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    return EpochEndOffset(
        partition=asked.partition,
        error_code=ErrorCode.NONE,
        leader_epoch=found.leader_epoch,
        end_offset=found.end_offset,
    )
