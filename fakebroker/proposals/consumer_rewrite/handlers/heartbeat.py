"""Heartbeat of the proposal `rewrite`: IllegalGeneration announces a rebalance."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error
from fakebroker.cluster.call import Call
from fakebroker.proposals.consumer_rewrite.rewrite_broker import coordinator_at
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message:
    request: HeartbeatRequest = call.request
    if error := group_error(cluster, call, AclOperation.READ, request.group_id):
        return HeartbeatResponse(error_code=error)
    error = coordinator_at(call.broker).heartbeat(
        request.group_id, request.generation_id, request.member_id, now_ms, call.peer
    )
    return HeartbeatResponse(error_code=error)
