"""Groups over HTTP."""

from bisect import bisect_right
from operator import attrgetter
from typing import Literal, TypedDict

import msgspec

from fakebroker.cluster.inspect.timeline import Timeline
from fakebroker.cluster.inspect.views import find_group
from fakebroker.cluster.seed import GroupSeed
from fakebroker.control.clusters import Served
from fakebroker.control.problems import Problem, not_found
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.group_views import (
    FullGroup,
    GroupDetail,
    GroupRow,
    TimelineView,
    all_rows_of,
    detail,
    first_groups,
    full_group,
    row_of,
)
from fakebroker.control.routes.operations import CLUSTER, Arguments, arguments_of, json_type, operation
from fakebroker.coordinator.group.history import MAX_MOMENTS_OF_A_GROUP
from fakebroker.errors import ErrorCode
from fakebroker.server.fake_cluster import FakeCluster

GROUP = f"{CLUSTER}/groups/{{group_id}}"

MAX_LISTED = 1_000
MAX_FULL = 100


class GroupQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which groups, in which order: those that have most to do, by name, or those that rebalance most."""

    state: Literal["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"] | None = None
    search: str = ""
    sort: Literal["busy", "name", "unstable"] = "name"
    limit: int = 100
    offset: int = 0


class GroupList(TypedDict):
    """Some groups; `total` is how many there would be without limit and offset."""

    total: int
    groups: list[GroupRow]


@operation("GET", f"{CLUSTER}/groups")
def list_groups(served: Served, query: GroupQuery) -> GroupList:
    """Groups, with why they are in their state; `search` is a part of the id in any case."""
    check_range("limit", query.limit, 0, MAX_LISTED)
    check_range("offset", query.offset, 0, 2**31)
    found, search = served.census.now().groups, query.search.lower()
    if query.state is not None:
        found = [group for group in found if group.state.value == query.state]
    if search:
        found = [group for group in found if search in group.group_id.lower()]
    first = first_groups(served, found, query.sort, query.offset + query.limit)
    return {"total": len(found), "groups": all_rows_of(served, first[query.offset :])}


class FullGroupQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which groups: those whose ids come behind one."""

    after: str | None = None
    limit: int = MAX_FULL


class FullGroupList(TypedDict):
    """Some groups by name; `taken_ms` is when they were so."""

    taken_ms: float
    groups: list[FullGroup]


@operation("GET", f"{CLUSTER}/group_views")
def list_full_groups(served: Served, query: FullGroupQuery) -> FullGroupList:
    """Groups by name with all members and all that they went through: one page after the other gives all of them."""
    check_range("limit", query.limit, 1, MAX_FULL)
    after = query.after
    all_groups = served.census.now().groups
    start = 0 if after is None else bisect_right(all_groups, after, key=attrgetter("group_id"))
    groups = [full_group(served, group) for group in all_groups[start : start + query.limit]]
    return {"taken_ms": served.cluster.clock.now_ms(), "groups": groups}


@operation("GET", GROUP)
def get_group(served: Served, group_id: str) -> GroupDetail:
    """One group with its members and offsets; one that is gone is Dead."""
    _check_known(served, group_id)
    return detail(served, group_id)


def _check_known(served: Served, group_id: str) -> None:
    core = served.cluster.cluster
    if find_group(core, group_id) is None and not core.history.of(group_id):
        raise not_found("group", group_id, "a group that is there, or was")


@operation("DELETE", GROUP, status=204)
def delete_group(served: Served, group_id: str) -> None:
    """Delete a group without members, as DeleteGroups does."""
    broker = served.cluster.cluster.coordinator_of(group_id)
    errors: list[ErrorCode] = []
    if broker is None:
        errors.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    else:
        broker.coordinator.delete_group(group_id, served.cluster.clock.now_ms(), errors.append)
    error = errors[0] if errors else ErrorCode.NONE  # Without a result yet: the tombstones are being stored.
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        raise not_found("group", group_id, "a group that is there")
    if error:
        expected = "a group without members" if error is ErrorCode.NON_EMPTY_GROUP else "a coordinator that serves it"
        raise Problem(409, f"{error.name}: expected {expected}", field="group_id", value=group_id, expected=expected)


class Explanation(TypedDict):
    """The state of a group and why, in words."""

    text: str


class TimelineQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How much is wanted: the last so many moments, and pictures of them, which take their time for large groups."""

    limit: int = MAX_MOMENTS_OF_A_GROUP
    text: bool = False
    svg: bool = False


@operation("GET", f"{GROUP}/timeline")
def get_timeline(served: Served, group_id: str, query: TimelineQuery) -> TimelineView:
    """What a group went through, with the causes: as data, and if asked for as pictures in text and in SVG."""
    check_range("limit", query.limit, 1, MAX_MOMENTS_OF_A_GROUP)
    _check_known(served, group_id)
    moments = served.cluster.cluster.history.of(group_id)[-query.limit :]
    timeline = Timeline(group_id, moments, served.cluster.clock.now_ms())
    return {
        "group_id": group_id,
        "taken_ms": timeline.taken_ms,
        "moments": list(moments),
        "text": timeline.text() if query.text else None,
        "svg": timeline.svg() if query.svg and moments else None,
    }


class Coordinator(TypedDict):
    """The broker that coordinates a group; null while none does."""

    node_id: int | None


@operation("GET", f"{GROUP}/coordinator")
def get_coordinator(served: Served, group_id: str) -> Coordinator:
    """Who coordinates a group, or would if it were there."""
    broker = served.cluster.cluster.coordinator_of(group_id)
    return {"node_id": None if broker is None else broker.node_id}


@operation("GET", f"{GROUP}/explain")
def explain_group(served: Served, group_id: str) -> Explanation:
    """In words: the state of a group and why, who is waited for, and until when; also of one that is not there."""
    return {"text": served.cluster.explain(group_id)}


# By hand


def _by_hand(name: str, *, needs_group: bool = True) -> None:
    """Make a method of `FakeCluster` that does something to a group an operation."""
    method = getattr(FakeCluster, name)

    def run(served: Served, group_id: str, body: Arguments) -> GroupRow:
        if needs_group and find_group(served.cluster.cluster, group_id) is None:
            raise not_found("group", group_id, "a group that is there")
        method(served.cluster, group_id, **body.given())
        return row_of(served, group_id)

    run.__name__, run.__doc__ = name, method.__doc__
    operation("POST", f"{GROUP}/{name}", body=arguments_of(method, "group_id"))(run)


for _name in ("choose_leader", "delay_sync", "evict", "expire", "fence", "force_rebalance", "release_sync"):
    _by_hand(_name)
for _name in ("hold", "release"):  # It need not be there yet.
    _by_hand(_name, needs_group=False)


# Seeding


class SeedMany(Arguments):
    """Groups to be."""

    groups: list[json_type(GroupSeed)]  # type: ignore[valid-type]  # It is made of GroupSeed.


@operation("POST", f"{GROUP}/seed", status=201, body=arguments_of(FakeCluster.seed_group, "group_id"))
def seed_group(served: Served, group_id: str, body: Arguments) -> GroupRow:
    """Put a group there, as if clients had brought it to where it is."""
    served.cluster.seed_group(group_id, **body.given())
    return row_of(served, group_id)


@operation("POST", f"{CLUSTER}/groups/seed", status=201, body=SeedMany)
def seed_groups(served: Served, body: Arguments) -> GroupList:
    """Put many groups there at once; if one of them cannot be, none is."""
    seeds = body.given()["groups"]
    served.cluster.seed_groups(seeds)
    return {"total": len(seeds), "groups": [row_of(served, seed.group_id) for seed in seeds[:100]]}
