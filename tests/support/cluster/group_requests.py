"""Requests of members of a group, with usual values for the required fields."""

from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.cluster.cluster_harness import ClusterHarness

NO_INITIAL_DELAY: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}
"""The setting with which the first member of a group gets a generation immediately."""


def join_request(member_id: str = "", *, group_id: str = "g", version: int = 9, **fields: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"r")],
    }
    if version:
        values["rebalance_timeout_ms"] = 60_000
    return JoinGroupRequest(group_id=group_id, member_id=member_id, **values | fields)


def join(harness: ClusterHarness, version: int = 9, *, group_id: str = "g", **fields: Any) -> Any:
    """Join a new member, with a second request if it needs a member id first. Returns the last response."""
    response = harness.ask(join_request(group_id=group_id, version=version, **fields), version)
    if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return response
    return harness.ask(join_request(response.member_id, group_id=group_id, version=version, **fields), version)


def sync_request(joined: Any, version: int = 5, *, group_id: str = "g", **fields: Any) -> SyncGroupRequest:
    """Return the SyncGroup after a response to a join. It assigns `b"mine"` to the member."""
    if version >= 5:
        fields = {"protocol_type": "consumer", "protocol_name": "range"} | fields
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
        **fields,
    )


def offset_to_commit(index: int, offset: int = 7, **fields: Any) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, **{"committed_metadata": "note"} | fields
    )


def commit_request(
    *offsets: OffsetCommitRequestPartition, group_id: str = "g", topic: str = "news", **fields: Any
) -> OffsetCommitRequest:
    """Return an OffsetCommit of a version before 10, in which topics have names."""
    topics = [OffsetCommitRequestTopic(name=topic, partitions=list(offsets))]
    return OffsetCommitRequest(group_id=group_id, topics=topics, **fields)
