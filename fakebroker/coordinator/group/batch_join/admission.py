"""Several joins in one go: at most one round for all of them (KAFKA-8397). What one join does is `joining`'s."""

from collections.abc import Sequence

from fakebroker.coordinator.group.api import JoinGroup
from fakebroker.coordinator.group.batch_join.expectations import Arrival
from fakebroker.coordinator.group.classic.group import PREPARING_REBALANCE, STABLE, Group
from fakebroker.coordinator.group.classic.join import enter_new, refusal_of, rejoin, replace_static_member
from fakebroker.coordinator.group.classic.rebalance import rebalance_or_complete


def join_together(group: Group, arrivals: Sequence[Arrival], cause: str, now_ms: float) -> bool:
    """Handles joins of different members as one: if one of them needs a round, it is that of all.

    Each is checked against the group as those before it have left it, in Kafka's order. None is asked to come again
    with its id, and none is told to skip the assignment.

    Returns:
        Whether there is a round for them.
    """
    accepted = [arrival for arrival in arrivals if _is_accepted(group, arrival)]
    if not any(_needs_round(group, arrival.request) for arrival in accepted):
        for arrival in accepted:
            _tell_again(group, arrival, now_ms)
        return False
    group.step.cause = cause
    for arrival in accepted:
        if _is_accepted(group, arrival):
            _enter(group, arrival, now_ms)
    rebalance_or_complete(group, now_ms)
    return True


def _is_accepted(group: Group, arrival: Arrival) -> bool:
    """Whether this one may join; if not, it is told so."""
    refusal = refusal_of(group, arrival.request)
    if refusal is not None:
        group.answer(arrival.token, refusal)
    return refusal is None


def _tell_again(group: Group, arrival: Arrival, now_ms: float) -> None:
    if arrival.request.member_id:
        rejoin(group, arrival.request, arrival.token, now_ms)
    else:
        replace_static_member(arrival.new_member_id, group, arrival.request, arrival.token, now_ms)


def _enter(group: Group, arrival: Arrival, now_ms: float) -> None:
    """Takes somebody into the round that is to be, or is."""
    request = arrival.request
    former_id = group.static_members.get(request.instance_id or "") if not request.member_id else request.member_id
    member = group.members.get(former_id or "")
    if member is None:
        enter_new(arrival.member_id, group, request, arrival.token, now_ms)
        return
    if not request.member_id:
        group.replace_static_member(request.instance_id or "", arrival.new_member_id)
    group.arm_session(member, member.session_timeout_ms, now_ms)
    group.update(member, request)
    group.park_join(arrival.member_id, arrival.token)


def _needs_round(group: Group, request: JoinGroup) -> bool:
    """Whether a join is more than one that only wants to be told again what it was told.

    Unlike a static member that comes back alone, one with other protocols always needs a round.
    """
    member_id = request.member_id or group.static_members.get(request.instance_id or "", "")
    member = group.members.get(member_id)
    if member is None or group.state is PREPARING_REBALANCE or request.protocols != member.protocols:
        return True
    if not request.member_id:
        return group.state is not STABLE
    return group.state is STABLE and member_id == group.leader_id
