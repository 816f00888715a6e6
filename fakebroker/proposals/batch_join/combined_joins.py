"""Several joins that are handled as one, with at most one rebalance (KAFKA-8397)."""

from collections.abc import Sequence

from fakebroker.coordinator.classic.group import Group, protocols_of
from fakebroker.coordinator.classic.rebalance import (
    add_new_member,
    rebalance_or_complete,
    reject_join,
    rejoin,
    replace_static_member,
)
from fakebroker.coordinator.classic.states import PREPARING_REBALANCE, STABLE
from fakebroker.proposals.batch_join.expected_instances import WaitingJoin
from fakebroker.protocol.messages.join_group import JoinGroupRequest


def handle_combined_joins(group: Group, joins: Sequence[WaitingJoin], cause: str, now_ms: float) -> bool:
    """Handle the joins of several members as one: if one of them needs a rebalance, all take part in it.

    Each join is checked again after the previous joins have been added to the group. New members need not join again
    with their id (no MEMBER_ID_REQUIRED), and `skip_assignment` is not used.

    Returns:
        Whether the members take part in a rebalance.
    """
    accepted = [join for join in joins if _is_accepted(group, join)]
    if not any(_needs_rebalance(group, join.request) for join in accepted):
        for join in accepted:
            _answer_again(group, join, now_ms)
        return False
    group.change.cause = cause
    for join in accepted:
        if _is_accepted(group, join):
            _park(group, join, now_ms)
    rebalance_or_complete(group, now_ms)
    return True


def _is_accepted(group: Group, join: WaitingJoin) -> bool:
    """Return whether the group accepts a join; if not, answer it."""
    rejection = reject_join(group, join.request, join.context)
    if rejection is not None:
        group.answer(join.context, rejection)
    return rejection is None


def _answer_again(group: Group, join: WaitingJoin, now_ms: float) -> None:
    if join.request.member_id:
        return rejoin(group, join.request, join.context, now_ms)
    return replace_static_member(join.new_member_id, group, join.request, join.context, now_ms)


def _park(group: Group, join: WaitingJoin, now_ms: float) -> None:
    """Add or update a member and park its join; the caller starts or continues the rebalance."""
    request = join.request
    former_id = (
        group.static_members.get(request.group_instance_id or "") if not request.member_id else request.member_id
    )
    member = group.members.get(former_id or "")
    if member is None:
        add_new_member(join.member_id, group, request, join.context, now_ms)
        return
    if not request.member_id:
        group.replace_static_member(request.group_instance_id or "", join.new_member_id)
    group.arm_session(member, member.session_timeout_ms, now_ms)
    group.update(member, protocols_of(request), request.rebalance_timeout_ms, request.session_timeout_ms)
    group.park_join(join.member_id, join.context)


def _needs_rebalance(group: Group, request: JoinGroupRequest) -> bool:
    """Whether a join needs a rebalance, instead of an immediate answer with the current generation.

    Unlike in a single join, a restarted static member with changed protocols always needs a rebalance.
    """
    member_id = request.member_id or group.static_members.get(request.group_instance_id or "", "")
    member = group.members.get(member_id)
    if member is None or group.state is PREPARING_REBALANCE or protocols_of(request) != member.protocols:
        return True
    if not request.member_id:
        return group.state is not STABLE
    return group.state is STABLE and member_id == group.leader_id
