"""Groups as JSON: rows of a list, and details of one group. Read-only."""

from collections.abc import Sequence
from heapq import nsmallest
from math import inf
from typing import Literal, TypedDict

from fakebroker.cluster.inspect.consumer_groups import AwaitedPartition
from fakebroker.cluster.inspect.deadlines import Deadline, deadlines_of
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.timeline import short_names, with_names, without_zombies
from fakebroker.cluster.inspect.views import (
    GroupType,
    GroupView,
    MemberView,
    find_group,
    pending_offsets,
    view_group,
)
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.stats.group_index import GROUPS_PER_STEP
from fakebroker.control.steps import Steps
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.group.history import Moment
from fakebroker.coordinator.runtime.history import DEAD, DroppedMoments
from fakebroker.topic_partition import TopicPartition, format_partitions

_MAX_NAMES = 3


class GroupRow(TypedDict):
    """One group in a list; `coordinator` is a node id, `why` an explanation, `rebalances` a count since the start.

    `until_ms` is when the group stops waiting for requests of its members, by the brokers' clock; null if it does not
    wait, or without a limit.
    """

    group_id: str
    state: str
    generation_id: int
    members: int
    protocol_name: str | None
    coordinator: int | None
    since_ms: float
    until_ms: float | None
    rebalances: int
    why: str


class OffsetRow(TypedDict):
    """One committed offset."""

    topic: str
    partition: int
    offset: int
    metadata: str
    leader_epoch: int
    commit_timestamp_ms: int


class PendingOffsetRow(TypedDict):
    """An offset that was committed in a transaction of a producer which has not ended."""

    producer_id: int
    topic: str
    partition: int
    offset: int


class MemberRow(TypedDict):
    """One member of a group; `assignment` and `metadata` are in base64, and decoded if it is a consumer, else null.

    `missing_request` is the request that the group waits for, if it waits for one of this member. Epochs, state,
    target and awaited partitions are those of a member of a consumer group.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes
    metadata: bytes
    protocol_type: str | None
    protocol_name: str | None
    is_expected: bool
    missing_request: Literal["JoinGroup", "SyncGroup"] | None
    assigned_partitions: list[str] | None
    subscribed_topics: list[str] | None
    owned_partitions: list[str] | None
    member_epoch: int | None
    previous_epoch: int | None
    state: str | None
    pending_revocation: list[str]
    target: list[str]
    awaited: list[AwaitedPartition]
    rack_id: str | None
    server_assignor: str | None


class GroupDetail(TypedDict):
    """One group with its members and offsets; `deadlines` are the next ones of the group, at most 20."""

    group_id: str
    type: GroupType | None
    assignment_epoch: int | None
    state: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: list[MemberRow]
    since_ms: float | None
    rebalances: int
    why: str
    offsets: list[OffsetRow]
    pending_offsets: list[PendingOffsetRow]
    coordinator: int | None
    explanation: str
    deadlines: list[Deadline]


class TimelineView(TypedDict):
    """The history of a group; `text` and `svg` are null unless requested.

    `dropped` are earlier moments that are no longer kept.
    """

    group_id: str
    taken_ms: float
    moments: list[Moment]
    dropped: DroppedMoments
    text: str | None
    svg: str | None


class FullGroup(TypedDict):
    """One group with its members and history."""

    group_id: str
    type: GroupType | None
    assignment_epoch: int | None
    state: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: list[MemberRow]
    pending_offsets: list[PendingOffsetRow]
    moments: list[Moment]
    dropped: DroppedMoments


def group_row(served: ServedCluster, group: Group, coordinator: int | None) -> GroupRow:
    """Return the row of an existing group."""
    moments = without_zombies(served.cluster.cluster.history.of(group.group_id))
    return {
        "group_id": group.group_id,
        "state": group.state.value,
        "generation_id": group.generation_id,
        "members": len(group.members),
        "protocol_name": group.protocol_name,
        "coordinator": coordinator,
        "since_ms": group.state_since_ms,
        "until_ms": _waits_until_ms(group),
        "rebalances": served.meter.rebalances_of.get(group.group_id, 0),
        "why": why(group, moments),
    }


def dead_row(served: ServedCluster, group_id: str) -> GroupRow:
    """Return the row of a group that does not exist, or has no coordinator."""
    moments = served.cluster.cluster.history.of(group_id)
    return {
        "group_id": group_id,
        "state": DEAD,
        "generation_id": 0,
        "members": 0,
        "protocol_name": None,
        "coordinator": None,
        "since_ms": moments[-1].at_ms if moments else 0.0,
        "until_ms": None,
        "rebalances": 0,
        "why": moments[-1].cause if moments else "",
    }


def why(group: Group, moments: Sequence[Moment]) -> str:
    """Return a short explanation: the cause of a group's state, and the members that it waits for."""
    last = next((moment for moment in reversed(moments) if moment.is_transition), None)
    # The cause mentions only members of its moment; names for all former members would take too long.
    mentioned = (*last.members, *last.left) if last else ()
    names = short_names([*group.members, *group.pending_members, *mentioned])
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
    core = served.cluster.cluster
    broker, group = core.coordinator_of(group_id), find_group(core, group_id)
    if broker is None or group is None:
        return dead_row(served, group_id)
    return group_row(served, group, broker.node_id)


def all_rows_of(served: ServedCluster, groups: Sequence[Group]) -> Steps[list[GroupRow]]:
    """Return the rows of existing groups."""
    core, rows = served.cluster.cluster, []
    for group in groups:
        rows.append(group_row(served, group, core.offsets_partition(group.partition).leader_id))
        yield
    return rows


def _member_row(member: MemberView, group: Group | None) -> MemberRow:
    topics = member.subscribed_topics
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "instance_id": member.instance_id,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "assignment": member.assignment,
        "metadata": member.metadata,
        "protocol_type": member.protocol_type,
        "protocol_name": member.protocol_name,
        "is_expected": member.is_expected,
        "missing_request": _missing_request(member, group),
        "assigned_partitions": _names(member.assigned_partitions),
        "subscribed_topics": None if topics is None else list(topics),
        "owned_partitions": _names(member.owned_partitions),
        "member_epoch": member.member_epoch,
        "previous_epoch": member.previous_epoch,
        "state": member.state,
        "pending_revocation": _names(member.pending_revocation) or [],
        "target": _names(member.target) or [],
        "awaited": list(member.awaited),
        "rack_id": member.rack_id,
        "server_assignor": member.server_assignor,
    }


def _missing_request(member: MemberView, group: Group | None) -> Literal["JoinGroup", "SyncGroup"] | None:
    if group is None or member.member_id not in group.members:
        return None
    if group.state is PREPARING_REBALANCE:
        return None if member.member_id in group.parked_joins else "JoinGroup"
    return "SyncGroup" if member.member_id in group.awaiting_sync else None


def _names(partitions: Sequence[TopicPartition] | None) -> list[str] | None:
    return None if partitions is None else [format_partitions([each]) for each in partitions]


def full_group(served: ServedCluster, group: Group) -> FullGroup:
    """Return an existing group with the fields of `GroupView`."""
    view = GroupView.of(group.group_id, group, pending_offsets=pending_offsets(served.cluster.cluster, group.group_id))
    return {
        "group_id": view.group_id,
        "type": view.type,
        "assignment_epoch": view.assignment_epoch,
        "state": view.state,
        "generation_id": view.generation_id,
        "protocol_type": view.protocol_type,
        "protocol_name": view.protocol_name,
        "leader_id": view.leader_id,
        "members": [_member_row(member, group) for member in view.members],
        "pending_offsets": _pending_rows(view),
        "moments": list(served.cluster.cluster.history.of(group.group_id)),
        "dropped": served.cluster.cluster.history.dropped_of(group.group_id),
    }


def detail(served: ServedCluster, group_id: str, view: GroupView | None = None) -> GroupDetail:
    """Return the details of a group. The fields of a `GroupView` are those of `view`, by default the current ones."""
    core, now_ms = served.cluster.cluster, served.cluster.clock.now_ms()
    view, row = view or view_group(core, group_id, now_ms), row_of(served, group_id)
    broker, group = core.coordinator_of(group_id), find_group(core, group_id)
    return {
        "group_id": group_id,
        "type": view.type,
        "assignment_epoch": view.assignment_epoch,
        "state": view.state,
        "generation_id": view.generation_id,
        "protocol_type": view.protocol_type,
        "protocol_name": view.protocol_name,
        "leader_id": view.leader_id,
        "members": [_member_row(member, group) for member in view.members],
        "since_ms": row["since_ms"],
        "rebalances": row["rebalances"],
        "why": row["why"],
        "offsets": [
            {
                "topic": topic,
                "partition": index,
                "offset": committed.offset,
                "metadata": committed.metadata,
                "leader_epoch": committed.leader_epoch,
                "commit_timestamp_ms": committed.commit_timestamp_ms,
            }
            for (topic, index), committed in served.cluster.offsets(group_id).items()
        ],
        "pending_offsets": _pending_rows(view),
        "coordinator": None if broker is None else broker.node_id,
        "explanation": explain(core, group_id, now_ms),
        "deadlines": deadlines_of(core, group_id, now_ms),
    }


def _pending_rows(view: GroupView) -> list[PendingOffsetRow]:
    return [
        {
            "producer_id": each.producer_id,
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
        }
        for each in view.pending_offsets
    ]


def matching_groups(groups: Sequence[Group], state: str | None, search: str) -> Steps[Sequence[Group]]:
    """Return the groups in a state whose ids contain a text, case-insensitive."""
    if state is None and not search:
        return groups
    search, matching = search.lower(), list[Group]()
    for start in range(0, len(groups), GROUPS_PER_STEP):
        matching += [
            group
            for group in groups[start : start + GROUPS_PER_STEP]
            if (state is None or group.state.value == state) and search in group.group_id.lower()
        ]
        yield
    return matching


def first_groups(served: ServedCluster, groups: Sequence[Group], sort: str, count: int) -> Steps[Sequence[Group]]:
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


def _is_calm(group: Group) -> bool:
    return group.state not in (PREPARING_REBALANCE, COMPLETING_REBALANCE)
