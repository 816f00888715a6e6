"""Heartbeat: the request a broker gets most, so nothing here but the coordinator's answer."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

ALIVE = HeartbeatResponse(error_code=ErrorCode.NONE)
"""Nearly every answer; nobody changes a response."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> HeartbeatResponse:
    request: HeartbeatRequest = call.request
    error = call.peer.broker.coordinator.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id, now_ms
    )
    return ALIVE if error is ErrorCode.NONE else HeartbeatResponse(error_code=error)
