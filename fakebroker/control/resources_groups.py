"""Groups over HTTP."""

from typing import Literal, TypedDict

import msgspec

from fakebroker.cluster.group_seed import GroupSeed
from fakebroker.control.clusters import Served
from fakebroker.control.group_views import (
    GroupDetail,
    GroupRow,
    TimelineView,
    all_rows_of,
    detail,
    row_of,
    sorted_groups,
)
from fakebroker.control.operations import CLUSTER, Arguments, arguments_of, json_type, operation
from fakebroker.control.problems import Problem, not_found
from fakebroker.control.reading import check_range
from fakebroker.errors import ErrorCode
from fakebroker.server.fake_cluster import FakeCluster
from fakebroker.server.views import find_group, timeline_of

GROUP = f"{CLUSTER}/groups/{{group_id}}"

MAX_LISTED = 10_000


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
    search = query.search.lower()
    found = [
        group
        for group in sorted_groups(served, query.sort)
        if query.state in (None, group.state.value) and search in group.group_id.lower()
    ]
    return {"total": len(found), "groups": all_rows_of(served, found[query.offset : query.offset + query.limit])}


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
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if broker is not None:
        error = broker.coordinator.delete_group(group_id, served.cluster.clock.now_ms())
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        raise not_found("group", group_id, "a group that is there")
    if error:
        expected = "a group without members" if error is ErrorCode.NON_EMPTY_GROUP else "a coordinator that serves it"
        raise Problem(409, f"{error.name}: expected {expected}", field="group_id", value=group_id, expected=expected)


class Explanation(TypedDict):
    """The state of a group and why, in words."""

    text: str


@operation("GET", f"{GROUP}/timeline")
def get_timeline(served: Served, group_id: str) -> TimelineView:
    """What a group went through, with the causes; as data, as text and as a picture."""
    _check_known(served, group_id)
    timeline = timeline_of(served.cluster.cluster, group_id, served.cluster.clock.now_ms())
    svg = timeline.svg() if timeline.moments else None
    moments = list(timeline.moments)
    return {
        "group_id": group_id, "taken_ms": timeline.taken_ms, "moments": moments, "text": timeline.text(), "svg": svg,
    }  # fmt: skip


@operation("GET", f"{GROUP}/explain")
def explain_group(served: Served, group_id: str) -> Explanation:
    """In words: the state of a group and why, who is waited for, and until when."""
    _check_known(served, group_id)
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
