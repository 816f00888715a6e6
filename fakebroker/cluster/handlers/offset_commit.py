"""OffsetCommit: commit offsets of a group. Unknown partitions get an error here; the coordinator handles the rest."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.late_response import LateResponse
from fakebroker.coordinator.group.api import OffsetToCommit
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Entry = tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition]
"""A partition of a request."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    by_id = call.api_version >= 10
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused: list[tuple[Entry, ErrorCode]] = []
    accepted: list[Entry] = []
    offsets: list[OffsetToCommit] = []
    for requested in call.request.topics:
        topic = cluster.topics.find(requested.name, requested.topic_id, by_id=by_id)
        for partition in requested.partitions:
            if topic is None:
                refused.append(((requested, partition), unknown))
            elif topic.partition(partition.partition_index) is None:
                refused.append(((requested, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                accepted.append((requested, partition))
                offsets.append(_offset(call, topic.name, partition, now_ms))
    version = call.api_version
    if version == 0 or not offsets:
        # Version 0 commits to ZooKeeper, which the cluster does not have.
        return _response(refused, accepted, [ErrorCode.UNSUPPORTED_VERSION] * len(offsets))
    request: OffsetCommitRequest = call.request
    late: LateResponse[list[ErrorCode]] = LateResponse(
        lambda errors: _response(refused, accepted, _errors_of_version(errors, version))
    )
    call.broker.coordinator.commit_offsets(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        offsets,
        now_ms,
        late,
    )
    return late.take(cluster, call)


def _offset(call: Call, name: str, partition: OffsetCommitRequestPartition, now_ms: float) -> OffsetToCommit:
    retention_ms, timestamp_ms = call.request.retention_time_ms, partition.commit_timestamp
    return OffsetToCommit(
        topic=name,
        partition=partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata,
        commit_timestamp_ms=None if timestamp_ms == -1 else timestamp_ms,
        expire_timestamp_ms=None if retention_ms == -1 else int(now_ms) + retention_ms,
    )


def _errors_of_version(errors: list[ErrorCode], api_version: int) -> list[ErrorCode]:
    """Replace GROUP_ID_NOT_FOUND by ILLEGAL_GENERATION in versions before 9, which do not have it."""
    if api_version >= 9:
        return errors
    return [ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.GROUP_ID_NOT_FOUND else error for error in errors]


def _response(
    refused: list[tuple[Entry, ErrorCode]], accepted: list[Entry], errors: list[ErrorCode]
) -> OffsetCommitResponse:
    topics: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for (requested, partition), error in [*refused, *zip(accepted, errors, strict=True)]:
        key = requested.name, requested.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = OffsetCommitResponseTopic(
                name=requested.name, topic_id=requested.topic_id, partitions=[]
            )
        topic.partitions.append(
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
        )
    return OffsetCommitResponse(topics=list(topics.values()))
