"""Rebalances by somebody's hand: hold and release a group, start a round, take members out, say who leads.

Each goes through the procedures that requests and timers go through, so that the log, the answers and the invariants
are as they would be in Kafka. Knows no cluster: who finds the coordinator of a group is the caller.
"""

from collections.abc import Iterable

from fakebroker.coordinator.group.api import JoinGroup
from fakebroker.coordinator.group.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    Group,
    GroupState,
)
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.rebalance import (
    complete_join_phase,
    expire_session,
    expire_sync,
    start_rebalance,
)
from fakebroker.coordinator.group.classic.sync import sync
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.holds import Script, Wishes, take_held_sync
from fakebroker.errors import ConfigError

HOLDABLE = (PREPARING_REBALANCE, COMPLETING_REBALANCE)
_MOST_LISTED = 20


def holdable_state(name: str) -> GroupState:
    """A state that a group can be held in, by Kafka's name.

    Raises:
        ConfigError: There is none such.
    """
    found = next((state for state in HOLDABLE if state.value == name), None)
    if found is None:
        raise ConfigError(f"state {name!r}: expected one of {_listed(state.value for state in HOLDABLE)} to hold")
    return found


def group_of(coordinator: Coordinator, group_id: str) -> Group:
    """A group that the coordinator has.

    Raises:
        ConfigError: It has none such.
    """
    group = coordinator.group(group_id)
    if group is None:
        known = _listed(group.group_id for group in coordinator.groups())
        raise ConfigError(f"no group {group_id!r}: expected one of {known}, the groups of its coordinator")
    return group


def member_of(group: Group, name: str) -> Member:
    """A member by its member id, its instance id, or its client id if it is the only one with that.

    Raises:
        ConfigError: There is no such member, or more than one.
    """
    member = group.members.get(name) or group.members.get(group.static_members.get(name, ""))
    if member is not None:
        return member
    named = [member for member in group.members.values() if member.client_id == name]
    if len(named) == 1:
        return named[0]
    what = f"{len(named)} members with the client id" if named else "no member"
    known = _listed(member.member_id for member in named or group.members.values())
    raise ConfigError(f"{what} {name!r} in group {group.group_id!r}: expected one of {known}")


def hold(coordinator: Coordinator | None, group_id: str, wishes: Wishes, state: GroupState) -> None:
    """Keeps a group in a state, from when it gets there on.

    Args:
        coordinator: That of the group, which need not be there; None if the group has none now.
        group_id: The group.
        wishes: What is wanted of it; every coordinator that it ever has looks at them.
        state: PreparingRebalance: the join phase does not end. CompletingRebalance: the leader's sync waits. All else
            goes on, so that a member that is lost or new still begins the next round.
    """
    wishes.holds[state] = None
    group = coordinator.group(group_id) if coordinator else None
    if group is not None and group.script is None:
        group.script = Script(wishes)


def release(coordinator: Coordinator, group: Group, now_ms: float) -> None:
    """Does what a hold, which is no more, has kept from happening in a group."""
    coordinator.apply(group, _catch_up, now_ms)


def _catch_up(group: Group, now_ms: float) -> None:
    script = group.script
    if script is None or group.state in script.wishes.holds:
        return
    group.step.cause = f"released from {group.state.value}"
    if group.state is PREPARING_REBALANCE:
        if script.is_overdue or (group.has_everyone_joined and not group.is_initial_rebalance):
            complete_join_phase(group, now_ms)
    elif group.state is COMPLETING_REBALANCE:
        is_overdue, script.is_overdue = script.is_overdue, False
        for request, token in take_held_sync(group, group.leader_id or ""):
            sync(group, request, token, now_ms)
        if is_overdue:
            expire_sync(group, now_ms)


def force_rebalance(coordinator: Coordinator, group: Group, now_ms: float) -> None:
    """Starts a round, as the end of some member's session would.

    Raises:
        ConfigError: There are no members, or a round is being prepared already.
    """
    if group.state in (EMPTY, PREPARING_REBALANCE):
        raise ConfigError(f"group {group.group_id!r} is {group.state.value}: expected CompletingRebalance or Stable")

    def start(group: Group, now_ms: float) -> None:
        group.step.cause = "a rebalance was forced"
        start_rebalance(group, now_ms)

    coordinator.apply(group, start, now_ms)


def evict(coordinator: Coordinator, group: Group, name: str, now_ms: float) -> None:
    """Removes a member, as an administrator's LeaveGroup does; it gets UNKNOWN_MEMBER_ID next (KIP-345).

    Raises:
        ConfigError: There is no such member.
    """
    coordinator.leave_group(group.group_id, [(member_of(group, name).member_id, None)], now_ms)


def expire(coordinator: Coordinator, group: Group, name: str, now_ms: float) -> None:
    """Lets a member's session run out. As ever, that ends no membership while an answer is owed to the member.

    Raises:
        ConfigError: There is no such member.
    """
    member = member_of(group, name)
    coordinator.apply(group, lambda group, now_ms: expire_session(group, member, now_ms), now_ms)


def choose_leader(group: Group, wishes: Wishes, name: str) -> None:
    """Lets a member lead the next generation, if it is in it.

    Raises:
        ConfigError: There is no such member.
    """
    member = member_of(group, name)
    wishes.next_leader = member.instance_id or member.member_id
    if group.script is None:
        group.script = Script(wishes)


def fence(coordinator: Coordinator, group: Group, instance_id: str, now_ms: float) -> None:
    """Lets another process join with an instance id: whoever has had it until now gets FENCED_INSTANCE_ID (KIP-345).

    It is told nothing and does nothing more, so that its session runs out in the end.

    Raises:
        ConfigError: There is no static member with this instance id.
    """
    if instance_id not in group.static_members:
        raise ConfigError(
            f"no instance id {instance_id!r} in group {group.group_id!r}: expected one of "
            f"{_listed(group.static_members)}"
        )
    coordinator.join_group(
        group.group_id, _join_of(group.members[group.static_members[instance_id]], group), None, now_ms
    )


def _join_of(member: Member, group: Group, member_id: str = "") -> JoinGroup:
    return JoinGroup(
        member_id=member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocol_type=group.protocol_type or "",
        protocols=member.protocols,
        requires_member_id=False,
        supports_skip_assignment=True,
    )


def rejoin_all(coordinator: Coordinator, group: Group, now_ms: float) -> None:
    """Lets every member join again, as it did the last time; nobody takes the answers."""
    for member in list(group.members.values()):
        coordinator.join_group(group.group_id, _join_of(member, group, member.member_id), None, now_ms)


def _listed(names: Iterable[str]) -> str:
    """What is possible, in an error's sentence; of very much only the first."""
    known = list(names)
    more = f" and {len(known) - _MOST_LISTED} more" if len(known) > _MOST_LISTED else ""
    return ", ".join(known[:_MOST_LISTED]) + more or "none, for there are none"
