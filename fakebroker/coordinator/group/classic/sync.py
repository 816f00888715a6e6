"""SyncGroup: the leader sends all assignments, each member fetches its own (`classicGroupSyncToClassicGroup`)."""

from math import inf

from fakebroker.coordinator.group.api import SyncGroup, SyncResult
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.rebalance import answer_parked_syncs, start_rebalance, sync_result
from fakebroker.coordinator.group.classic.shared_values import shared_assignment
from fakebroker.coordinator.group.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.group.persistence import store
from fakebroker.coordinator.group.snapshot_dict import NO_ENTRIES
from fakebroker.errors import ErrorCode


def sync(group: Group, request: SyncGroup, token: object, now_ms: float) -> None:
    """Handle a SyncGroup: answer it at once, or park it until the leader's SyncGroup."""
    member_id = request.member_id
    if error := _check_sync(group, request):
        group.answer(token, SyncResult(error))
    elif member_id == group.leader_id and group.state is COMPLETING_REBALANCE:
        if group.is_held:
            group.held_sync = request, token  # An older sync is dropped, as in `park_sync`.
        else:
            _assign(group, request, token, now_ms)
    else:
        _stop_awaiting(group, member_id)
        if group.state is STABLE:
            member = group.members[member_id]
            group.answer(token, sync_result(group, member))
            if group.config.is_before_kip_848:
                group.arm_session(member, member.session_timeout_ms, now_ms)
        else:
            group.park_sync(member_id, token)


def _stop_awaiting(group: Group, member_id: str) -> None:
    group.awaiting_sync.pop(member_id, None)
    if not group.awaiting_sync:
        group.awaiting_sync = NO_ENTRIES
        group.sync_deadline_ms = inf


def _check_sync(group: Group, request: SyncGroup) -> ErrorCode:
    if error := group.check_member(request.member_id, request.instance_id):
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE


def _differs(given: str | None, chosen: str | None) -> bool:
    return given is not None and chosen is not None and given != chosen


def _assign(group: Group, request: SyncGroup, token: object, now_ms: float) -> None:
    """Store the assignments, then answer all syncs. If storing fails, syncs get the error and a rebalance starts."""
    assignments = dict(request.assignments)
    for member in group.members.values():
        member.assignment = shared_assignment(assignments.get(member.member_id, b""))
    error = store(group)
    _stop_awaiting(group, request.member_id)
    group.park_sync(request.member_id, token)
    if error:
        group.change.cause = f"assignment of the leader {group.leader_id} could not be stored: {error.name}"
        answer_parked_syncs(group, error, now_ms)
        start_rebalance(group, now_ms)
    else:
        group.change.cause = f"SyncGroup of the leader {group.leader_id}"
        group.transition_to(STABLE, now_ms)
        answer_parked_syncs(group, ErrorCode.NONE, now_ms)
