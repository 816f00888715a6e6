"""Manual control of rebalances: hold and release a group, force a rebalance, remove members, choose the leader.

Groups are changed by the functions for requests and timers, so that records, answers and invariants are as in Kafka.
`cluster/handles/group.py` and `cluster/seeding/seed.py` call these functions with the coordinator of the
group.
"""

from collections.abc import Mapping, Sequence
from typing import overload

from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.classic.rebalance import (
    assign,
    complete_join_phase,
    expire_session,
    expire_sync,
    start_rebalance,
)
from fakebroker.coordinator.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, GroupState
from fakebroker.coordinator.consumer import controls as consumer_controls
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import ConsumerGroupMember
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.context import OwnContext
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.errors import ConfigError, one_of
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.leave_group import MemberIdentity
from fakebroker.topic_partition import TopicPartition, format_partitions, parse_partition

HOLDABLE_STATES = (
    PREPARING_REBALANCE,
    COMPLETING_REBALANCE,
    ConsumerGroupState.ASSIGNING,
    ConsumerGroupState.RECONCILING,
)
"""The states that a group can be held in."""

_MOST_LISTED = 20

_NEWEST_JOIN = 9
"""The version of the joins that are made here; a static leader that is replaced stays the leader (KIP-814)."""


def group_of(coordinator: Coordinator, group_id: str) -> Group | ConsumerGroup:
    """Return a group of a coordinator.

    Raises:
        ConfigError: There is no such group.
    """
    group = coordinator.groups.get(group_id)
    if group is None:
        groups = (group.group_id for group in coordinator.groups)
        known = one_of(groups, group_id, none="", most=_MOST_LISTED)
        expected = f"a group of this coordinator, {known}" if known else "an existing group; its coordinator has none"
        raise ConfigError.of("group_id", group_id, expected)
    return group


def classic_group(group: Group | ConsumerGroup) -> Group:
    """Return a group, which must use the classic protocol.

    Raises:
        ConfigError: It is a consumer group.
    """
    if isinstance(group, ConsumerGroup):
        raise ConfigError.of("group_id", group.group_id, "a classic group, not a consumer group (KIP-848)")
    return group


def consumer_group(group: Group | ConsumerGroup) -> ConsumerGroup:
    """Return a group, which must be a consumer group.

    Raises:
        ConfigError: It is a classic group.
    """
    if isinstance(group, Group):
        raise ConfigError.of("group_id", group.group_id, "a consumer group (KIP-848), not a classic group")
    return group


@overload
def member_of(group: Group, name: str) -> Member: ...


@overload
def member_of(group: ConsumerGroup, name: str) -> ConsumerGroupMember: ...


@overload
def member_of(group: Group | ConsumerGroup, name: str) -> Member | ConsumerGroupMember: ...


def member_of(group: Group | ConsumerGroup, name: str) -> Member | ConsumerGroupMember:
    """Return a member by its member id, its instance id, or its client id if this is unique in the group.

    Raises:
        ConfigError: There is no such member, or more than one.
    """
    members: Mapping[str, Member | ConsumerGroupMember] = dict(group.members.items())
    member = members.get(name) or members.get(group.static_members.get(name, ""))
    if member is not None:
        return member
    named = [member for member in members.values() if member.client_id == name]
    if len(named) == 1:
        return named[0]
    ids = (member.member_id for member in named or members.values())
    known = one_of(ids, name, none="a member; the group has none", most=_MOST_LISTED)
    expected = f"the id of one of the {len(named)} members with this client id, {known}" if named else known
    raise ConfigError.of("member", name, expected, where=f"group {group.group_id!r}")


def hold(
    coordinator: Coordinator | None, group_id: str, controls: GroupControls, state: GroupState | ConsumerGroupState
) -> None:
    """Hold a group in a state, now or as soon as it has reached the state.

    Args:
        coordinator: The coordinator of the group, or None if there is none now.
        group_id: The group, which need not exist.
        controls: The manual settings of the group, which are changed. Every coordinator of the group uses them.
        state: PreparingRebalance: the join phase does not end. CompletingRebalance: the leader's sync waits. Everything
            else continues, so a new or lost member still starts the next rebalance. Assigning and Reconciling of
            consumer groups: see `GroupControls`.
    """
    controls.held_states[state] = None
    group = coordinator.groups.classic.get(group_id) if coordinator else None
    if group is not None:
        group.controls = controls


def member_names(group: ConsumerGroup, name: str) -> set[str]:
    """Return the names by which a member can be held, given one of them; only the name if there is no such member."""
    try:
        member = member_of(group, name)
    except ConfigError:
        return {name}
    return {name, member.member_id, member.instance_id or name}


def hold_member(group: ConsumerGroup, controls: GroupControls, name: str) -> str:
    """Do not believe that a member has given up partitions. Return its instance id, or its member id.

    Raises:
        ConfigError: There is no such member.
    """
    member = member_of(group, name)
    key = member.instance_id or member.member_id
    controls.held_members[key] = None
    return key


def release(coordinator: Coordinator, group: Group, now_ms: float) -> None:
    """Complete the phase that a hold has delayed.

    The caller first removes the state from `GroupControls.held_states`.
    """
    if group.controls is None or group.is_held:
        return
    group.change.cause = f"released from {group.state.value}"
    if group.state is PREPARING_REBALANCE:
        if group.is_overdue or (group.have_all_joined and not group.is_initial_rebalance):
            complete_join_phase(group, now_ms)
    elif group.state is COMPLETING_REBALANCE:
        is_overdue, group.is_overdue = group.is_overdue, False
        if held := group.take_held_sync(group.leader_id or ""):
            assign(group, held.assignments, held.context, now_ms)
        if is_overdue:
            expire_sync(group, now_ms)
    coordinator.groups.changed_by_timer(group, now_ms)


def force_rebalance(coordinator: Coordinator, group: Group | ConsumerGroup, now_ms: float) -> None:
    """Start a rebalance without a change of the members; in a consumer group the next epoch.

    Raises:
        ConfigError: There are no members, or a rebalance has just begun.
    """
    if isinstance(group, ConsumerGroup):
        consumer_controls.force_assignment(coordinator, group, now_ms)
        return
    if group.state in (EMPTY, PREPARING_REBALANCE):
        expected = f"a group in state CompletingRebalance or Stable, not {group.state.value}"
        raise ConfigError.of("group_id", group.group_id, expected)
    group.change.cause = "a rebalance was forced"
    start_rebalance(group, now_ms)
    coordinator.groups.changed_by_timer(group, now_ms)


def evict(coordinator: Coordinator, group: Group | ConsumerGroup, name: str, now_ms: float) -> None:
    """Remove a member, as an administrator's LeaveGroup does (KIP-345).

    The next request of the member gets UNKNOWN_MEMBER_ID.

    Raises:
        ConfigError: There is no such member.
    """
    coordinator.leave_group(group.group_id, [MemberIdentity(member_id=member_of(group, name).member_id)], now_ms)


def expire(coordinator: Coordinator, group: Group | ConsumerGroup, name: str, now_ms: float) -> None:
    """Expire a member's session. As with a real expiry, a member that waits for an answer is only removed if it is new.

    Raises:
        ConfigError: There is no such member.
    """
    if isinstance(group, ConsumerGroup):
        consumer_controls.expire(coordinator, group, member_of(group, name), now_ms)
        return
    expire_session(group, member_of(group, name), now_ms)
    coordinator.groups.changed_by_timer(group, now_ms)


def choose_leader(group: Group, controls: GroupControls, name: str) -> None:
    """Choose the leader of the next generation. The choice is ignored if the member does not join the generation.

    Raises:
        ConfigError: There is no such member.
    """
    member = member_of(group, name)
    controls.next_leader = member.instance_id or member.member_id
    group.controls = controls


def fence(coordinator: Coordinator, group: Group | ConsumerGroup, instance_id: str, now_ms: float) -> None:
    """Replace a static member, as if another process had joined with its instance id (KIP-345).

    The requests of the member then get FENCED_INSTANCE_ID. No process sends heartbeats for the replacement, so its
    session expires.

    Raises:
        ConfigError: There is no static member with this instance id.
    """
    if instance_id not in group.static_members:
        none = "a static member; the group has none"
        expected = one_of(group.static_members, instance_id, none=none, most=_MOST_LISTED)
        raise ConfigError.of("member", instance_id, expected, where=f"group {group.group_id!r}")
    if isinstance(group, ConsumerGroup):
        consumer_controls.fence(coordinator, group, instance_id, now_ms)
        return
    _join_again(coordinator, group, group.members[group.static_members[instance_id]], "", now_ms)


def _join_again(coordinator: Coordinator, group: Group, member: Member, member_id: str, now_ms: float) -> None:
    """Handle a JoinGroup with the fields of a member's last one, under this member id."""
    request = JoinGroupRequest(
        group_id=group.group_id,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=member.instance_id,
        protocol_type=group.protocol_type or "",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in member.protocols],
    )
    coordinator.join_group(request, OwnContext(_NEWEST_JOIN, member.client_id, member.client_host), now_ms)


def choose_assignment(controls: GroupControls, assignment: Mapping[str, Sequence[str]]) -> None:
    """Choose the result of the assignor of a consumer group when it runs next.

    Raises:
        ConfigError: A partition is malformed, or is assigned twice.
    """
    chosen: dict[str, list[TopicPartition]] = {}
    owners: dict[TopicPartition, str] = {}
    for name, partitions in assignment.items():
        chosen[name] = [parse_partition(each, "assignment") for each in partitions]
        for partition in chosen[name]:
            owner = owners.setdefault(partition, name)
            if owner != name:
                text = format_partitions([partition])
                raise ConfigError.of("assignment", text, f"one member for each partition, not {owner} and {name}")
    controls.next_assignment = chosen


def rejoin_all(coordinator: Coordinator, group: Group, now_ms: float) -> None:
    """Handle a JoinGroup for every member, with the fields of the member's last JoinGroup. The answers are dropped."""
    for member in list(group.members.values()):
        _join_again(coordinator, group, member, member.member_id, now_ms)
