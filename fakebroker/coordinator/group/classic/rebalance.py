"""The rebalance of a classic group and the expiry of its timers.

This module has the start of a rebalance, the initial delay, and the end of the join phase; `sync` completes the
rebalance. `join`, `sync` and `leave` decide which requests start a rebalance.
"""

from math import inf

from fakebroker.coordinator.group.api import JoinResult, SyncResult
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE
from fakebroker.coordinator.group.group_controls import GroupControls
from fakebroker.coordinator.group.persistence import store
from fakebroker.coordinator.group.snapshot_dict import NO_ENTRIES
from fakebroker.errors import ErrorCode

_HELD_TIMEOUT_MS = 24 * 3600 * 1000
"""The new timeout of a timer that has expired while the group is held in a state: one day, in practice never."""


def rebalance_or_complete(group: Group, now_ms: float) -> ErrorCode:
    """Start a rebalance. If one is in progress, end its join phase if all have joined and there is no initial delay.

    Returns:
        NONE; the error of storing the group if it has become Empty; UNKNOWN_SERVER_ERROR without a common protocol.
    """
    if group.state is not PREPARING_REBALANCE:
        return start_rebalance(group, now_ms)
    if group.have_all_joined and not group.is_initial_rebalance:
        return complete_join_phase(group, now_ms)
    return ErrorCode.NONE


def start_rebalance(group: Group, now_ms: float) -> ErrorCode:
    """Start a rebalance of a group in Empty, CompletingRebalance or Stable (Kafka's `prepareRebalance`).

    Returns:
        NONE; the error of storing the group if it has become Empty; UNKNOWN_SERVER_ERROR without a common protocol.
    """
    if group.state is COMPLETING_REBALANCE:
        _abandon_generation(group, now_ms)
    group.awaiting_sync = NO_ENTRIES
    group.sync_deadline_ms = inf
    if group.is_overdue:
        group.is_overdue = False
    group.transition_to(PREPARING_REBALANCE, now_ms)
    if group.is_initial_rebalance:
        return _start_initial_delay(group, now_ms)
    if group.have_all_joined or not group.members:  # In Kafka the timeout of the join phase is 0 without members.
        return complete_join_phase(group, now_ms)
    group.arm_join(group.rebalance_timeout_ms(), now_ms)
    return ErrorCode.NONE


def _abandon_generation(group: Group, now_ms: float) -> None:
    for member in group.members.values():
        member.assignment = b""
    if held := group.take_held_sync(group.leader_id or ""):
        request, token = held
        group.park_sync(request.member_id, token)
    answer_parked_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)


def answer_parked_syncs(group: Group, error: ErrorCode, now_ms: float) -> None:
    """Answer every parked sync, in order of arrival: with `error`, or with the member's assignment if it is NONE.

    The sessions of these members restart (Kafka's `propagateAssignment`): `expire_session` suspends a session that ends
    while a sync is parked.
    """
    for member_id in list(group.parked_syncs):
        member = group.members[member_id]
        group.answer_sync(member_id, SyncResult(error) if error else sync_result(group, member))
        group.arm_session(member, member.session_timeout_ms, now_ms)


def reject_waiting(group: Group, error: ErrorCode) -> None:
    """Answer every waiting join and sync with an error, because the coordinator drops the group."""
    for member_id in list(group.parked_joins):
        group.answer_join(member_id, JoinResult(error, member_id=member_id))
    group.extension.reject_waiting(error)
    for member_id in [*group.parked_syncs, group.leader_id or ""]:  # The leader's sync may be held instead of parked.
        group.answer_sync(member_id, SyncResult(error))


def sync_result(group: Group, member: Member) -> SyncResult:
    """Return the SyncGroup result of a member of the current generation."""
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


# The initial delay


def _start_initial_delay(group: Group, now_ms: float) -> ErrorCode:
    delay_ms = group.config.group_initial_rebalance_delay_ms
    if delay_ms == 0 and group.is_being_stored:
        group.arm_join(0, now_ms)  # The join phase ends when the group is in the log; see `Groups.store_first`.
        return ErrorCode.NONE
    if delay_ms == 0:
        error = complete_join_phase(group, now_ms)
        # In Kafka a timer of 0 ms ends the delay: what fails there, such as the choice of a protocol, answers no join.
        return ErrorCode.NONE if error is ErrorCode.UNKNOWN_SERVER_ERROR else error
    group.initial_delay_ms = delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
    group.arm_join(delay_ms, now_ms)
    return ErrorCode.NONE


def _expire_join(group: Group, now_ms: float) -> None:
    """End the join phase, or extend the initial delay if a member was added during it.

    See Kafka's `tryCompleteInitialRebalanceElseSchedule`.
    """
    if not (group.is_initial_rebalance and group.new_member_added and group.initial_remaining_ms):
        group.change.cause = "initial delay is over" if group.is_initial_rebalance else "join timer expired"
        complete_join_phase(group, now_ms)
        return
    group.new_member_added = False
    next_delay_ms = min(group.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
    group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
    group.initial_delay_ms = next_delay_ms
    group.arm_join(next_delay_ms, now_ms)


# The end of the join phase


def complete_join_phase(group: Group, now_ms: float) -> ErrorCode:
    """End the join phase with the members that have joined (Kafka's `completeClassicGroupJoin`).

    Dynamic members that have not joined are removed; static members stay. If only static members are left and none of
    them has joined, none can lead. Then the join phase continues until one of them joins or their sessions expire.

    Returns:
        NONE; the error of storing the group if it has become Empty; UNKNOWN_SERVER_ERROR without a common protocol.
    """
    if group.is_held:
        _hold_join_phase(group, now_ms)
        return ErrorCode.NONE
    group.join_deadline_ms = inf
    if group.is_overdue:
        group.is_overdue = False
    for member in list(group.members.values()):
        if member.instance_id is None and member.member_id not in group.parked_joins:
            group.remove(member.member_id)
    if not group.members:
        return _become_empty(group, now_ms)
    if group.parked_joins:
        return _start_generation(group, now_ms)
    group.arm_join(group.rebalance_timeout_ms(), now_ms)
    return ErrorCode.NONE


def _hold_join_phase(group: Group, now_ms: float) -> None:
    """Extend a join phase that ends only when the group is released."""
    has_expired = group.join_deadline_ms <= now_ms
    if has_expired or group.is_initial_rebalance:
        group.is_overdue = True
    if has_expired or group.join_deadline_ms == inf:
        group.arm_join(_HELD_TIMEOUT_MS if has_expired else group.rebalance_timeout_ms(), now_ms)


def _become_empty(group: Group, now_ms: float) -> ErrorCode:
    """Go to Empty and store that.

    Returns:
        NONE, or the error of storing the group, for the LeaveGroup that has caused it. The group is Empty even after an
        error. A new coordinator then loads the last stored generation. Its members send no requests, so their sessions
        expire.
    """
    group.generation_id += 1
    group.protocol_name = None
    group.subscribed_topics = group.compute_subscribed_topics()
    group.transition_to(EMPTY, now_ms)
    return store(group)


def _start_generation(group: Group, now_ms: float) -> ErrorCode:
    """Start the next generation, and answer the parked joins.

    If no protocol can be selected, because a member has named one twice, Kafka fails with an IllegalArgumentException:
    the group stays in PreparingRebalance without a join timer, and the parked joins are not answered.

    Returns:
        NONE, or UNKNOWN_SERVER_ERROR without a protocol.
    """
    if group.controls is not None:
        _choose_leader(group, group.controls)
    if group.leader_id not in group.parked_joins:
        group.leader_id = next(member_id for member_id in group.members if member_id in group.parked_joins)
    group.generation_id += 1
    protocol_name = group.select_protocol()
    if protocol_name is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    group.protocol_name = protocol_name
    group.subscribed_topics = group.compute_subscribed_topics()
    if group.is_initial_rebalance:
        group.initial_delay_ms = group.initial_remaining_ms = 0
        group.settle()
    group.transition_to(COMPLETING_REBALANCE, now_ms)
    for member_id in list(group.parked_joins):
        group.answer_join(member_id, group.join_result(member_id, with_members=member_id == group.leader_id))
    for member in group.members.values():
        group.arm_session(member, member.session_timeout_ms, now_ms)
        member.is_new = False
    group.awaiting_sync = dict.fromkeys(group.members)
    group.arm_sync(group.rebalance_timeout_ms(), now_ms)
    return ErrorCode.NONE


def _choose_leader(group: Group, controls: GroupControls) -> None:
    """Set the leader to the chosen member if it has joined, and clear the choice."""
    member_id = group.static_members.get(controls.next_leader, controls.next_leader)
    if member_id in group.parked_joins:
        group.leader_id = member_id
    controls.next_leader = ""


# Timers


def expire_next_timer(group: Group, now_ms: float) -> None:
    """Expire the timer with the earliest deadline.

    Timers with the same deadline expire in this order: sessions as the members were added, pending ids as they were
    returned, the join timer, the sync timer, the timer of the extension. First the keepers of suspended sessions
    (`Member.keeper`) are called, which sets the deadlines of these sessions.
    """
    for member in group.members.values():
        if member.keeper is not None:
            member.keeper(group.group_id)
    deadline_ms = group.earliest_deadline()
    for member in group.members.values():
        if member.session_ends_ms == deadline_ms:
            expire_session(group, member, now_ms)
            return
    for member_id, pending_deadline_ms in group.pending_members.items():
        if pending_deadline_ms == deadline_ms:
            _expire_pending(group, member_id, now_ms)
            return
    if group.join_deadline_ms == deadline_ms:
        _expire_join(group, now_ms)
    elif group.sync_deadline_ms == deadline_ms:
        expire_sync(group, now_ms)
    else:
        group.extension.expire(now_ms)


def expire_session(group: Group, member: Member, now_ms: float) -> None:
    """Remove a member whose session has expired, and rebalance. A member that waits for an answer stays.

    Its session starts again with the answer. Only a new member, which was not in a generation yet, is removed while its
    join waits, as in Kafka.
    """
    member_id = member.member_id
    if group.is_sync_held(member_id):  # The answer to a held sync is pending as well.
        group.arm_session(member, member.session_timeout_ms, now_ms)
        return
    is_parked = member_id in group.parked_joins or member_id in group.parked_syncs
    if (is_parked or member_id in group.extension.waiting_joins) and not member.is_new:
        member.deadline_ms = inf
        return
    group.change.cause = f"session of {member_id} expired"
    group.remove(member_id)
    if group.state is not PREPARING_REBALANCE:
        start_rebalance(group, now_ms)
    else:
        _complete_if_all_have_joined(group, now_ms)


def _expire_pending(group: Group, member_id: str, now_ms: float) -> None:
    group.change.cause = f"pending id {member_id} expired"
    group.remove(member_id)
    if group.state is PREPARING_REBALANCE:
        _complete_if_all_have_joined(group, now_ms)


def _complete_if_all_have_joined(group: Group, now_ms: float) -> None:
    # Since KIP-848 an expiry ends even the initial delay, unlike a JoinGroup or LeaveGroup.
    if group.have_all_joined and not (group.config.is_before_kip_848 and group.is_initial_rebalance):
        complete_join_phase(group, now_ms)


def expire_sync(group: Group, now_ms: float) -> None:
    """Remove all members that have not synced in this generation, with one rebalance (Kafka's `expirePendingSync`)."""
    if group.is_held:
        group.is_overdue = True
        group.arm_sync(_HELD_TIMEOUT_MS, now_ms)
        return
    group.sync_deadline_ms = inf
    group.change.cause = "sync timer expired"
    late_ids = list(group.awaiting_sync)
    for member_id in late_ids:
        group.remove(member_id)
    if late_ids:
        start_rebalance(group, now_ms)
