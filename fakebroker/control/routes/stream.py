"""The event stream of a cluster, and the contents of its events."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from fakebroker.control.clusters import Clusters, ServedCluster
from fakebroker.control.feed import Feed, Stream, Update, UpdateRequest
from fakebroker.control.problems import Problem
from fakebroker.control.routes.journal import RequestRow, request_row
from fakebroker.control.routes.operations import CLUSTER, Content, encoder, operation
from fakebroker.control.routes.views.cluster_views import overview
from fakebroker.control.routes.views.group_rows import GroupRow, row_of
from fakebroker.control.steps import Steps
from fakebroker.coordinator.group_history import Moment

logger = logging.getLogger("fakebroker")

EVENT_STREAM = "text/event-stream"
KINDS = ("overview", "requests", "groups")
MAX_STREAMS = 1_000
MAX_REQUESTS = 50
MAX_GROUPS = 500


class RequestsEvent(TypedDict):
    """The latest of the new requests; `seen` is the number of new ones, `sampled` whether some are omitted."""

    sampled: bool
    seen: int
    requests: list[RequestRow]


class GroupsEvent(TypedDict):
    """The groups that changed most recently; `more` is the number of changed groups omitted."""

    groups: list[GroupRow]
    more: int


class TimelineEvent(TypedDict):
    """New moments of one group."""

    group_id: str
    moments: list[Moment]


class StreamQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which events a stream sends."""

    kinds: Annotated[str, Meta(description="Kinds of events, comma-separated; all by default.")] = ",".join(KINDS)
    group: Annotated[str | None, Meta(description="The id of a group whose moments are sent as `timeline` events.")] = (
        None
    )


@operation("GET", f"{CLUSTER}/stream", media_type=EVENT_STREAM)
async def stream(clusters: Clusters, cluster: str, query: StreamQuery) -> Content:
    """Stream changes as server-sent events with JSON data: overviews every second, others up to four times a second."""
    kinds = [kind for kind in query.kinds.split(",") if kind]
    for kind in kinds:
        if kind not in KINDS:
            expected = f"some of {', '.join(KINDS)}"
            raise Problem(422, f"kinds={kind!r}: expected {expected}", field="kinds", value=kind, expected=expected)
    served = clusters.get(cluster)
    if sum(len(each.feed.streams) for each in clusters if each.feed) >= MAX_STREAMS:
        expected = f"at most {MAX_STREAMS} at a time"
        raise Problem(503, f"there are {MAX_STREAMS} streams: expected {expected}", expected=expected)
    version = await served.read(lambda: _version(served))
    events = _events(clusters, served, Stream(kinds, query.group), version)
    return Content(events, EVENT_STREAM, {"cache-control": "no-store"})


async def _events(
    clusters: Clusters, served: ServedCluster, stream_: Stream, version: str
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream. The first stream of a cluster starts its feed, after this version."""
    if served.feed is None:
        served.feed = Feed(partial(_update, served), version)
        clusters.start_soon(_run, served, served.feed)
    async with aclosing(served.feed.events(stream_)) as events:
        async for data in events:
            yield data


async def _run(served: ServedCluster, feed: Feed) -> None:
    try:
        with served.waiting():
            await feed.run()
    except Problem:
        pass  # The cluster was deleted.
    except Exception:
        logger.exception("event stream failed")
    finally:
        served.feed = None
        feed.end()


async def _update(served: ServedCluster, request: UpdateRequest) -> Update:
    return await served.read_in_steps(changes(served, request))


def changes(served: ServedCluster, request: UpdateRequest) -> Steps[Update]:
    """Return the changes of a cluster since a version."""
    journal, meter = served.core.journal, served.meter
    version = _version(served)
    # Counts that have decreased were reset: all requests or changes are new.
    requests_before, changes_before = (
        before if before <= now else 0 for before, now in zip(_counts(request.after), _counts(version), strict=True)
    )
    changed = meter.changed_since(changes_before)
    new = journal.added - requests_before
    by_kind: dict[str, object] = {}
    if "requests" in request.kinds and new:
        by_kind["requests"] = _requests(served, new)
    by_group = {
        group_id: TimelineEvent(group_id=group_id, moments=moments)
        for group_id in request.group_ids
        if (moments := changed.get(group_id))
    }
    if "groups" in request.kinds and changed:
        by_kind["groups"] = yield from _groups(served, list(changed))
    if "overview" in request.kinds:
        by_kind["overview"] = yield from overview(served)
    return Update(
        version,
        {kind: encoder.encode(data) for kind, data in by_kind.items()},
        {group_id: encoder.encode(data) for group_id, data in by_group.items()},
    )


def _version(served: ServedCluster) -> str:
    """Return the version of a cluster: the number of its requests and of the changes of its groups."""
    return f"{served.core.journal.added}.{served.meter.changes}"


def _counts(version: str) -> list[int]:
    return [int(count) for count in version.split(".")]


def _requests(served: ServedCluster, new: int) -> RequestsEvent:
    journal = served.core.journal
    calls = journal.newest(min(new, MAX_REQUESTS))
    rows = [request_row(number, call) for number, call in enumerate(calls, journal.added - len(calls) + 1)]
    return {"sampled": new > len(rows), "seen": new, "requests": rows}


def _groups(served: ServedCluster, group_ids: Sequence[str]) -> Steps[GroupsEvent]:
    rows = []
    for group_id in group_ids[-MAX_GROUPS:]:
        rows.append(row_of(served, group_id))
        yield
    return {"groups": rows, "more": len(group_ids) - len(rows)}
