"""Changes of a cluster since an earlier request: the source of event streams."""

from collections.abc import Sequence
from typing import TypedDict

from fakebroker.cluster.command import Arguments
from fakebroker.control.clusters import Served
from fakebroker.control.routes.group_views import GroupRow, row_of
from fakebroker.control.routes.journal import RequestRow, request_row
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.control.routes.views import Overview, overview
from fakebroker.coordinator.group.history import Moment

SHOWN = 50
MAX_ROWS = 500


class Wanted(Arguments):
    """The changes to return; `timelines` are groups. `after` is `seen` of an earlier response; omit it at first."""

    after: str = ""
    overview: bool = False
    requests: bool = False
    groups: bool = False
    timelines: tuple[str, ...] = ()


class RequestNews(TypedDict):
    """The latest of the new requests; `seen` is the number of new ones, `sampled` whether some are omitted."""

    sampled: bool
    seen: int
    requests: list[RequestRow]


class GroupNews(TypedDict):
    """The groups that changed most recently; `more` is the number of changed groups omitted."""

    groups: list[GroupRow]
    more: int


class TimelineNews(TypedDict):
    """New moments of one group."""

    group_id: str
    moments: list[Moment]


class News(TypedDict):
    """Changes; parts that were not requested or have no changes are null."""

    seen: str
    overview: Overview | None
    requests: RequestNews | None
    groups: GroupNews | None
    timelines: dict[str, TimelineNews]


@operation("POST", f"{CLUSTER}/news", body=Wanted, changes_nothing=True)
def ask_for_news(served: Served, body: Wanted) -> News:
    """Get the changes since an earlier request, as used by streams."""
    journal, meter = served.cluster.cluster.journal, served.meter
    requests_before, changes_before = _read(body.after, journal.added, meter.changes)
    changed = meter.changed_since(changes_before)
    new = max(0, journal.added - requests_before)
    return {
        "seen": f"{journal.added}.{meter.changes}",
        "overview": overview(served) if body.overview else None,
        "requests": _requests(served, new) if body.requests and new else None,
        "groups": _groups(served, list(changed)) if body.groups and changed else None,
        "timelines": {
            group_id: {"group_id": group_id, "moments": moments}
            for group_id in body.timelines
            if (moments := changed.get(group_id))
        },
    }


def _read(after: str, *now: int) -> tuple[int, ...]:
    """Parse a version; without a valid one, return the current one."""
    seen = after.split(".")
    if len(seen) != len(now) or not all(each.isdecimal() for each in seen):
        return now
    # After a reset the counts are smaller.
    return tuple(int(each) if int(each) <= there else 0 for each, there in zip(seen, now, strict=True))


def _requests(served: Served, new: int) -> RequestNews:
    journal = served.cluster.cluster.journal
    calls = journal.newest(min(new, SHOWN))
    rows = [request_row(number, call) for number, call in enumerate(calls, journal.added - len(calls) + 1)]
    return {"sampled": new > len(rows), "seen": new, "requests": rows}


def _groups(served: Served, group_ids: Sequence[str]) -> GroupNews:
    shown = group_ids[-MAX_ROWS:]
    return {"groups": [row_of(served, each) for each in shown], "more": len(group_ids) - len(shown)}
