"""LeaveGroup: remove members from a group: one in versions 0-2, many with a result for each in later ones (KIP-345)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error
from fakebroker.cluster.call import Call
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: LeaveGroupRequest = call.request
    if error := group_error(cluster, call, AclOperation.READ, request.group_id):
        return LeaveGroupResponse(error_code=error)
    coordinator = call.broker.coordinator
    if call.api_version >= 3:
        return coordinator.leave_group(request.group_id, request.members, now_ms)
    response = coordinator.leave_group(request.group_id, [MemberIdentity(member_id=request.member_id)], now_ms)
    return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
