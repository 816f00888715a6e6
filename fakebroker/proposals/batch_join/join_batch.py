"""Batch JoinGroup requests (KAFKA-8397): the checks that do not depend on the group, and the request.

A member without protocols does not join: its instance is registered, and the group expects it to join later.
"""

from collections import Counter
from collections.abc import Sequence

from fakebroker.coordinator.classic.group import join_error
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.batch import Batch, BatchContext
from fakebroker.proposals.batch_join.batch_join_extension import BatchJoinExtension
from fakebroker.proposals.batch_join.messages import BatchJoinGroupRequest, BatchJoinGroupRequestMember
from fakebroker.topic_partition import is_legal_name


def join_batch(
    coordinator: Coordinator, request: BatchJoinGroupRequest, context: RequestContext, now_ms: float
) -> None:
    """Handle a batch; its response is added to `Coordinator.answers` when the results of all members are known."""
    group_id = request.group_id
    batch = Batch(context, tuple(member.group_instance_id for member in request.join_group_members))
    group = coordinator.groups.classic.get(group_id)
    error = ErrorCode.INVALID_GROUP_ID if not group_id else ErrorCode.NONE
    if group is None:
        error = error or coordinator.error_for(group_id)
        if group_id in coordinator.groups.consumer:  # The proposal is for classic groups.
            error = error or ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    accepted = _check(batch, request, coordinator.config, error, exists=group is not None)
    if not accepted:
        coordinator.answer(context, batch.response())
        return
    is_new = group is None
    if group is None:
        group = coordinator.groups.create(group_id, now_ms)
        group.record_creation("first JoinGroup", now_ms)
    extension = BatchJoinExtension.of(group)
    _handle(coordinator, extension, request, accepted, now_ms, is_new=is_new)
    coordinator.groups.changed(group, now_ms)


def _handle(
    coordinator: Coordinator,
    extension: BatchJoinExtension,
    request: BatchJoinGroupRequest,
    members: Sequence[tuple[BatchContext, BatchJoinGroupRequestMember]],
    now_ms: float,
    *,
    is_new: bool,
) -> None:
    group, new_uuid = extension.group, coordinator.new_uuid
    expected = [(each, member) for each, member in members if not member.protocols]
    if error := extension.register(expected, request.rebalance_timeout_ms, now_ms, new_uuid):
        for each, member in members:
            group.answer(each, join_error(each, error, member.member_id))
        if is_new:
            coordinator.groups.drop(group, f"it could not be stored: {error.name}", now_ms)
        return
    joining = [(each, member) for each, member in members if member.protocols]
    group.is_being_stored = is_new and not coordinator.config.is_before_kip_848
    extension.join_batch(request, joining, now_ms, new_uuid)
    if is_new:
        coordinator.groups.store_first(group, now_ms)


def _check(
    batch: Batch, request: BatchJoinGroupRequest, config: CoordinatorConfig, error: ErrorCode, *, exists: bool
) -> list[tuple[BatchContext, BatchJoinGroupRequestMember]]:
    """Set the results of members that are rejected regardless of the group's state; return the other members.

    Args:
        batch: The batch, without results.
        request: Its request.
        config: The settings of the coordinator.
        error: The error of the whole request, or NONE.
        exists: Whether the group exists; if not, no member can have an id.
    """
    counts = Counter(batch.instance_ids)
    accepted = []
    for index, member in enumerate(request.join_group_members):
        is_twice = counts[member.group_instance_id] > 1
        each = BatchContext(batch, index)
        if fault := error or _member_error(request, member, config, is_twice=is_twice, exists=exists):
            batch.responses[index] = join_error(each, fault, member.member_id)
        else:
            accepted.append((each, member))
    return accepted


def _member_error(
    request: BatchJoinGroupRequest,
    member: BatchJoinGroupRequestMember,
    config: CoordinatorConfig,
    *,
    is_twice: bool,
    exists: bool,
) -> ErrorCode:
    timeout_ms = request.session_timeout_ms
    if member.group_instance_id is None and not member.protocols:
        return ErrorCode.INVALID_REQUEST
    if member.group_instance_id is not None and not is_legal_name(member.group_instance_id):
        return ErrorCode.INVALID_REQUEST
    if member.group_instance_id is not None and is_twice:
        return ErrorCode.FENCED_INSTANCE_ID
    if not member.protocols:
        return ErrorCode.FENCED_INSTANCE_ID if member.member_id and not exists else ErrorCode.NONE
    if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.UNKNOWN_MEMBER_ID if member.member_id and not exists else ErrorCode.NONE
