"""Groups of both types as rows of a list, and the order of the list. Read-only."""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from math import inf
from typing import TypedDict

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.handles.group import lag_of
from fakebroker.cluster.inspect.timelines import short_names, with_names, without_zombies
from fakebroker.cluster.inspect.views import GroupType, member_names
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.stats.group_index import GROUPS_PER_STEP, AnyGroup, type_of
from fakebroker.control.steps import Steps
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import ConsumerGroupMember
from fakebroker.coordinator.consumer.states import UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS, ConsumerGroupState
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_history import Moment
from fakebroker.coordinator.history import DEAD

REBALANCING = frozenset(
    state.value
    for state in (
        PREPARING_REBALANCE,
        COMPLETING_REBALANCE,
        ConsumerGroupState.ASSIGNING,
        ConsumerGroupState.RECONCILING,
    )
)
"""The states of groups of both types in which partitions are being assigned or moved."""

_MAX_NAMES = 3


class GroupRow(TypedDict):
    """One group in a list; `coordinator` is a node id, `why` an explanation, `rebalances` a count since the start.

    `lag` is the number of records after the committed offsets.

    `type` is null if there is no such group. `generation_id` is the group epoch of a consumer group. `until_ms` is when
    the group stops waiting for requests of its members, by the brokers' clock; null if it does not wait, or without a
    limit. A consumer group waits until the first of the members that it waits for is removed.
    """

    group_id: str
    type: GroupType | None
    state: str
    generation_id: int
    members: int
    protocol_name: str | None
    coordinator: int | None
    since_ms: float
    until_ms: float | None
    rebalances: int
    lag: int
    why: str


def group_row(served: ServedCluster, group: AnyGroup, coordinator: int) -> GroupRow:
    """Return the row of an existing group."""
    core = served.core
    moments = without_zombies(core.history.of(group.group_id))
    if isinstance(group, ConsumerGroup):
        generation_id = group.group_epoch
        groups = core.brokers[coordinator].coordinator.groups.consumer
        protocol: str | None = groups.assignor_of(group)
        interval_ms = groups.assignment_interval_ms(group.group_id)
        reason = why_consumer_group(group, controls_of(core, group.group_id), moments, interval_ms)
        until_ms = blocked_until_ms(group)
    else:
        generation_id, protocol = group.generation_id, group.protocol_name
        reason, until_ms = why(group, _last_transition(moments)), _waits_until_ms(group)
    return {
        "group_id": group.group_id,
        "type": type_of(group),
        "state": group.state.value,
        "generation_id": generation_id,
        "members": len(group.members),
        "protocol_name": protocol,
        "coordinator": coordinator,
        "since_ms": group.state_since_ms,
        "until_ms": until_ms,
        "rebalances": served.meter.rebalances_of.get(group.group_id, 0),
        "lag": sum(lag_of(core, group.group_id).values()),
        "why": reason,
    }


def _last_transition(moments: Sequence[Moment]) -> Moment | None:
    """Return the latest change of a group's state; None if its history does not have it."""
    return next((moment for moment in reversed(moments) if moment.is_transition), None)


def dead_row(served: ServedCluster, group_id: str) -> GroupRow:
    """Return the row of a group that does not exist, or has no coordinator."""
    moments = served.core.history.of(group_id)
    return {
        "group_id": group_id,
        "type": None,
        "state": DEAD,
        "generation_id": 0,
        "members": 0,
        "protocol_name": None,
        "coordinator": None,
        "since_ms": moments[-1].at_ms if moments else 0.0,
        "until_ms": None,
        "rebalances": 0,
        "lag": 0,
        "why": moments[-1].cause if moments else "",
    }


def why(group: Group, last: Moment | None) -> str:
    """Return a short explanation: the cause of a classic group's state, and the members that it waits for.

    Args:
        group: The group.
        last: The latest change of its state; None if unknown.
    """
    # The cause mentions only members of its moment; names for all former members would take too long.
    names = short_names([*group.members, *group.pending_members, *_mentioned(last)])
    cause = with_names(last.cause, names) if last else ""
    if group.state is PREPARING_REBALANCE:
        missing = [names[each] for each in (*group.members, *group.pending_members) if each not in group.parked_joins]
        waiting = f"waiting for {_join_names(missing)}" if missing else "waiting for new members"
        return f"{waiting}; {len(group.parked_joins)} of {len(group.members)} have joined; {cause}"
    if group.state is COMPLETING_REBALANCE:
        return f"waiting for the SyncGroup of the leader {names.get(group.leader_id or '', '')}"
    if group.state is STABLE and group.awaiting_sync:
        return f"no SyncGroup yet from {_join_names([names.get(each, each) for each in group.awaiting_sync])}; {cause}"
    return cause


def why_consumer_group(
    group: ConsumerGroup, controls: GroupControls, moments: Sequence[Moment], interval_ms: int
) -> str:
    """Return a short explanation: the cause of a consumer group's state, and the members that it waits for.

    Args:
        group: The group.
        controls: Its manual settings.
        moments: Its history, oldest first, as far as it is kept.
        interval_ms: The time between two targets.
    """
    last = _last_transition(moments)
    names = member_names(group, _mentioned(last), moments)
    cause = with_names(last.cause, names) if last else ""
    after = f"; {cause}" if cause else ""
    if group.state is ConsumerGroupState.ASSIGNING:
        if ConsumerGroupState.ASSIGNING in controls.held_states:
            return f"the assignor is held{after}"
        which = "next heartbeat of a member"
        if group.next_target_ms(interval_ms) > 0:
            which = f"first heartbeat {interval_ms / 1000:g} s after the last target"
        return f"the {which} runs the assignor{after}"
    if group.state is not ConsumerGroupState.RECONCILING:
        return cause
    members = blocking_members(group)
    revoking = [
        names[each.member_id] + " (held)" * is_revocation_held(each, controls)
        for each in members
        if each.state is UNREVOKED_PARTITIONS
    ]
    silent = [names[each.member_id] for each in members if each.state is not UNREVOKED_PARTITIONS]
    waiting = [f"for {_join_names(revoking)} to give up partitions"] if revoking else []
    waiting += [f"for a heartbeat of {_join_names(silent)}"] if silent else []
    reached = f"{count_reconciled(group)} of {len(group.members)} have reached epoch {group.assignment_epoch}"
    return f"waiting {' and '.join(waiting)}; {reached}{after}"


def _mentioned(moment: Moment | None) -> Iterable[str]:
    """Return the member ids that the cause of a moment can mention."""
    return (*moment.members, *moment.left) if moment else ()


def blocking_members(group: ConsumerGroup) -> list[ConsumerGroupMember]:
    """Return the members that a consumer group waits for while it is Reconciling.

    These are the members that have to give up partitions, then those that have not heard of the target assignment. If
    there are none, members wait for partitions that are free, which they get with their next heartbeat.
    """
    if group.group_epoch > group.assignment_epoch:
        return []
    moving = [each for each in group.members.values() if not each.is_reconciled_to(group.assignment_epoch)]
    revoking = [each for each in moving if each.state is UNREVOKED_PARTITIONS]
    behind = [each for each in moving if each.state not in (UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS)]
    return [*revoking, *behind] or moving


def is_revocation_held(member: ConsumerGroupMember, controls: GroupControls) -> bool:
    """Return whether a member has to give up partitions and is not believed to have done so."""
    is_held = controls.holds_revocation_of(member.member_id, member.instance_id)
    return is_held and member.state is UNREVOKED_PARTITIONS


def count_reconciled(group: ConsumerGroup) -> int:
    """Return how many members have all of their part of the target assignment."""
    return sum(member.is_reconciled_to(group.assignment_epoch) for member in group.members.values())


def blocked_until_ms(group: ConsumerGroup) -> float | None:
    """Return when the first of the members that a consumer group waits for is removed; None if it waits for none.

    A member that has to give up partitions or to rejoin is removed when its rebalance timeout has passed, others with
    their session.
    """
    revocations = {member_id: deadline_ms for member_id, (deadline_ms, _) in group.rebalance_deadlines.items()}
    deadlines = {**group.session_deadlines, **group.join_deadlines, **revocations}
    return min((deadlines[each.member_id] for each in blocking_members(group)), default=None)


def _waits_until_ms(group: Group) -> float | None:
    """Return when a join phase or the wait for SyncGroups ends; None without a limit, as when the group is held."""
    if group.is_held:
        return None
    if group.state is PREPARING_REBALANCE:
        # If static members alone are left, the join timer starts again.
        ends = group.parked_joins or not group.static_members
        return group.join_deadline_ms if ends and group.join_deadline_ms < inf else None
    return group.sync_deadline_ms if group.awaiting_sync and group.sync_deadline_ms < inf else None


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def row_of(served: ServedCluster, group_id: str) -> GroupRow:
    """Return the row of a group by its id."""
    broker, group = served.core.coordinator_of(group_id), find_any_group(served.core, group_id)
    if broker is None or group is None:
        return dead_row(served, group_id)
    return group_row(served, group, broker.node_id)


def controls_of(core: Cluster, group_id: str) -> GroupControls:
    """Return the manual settings of a group."""
    return core.group_controls.get(group_id) or GroupControls()


def find_any_group(core: Cluster, group_id: str) -> AnyGroup | None:
    """Return the group of either type at its coordinator; None if there is no such group, or no coordinator."""
    broker = core.coordinator_of(group_id)
    if broker is None:
        return None
    return broker.coordinator.groups.get(group_id)


def all_rows_of(served: ServedCluster, groups: Sequence[AnyGroup]) -> Steps[list[GroupRow]]:
    """Return the rows of existing groups."""
    core, rows = served.core, []
    for group in groups:
        rows.append(group_row(served, group, core.offsets_partition(group.partition).leader_id))
        yield
    return rows


def matching_groups(
    groups: Sequence[AnyGroup], group_type: GroupType | None, state: str | None, search: str
) -> Steps[Sequence[AnyGroup]]:
    """Return the groups of a type, in a state, whose ids contain a text, case-insensitive."""
    if group_type is None and state is None and not search:
        return groups
    search, matching = search.lower(), list[AnyGroup]()
    for start in range(0, len(groups), GROUPS_PER_STEP):
        matching += [
            group
            for group in groups[start : start + GROUPS_PER_STEP]
            if (group_type is None or type_of(group) == group_type)
            and (state is None or group.state.value == state)
            and search in group.group_id.lower()
        ]
        yield
    return matching


def first_groups(served: ServedCluster, groups: Sequence[AnyGroup], sort: str, count: int) -> Steps[Sequence[AnyGroup]]:
    """Return the first groups in an order: "name", "unstable" (rebalancing, most rebalances) or "busy" (highest load).

    The given groups are sorted by name, which also decides between equal ones.
    """
    if sort == "name":
        return groups[:count]
    rebalances, load = served.meter.rebalances_of, served.meter.load()
    first: list[tuple[int, int, int]] = []
    for start in range(0, len(groups), GROUPS_PER_STEP):
        numbered = enumerate(groups[start : start + GROUPS_PER_STEP], start)
        if sort == "unstable":
            keys = [(int(_is_calm(group)), -rebalances.get(group.group_id, 0), at) for at, group in numbered]
        else:
            keys = [(-load[group.group_id], -len(group.members), at) for at, group in numbered]
        first = nsmallest(count, first + keys)
        yield
    return [groups[at] for *_, at in first]


def _is_calm(group: AnyGroup) -> bool:
    return group.state.value not in REBALANCING
