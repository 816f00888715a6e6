"""Parts of requests, and responses that a coordinator is expected to give, from plain values in a short order."""

from collections.abc import Iterable, Sequence

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from fakebroker.protocol.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse


def offered(protocols: Iterable[tuple[str, bytes]]) -> list[JoinGroupRequestProtocol]:
    """Return the protocols of a JoinGroup, given as pairs of name and metadata."""
    return [JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols]


def assigned(assignments: Iterable[tuple[str, bytes]]) -> list[SyncGroupRequestAssignment]:
    """Return the assignments of a leader's SyncGroup, given as pairs of member id and assignment."""
    return [SyncGroupRequestAssignment(member_id=each, assignment=assignment) for each, assignment in assignments]


def identities(members: Iterable[tuple[str, str | None]]) -> list[MemberIdentity]:
    """Return the members of a LeaveGroup, given as pairs of member id and instance id."""
    return [MemberIdentity(member_id=each, group_instance_id=instance_id) for each, instance_id in members]


def join_response(
    error: ErrorCode = ErrorCode.NONE,
    generation_id: int = -1,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    leader: str = "",
    member_id: str = "",
    members: Sequence[JoinGroupResponseMember] = (),
) -> JoinGroupResponse:
    """Return a JoinGroup response."""
    return JoinGroupResponse(
        error_code=error,
        generation_id=generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        leader=leader,
        member_id=member_id,
        members=list(members),
    )


def joined_member(member_id: str, instance_id: str | None, metadata: bytes) -> JoinGroupResponseMember:
    """Return a member in the leader's JoinGroup response."""
    return JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)


def sync_response(
    error: ErrorCode, protocol_type: str | None = None, protocol_name: str | None = None, assignment: bytes = b""
) -> SyncGroupResponse:
    """Return a SyncGroup response."""
    return SyncGroupResponse(
        error_code=error, protocol_type=protocol_type, protocol_name=protocol_name, assignment=assignment
    )


def leave_errors(response: LeaveGroupResponse) -> tuple[ErrorCode, list[ErrorCode]]:
    """Return the error of a LeaveGroup, and the error of each member."""
    return ErrorCode(response.error_code), [ErrorCode(each.error_code) for each in response.members]
