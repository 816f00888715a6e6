"""Requests as the coordinator takes them, and its results as responses: for tests that have no broker in between."""

from fakebroker.coordinator.group.api import JoinGroup, JoinResult, SyncGroup, SyncResult
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def join(request: JoinGroupRequest, client_id: str) -> JoinGroup:
    return JoinGroup(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host="/127.0.0.1",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        requires_member_id=True,
        supports_skip_assignment=True,
    )


def sync(request: SyncGroupRequest) -> SyncGroup:
    return SyncGroup(
        generation_id=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((item.member_id, item.assignment) for item in request.assignments),
    )


def joined(result: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata)
            for m in result.members
        ],
    )


def synced(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
