"""SyncGroup: the leader hands in the assignment, every member fetches its own (`classicGroupSyncToClassicGroup`)."""

from math import inf

from fakebroker.coordinator.group.api import SyncGroup, SyncResult
from fakebroker.coordinator.group.classic.group import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE, Group
from fakebroker.coordinator.group.classic.rebalance import answer_parked_syncs, start_rebalance, sync_result
from fakebroker.coordinator.group.holds import is_held
from fakebroker.errors import ErrorCode


def sync(group: Group, request: SyncGroup, token: object, now_ms: float) -> None:
    """Handles a SyncGroup; the answer comes now or with the leader's sync."""
    member_id = request.member_id
    if error := _check_sync(group, request):
        group.answer(token, SyncResult(error))
        return
    if member_id == group.leader_id and group.state is COMPLETING_REBALANCE and is_held(group):
        _hold_sync(group, request, token)
        return
    group.awaiting_sync.pop(member_id, None)
    if not group.awaiting_sync:
        group.sync_deadline_ms = inf
    if group.state is STABLE:
        member = group.members[member_id]
        group.answer(token, sync_result(group, member))
        if group.config.is_before_kip_848:
            group.arm_session(member, member.session_timeout_ms, now_ms)
        return
    group.park_sync(member_id, token)
    if member_id == group.leader_id:
        _store_assignments(group, dict(request.assignments), now_ms)


def _hold_sync(group: Group, request: SyncGroup, token: object) -> None:
    """Keeps the leader's sync for later; an older one of its is dropped, as it is where it is parked."""
    assert group.script is not None
    group.script.held_sync = request, token


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


def _store_assignments(group: Group, assignments: dict[str, bytes], now_ms: float) -> None:
    """Stores the generation, before any sync of it is answered; if that fails, all get the error and a round begins."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    if error := group.store(group):
        group.step.cause = f"assignment of the leader {group.leader_id} could not be stored: {error.name}"
        answer_parked_syncs(group, error, now_ms)
        start_rebalance(group, now_ms)
    else:
        group.step.cause = f"SyncGroup of the leader {group.leader_id}"
        group.transition_to(STABLE, now_ms)
        answer_parked_syncs(group, ErrorCode.NONE, now_ms)
