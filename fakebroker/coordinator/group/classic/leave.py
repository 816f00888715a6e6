"""LeaveGroup, sent by members or by an administrator to remove them (`classicGroupLeaveToClassicGroup`, KIP-345)."""

from collections.abc import Sequence

from fakebroker.coordinator.group.api import ItemResults
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.rebalance import rebalance_or_complete
from fakebroker.coordinator.group.classic.states import EMPTY, PREPARING_REBALANCE
from fakebroker.errors import ErrorCode


def leave(group: Group, members: Sequence[tuple[str, str | None]], now_ms: float) -> ItemResults:
    """Remove members and start one rebalance for all of them.

    Args:
        group: The group.
        members: Pairs of member id, or "", and instance id.
        now_ms: The time.

    Returns:
        NONE and one error code for each member, in order. If no member is left and the empty group could not be stored,
        the error of the append and an empty list.
    """
    errors: list[ErrorCode] = []
    if group.config.is_before_kip_848:
        for member_id, instance_id in members:
            errors.append(_leave_before_kip_848(group, member_id, instance_id, now_ms))
        return ErrorCode.NONE, errors
    group.change.cause = (
        f"LeaveGroup of {', '.join(member_id or str(instance_id) for member_id, instance_id in members)}"
    )
    has_left = has_changed_extension = False
    for member_id, instance_id in members:
        error = group.extension.leave(member_id, instance_id)
        if error is None:
            error = _remove_member(group, member_id, instance_id)
            has_left |= not error
        else:
            has_changed_extension |= not error
        errors.append(error)
    if has_changed_extension and group.extension.after_leave(now_ms):
        return ErrorCode.NONE, errors
    # As in Kafka, a rebalance also starts if only a pending id has left.
    if has_left and group.state is not EMPTY and (error := rebalance_or_complete(group, now_ms)):
        return error, []
    return ErrorCode.NONE, errors


def _leave_before_kip_848(group: Group, member_id: str, instance_id: str | None, now_ms: float) -> ErrorCode:
    """Remove one member and start a rebalance, unless its id was pending (`GroupCoordinator.handleLeaveGroup`)."""
    group.change.cause = f"LeaveGroup of {member_id or instance_id}"
    was_pending = member_id in group.pending_members
    error = _remove_member(group, member_id, instance_id)
    if not error and not (was_pending and group.state is not PREPARING_REBALANCE):
        rebalance_or_complete(group, now_ms)
    return error


def _remove_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    if member_id not in group.pending_members and (error := group.check_member(member_id, instance_id)):
        return error
    group.remove(member_id)
    return ErrorCode.NONE
