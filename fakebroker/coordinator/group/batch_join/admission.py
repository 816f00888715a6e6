"""Several joins handled as one: at most one rebalance for all of them (KAFKA-8397)."""

from collections.abc import Sequence

from fakebroker.coordinator.group.api import JoinGroup
from fakebroker.coordinator.group.batch_join.expected_instances import WaitingJoin
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.join import add_new_member, refusal_of, rejoin, replace_static_member
from fakebroker.coordinator.group.classic.rebalance import rebalance_or_complete
from fakebroker.coordinator.group.classic.states import PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.group.records import Procedure


def join_together(group: Group, joins: Sequence[WaitingJoin], cause: str, now_ms: float) -> Procedure[bool]:
    """Handle joins of different members as one: if one of them needs a rebalance, it is that of all.

    Each is checked against the group as those before it have left it, in Kafka's order. None has to join again with its
    id, and none skips the assignment.

    Returns:
        Whether there is a rebalance for them.
    """
    accepted = [join for join in joins if _is_accepted(group, join)]
    if not any(_needs_rebalance(group, join.request) for join in accepted):
        for join in accepted:
            yield from _answer_again(group, join, now_ms)
        return False
    group.change.cause = cause
    for join in accepted:
        if _is_accepted(group, join):
            _enter(group, join, now_ms)
    yield from rebalance_or_complete(group, now_ms)
    return True


def _is_accepted(group: Group, join: WaitingJoin) -> bool:
    """Whether this member may join; if not, it is answered."""
    refusal = refusal_of(group, join.request)
    if refusal is not None:
        group.answer(join.token, refusal)
    return refusal is None


def _answer_again(group: Group, join: WaitingJoin, now_ms: float) -> Procedure[None]:
    if join.request.member_id:
        return rejoin(group, join.request, join.token, now_ms)
    return replace_static_member(join.new_member_id, group, join.request, join.token, now_ms)


def _enter(group: Group, join: WaitingJoin, now_ms: float) -> None:
    """Add a member to the rebalance that is in progress, or will start."""
    request = join.request
    former_id = group.static_members.get(request.instance_id or "") if not request.member_id else request.member_id
    member = group.members.get(former_id or "")
    if member is None:
        add_new_member(join.member_id, group, request, join.token, now_ms)
        return
    if not request.member_id:
        group.replace_static_member(request.instance_id or "", join.new_member_id)
    group.arm_session(member, member.session_timeout_ms, now_ms)
    group.update(member, request)
    group.park_join(join.member_id, join.token)


def _needs_rebalance(group: Group, request: JoinGroup) -> bool:
    """Whether a join is more than the repetition of one that was answered.

    Unlike a static member that comes back alone, one with other protocols always needs a rebalance.
    """
    member_id = request.member_id or group.static_members.get(request.instance_id or "", "")
    member = group.members.get(member_id)
    if member is None or group.state is PREPARING_REBALANCE or request.protocols != member.protocols:
        return True
    if not request.member_id:
        return group.state is not STABLE
    return group.state is STABLE and member_id == group.leader_id
