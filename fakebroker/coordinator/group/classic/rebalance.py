"""The rebalance procedure of a classic group, and what happens when one of its timers runs out.

Everything that moves a group round: start, initial delay, end of the join phase, and members that are late. Which
requests start a round is the business of `joining`, `syncing` and `leaving`.
"""

from math import inf

from fakebroker.coordinator.group.api import JoinResult, SyncResult
from fakebroker.coordinator.group.classic.group import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.holds import Wishes, is_held, is_sync_held, take_held_sync
from fakebroker.errors import ErrorCode

_HELD_TIMEOUT_MS = 24 * 3600 * 1000
"""A timer that has run out while somebody holds the group has nothing to do any more: it is set far off."""


def rebalance_or_complete(group: Group, now_ms: float) -> ErrorCode:
    """Starts a round; or, if one is under way, ends its join phase once everybody is in and no initial delay runs.

    Returns:
        As `become_empty`, should it come to that; else NONE.
    """
    if group.state is not PREPARING_REBALANCE:
        return start_rebalance(group, now_ms)
    if group.has_everyone_joined and not group.is_initial_rebalance:
        return complete_join_phase(group, now_ms)
    return ErrorCode.NONE


def start_rebalance(group: Group, now_ms: float) -> ErrorCode:
    """Goes to PreparingRebalance from Empty, CompletingRebalance or Stable (Kafka's `prepareRebalance`).

    Returns:
        As `rebalance_or_complete`.
    """
    if group.state is COMPLETING_REBALANCE:
        _give_up_generation(group, now_ms)
    group.awaiting_sync.clear()
    group.sync_deadline_ms = inf
    _set_overdue(group, False)
    group.transition_to(PREPARING_REBALANCE, now_ms)
    if group.is_initial_rebalance:
        _start_initial_delay(group, now_ms)
    elif group.has_everyone_joined or not group.members:  # Without members the longest rebalance timeout is 0.
        return complete_join_phase(group, now_ms)
    else:
        group.arm_join(group.rebalance_timeout_ms(), now_ms)
    return ErrorCode.NONE


def _give_up_generation(group: Group, now_ms: float) -> None:
    for member in group.members.values():
        member.assignment = b""
    for request, token in take_held_sync(group, group.leader_id or ""):
        group.park_sync(request.member_id, token)
    answer_parked_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)


def answer_parked_syncs(group: Group, error: ErrorCode, now_ms: float) -> None:
    """Answers every parked sync, in order of arrival, with the member's assignment or with `error`.

    Their sessions start anew: one that ran out meanwhile was left alone, because an answer was owed (Kafka's
    `propagateAssignment`).
    """
    for member_id in list(group.parked_syncs):
        member = group.members[member_id]
        group.answer_sync(member_id, SyncResult(error) if error else sync_result(group, member))
        group.arm_session(member, member.session_timeout_ms, now_ms)


def refuse_all(group: Group, error: ErrorCode) -> None:
    """Answers every join and sync that waits with an error, for the group will not be here any more."""
    for member_id in list(group.parked_joins):
        group.answer_join(member_id, JoinResult(error, member_id=member_id))
    for arrival in group.expected.waiting.values():
        group.answer(arrival.token, JoinResult(error, member_id=arrival.member_id))
    for member_id in [*group.parked_syncs, group.leader_id or ""]:  # The leader's is not parked if it is held.
        group.answer_sync(member_id, SyncResult(error))


def sync_result(group: Group, member: Member) -> SyncResult:
    """What a member is told that has synced in the current generation."""
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


# The initial delay


def _start_initial_delay(group: Group, now_ms: float) -> None:
    delay_ms = group.config.group_initial_rebalance_delay_ms
    if delay_ms == 0:
        complete_join_phase(group, now_ms)
        return
    group.initial_delay_ms = delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
    group.arm_join(delay_ms, now_ms)


def expire_join(group: Group, now_ms: float) -> None:
    """Completes the join phase; but an initial delay is extended while members keep coming.

    See Kafka's `tryCompleteInitialRebalanceElseSchedule`.
    """
    if not (group.is_initial_rebalance and group.new_member_added and group.initial_remaining_ms):
        group.step.cause = "initial delay is over" if group.is_initial_rebalance else "join timer ran out"
        complete_join_phase(group, now_ms)
        return
    group.new_member_added = False
    next_delay_ms = min(group.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
    group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
    group.initial_delay_ms = next_delay_ms
    group.arm_join(next_delay_ms, now_ms)


# The end of the join phase


def complete_join_phase(group: Group, now_ms: float) -> ErrorCode:
    """Ends the join phase with the members that are in (Kafka's `completeClassicGroupJoin`).

    Dynamic members that did not join are removed, static ones stay. If only static members are left and none of them
    joined, nobody could lead: the group goes on waiting for them until their sessions end.

    Returns:
        As `become_empty`, if nobody is left; else NONE.
    """
    if is_held(group):
        _hold_join_phase(group, now_ms)
        return ErrorCode.NONE
    group.join_deadline_ms = inf
    _set_overdue(group, False)
    for member in list(group.members.values()):
        if member.instance_id is None and member.member_id not in group.parked_joins:
            group.remove(member.member_id)
    if not group.members:
        return become_empty(group, now_ms)
    if group.parked_joins:
        _start_generation(group, now_ms)
    else:
        group.arm_join(group.rebalance_timeout_ms(), now_ms)
    return ErrorCode.NONE


def _hold_join_phase(group: Group, now_ms: float) -> None:
    """Goes on with a join phase that would be over, because somebody holds the group in it."""
    has_run_out = group.join_deadline_ms <= now_ms
    if has_run_out or group.is_initial_rebalance:
        _set_overdue(group, True)
    if has_run_out or group.join_deadline_ms == inf:
        group.arm_join(_HELD_TIMEOUT_MS if has_run_out else group.rebalance_timeout_ms(), now_ms)


def _set_overdue(group: Group, is_overdue: bool) -> None:
    if group.script is not None:
        group.script.is_overdue = is_overdue


def become_empty(group: Group, now_ms: float) -> ErrorCode:
    """Goes to Empty and stores that.

    Returns:
        Why it could not be stored, for the LeaveGroup that caused it, or NONE. The group is Empty all the same: should
        its last stored generation come back with another coordinator, nobody is in it, and it runs out.
    """
    group.generation_id += 1
    group.protocol_name = None
    group.subscribed_topics = group.compute_subscribed_topics()
    group.transition_to(EMPTY, now_ms)
    return group.store(group)


def _start_generation(group: Group, now_ms: float) -> None:
    if group.script is not None:
        _choose_leader(group, group.script.wishes)
    if group.leader_id not in group.parked_joins:
        group.leader_id = next(member_id for member_id in group.members if member_id in group.parked_joins)
    group.generation_id += 1
    group.protocol_name = group.select_protocol()
    group.subscribed_topics = group.compute_subscribed_topics()
    group.transition_to(COMPLETING_REBALANCE, now_ms)
    for member_id in list(group.parked_joins):
        group.answer_join(member_id, group.join_result(member_id, with_members=member_id == group.leader_id))
    for member in group.members.values():
        group.arm_session(member, member.session_timeout_ms, now_ms)
        member.is_new = False
        group.awaiting_sync[member.member_id] = None
    group.arm_sync(group.rebalance_timeout_ms(), now_ms)


def _choose_leader(group: Group, wishes: Wishes) -> None:
    """Lets the member lead that is to, if it is in; the wish holds for one generation."""
    member_id = group.static_members.get(wishes.next_leader, wishes.next_leader)
    if member_id in group.parked_joins:
        group.leader_id = member_id
    wishes.next_leader = ""


# Timers


def expire_session(group: Group, member: Member, now_ms: float) -> None:
    """Removes a member, unless an answer is owed to it; a new member is removed even then."""
    member_id = member.member_id
    if is_sync_held(group, member_id):  # An answer is owed to it, too.
        group.arm_session(member, member.session_timeout_ms, now_ms)
        return
    is_owed = member_id in group.parked_joins or member_id in group.parked_syncs or member_id in group.expected.waiting
    if is_owed and not member.is_new:
        member.deadline_ms = inf
        return
    group.step.cause = f"session of {member_id} expired"
    group.remove(member_id)
    if group.state is not PREPARING_REBALANCE:
        start_rebalance(group, now_ms)
    else:
        _complete_if_nobody_is_missing(group, now_ms)


def expire_pending(group: Group, member_id: str, now_ms: float) -> None:
    group.step.cause = f"{member_id} was told its id and never joined with it"
    group.remove(member_id)
    if group.state is PREPARING_REBALANCE:
        _complete_if_nobody_is_missing(group, now_ms)


def _complete_if_nobody_is_missing(group: Group, now_ms: float) -> None:
    # Unlike a join or a LeaveGroup, an expiry cuts even an initial delay short; not so before KIP-848.
    if group.has_everyone_joined and not (group.config.is_before_kip_848 and group.is_initial_rebalance):
        complete_join_phase(group, now_ms)


def expire_sync(group: Group, now_ms: float) -> None:
    """Removes, all together, the members that have not synced in this generation (Kafka's `expirePendingSync`)."""
    if is_held(group):
        _set_overdue(group, True)
        group.arm_sync(_HELD_TIMEOUT_MS, now_ms)
        return
    group.sync_deadline_ms = inf
    group.step.cause = "sync timer ran out"
    late_ids = list(group.awaiting_sync)
    for member_id in late_ids:
        group.remove(member_id)
    if late_ids:
        start_rebalance(group, now_ms)
