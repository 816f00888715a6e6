"""Server-sent events: the changes of a cluster, sent to its streams four times a second.

One task per cluster computes and encodes the changes for all streams. A stream gets all changes after the comment that
opens it, unless its client reads too slowly: events that exceed its buffer are dropped.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import msgspec
import trio

_PERIOD_S = 0.25
_OVERVIEW_EVERY = 4  # Periods between overviews.
_COMMENT_EVERY = 60  # Periods between comments, which reveal closed connections.
_BUFFER_SIZE = 8
_OPENING_COMMENT = b": welcome\n\n"


class UpdateRequest(msgspec.Struct, frozen=True):
    """The changes that the streams need: after a version, of some kinds, and the moments of some groups."""

    after: str
    kinds: frozenset[str]
    group_ids: Sequence[str]


class Update(msgspec.Struct, frozen=True):
    """Changes, encoded as JSON.

    Attributes:
        seen: The version of the cluster after these changes.
        by_kind: Changes by the kind of event; kinds without changes are omitted.
        by_group: New moments by group id.
    """

    seen: str
    by_kind: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    by_group: Mapping[str, bytes] = msgspec.field(default_factory=dict)


class Stream:
    """One subscriber. Its events are buffered until its client reads them.

    Args:
        kinds: The kinds of events to send.
        group_id: A group whose moments are sent as well.

    Attributes:
        receiver: Receives the events until the stream is closed.
    """

    def __init__(self, kinds: Sequence[str], group_id: str | None) -> None:
        self.kinds = kinds
        self.group_id = group_id
        self._sender, self.receiver = trio.open_memory_channel[bytes](_BUFFER_SIZE)

    def send(self, data: bytes) -> None:
        """Send events, or drop them if the buffer is full."""
        with suppress(trio.WouldBlock):
            self._sender.send_nowait(data)

    def end(self) -> None:
        """Close the stream."""
        self._sender.close()


class Feed:
    """Sends the changes of one cluster to its streams.

    Args:
        compute: Returns the changes for a request.
        seen: The version of the cluster; later changes are sent.

    Attributes:
        streams: The streams.
    """

    def __init__(self, compute: Callable[[UpdateRequest], Awaitable[Update]], seen: str) -> None:
        self.streams: list[Stream] = []
        self._compute = compute
        self._seen = seen
        self._turn = 0
        self._is_idle = trio.Event()
        self._is_idle.set()

    async def run(self) -> None:
        """Send changes until there are no streams left."""
        while self.streams:
            update = await self._compute_update()
            self._seen = update.seen
            self._send(update)
            self._turn += 1
            await trio.sleep(_PERIOD_S)

    async def _compute_update(self) -> Update:
        self._is_idle = trio.Event()
        try:
            return await self._compute(self._update_request())
        finally:
            self._is_idle.set()

    def end(self) -> None:
        """Close all streams."""
        for stream in self.streams:
            stream.end()

    async def events(self, stream: Stream) -> AsyncGenerator[bytes, None]:
        """Subscribe a stream and yield its events: a comment, then all changes after it."""
        self.streams.append(stream)
        try:
            await self._is_idle.wait()  # An update that is being computed may lack its kinds of events.
            yield _OPENING_COMMENT
            async for data in stream.receiver:
                yield data
        finally:
            self.streams.remove(stream)

    def _update_request(self) -> UpdateRequest:
        kinds = {kind for each in self.streams for kind in each.kinds}
        if self._turn % _OVERVIEW_EVERY:
            kinds.discard("overview")
        group_ids = sorted({each.group_id for each in self.streams if each.group_id is not None})
        return UpdateRequest(self._seen, frozenset(kinds), group_ids)

    def _send(self, update: Update) -> None:
        events = {kind: _event(kind, data) for kind, data in update.by_kind.items()}
        timelines = {group_id: _event("timeline", data) for group_id, data in update.by_group.items()}
        comment = b": still here\n\n" if self._turn % _COMMENT_EVERY == _COMMENT_EVERY - 1 else b""
        for stream in self.streams:
            parts = [events[kind] for kind in stream.kinds if kind in events]
            if stream.group_id in timelines:
                parts.append(timelines[stream.group_id])
            if data := b"".join(parts) + comment:
                stream.send(data)


def _event(kind: str, data: bytes) -> bytes:
    """Return an event in the format of text/event-stream."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)
