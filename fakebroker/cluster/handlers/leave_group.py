"""LeaveGroup: remove members from a group: one in versions 0-2, many with a result for each in later ones (KIP-345)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: LeaveGroupRequest = call.request
    if error := group_error(cluster, call, AclOperation.READ, request.group_id):
        return LeaveGroupResponse(error_code=error)
    if call.api_version < 3:
        leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    else:
        leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    error, errors = call.broker.coordinator.leave_group(request.group_id, leaving, now_ms)
    if call.api_version < 3:
        return LeaveGroupResponse(error_code=error or errors[0])
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=one)
            for (member_id, instance_id), one in zip(leaving, errors, strict=True)
        ]
    )
