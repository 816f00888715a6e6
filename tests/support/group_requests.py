"""Requests of members of a group, with usual values for the required fields. Pure: they are not sent."""

from typing import Any

from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def join_request(
    group_id: str = "g", member_id: str = "", *, session_timeout_ms: int = 30_000, version: int = 9, **fields: Any
) -> JoinGroupRequest:
    """Return the JoinGroup of a consumer with the protocol "range"."""
    values: dict[str, Any] = {
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"r")],
    }
    if version:
        values["rebalance_timeout_ms"] = 60_000
    return JoinGroupRequest(
        group_id=group_id, member_id=member_id, session_timeout_ms=session_timeout_ms, **values | fields
    )


def sync_request(
    member_id: str,
    group_id: str = "g",
    generation_id: int = 1,
    assignments: dict[str, bytes] | None = None,
    *,
    version: int = 5,
    **fields: Any,
) -> SyncGroupRequest:
    """Return the SyncGroup of a member; a leader also sends assignments, by member id."""
    if version >= 5:
        fields = {"protocol_type": "consumer", "protocol_name": "range"} | fields
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=assignment)
            for each, assignment in (assignments or {}).items()
        ],
        **fields,
    )


def heartbeat_request(group_id: str = "g", member_id: str = "m", generation_id: int = 1) -> HeartbeatRequest:
    """Return a heartbeat; by default of a member that does not exist."""
    return HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=member_id)


def commit_request(
    offset: int,
    partition: int = 0,
    group_id: str = "g",
    member_id: str = "",
    generation_id: int = -1,
    metadata: str = "",
) -> OffsetCommitRequest:
    """Return a commit for a partition of the topic "orders"; by default without a member."""
    committed = offset_to_commit(partition, offset, committed_metadata=metadata)
    return commit_of(
        committed,
        group_id=group_id,
        topic="orders",
        member_id=member_id,
        generation_id_or_member_epoch=generation_id,
    )


def commit_of(
    *offsets: OffsetCommitRequestPartition, group_id: str = "g", topic: str = "news", **fields: Any
) -> OffsetCommitRequest:
    """Return an OffsetCommit of a version before 10, in which topics have names; by default without a member."""
    topics = [OffsetCommitRequestTopic(name=topic, partitions=list(offsets))]
    return OffsetCommitRequest(group_id=group_id, topics=topics, **fields)


def offset_to_commit(index: int, offset: int = 7, **fields: Any) -> OffsetCommitRequestPartition:
    """Return the offset of a partition, for `commit_of`."""
    return OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, **{"committed_metadata": "note"} | fields
    )
