"""LeaveGroup: members leave, or an administrator removes them (`classicGroupLeaveToClassicGroup`, KIP-345)."""

from collections.abc import Sequence

from fakebroker.coordinator.group.api import ItemResults
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.rebalance import rebalance_or_complete
from fakebroker.coordinator.group.classic.states import EMPTY, PREPARING_REBALANCE
from fakebroker.coordinator.group.records import Procedure
from fakebroker.errors import ErrorCode


def leave(group: Group, members: Sequence[tuple[str, str | None]], now_ms: float) -> Procedure[ItemResults]:
    """Remove the given members, as (member id, instance id), and start one rebalance for all of them.

    Returns:
        An error of the whole request and no codes, if no member is left and that could not be stored; or NONE and one
        code for each, in order.
    """
    errors: list[ErrorCode] = []
    if group.config.is_before_kip_848:
        for member_id, instance_id in members:
            errors.append((yield from _leave_alone(group, member_id, instance_id, now_ms)))
        return ErrorCode.NONE, errors
    group.change.cause = (
        f"LeaveGroup of {', '.join(member_id or str(instance_id) for member_id, instance_id in members)}"
    )
    has_left = has_left_extension = False
    for member_id, instance_id in members:
        error = group.extension.leave(member_id, instance_id)
        if error is None:
            error = _leave_one(group, member_id, instance_id)
            has_left |= not error
        else:
            has_left_extension |= not error
        errors.append(error)
    if has_left_extension and (yield from group.extension.after_leave(now_ms)):
        return ErrorCode.NONE, errors
    # A pending id that leaves starts a rebalance as well, though no member is missing: Kafka does not tell them apart.
    if has_left and group.state is not EMPTY and (error := (yield from rebalance_or_complete(group, now_ms))):
        return error, []
    return ErrorCode.NONE, errors


def _leave_alone(group: Group, member_id: str, instance_id: str | None, now_ms: float) -> Procedure[ErrorCode]:
    """Remove one member as if it were alone; a pending id is not missed (`GroupCoordinator.handleLeaveGroup`)."""
    group.change.cause = f"LeaveGroup of {member_id or instance_id}"
    was_pending = member_id in group.pending_members
    error = _leave_one(group, member_id, instance_id)
    if not error and not (was_pending and group.state is not PREPARING_REBALANCE):
        yield from rebalance_or_complete(group, now_ms)
    return error


def _leave_one(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    if member_id not in group.pending_members and (error := group.check_member(member_id, instance_id)):
        return error
    group.remove(member_id)
    return ErrorCode.NONE
