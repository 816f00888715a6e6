"""Server-sent events: changes of a cluster, several times a second.

One task polls the brokers for all streams of a cluster, so further streams are free for the brokers. A stream gets all
changes after its welcome comment; a stream that does not keep up misses some.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote, unquote

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fakebroker.control.gateway.brokers_end import BrokersEnd, HasEnded
from fakebroker.control.gateway.wire import Reply
from fakebroker.control.problems import Problem

MAX_STREAMS = 1_000
KINDS = ("overview", "requests", "groups")

_PERIOD_S = 0.25
_OVERVIEW_EVERY = 4
_COMMENT_EVERY = 60
_WAITING = 8
_NOTHING = b"null"


class Update(msgspec.Struct):
    """An update from the brokers; its parts are kept as JSON."""

    seen: str
    overview: msgspec.Raw
    requests: msgspec.Raw
    groups: msgspec.Raw
    timelines: dict[str, msgspec.Raw]


class Stream:
    """One subscriber.

    Attributes:
        kinds: The kinds of events to send.
        group_id: A group whose moments are sent as well.
        receiver: Receives the events; closed when the cluster is deleted.
    """

    def __init__(self, kinds: Sequence[str], group_id: str | None) -> None:
        self.kinds = kinds
        self.group_id = group_id
        self._sender, self.receiver = trio.open_memory_channel[bytes](_WAITING)

    def send(self, data: bytes) -> None:
        """Send an event, or drop it if the buffer is full."""
        with suppress(trio.WouldBlock):
            self._sender.send_nowait(data)

    def end(self) -> None:
        """Close the stream."""
        self._sender.close()


class ClusterStreams:
    """All streams of one cluster.

    Args:
        brokers: The link to the brokers' process.
        cluster: The cluster's name, percent-encoded.
        seen: Version after which changes are sent.
    """

    def __init__(self, brokers: BrokersEnd, cluster: str, seen: str) -> None:
        self.streams: list[Stream] = []
        self._brokers = brokers
        self._path = _news_of(cluster)
        self._turn = 0
        self._seen = seen
        self._is_idle = trio.Event()
        self._is_idle.set()

    async def run(self) -> None:
        """Send changes to the streams, as long as there are any and the cluster exists."""
        with suppress(HasEnded):
            while self.streams and (reply := await self._ask()).status == 200:
                update = msgspec.json.decode(reply.body, type=Update)
                self._seen = update.seen
                self._tell(update)
                self._turn += 1
                await trio.sleep(_PERIOD_S)
        for stream_ in self.streams:
            stream_.end()

    async def _ask(self) -> Reply:
        self._is_idle = trio.Event()
        try:
            return await self._brokers.ask("POST", self._path, body=self._wanted())
        finally:
            self._is_idle.set()

    async def add(self, stream_: Stream) -> None:
        """Add a stream; returns when no request without its events is pending."""
        self.streams.append(stream_)
        await self._is_idle.wait()

    def _wanted(self) -> bytes:
        wanted = {kind for each in self.streams for kind in each.kinds}
        if self._turn % _OVERVIEW_EVERY:
            wanted.discard("overview")
        groups = sorted({each.group_id for each in self.streams if each.group_id is not None})
        kinds = {kind: kind in wanted for kind in KINDS}
        return msgspec.json.encode({"after": self._seen, **kinds, "timelines": groups})

    def _tell(self, update: Update) -> None:
        made = {kind: event(kind, part) for kind in KINDS if bytes(part := getattr(update, kind)) != _NOTHING}
        is_quiet = self._turn % _COMMENT_EVERY == _COMMENT_EVERY - 1
        for stream_ in self.streams:
            parts = [made[kind] for kind in stream_.kinds if kind in made]
            if stream_.group_id in update.timelines:
                parts.append(event("timeline", update.timelines[stream_.group_id]))
            if is_quiet:
                parts.append(b": still here\n\n")
            if parts:
                stream_.send(b"".join(parts))


def event(kind: str, data: msgspec.Raw) -> bytes:
    """Return an event in the format of text/event-stream."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), bytes(data))


class AllStreams:
    """The streams of all clusters that have some.

    Args:
        brokers: The link to the brokers' process.
        nursery: For the tasks that poll.
    """

    def __init__(self, brokers: BrokersEnd, nursery: trio.Nursery) -> None:
        self._brokers = brokers
        self._nursery = nursery
        self._by_cluster: dict[str, ClusterStreams] = {}

    @asynccontextmanager
    async def listening(self, cluster: str, stream_: Stream, seen: str) -> AsyncIterator[None]:
        """Subscribe a stream to a cluster within the context; `seen` is the first version if it is the only stream."""
        cluster_streams = self._by_cluster.get(cluster)
        if cluster_streams is None:
            cluster_streams = self._by_cluster[cluster] = ClusterStreams(self._brokers, cluster, seen)
            self._nursery.start_soon(self._run, cluster, cluster_streams)
        try:
            await cluster_streams.add(stream_)
            yield
        finally:
            cluster_streams.streams.remove(stream_)

    async def _run(self, cluster: str, cluster_streams: ClusterStreams) -> None:
        await trio.lowlevel.checkpoint()  # its first stream is added meanwhile
        await cluster_streams.run()
        del self._by_cluster[cluster]

    def check_room(self) -> None:
        """Reject a stream beyond the maximum.

        Raises:
            Problem: The maximum number of streams is open.
        """
        if sum(len(cluster_streams.streams) for cluster_streams in self._by_cluster.values()) >= MAX_STREAMS:
            expected = f"at most {MAX_STREAMS} at a time"
            raise Problem(503, f"there are {MAX_STREAMS} streams already: expected {expected}", expected=expected)

    async def newest(self, cluster: str) -> Reply:
        """Return the response to a new stream: the current version of the cluster, or an error if there is none."""
        return await self._brokers.ask("POST", _news_of(cluster))


def _news_of(cluster: str) -> str:
    return f"/v1/clusters/{cluster}/news"


class StreamResponse(Response):
    """A streaming response, until the caller disconnects or the cluster is deleted."""

    def __init__(self, streams: AllStreams, cluster: str, stream_: Stream, seen: str) -> None:
        super().__init__(headers={"content-type": "text/event-stream", "cache-control": "no-store"})
        del self.headers["content-length"]
        self._streams, self._cluster, self._stream, self._seen = streams, cluster, stream_, seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
            async with self._streams.listening(self._cluster, self._stream, self._seen):
                await send(start)
                await send({"type": "http.response.body", "body": b": welcome\n\n", "more_body": True})
                async for piece in self._stream.receiver:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def stream(streams: AllStreams, request: Request) -> Response:
    """Respond with a stream of changes of a cluster."""
    kinds = [kind for kind in request.query_params.get("kinds", ",".join(KINDS)).split(",") if kind]
    for kind in kinds:
        if kind not in KINDS:
            expected = f"some of {', '.join(KINDS)}"
            raise Problem(422, f"kinds={kind!r}: expected {expected}", field="kinds", value=kind, expected=expected)
    streams.check_room()
    # One ClusterStreams per cluster, however its name is percent-encoded.
    cluster = quote(unquote(request.path_params["cluster"]), safe="")
    reply = await streams.newest(cluster)
    if reply.status != 200:
        return Response(reply.body, reply.status, media_type=reply.media_type)
    seen = msgspec.json.decode(reply.body, type=Update).seen
    return StreamResponse(streams, cluster, Stream(kinds, request.query_params.get("group")), seen)
