"""LeaveGroup: members go, by themselves or by an administrator's hand (`classicGroupLeaveToClassicGroup`, KIP-345)."""

from collections.abc import Iterable

from fakebroker.coordinator.group.batch_join import gathering
from fakebroker.coordinator.group.classic.group import EMPTY, PREPARING_REBALANCE, Group
from fakebroker.coordinator.group.classic.rebalance import rebalance_or_complete
from fakebroker.errors import ErrorCode


def leave(group: Group, members: Iterable[tuple[str, str | None]], now_ms: float) -> tuple[ErrorCode, list[ErrorCode]]:
    """Removes the given members, as (member id, instance id), and starts one round for all of them.

    Returns:
        An error of the whole request and no codes, if nobody is left and that could not be stored; or NONE and one code
        for each, in order.
    """
    if group.config.is_before_kip_848:
        return ErrorCode.NONE, [_leave_alone(group, *member, now_ms) for member in members]
    group.step.cause = f"LeaveGroup of {', '.join(member_id or str(instance_id) for member_id, instance_id in members)}"
    errors = []
    has_left = is_expected_no_more = False
    for member_id, instance_id in members:
        expected = group.expected.find(member_id, instance_id)
        if expected is not None:
            errors.append(gathering.leave(group, expected, member_id))
            is_expected_no_more |= not errors[-1]
        else:
            errors.append(_leave_one(group, member_id, instance_id))
            has_left |= not errors[-1]
    if is_expected_no_more:
        group.store_expected(group)
        if gathering.admit_if_complete(group, now_ms):
            return ErrorCode.NONE, errors
    # A pending id that leaves starts a round as well, though no member is missing: Kafka does not tell the two apart.
    if has_left and group.state is not EMPTY and (error := rebalance_or_complete(group, now_ms)):
        return error, []
    return ErrorCode.NONE, errors


def _leave_alone(group: Group, member_id: str, instance_id: str | None, now_ms: float) -> ErrorCode:
    """One member goes as if it were the only one; a pending id is not missed (`GroupCoordinator.handleLeaveGroup`)."""
    group.step.cause = f"LeaveGroup of {member_id or instance_id}"
    was_pending = member_id in group.pending_members
    error = _leave_one(group, member_id, instance_id)
    if not error and not (was_pending and group.state is not PREPARING_REBALANCE):
        rebalance_or_complete(group, now_ms)
    return error


def _leave_one(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    if member_id not in group.pending_members and (error := group.check_member(member_id, instance_id)):
        return error
    group.remove(member_id)
    return ErrorCode.NONE
