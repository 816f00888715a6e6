"""SyncGroup: get the assignment. The coordinator parks the request of a follower until the leader has synced."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error
from fakebroker.cluster.call import Call
from fakebroker.coordinator.classic.group import sync_error
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> SyncGroupResponse | None:
    request: SyncGroupRequest = call.request
    if call.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if cluster.acls is not None and (error := group_error(cluster, call, AclOperation.READ, request.group_id)):
        return sync_error(error)
    call.broker.coordinator.sync_group(request, call, now_ms)
    return None
