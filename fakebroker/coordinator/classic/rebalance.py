"""JoinGroup, SyncGroup, LeaveGroup and the timers of a classic group: their effects, and the causes of rebalances.

Kafka's names for these are `classicGroupJoin`, `classicGroupSync` and `classicGroupLeave`.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import inf

from fakebroker.coordinator.classic.group import (
    Group,
    HeldSync,
    Member,
    join_error,
    protocols_of,
    shared_assignment,
    sync_error,
)
from fakebroker.coordinator.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.persistence import store
from fakebroker.coordinator.snapshot_dict import NO_ENTRIES, SnapshotDict
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# JoinGroup. The checks are in Kafka's order (`GroupMetadataManager.classicGroupJoinToClassicGroup`).


# Replaces the session timeout of a new member until its first generation, because a member that does not know its id
# cannot send heartbeats. Also a constant in Kafka.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def reject_request(
    request: JoinGroupRequest, context: RequestContext, config: CoordinatorConfig, error: ErrorCode, *, exists: bool
) -> JoinGroupResponse | None:
    """Return the response to a JoinGroup that is rejected regardless of the group's state; None if it passes.

    Args:
        request: The request.
        context: Its context.
        config: The settings of the coordinator.
        error: NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if the group is not served here, else NONE.
        exists: Whether the group exists.
    """
    if not request.group_id:
        return join_error(context, ErrorCode.INVALID_GROUP_ID, request.member_id)
    if config.is_before_kip_848 and error:
        return join_error(context, error, request.member_id)
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        return join_error(context, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
    if error:
        return join_error(context, error)
    if request.member_id and not exists:
        return join_error(context, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    return None


def join(
    group: Group, request: JoinGroupRequest, context: RequestContext, now_ms: float, new_uuid: Callable[[], str]
) -> None:
    """Handle a JoinGroup for a group that exists: answer it at once, or park it until the join phase ends."""
    if rejection := reject_join(group, request, context):
        group.answer(context, rejection)
    elif request.member_id in group.pending_members:
        _add_member(request.member_id, group, request, context, now_ms)
    elif request.member_id:
        rejoin(group, request, context, now_ms)
    else:
        member_id = new_member_id(request.group_instance_id, context, new_uuid)
        if request.group_instance_id in group.static_members:
            replace_static_member(member_id, group, request, context, now_ms)
        elif request.group_instance_id is None and context.api_version >= 4:
            # A dynamic member has to join again with its new id (KIP-394).
            group.arm_pending(member_id, request.session_timeout_ms, now_ms)
            group.answer(context, join_error(context, ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            _add_member(member_id, group, request, context, now_ms)


def new_member_id(instance_id: str | None, context: RequestContext, new_uuid: Callable[[], str]) -> str:
    """Return a new member id: the instance id or client id, "-" and a UUID."""
    return f"{context.client_id if instance_id is None else instance_id}-{new_uuid()}"


def reject_join(group: Group, request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse | None:
    """Return the response to a join that the group rejects; None if it is accepted.

    If the group is full, the member is also removed.
    """
    member_id = request.member_id
    if not group.has_room_for(member_id):
        group.change.cause = f"JoinGroup of {member_id}, but the group is full"
        group.remove(member_id)
        return join_error(context, ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports(request.protocol_type, request.protocols):
        return join_error(context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if member_id in group.pending_members:
        # Only dynamic members can be pending. For a static member, Kafka fails with an IllegalStateException.
        return None if request.group_instance_id is None else join_error(context, ErrorCode.UNKNOWN_SERVER_ERROR)
    if member_id and (error := group.check_member(member_id, request.group_instance_id)):
        return join_error(context, error, member_id)
    return None


def _add_member(
    member_id: str, group: Group, request: JoinGroupRequest, context: RequestContext, now_ms: float
) -> None:
    group.change.cause = f"JoinGroup of {member_id}, a new member"
    add_new_member(member_id, group, request, context, now_ms)
    _rebalance(group, member_id, now_ms)


def _rebalance(group: Group, member_id: str, now_ms: float) -> None:
    """Start a rebalance for a parked join, or end the join phase. If that fails, the join gets the error."""
    if error := rebalance_or_complete(group, now_ms):
        group.refuse_join(member_id, error)


def add_new_member(
    member_id: str, group: Group, request: JoinGroupRequest, context: RequestContext, now_ms: float
) -> None:
    """Add a member and park its join; the caller starts or continues the rebalance."""
    if group.does_new_member_extend_delay:
        group.new_member_added = True
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
        is_new=True,
    )
    group.add(member, request.protocol_type)
    group.park_join(member_id, context)
    group.arm_session(member, NEW_MEMBER_JOIN_TIMEOUT_MS, now_ms)


def rejoin(group: Group, request: JoinGroupRequest, context: RequestContext, now_ms: float) -> None:
    """Handle the join of a member of the group.

    Outside of PreparingRebalance, a join with unchanged protocols repeats the current result: the member may not have
    received it. Only the leader of a Stable group always starts a rebalance, because the assignment may depend on more
    than the metadata.
    """
    member = group.members[request.member_id]
    protocols = protocols_of(request)
    is_leader, is_changed = group.leader_id == member.member_id, protocols != member.protocols
    if not is_changed and group.state is not PREPARING_REBALANCE and not (is_leader and group.state is STABLE):
        group.answer(context, group.join_response(context, member.member_id, with_members=is_leader))
        return
    leader, changed = ", the leader" if is_leader else "", ", with changed protocols" if is_changed else ""
    group.change.cause = f"JoinGroup of {member.member_id}{leader}{changed}"
    group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    group.park_join(member.member_id, context)
    _rebalance(group, member.member_id, now_ms)


def replace_static_member(
    new_member_id: str, group: Group, request: JoinGroupRequest, context: RequestContext, now_ms: float
) -> None:
    """Handle the join of a static member that has restarted and does not know its id. The member gets a new id.

    A Stable group does not rebalance if it would still select the same protocol, even if metadata or timeouts have
    changed.
    """
    instance_id = request.group_instance_id or ""
    former_leader_id, former_ids = group.leader_id, list(group.members)
    former = copy(group.members[group.static_members[instance_id]])
    group.change.cause = f"JoinGroup of {new_member_id}, which replaces {former.member_id}"
    member = group.replace_static_member(instance_id, new_member_id)
    group.arm_session(member, member.session_timeout_ms, now_ms)  # With the previous session timeout, as in Kafka.
    group.update(member, protocols_of(request), request.rebalance_timeout_ms, request.session_timeout_ms)
    if group.state is not STABLE or group.select_protocol() != group.protocol_name:
        group.park_join(new_member_id, context)
        _rebalance(group, new_member_id, now_ms)
    elif error := store(group):
        # The former member comes back. Its session restarts.
        group.replace_static_member(instance_id, former.member_id)
        group.update(member, former.protocols, former.rebalance_timeout_ms, former.session_timeout_ms)
        group.members = SnapshotDict((member_id, group.members[member_id]) for member_id in former_ids)
        group.arm_session(member, member.session_timeout_ms, now_ms)
        response = group.join_response(context, "", with_members=False)
        response.error_code = error
        group.answer(context, response)
    else:
        is_leader, knows_skip_assignment = group.leader_id == new_member_id, context.api_version >= 9
        response = group.join_response(context, new_member_id, with_members=is_leader and knows_skip_assignment)
        if knows_skip_assignment:
            response.skip_assignment = is_leader
        else:
            # The response names the leader by its id before the replacement. So a replaced leader does not recognize
            # itself as the leader, and does not assign again (KIP-814).
            response.leader = former_leader_id or ""
        group.answer(context, response)


# SyncGroup: the leader sends all assignments, each member fetches its own.


def sync(group: Group, request: SyncGroupRequest, context: RequestContext, now_ms: float) -> None:
    """Handle a SyncGroup: answer it at once, or park it until the leader's SyncGroup."""
    member_id = request.member_id
    if error := _check_sync(group, request):
        group.answer(context, sync_error(error))
    elif member_id == group.leader_id and group.state is COMPLETING_REBALANCE:
        assignments = {each.member_id: each.assignment for each in request.assignments}
        if group.is_held:
            group.held_sync = HeldSync(member_id, assignments, context)  # An older sync is dropped, as in `park_sync`.
        else:
            assign(group, assignments, context, now_ms)
    else:
        _stop_awaiting(group, member_id)
        if group.state is STABLE:
            member = group.members[member_id]
            group.answer(context, _sync_response(group, member))
            if group.config.is_before_kip_848:
                group.arm_session(member, member.session_timeout_ms, now_ms)
        else:
            group.park_sync(member_id, context)


def _stop_awaiting(group: Group, member_id: str) -> None:
    group.awaiting_sync.pop(member_id, None)
    if not group.awaiting_sync:
        group.awaiting_sync = NO_ENTRIES
        group.sync_deadline_ms = inf


def _check_sync(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if error := group.check_member(request.member_id, request.group_instance_id):
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE


def _differs(given: str | None, chosen: str | None) -> bool:
    return given is not None and chosen is not None and given != chosen


def assign(group: Group, assignments: Mapping[str, bytes], context: RequestContext, now_ms: float) -> None:
    """Store the leader's assignments, then answer all syncs.

    If storing fails, the syncs get the error, and a rebalance starts.

    Args:
        group: The group, in CompletingRebalance.
        assignments: The assignments by member id. Ids of others are ignored.
        context: The context of the leader's SyncGroup.
        now_ms: The time.
    """
    leader_id = group.leader_id or ""
    for member in group.members.values():
        member.assignment = shared_assignment(assignments.get(member.member_id, b""))
    error = store(group)
    _stop_awaiting(group, leader_id)
    group.park_sync(leader_id, context)
    if error:
        group.change.cause = f"assignment of the leader {leader_id} could not be stored: {error.name}"
        answer_parked_syncs(group, error, now_ms)
        start_rebalance(group, now_ms)
    else:
        group.change.cause = f"SyncGroup of the leader {leader_id}"
        group.transition_to(STABLE, now_ms)
        answer_parked_syncs(group, ErrorCode.NONE, now_ms)


# LeaveGroup, sent by members or by an administrator to remove them (KIP-345).


def leave(group: Group, members: Sequence[MemberIdentity], now_ms: float) -> LeaveGroupResponse:
    """Remove members and start one rebalance for all of them.

    If the rebalance fails, the response has only its error.
    """
    response = LeaveGroupResponse()
    if group.config.is_before_kip_848:
        for leaving in members:
            error = _leave_before_kip_848(group, leaving.member_id, leaving.group_instance_id, now_ms)
            response.members.append(left(leaving, error))
        return response
    group.change.cause = f"LeaveGroup of {', '.join(each.member_id or str(each.group_instance_id) for each in members)}"
    has_left = has_changed_extension = False
    for leaving in members:
        held_back = group.extension.leave(leaving.member_id, leaving.group_instance_id)
        if held_back is None:
            error = _remove_member(group, leaving.member_id, leaving.group_instance_id)
            has_left |= not error
        else:
            error = held_back
            has_changed_extension |= not error
        response.members.append(left(leaving, error))
    if has_changed_extension and group.extension.after_leave(now_ms):
        return response
    # As in Kafka, a rebalance also starts if only a pending id has left.
    if has_left and group.state is not EMPTY and (error := rebalance_or_complete(group, now_ms)):
        return LeaveGroupResponse(error_code=error)
    return response


def left(leaving: MemberIdentity, error: ErrorCode) -> MemberResponse:
    """Return the result of one member of a LeaveGroup."""
    return MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error_code=error)


def _leave_before_kip_848(group: Group, member_id: str, instance_id: str | None, now_ms: float) -> ErrorCode:
    """Remove one member, and rebalance (`GroupCoordinator.handleLeaveGroup`).

    A pending id does not start a rebalance, but it may end a join phase.
    """
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


# The rebalance


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
        group.park_sync(held.member_id, held.context)
    answer_parked_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)


def answer_parked_syncs(group: Group, error: ErrorCode, now_ms: float) -> None:
    """Answer every parked sync, in order of arrival: with `error`, or with the member's assignment if it is NONE.

    The sessions of these members restart (Kafka's `propagateAssignment`): `expire_session` suspends a session that ends
    while a sync is parked.
    """
    for member_id in list(group.parked_syncs):
        member = group.members[member_id]
        group.answer_sync(member_id, sync_error(error) if error else _sync_response(group, member))
        group.arm_session(member, member.session_timeout_ms, now_ms)


def reject_waiting(group: Group, error: ErrorCode) -> None:
    """Answer every waiting join and sync with an error, because the coordinator drops the group."""
    for member_id in list(group.parked_joins):
        group.refuse_join(member_id, error, answered_id=member_id)
    group.extension.reject_waiting(error)
    for member_id in [*group.parked_syncs, group.leader_id or ""]:  # The leader's sync may be held instead of parked.
        group.answer_sync(member_id, sync_error(error))


def _sync_response(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


# The initial delay


def _start_initial_delay(group: Group, now_ms: float) -> ErrorCode:
    delay_ms = group.config.group_initial_rebalance_delay_ms
    if delay_ms == 0 and group.is_being_stored:
        group.arm_join(0, now_ms)  # The join phase ends when the group is in the log; see `Groups.store_first`.
        return ErrorCode.NONE
    if delay_ms == 0:
        error = complete_join_phase(group, now_ms)
        # Kafka does this in a timer of 0 ms. An error there, such as no common protocol, is not sent to the join.
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
    """Keep the join phase of a held group open. `release` ends it."""
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
    group.transition_to(COMPLETING_REBALANCE, now_ms)
    group.answer_joins()
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
    # Since KIP-848 an expiry also ends the initial delay. A JoinGroup or LeaveGroup does not.
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
