"""LeaveGroup: one member at the top level (versions 0-2) or many, each with its own result (KIP-345)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> LeaveGroupResponse:
    request: LeaveGroupRequest = call.request
    coordinator = call.broker.coordinator
    if call.api_version < 3:
        error, errors = coordinator.leave_group(request.group_id, [(request.member_id, None)], now_ms)
        return LeaveGroupResponse(error_code=error or errors[0])
    leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    error, errors = coordinator.leave_group(request.group_id, leaving, now_ms)
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=one)
            for (member_id, instance_id), one in zip(leaving, errors, strict=True)
        ]
    )
