"""The groups of both types whose rebalances wait for members: which members block them, since when and until when."""

from collections.abc import Sequence
from heapq import nsmallest
from math import inf
from typing import Literal, TypedDict

import msgspec

from fakebroker.cluster.inspect.timelines import short_names
from fakebroker.cluster.inspect.views import member_names
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.control.routes.views.group_rows import (
    REBALANCING,
    blocked_until_ms,
    blocking_members,
    controls_of,
    count_reconciled,
    is_revocation_held,
)
from fakebroker.control.stats.group_index import GROUPS_PER_STEP, AnyGroup
from fakebroker.control.steps import Steps
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.group_controls import GroupControls

MAX_LISTED = 100

_MAX_NAMES = 3


class BlockedGroup(TypedDict):
    """A group whose rebalance waits.

    `sent` of its `members` have sent `request`, and the group waits for the request of `missing` members; `blocking`
    has the names of the first three. If none are missing, it waits for more members (initial rebalance delay), for
    expected members, or until it is released. At `until_ms` the timer of the phase expires, which removes `removes`
    members that have not sent the request by then; null if the group is held, or no timer is running. The wait does not
    end then if `restarts`: the initial delay is extended, or only static members are left. `explain` has the sentences.

    Members of a consumer group have sent the ConsumerGroupHeartbeat if they have reached the target assignment. It is
    missing from those that have to give up partitions, `partitions` in all, or have not heard of the target assignment.
    `is_held` if the assignor is held, or one of these members; their timers continue.
    """

    group_id: str
    state: str
    since_ms: float
    request: Literal["JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"]
    blocking: list[str]
    missing: int
    partitions: int
    sent: int
    members: int
    is_held: bool
    until_ms: float | None
    removes: int
    restarts: bool


class BlockedGroupList(TypedDict):
    """Groups whose rebalances wait: those that wait for a member first, longest first; `total` without the limit."""

    total: int
    groups: list[BlockedGroup]


class BlockedGroupQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The maximum number of groups."""

    limit: int = 20


@operation("GET", f"{CLUSTER}/blocked_groups")
def list_blocked_groups(served: ServedCluster, query: BlockedGroupQuery) -> Steps[BlockedGroupList]:
    """List groups whose rebalances wait, with the members that block them, and until when."""
    check_range("limit", query.limit, 0, MAX_LISTED)
    all_groups, core = (yield from served.index.groups()), served.core
    first: list[tuple[bool, float, int]] = []
    total = 0
    for start in range(0, len(all_groups), GROUPS_PER_STEP):
        waiting = [
            (not _missing(group), group.state_since_ms, at)
            for at, group in enumerate(all_groups[start : start + GROUPS_PER_STEP], start)
            if group.state.value in REBALANCING
        ]
        total += len(waiting)
        first = nsmallest(query.limit, first + waiting)
        yield
    rows = []
    for *_, at in first:
        group = all_groups[at]
        if isinstance(group, ConsumerGroup):
            rows.append(_consumer_group_row(group, controls_of(core, group.group_id)))
        else:
            rows.append(_row(group))
        yield
    return {"total": total, "groups": rows}


def _missing(group: AnyGroup) -> Sequence[str]:
    """Return the ids of the members that a rebalance waits for."""
    if isinstance(group, ConsumerGroup):
        return [member.member_id for member in blocking_members(group)]
    if group.state is COMPLETING_REBALANCE:
        return [group.leader_id] if group.leader_id else []
    return [each for each in (*group.members, *group.pending_members) if each not in group.parked_joins]


def _row(group: Group) -> BlockedGroup:
    missing, is_joining = _missing(group), group.state is PREPARING_REBALANCE
    until_ms = group.join_deadline_ms if is_joining else group.sync_deadline_ms
    removes, restarts = _expiry_of_join(group) if is_joining else (len(group.awaiting_sync), False)
    names = short_names([*group.members, *group.pending_members])
    return {
        "group_id": group.group_id,
        "state": group.state.value,
        "since_ms": group.state_since_ms,
        "request": "JoinGroup" if is_joining else "SyncGroup",
        "blocking": [names[each] for each in missing[:_MAX_NAMES]],
        "missing": len(missing),
        "partitions": 0,
        "sent": len(group.parked_joins) if is_joining else len(group.members) - len(group.awaiting_sync),
        "members": len(group.members),
        "is_held": group.is_held,
        "until_ms": None if group.is_held or until_ms == inf else until_ms,
        "removes": removes,
        "restarts": restarts,
    }


def _consumer_group_row(group: ConsumerGroup, controls: GroupControls) -> BlockedGroup:
    members, names, until_ms = blocking_members(group), member_names(group), blocked_until_ms(group)
    missing = [member.member_id for member in members]
    is_held = ConsumerGroupState.ASSIGNING in controls.held_states and group.state is ConsumerGroupState.ASSIGNING
    is_held = is_held or any(is_revocation_held(each, controls) for each in members)
    return {
        "group_id": group.group_id,
        "state": group.state.value,
        "since_ms": group.state_since_ms,
        "request": "ConsumerGroupHeartbeat",
        "blocking": [names[each] for each in missing[:_MAX_NAMES]],
        "missing": len(missing),
        "partitions": sum(len(indexes) for each in members for indexes in each.pending_revocation.values()),
        "sent": count_reconciled(group),
        "members": len(group.members),
        "is_held": is_held,
        "until_ms": until_ms,
        "removes": 0 if until_ms is None else 1,
        "restarts": False,
    }


def _expiry_of_join(group: Group) -> tuple[int, bool]:
    """Return how many members the join timer removes, and whether it starts again; see `rebalance.complete_join_phase`.

    The forecast of `explain` says more, but takes too long for large groups, every second.
    """
    if group.is_initial_rebalance and group.new_member_added and group.initial_remaining_ms:
        return 0, True
    missing = [member for member in group.members.values() if member.member_id not in group.parked_joins]
    removes = sum(member.instance_id is None for member in missing)
    return removes, not group.parked_joins and removes < len(missing)
