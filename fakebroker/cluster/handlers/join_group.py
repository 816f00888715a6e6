"""JoinGroup: the coordinator parks the request until the members of the generation are known."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.coordinator.types import JoinGroup, JoinResult
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> None:
    request: JoinGroupRequest = call.request
    join = JoinGroup(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.peer.client_host,
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=request.rebalance_timeout_ms if call.api_version else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        requires_member_id=call.api_version >= 4,
        supports_skip_assignment=call.api_version >= 9,
    )
    call.broker.coordinator.join_group(request.group_id, join, call, now_ms)


def response(call: Call, result: JoinResult) -> JoinGroupResponse:
    """The response that a coordinator's decision becomes in the version of its request."""
    protocol_name = result.protocol_name
    if protocol_name is None and call.api_version < 7:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )
