"""SyncGroup: get the assignment. The coordinator parks the request of a follower until the leader has synced."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error
from fakebroker.cluster.call import Call
from fakebroker.coordinator.api import SyncGroup, SyncResult
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> SyncGroupResponse | None:
    request: SyncGroupRequest = call.request
    if call.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return response(call, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if cluster.acls is not None and (error := group_error(cluster, call, AclOperation.READ, request.group_id)):
        return response(call, SyncResult(error))
    sync = SyncGroup(  # By position, which takes half as long.
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        tuple([(one.member_id, one.assignment) for one in request.assignments]),
    )
    call.broker.coordinator.sync_group(request.group_id, sync, call, now_ms)
    return None


def response(call: Call, result: SyncResult) -> SyncGroupResponse:
    """Convert the coordinator's result of a sync to the response."""
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
