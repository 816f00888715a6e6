"""JoinGroup: the checks of a join, and its effect in each state of the group.

The checks are in Kafka's order (`GroupMetadataManager.classicGroupJoinToClassicGroup`). `rebalance` has the rebalances
that joins start and complete.
"""

from collections.abc import Callable
from copy import copy

from fakebroker.coordinator.group.api import JoinGroup, JoinResult
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.rebalance import rebalance_or_complete
from fakebroker.coordinator.group.classic.states import PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.persistence import store
from fakebroker.coordinator.group.snapshot_dict import SnapshotDict
from fakebroker.errors import ErrorCode

# Replaces the session timeout of a new member until its first generation, because a member that does not know its id
# cannot send heartbeats. Also a constant in Kafka.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def reject_request(
    group_id: str, request: JoinGroup, config: CoordinatorConfig, error: ErrorCode, *, exists: bool
) -> JoinResult | None:
    """Return the result of a JoinGroup that is rejected regardless of the group's state; None if it passes.

    Args:
        group_id: The group.
        request: The request.
        config: The settings of the coordinator.
        error: NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if the group is not served here, else NONE.
        exists: Whether the group exists.
    """
    if not group_id:
        return JoinResult(ErrorCode.INVALID_GROUP_ID, member_id=request.member_id)
    if config.is_before_kip_848 and error:
        return JoinResult(error, member_id=request.member_id)
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        return JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, member_id=request.member_id)
    if error:
        return JoinResult(error)
    if request.member_id and not exists:
        return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
    return None


def join(group: Group, request: JoinGroup, token: object, now_ms: float, new_uuid: Callable[[], str]) -> None:
    """Handle a JoinGroup for a group that exists: answer it at once, or park it until the join phase ends."""
    if rejection := reject_join(group, request):
        group.answer(token, rejection)
    elif not request.member_id:
        _join_as(new_member_id(request, new_uuid), group, request, token, now_ms)
    elif request.member_id in group.pending_members:
        _add_member(request.member_id, group, request, token, now_ms)
    else:
        rejoin(group, request, token, now_ms)


def new_member_id(request: JoinGroup, new_uuid: Callable[[], str]) -> str:
    """Return a new member id: the instance id or client id, "-" and a UUID."""
    return f"{request.client_id if request.instance_id is None else request.instance_id}-{new_uuid()}"


def reject_join(group: Group, request: JoinGroup) -> JoinResult | None:
    """Return the result of a join that the group rejects; None if it is accepted.

    If the group is full, the member is also removed.
    """
    member_id = request.member_id
    if not group.has_room_for(member_id):
        group.change.cause = f"JoinGroup of {member_id}, but the group is full"
        group.remove(member_id)
        return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports(request.protocol_type, request.protocols):
        return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=member_id)
    if member_id in group.pending_members:
        # Only dynamic members can be pending. For a static member, Kafka fails with an IllegalStateException.
        return None if request.instance_id is None else JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    if member_id and (error := group.check_member(member_id, request.instance_id)):
        return JoinResult(error, member_id=member_id)
    return None


def _join_as(new_member_id: str, group: Group, request: JoinGroup, token: object, now_ms: float) -> None:
    """Handle a join without a member id. Since KIP-394, a dynamic member has to join again with `new_member_id`."""
    if request.instance_id is None and request.requires_member_id:
        group.arm_pending(new_member_id, request.session_timeout_ms, now_ms)
        group.answer(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id=new_member_id))
    elif request.instance_id in group.static_members:
        replace_static_member(new_member_id, group, request, token, now_ms)
    else:
        _add_member(new_member_id, group, request, token, now_ms)


def _add_member(member_id: str, group: Group, request: JoinGroup, token: object, now_ms: float) -> None:
    group.change.cause = f"JoinGroup of {member_id}, a new member"
    add_new_member(member_id, group, request, token, now_ms)
    _rebalance(group, member_id, now_ms)


def _rebalance(group: Group, member_id: str, now_ms: float) -> None:
    """Start or complete a rebalance because of a parked join, which gets the error."""
    if error := rebalance_or_complete(group, now_ms):
        group.answer_join(member_id, JoinResult(error))


def add_new_member(member_id: str, group: Group, request: JoinGroup, token: object, now_ms: float) -> None:
    """Add a member and park its join; the caller starts or continues the rebalance."""
    if group.does_new_member_extend_delay:
        group.new_member_added = True
    member = Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        is_new=True,
    )
    group.add(member, request.protocol_type)
    group.park_join(member_id, token)
    group.arm_session(member, NEW_MEMBER_JOIN_TIMEOUT_MS, now_ms)


def rejoin(group: Group, request: JoinGroup, token: object, now_ms: float) -> None:
    """Handle the join of a member of the group.

    Outside of PreparingRebalance, a join with unchanged protocols repeats the current result: the member may not have
    received it. Only the leader of a Stable group always starts a rebalance, because the assignment may depend on more
    than the metadata.
    """
    member = group.members[request.member_id]
    is_leader = group.leader_id == member.member_id
    is_unchanged = group.state is not PREPARING_REBALANCE and request.protocols == member.protocols
    if is_unchanged and not (is_leader and group.state is STABLE):
        group.answer(token, group.join_result(member.member_id, with_members=is_leader))
        return
    group.change.cause = f"JoinGroup of {_describe_join(member, request, is_leader=is_leader)}"
    group.update(member, request)
    group.park_join(member.member_id, token)
    _rebalance(group, member.member_id, now_ms)


def _describe_join(member: Member, request: JoinGroup, *, is_leader: bool) -> str:
    parts = [member.member_id]
    if is_leader:
        parts.append("the leader")
    if request.protocols != member.protocols:
        parts.append("with changed protocols")
    return ", ".join(parts)


def replace_static_member(new_member_id: str, group: Group, request: JoinGroup, token: object, now_ms: float) -> None:
    """Handle the join of a static member that has restarted and does not know its id. The member gets a new id.

    A Stable group does not rebalance if it would still select the same protocol, even if metadata or timeouts have
    changed.
    """
    former_leader_id, former_ids = group.leader_id, list(group.members)
    former = copy(group.members[group.static_members[request.instance_id or ""]])
    group.change.cause = f"JoinGroup of {new_member_id}, which replaces {former.member_id}"
    member = group.replace_static_member(request.instance_id or "", new_member_id)
    group.arm_session(member, member.session_timeout_ms, now_ms)  # With the previous session timeout, as in Kafka.
    group.update(member, request)
    if group.state is STABLE and group.select_protocol() == group.protocol_name:
        if error := store(group):
            _revert_replacement(group, member, former, former_ids, now_ms)
            result = group.join_result("", with_members=False)
            result.error = error
        else:
            result = _replacement_result(group, new_member_id, request.supports_skip_assignment, former_leader_id)
        group.answer(token, result)
        return
    group.park_join(new_member_id, token)
    _rebalance(group, new_member_id, now_ms)


def _revert_replacement(group: Group, member: Member, former: Member, former_ids: list[str], now_ms: float) -> None:
    """Restore the former member because its replacement could not be stored. Its session restarts."""
    group.replace_static_member(former.instance_id or "", former.member_id)
    group.update(member, former)
    group.members = SnapshotDict((member_id, group.members[member_id]) for member_id in former_ids)
    group.arm_session(member, member.session_timeout_ms, now_ms)


def _replacement_result(
    group: Group, member_id: str, supports_skip_assignment: bool, former_leader_id: str | None
) -> JoinResult:
    """Return the result of a static member that was replaced without a rebalance.

    For a client that does not support `skip_assignment`, the response names the leader by its member id before the
    replacement. So a replaced leader does not recognize itself as the leader, and does not assign again (KIP-814).
    """
    is_leader = group.leader_id == member_id
    result = group.join_result(member_id, with_members=is_leader and supports_skip_assignment)
    if supports_skip_assignment:
        result.skip_assignment = is_leader
    else:
        result.leader = former_leader_id or ""
    return result
