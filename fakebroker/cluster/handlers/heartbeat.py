"""Heartbeat: extend the session of a member. This is the most frequent request, so the handler is minimal."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.frames import share_response
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

ALIVE = share_response(HeartbeatResponse(error_code=ErrorCode.NONE))
"""The response to a heartbeat without error. It is shared, so it must not be modified."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> HeartbeatResponse:
    request: HeartbeatRequest = call.request
    if cluster.acls is not None and (error := group_error(cluster, call, AclOperation.READ, request.group_id)):
        return HeartbeatResponse(error_code=error)
    error = call.peer.broker.coordinator.heartbeat(request, now_ms)
    return ALIVE if error is ErrorCode.NONE else HeartbeatResponse(error_code=error)
