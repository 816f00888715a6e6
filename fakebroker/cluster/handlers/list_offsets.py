"""ListOffsets: the offset of the first record with at least a given timestamp, or of a special position.

Special positions are negative timestamps, such as -1 for LATEST. Version 0 returns several offsets for a timestamp: the
start offsets of segments and the end of the log.

A partition that a request names twice gets INVALID_REQUEST, as in Kafka (ListOffsetsRequest.duplicatePartitions).
Version 0 has no such check (KafkaApis.handleListOffsetRequestV0).
"""

from collections import Counter
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.lookup import find_partition, leadership_error
from fakebroker.cluster.logs.partition_log import PartitionLog, TimestampAndOffset
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from fakebroker.protocol.records import RecordBatch
from fakebroker.protocol.releases import Release
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6

# The first version that supports each special position.
_FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,  # KIP-734
    EARLIEST_LOCAL: 8,  # KIP-405
    LATEST_TIERED: 9,  # KIP-1005
    EARLIEST_PENDING_UPLOAD: 11,  # KIP-1023
}
_KIP_1075 = Release(4, 0)
_READ_COMMITTED = 1
_DEBUGGING_REPLICA_ID = -2
_UNKNOWN = TimestampAndOffset(offset=-1, timestamp_ms=-1, leader_epoch=-1)


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ListOffsetsResponse:
    request: ListOffsetsRequest = call.request
    # Kafka fails to parse other levels.
    refused = ErrorCode.NONE if request.isolation_level in (0, _READ_COMMITTED) else ErrorCode.UNKNOWN_SERVER_ERROR
    times = Counter(
        (topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _failed(requested, error)
                    if error
                    else _answer_v0(cluster, call, topic.name, requested, now_ms)
                    if call.api_version == 0
                    else _answer(
                        cluster,
                        call,
                        topic.name,
                        requested,
                        is_duplicate=times[topic.name, requested.partition_index] > 1,
                    )
                    for requested in topic.partitions
                ],
            )
            for topic in (request.topics if refused else _requested(call))
            for error in [refused or topic_error(cluster, call, AclOperation.DESCRIBE, topic.name)]
        ]
    )


def _requested(call: Call) -> list[ListOffsetsTopic]:
    """Return the topics and partitions to answer. Before Kafka 4.0, these are the requested ones.

    Since Kafka 4.0, duplicates are merged and topics without partitions are dropped, because ReplicaManager.fetchOffset
    collects the results in a map by partition (KIP-1075). A request with an invalid isolation level does not get there:
    its error response has the topics as requested (ListOffsetsRequest.getErrorResponse).
    """
    topics: list[ListOffsetsTopic] = call.request.topics
    if call.broker.release < _KIP_1075:
        return topics
    merged: dict[str, dict[int, ListOffsetsPartition]] = {}
    for topic in topics:
        merged.setdefault(topic.name, {}).update((each.partition_index, each) for each in topic.partitions)
    return [
        ListOffsetsTopic(name=name, partitions=list(partitions.values()))
        for name, partitions in merged.items()
        if partitions
    ]


def _failed(requested: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=error)


def _answer(
    cluster: "Cluster", call: Call, name: str, requested: ListOffsetsPartition, *, is_duplicate: bool
) -> ListOffsetsPartitionResponse:
    found: TimestampAndOffset | ErrorCode
    if is_duplicate:
        found = ErrorCode.INVALID_REQUEST
    elif requested.timestamp < 0 and call.api_version < _FIRST_VERSIONS.get(requested.timestamp, 2**15):
        found = ErrorCode.UNSUPPORTED_VERSION
    else:
        found = _find(cluster, call, name, requested)
    if isinstance(found, ErrorCode):
        return _failed(requested, found)
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch if call.api_version >= 4 else -1,
    )


def _find(cluster: "Cluster", call: Call, name: str, requested: ListOffsetsPartition) -> TimestampAndOffset | ErrorCode:
    partition = _partition(cluster, call, name, requested)
    if isinstance(partition, ErrorCode):
        return partition
    is_committed = call.request.isolation_level == _READ_COMMITTED
    end_offset = partition.log.last_stable_offset if is_committed else partition.log.high_watermark
    return _offset(partition, requested.timestamp, end_offset)


def _partition(cluster: "Cluster", call: Call, name: str, requested: ListOffsetsPartition) -> Partition | ErrorCode:
    partition = find_partition(cluster, name, ZERO_UUID, requested.partition_index, by_id=False)
    if isinstance(partition, ErrorCode):
        return partition
    leader_only = call.request.replica_id != _DEBUGGING_REPLICA_ID
    error = leadership_error(partition, call.broker, requested.current_leader_epoch, leader_only=leader_only)
    return partition if error is ErrorCode.NONE else error


def _offset(partition: Partition, timestamp_ms: int, end_offset: int) -> TimestampAndOffset:
    """Return the offset for a timestamp or a special position.

    Args:
        partition: The partition.
        timestamp_ms: The timestamp in milliseconds, or a special position.
        end_offset: The end of the readable records: the last stable offset for read_committed, else the high watermark.
            LATEST returns it. A timestamp finds only records before it.
    """
    log = partition.log
    if timestamp_ms == LATEST:
        return TimestampAndOffset(end_offset, -1, partition.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return TimestampAndOffset(log.log_start_offset, -1, _epoch_at_start(partition))
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # Tiered storage is not supported.
        return _UNKNOWN
    found = log.max_timestamp() if timestamp_ms == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp_ms)
    return found if found is not None and found.offset < end_offset else _UNKNOWN


def _epoch_at_start(partition: Partition) -> int:
    first = partition.log.read(partition.log.log_start_offset, 0)
    return RecordBatch(first).partition_leader_epoch if first else partition.leader_epoch


def _answer_v0(
    cluster: "Cluster", call: Call, name: str, requested: ListOffsetsPartition, now_ms: float
) -> ListOffsetsPartitionResponse:
    is_supported = requested.timestamp >= EARLIEST
    partition = _partition(cluster, call, name, requested) if is_supported else ErrorCode.UNSUPPORTED_VERSION
    if isinstance(partition, ErrorCode):
        return _failed(requested, partition)
    offsets = _offsets_before(partition.log, requested.timestamp, now_ms)
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        error_code=ErrorCode.NONE,
        old_style_offsets=offsets[: max(0, requested.max_num_offsets)],
    )


def _offsets_before(log: PartitionLog, timestamp_ms: int, now_ms: float) -> list[int]:
    """Return the end of the log and the start offsets of its segments that existed at a time, newest first.

    Follows `UnifiedLog.legacyFetchOffsetsBefore`. Here, a log has one segment, which was last modified at the timestamp
    of its newest record.
    """
    newest = log.max_timestamp()
    start = (log.log_start_offset, -1 if newest is None else min(newest.timestamp_ms, now_ms))
    places = [(log.log_end_offset, now_ms), start] if log.log_end_offset > log.log_start_offset else [start]
    if timestamp_ms == LATEST:
        return [offset for offset, _ in places]
    if timestamp_ms == EARLIEST:
        return [log.log_start_offset]
    return [offset for offset, written_ms in places if written_ms <= timestamp_ms]
