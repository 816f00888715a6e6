"""JoinGroup: which members may join a group, and what a join does in each state.

The checks are in Kafka's order (`GroupMetadataManager.classicGroupJoinToClassicGroup`). The rebalance is in
`rebalance`.
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
from fakebroker.coordinator.group.records import Procedure
from fakebroker.errors import ErrorCode

# A new member does not know its id yet, so it cannot send heartbeats; and if its client is gone, its place must not be
# kept forever. A constant in Kafka too.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def refuse(
    group_id: str, request: JoinGroup, config: CoordinatorConfig, error: ErrorCode, *, exists: bool
) -> JoinResult | None:
    """Return the answer to a JoinGroup that is rejected in every state of the group, or None.

    Args:
        error: Why the coordinator does not serve the group, or NONE.
        exists: Whether there is such a group.
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


def join(
    group: Group, request: JoinGroup, token: object, now_ms: float, new_uuid: Callable[[], str]
) -> Procedure[None]:
    """Handle a JoinGroup for a group that exists; the answer comes at once or later."""
    if refusal := refusal_of(group, request):
        group.answer(token, refusal)
    elif not request.member_id:
        yield from _join_as(new_member_id(request, new_uuid), group, request, token, now_ms)
    elif request.member_id in group.pending_members:
        yield from _add_member(request.member_id, group, request, token, now_ms)
    else:
        yield from rejoin(group, request, token, now_ms)


def new_member_id(request: JoinGroup, new_uuid: Callable[[], str]) -> str:
    """Return the id that a member without one gets."""
    return f"{request.client_id if request.instance_id is None else request.instance_id}-{new_uuid()}"


def refusal_of(group: Group, request: JoinGroup) -> JoinResult | None:
    """Return the answer to a join that is rejected, or None; a member without a place in the group is removed."""
    member_id = request.member_id
    if not group.has_room_for(member_id):
        group.change.cause = f"JoinGroup of {member_id}, for which there is no room"
        group.remove(member_id)
        return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports(request.protocol_type, request.protocols):
        return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=member_id)
    if member_id in group.pending_members:
        # Only dynamic members are ever pending; Kafka fails with an IllegalStateException.
        return None if request.instance_id is None else JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    if member_id and (error := group.check_member(member_id, request.instance_id)):
        return JoinResult(error, member_id=member_id)
    return None


def _join_as(new_member_id: str, group: Group, request: JoinGroup, token: object, now_ms: float) -> Procedure[None]:
    """Handle a join without a member id. A static member never has to join twice; a dynamic one does since KIP-394."""
    if request.instance_id is None and request.requires_member_id:
        group.arm_pending(new_member_id, request.session_timeout_ms, now_ms)
        group.answer(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id=new_member_id))
    elif request.instance_id in group.static_members:
        yield from replace_static_member(new_member_id, group, request, token, now_ms)
    else:
        yield from _add_member(new_member_id, group, request, token, now_ms)


def _add_member(member_id: str, group: Group, request: JoinGroup, token: object, now_ms: float) -> Procedure[None]:
    group.change.cause = f"JoinGroup of {member_id}, a new member"
    add_new_member(member_id, group, request, token, now_ms)
    yield from rebalance_or_complete(group, now_ms)


def add_new_member(member_id: str, group: Group, request: JoinGroup, token: object, now_ms: float) -> None:
    """Add a member and park its join; the caller starts the rebalance."""
    if group.is_extended_by_a_new_member:
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


def rejoin(group: Group, request: JoinGroup, token: object, now_ms: float) -> Procedure[None]:
    """Handle the join of a known member: answered at once if nothing changes, so that a lost answer costs no rebalance.

    The leader of a stable group always starts a rebalance: it may have seen a change that no metadata shows.
    """
    member = group.members[request.member_id]
    is_leader = group.leader_id == member.member_id
    is_unchanged = group.state is not PREPARING_REBALANCE and request.protocols == member.protocols
    if is_unchanged and not (is_leader and group.state is STABLE):
        group.answer(token, group.join_result(member.member_id, with_members=is_leader))
        return
    group.change.cause = f"JoinGroup of {_described(member, request, is_leader=is_leader)}"
    group.update(member, request)
    group.park_join(member.member_id, token)
    yield from rebalance_or_complete(group, now_ms)


def _described(member: Member, request: JoinGroup, *, is_leader: bool) -> str:
    words = [member.member_id]
    if is_leader:
        words.append("the leader")
    if request.protocols != member.protocols:
        words.append("with other protocols than before")
    return ", ".join(words)


def replace_static_member(
    new_member_id: str, group: Group, request: JoinGroup, token: object, now_ms: float
) -> Procedure[None]:
    """Handle the join of a static member that has restarted without its id: it gets a new one.

    In a stable group no rebalance is needed as long as the members would choose the same protocol, whatever else
    changed.
    """
    former_leader_id, former_ids = group.leader_id, list(group.members)
    former = copy(group.members[group.static_members[request.instance_id or ""]])
    group.change.cause = f"JoinGroup of {new_member_id}, which replaces {former.member_id}"
    member = group.replace_static_member(request.instance_id or "", new_member_id)
    group.arm_session(member, member.session_timeout_ms, now_ms)  # Still with the timeout from before, as Kafka does.
    group.update(member, request)
    if group.state is STABLE and group.select_protocol() == group.protocol_name:
        if error := (yield from store(group)):
            _revert_replacement(group, member, former, former_ids, now_ms)
            result = group.join_result("", with_members=False)
            result.error = error
        else:
            result = _replacement_result(group, new_member_id, request.supports_skip_assignment, former_leader_id)
        group.answer(token, result)
        return
    group.park_join(new_member_id, token)
    yield from rebalance_or_complete(group, now_ms)


def _revert_replacement(group: Group, member: Member, former: Member, former_ids: list[str], now_ms: float) -> None:
    """Restore the former member, as the replacement could not be stored; but its session starts over."""
    group.replace_static_member(former.instance_id or "", former.member_id)
    group.update(member, former)
    group.members = {member_id: group.members[member_id] for member_id in former_ids}
    group.arm_session(member, member.session_timeout_ms, now_ms)


def _replacement_result(
    group: Group, member_id: str, supports_skip_assignment: bool, former_leader_id: str | None
) -> JoinResult:
    """Return the result of a static member that was replaced without a rebalance.

    Clients that cannot skip the assignment get the former leader, even if it was this member: else they would assign
    again (KIP-814).
    """
    is_leader = group.leader_id == member_id
    result = group.join_result(member_id, with_members=is_leader and supports_skip_assignment)
    if supports_skip_assignment:
        result.skip_assignment = is_leader
    else:
        result.leader = former_leader_id or ""
    return result
