"""Operations on groups."""

from bisect import bisect_right
from operator import attrgetter
from typing import Literal, TypedDict

import msgspec

from fakebroker.cluster.handles.definition import Arguments
from fakebroker.cluster.inspect.timelines import Timeline, names_in
from fakebroker.cluster.inspect.views import GroupType
from fakebroker.cluster.seeding.seed import GroupSeed, seed_in_steps
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import not_found
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.control.routes.views.group_rows import (
    GroupRow,
    all_rows_of,
    find_any_group,
    first_groups,
    matching_groups,
    row_of,
)
from fakebroker.control.routes.views.group_views import FullGroup, GroupDetail, TimelineView, detail, full_group
from fakebroker.control.steps import Steps
from fakebroker.coordinator.history import MAX_MOMENTS_OF_ONE

GROUP = f"{CLUSTER}/groups/{{group_id}}"

MAX_LISTED = 1_000
MAX_FULL = 100
SVG_WIDTHS = (200, 20_000)


State = Literal["Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable"]
"""The states of groups of both types."""


class GroupQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Filters and order of groups: by load, by name, or by the number of rebalances."""

    type: GroupType | None = None
    state: State | None = None
    search: str = ""
    sort: Literal["busy", "name", "unstable"] = "name"
    limit: int = 100
    offset: int = 0


class GroupList(TypedDict):
    """Some groups; `total` is the number without limit and offset."""

    total: int
    groups: list[GroupRow]


@operation("GET", f"{CLUSTER}/groups")
def list_groups(served: ServedCluster, query: GroupQuery) -> Steps[GroupList]:
    """List groups with explanations of their states; `search` is a part of the id, case-insensitive."""
    check_range("limit", query.limit, 0, MAX_LISTED)
    check_range("offset", query.offset, 0, 2**31)
    all_groups = yield from served.index.groups()
    matching = yield from matching_groups(all_groups, query.type, query.state, query.search)
    first = yield from first_groups(served, matching, query.sort, query.offset + query.limit)
    rows = yield from all_rows_of(served, first[query.offset :])
    return {"total": len(matching), "groups": rows}


class FullGroupQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of groups: those with ids after `after`."""

    after: str | None = None
    limit: int = MAX_FULL


class FullGroupList(TypedDict):
    """Some groups by name; `taken_ms` is the time of their state."""

    taken_ms: float
    groups: list[FullGroup]


@operation("GET", f"{CLUSTER}/group_views")
def list_full_groups(served: ServedCluster, query: FullGroupQuery) -> Steps[FullGroupList]:
    """List groups by name with all members and histories, in pages."""
    check_range("limit", query.limit, 1, MAX_FULL)
    after = query.after
    all_groups = yield from served.index.groups()
    start = 0 if after is None else bisect_right(all_groups, after, key=attrgetter("group_id"))
    groups = []
    for group in all_groups[start : start + query.limit]:
        groups.append(full_group(served, group.group_id))
        yield
    return {"taken_ms": served.now_ms(), "groups": groups}


@operation("GET", GROUP)
def get_group(served: ServedCluster, group_id: str) -> GroupDetail:
    """Get a group with its members and offsets; a group that was removed is Dead."""
    _check_known(served, group_id)
    return detail(served, group_id)


def _check_known(served: ServedCluster, group_id: str) -> None:
    core = served.core
    has_history = core.history.of(group_id) or core.history.dropped_of(group_id).count
    if find_any_group(core, group_id) is None and not has_history:
        raise not_found("group", group_id, "a group that exists or has a history")


class TimelineQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The number of latest moments, and whether to draw them as text and SVG, which is slow for large groups.

    `width` is the width of the SVG in pixels, `max_rows` its number of members or partitions; by default not limited.
    """

    limit: int = MAX_MOMENTS_OF_ONE
    text: bool = False
    svg: bool = False
    width: int | None = None
    max_rows: int | None = None


def check_timeline(query: TimelineQuery) -> None:
    """Raise Problem if a number in the query for a timeline is out of its range."""
    check_range("limit", query.limit, 1, MAX_MOMENTS_OF_ONE)
    if query.width is not None:
        check_range("width", query.width, *SVG_WIDTHS)
    if query.max_rows is not None:
        check_range("max_rows", query.max_rows, 1, MAX_LISTED)


@operation("GET", f"{GROUP}/timeline")
def get_timeline(served: ServedCluster, group_id: str, query: TimelineQuery) -> TimelineView:
    """Get the history of a group with causes: as data, and on request drawn as text and SVG."""
    check_timeline(query)
    dropped = served.core.history.dropped_of(group_id)
    if not dropped:
        _check_known(served, group_id)
    moments = served.core.history.of(group_id)[-query.limit :]
    timeline = Timeline(group_id, moments, served.now_ms(), dropped)
    return TimelineView(
        **msgspec.structs.asdict(timeline),
        names=names_in(moments),
        drawn_text=timeline.text() if query.text else None,
        drawn_svg=timeline.svg(query.width, query.max_rows) if query.svg and moments else None,
    )


# Seeding


class SeedMany(Arguments):
    """Groups to create."""

    groups: list[GroupSeed]


@operation("POST", f"{CLUSTER}/seed_groups", status=201, body=SeedMany)
def seed_groups(served: ServedCluster, body: SeedMany) -> Steps[GroupList]:
    """Create many groups; none is created if one of them is invalid or exists."""
    yield from seed_in_steps(served.core, body.groups, served.server.clock.now_ms)
    return {"total": len(body.groups), "groups": [row_of(served, seed.group_id) for seed in body.groups[:100]]}
