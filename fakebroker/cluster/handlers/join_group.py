"""JoinGroup: join a group. The coordinator parks the request until the members of the generation are known."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, may_describe, refusal
from fakebroker.cluster.call import Call
from fakebroker.coordinator.api import JoinGroup, JoinResult
from fakebroker.coordinator.batch_join.batch import BatchJoin, BatchMember, BatchResult
from fakebroker.coordinator.batch_join.join_batch import join_batch
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    JoinGroupResponseResult,
)
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

BATCH_VERSION = 10
"""The first version in which a request has many members (the proposal `batch-join`, KAFKA-8397)."""


_LONGEST_NAME_BYTES = 32767 - 37
"""The longest client id or instance id from which a member id can be made: a hyphen and a UUID are appended to it."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: JoinGroupRequest = call.request
    is_batch = call.api_version >= BATCH_VERSION
    if cluster.acls is not None and (error := group_error(cluster, call, AclOperation.READ, request.group_id)):
        return refusal(call, error) if is_batch else response(call, JoinResult(error))
    instance_ids = call.instance_ids if is_batch else (request.group_instance_id or "",)
    if _is_too_long(call.client_id) or any(map(_is_too_long, instance_ids)):
        # In Kafka, the response to such a join cannot be serialized, and the member stays in the group.
        reason = f"client id or instance id is too long: expected at most {_LONGEST_NAME_BYTES} bytes"
        cluster.refuse(call, reason, now_ms)
        return None
    if is_batch:
        join_batch(call.broker.coordinator, request.group_id, _batch(call), call, now_ms)
        return None
    join = JoinGroup(  # By position, which takes half as long.
        request.member_id,
        request.group_instance_id,
        call.client_id,
        call.peer.client_host,
        request.session_timeout_ms,
        # Version 0 has one timeout for sessions and rebalances.
        request.rebalance_timeout_ms if call.api_version else request.session_timeout_ms,
        request.protocol_type,
        _protocols(request.protocols),
        call.api_version >= 4,
        call.api_version >= 9,
        may_describe(cluster, call),
    )
    call.broker.coordinator.join_group(request.group_id, join, call, now_ms)
    return None


def _is_too_long(name: str) -> bool:
    return 4 * len(name) > _LONGEST_NAME_BYTES and len(name.encode()) > _LONGEST_NAME_BYTES


def _batch(call: Call) -> BatchJoin:
    request: JoinGroupRequest = call.request
    return BatchJoin(
        client_id=call.client_id,
        client_host=call.peer.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        members=tuple(
            BatchMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                protocols=_protocols(member.protocols),
            )
            for member in request.join_group_members
        ),
    )


def _protocols(protocols: list[JoinGroupRequestProtocol]) -> tuple[tuple[str, bytes], ...]:
    return tuple([(protocol.name, protocol.metadata) for protocol in protocols])


def response(call: Call, result: JoinResult) -> JoinGroupResponse:
    """Convert the coordinator's result of a join to the response."""
    # Versions that can say null never have an empty name, others always have one (`JoinGroupResponse`).
    protocol_name = result.protocol_name or (None if call.api_version >= 7 else "")
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[_member(member.member_id, member.instance_id, member.metadata) for member in result.members],
    )


def batch_response(result: BatchResult) -> JoinGroupResponse:
    """Convert the coordinator's result of a batch join to the response."""
    generation = result.generation
    return JoinGroupResponse(
        generation_id=generation.generation_id,
        protocol_type=generation.protocol_type,
        protocol_name=generation.protocol_name,
        leader=generation.leader,
        members=[_member(member.member_id, member.instance_id, member.metadata) for member in generation.members],
        member_join_response_list=[
            JoinGroupResponseResult(member=_member(each.member_id, requested.instance_id), error_code=each.error)
            for requested, each in zip(result.members, result.results, strict=True)
        ],
    )


def _member(member_id: str, instance_id: str | None, metadata: bytes = b"") -> JoinGroupResponseMember:
    return JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
