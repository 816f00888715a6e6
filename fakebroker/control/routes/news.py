"""What is new in a cluster since somebody looked: what streams of events are made of."""

from collections.abc import Sequence
from typing import TypedDict

from fakebroker.control.clusters import Served
from fakebroker.control.routes.group_views import GroupRow, row_of
from fakebroker.control.routes.journal import RequestRow, request_row
from fakebroker.control.routes.operations import CLUSTER, Arguments, operation
from fakebroker.control.routes.views import Overview, overview
from fakebroker.coordinator.group.history import Moment

SHOWN = 50
MAX_ROWS = 500


class Wanted(Arguments):
    """What is wanted; `timelines` are groups. `after` is the `seen` of an earlier answer: without it nothing is new."""

    after: str = ""
    overview: bool = False
    requests: bool = False
    groups: bool = False
    timelines: tuple[str, ...] = ()


class RequestNews(TypedDict):
    """The last of the requests that have come; `seen` is how many have, `sampled` whether these are not all."""

    sampled: bool
    seen: int
    requests: list[RequestRow]


class GroupNews(TypedDict):
    """The groups to which something happened; `more` is how many there are beside these, of which it is longer ago."""

    groups: list[GroupRow]
    more: int


class TimelineNews(TypedDict):
    """What happened to one group."""

    group_id: str
    moments: list[Moment]


class News(TypedDict):
    """What is new; null is what was not asked for, or where nothing is."""

    seen: str
    overview: Overview | None
    requests: RequestNews | None
    groups: GroupNews | None
    timelines: dict[str, TimelineNews]


@operation("POST", f"{CLUSTER}/news", body=Wanted, changes_nothing=True)
def ask_for_news(served: Served, body: Wanted) -> News:
    """What is new since somebody looked last; streams are made of it."""
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
    """The counts that somebody has seen; those of now for a newcomer."""
    seen = after.split(".")
    if len(seen) != len(now) or not all(each.isdecimal() for each in seen):
        return now
    # After a reset there are fewer.
    return tuple(int(each) if int(each) <= there else 0 for each, there in zip(seen, now, strict=True))


def _requests(served: Served, new: int) -> RequestNews:
    journal = served.cluster.cluster.journal
    calls = journal.newest(min(new, SHOWN))
    rows = [request_row(number, call) for number, call in enumerate(calls, journal.added - len(calls) + 1)]
    return {"sampled": new > len(rows), "seen": new, "requests": rows}


def _groups(served: Served, group_ids: Sequence[str]) -> GroupNews:
    shown = group_ids[-MAX_ROWS:]
    return {"groups": [row_of(served, each) for each in shown], "more": len(group_ids) - len(shown)}
