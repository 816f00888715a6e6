"""The event stream of a cluster, and the changes that its events tell."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from fakebroker.control.clusters import Clusters, Served
from fakebroker.control.problems import Problem
from fakebroker.control.routes.group_views import GroupRow, row_of
from fakebroker.control.routes.journal import RequestRow, request_row
from fakebroker.control.routes.operations import CLUSTER, Content, encoder, operation
from fakebroker.control.routes.views import overview
from fakebroker.control.steps import Steps
from fakebroker.control.streams import Feed, Stream, Update, Wanted
from fakebroker.coordinator.group.history import Moment

logger = logging.getLogger("fakebroker")

EVENT_STREAM = "text/event-stream"
KINDS = ("overview", "requests", "groups")
MAX_STREAMS = 1_000
SHOWN = 50
MAX_ROWS = 500


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


class StreamQuery(msgspec.Struct, kw_only=True):
    """Which events a stream sends."""

    kinds: Annotated[str, Meta(description="Kinds of events, comma-separated; all by default.")] = ",".join(KINDS)
    group: Annotated[str | None, Meta(description="The id of a group whose moments are sent as `timeline` events.")] = (
        None
    )


@operation("GET", f"{CLUSTER}/stream", media_type=EVENT_STREAM)
async def stream(clusters: Clusters, cluster: str, query: StreamQuery) -> Content:
    """Get changes as server-sent events with JSON data: an overview once a second, others up to four times."""
    kinds = [kind for kind in query.kinds.split(",") if kind]
    for kind in kinds:
        if kind not in KINDS:
            expected = f"some of {', '.join(KINDS)}"
            raise Problem(422, f"kinds={kind!r}: expected {expected}", field="kinds", value=kind, expected=expected)
    served = clusters.get(cluster)
    if sum(len(each.feed.streams) for each in clusters if each.feed) >= MAX_STREAMS:
        expected = f"at most {MAX_STREAMS} at a time"
        raise Problem(503, f"there are {MAX_STREAMS} streams already: expected {expected}", expected=expected)
    seen = await served.look(lambda: _version(served))
    events = _events(clusters, served, Stream(kinds, query.group), seen)
    return Content(events, EVENT_STREAM, {"cache-control": "no-store"})


async def _events(clusters: Clusters, served: Served, stream_: Stream, seen: str) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream; `seen` is the first version if it is the cluster's only stream."""
    if served.feed is None:
        served.feed = Feed(partial(_update, served), seen)
        clusters.start_soon(_run, served, served.feed)
    async with aclosing(served.feed.events(stream_)) as events:
        async for data in events:
            yield data


async def _run(served: Served, feed: Feed) -> None:
    try:
        with served.waiting():
            await feed.run()
    except Problem:
        pass  # The cluster was deleted.
    except Exception:
        logger.exception("a stream of events failed")
    finally:
        served.feed = None
        feed.end()


async def _update(served: Served, wanted: Wanted) -> Update:
    return await served.look_in_steps(changes(served, wanted))


def changes(served: Served, wanted: Wanted) -> Steps[Update]:
    """Return the changes of a cluster since a version."""
    journal, meter = served.cluster.cluster.journal, served.meter
    seen = _version(served)
    # After a reset the counts are smaller.
    requests_before, changes_before = (
        before if before <= now else 0 for before, now in zip(_counts(wanted.after), _counts(seen), strict=True)
    )
    changed = meter.changed_since(changes_before)
    new = journal.added - requests_before
    by_kind: dict[str, object] = {}
    if "requests" in wanted.kinds and new:
        by_kind["requests"] = _requests(served, new)
    by_group = {
        group_id: TimelineNews(group_id=group_id, moments=moments)
        for group_id in wanted.group_ids
        if (moments := changed.get(group_id))
    }
    if "groups" in wanted.kinds and changed:
        by_kind["groups"] = yield from _groups(served, list(changed))
    if "overview" in wanted.kinds:
        by_kind["overview"] = yield from overview(served)
    return Update(
        seen,
        {kind: encoder.encode(data) for kind, data in by_kind.items()},
        {group_id: encoder.encode(data) for group_id, data in by_group.items()},
    )


def _version(served: Served) -> str:
    """Return the version of a cluster: its numbers of requests and of changes."""
    return f"{served.cluster.cluster.journal.added}.{served.meter.changes}"


def _counts(version: str) -> list[int]:
    return [int(count) for count in version.split(".")]


def _requests(served: Served, new: int) -> RequestNews:
    journal = served.cluster.cluster.journal
    calls = journal.newest(min(new, SHOWN))
    rows = [request_row(number, call) for number, call in enumerate(calls, journal.added - len(calls) + 1)]
    return {"sampled": new > len(rows), "seen": new, "requests": rows}


def _groups(served: Served, group_ids: Sequence[str]) -> Steps[GroupNews]:
    rows = []
    for group_id in group_ids[-MAX_ROWS:]:
        rows.append(row_of(served, group_id))
        yield
    return {"groups": rows, "more": len(group_ids) - len(rows)}
