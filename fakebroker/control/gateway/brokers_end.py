"""The gateway's end of the link: sends requests to the brokers and matches responses. Independent of HTTP."""

from collections.abc import Awaitable, Callable
from itertools import count

import trio

from fakebroker.control.gateway.link import Link
from fakebroker.control.gateway.wire import Ask, Frames, Reply, frame

_SOON_S = 0.1
"""Delay before watching for a disconnect, which costs as much as a request; most responses arrive earlier."""

Gone = Callable[[], Awaitable[object]]


class HasEnded(Exception):  # noqa: N818  # not an error of the caller
    """The brokers' process has ended, or has closed the link."""


class IsGone(Exception):  # noqa: N818  # not an error either
    """The caller has disconnected before the response."""


class _Asked:
    """A pending request, and its response once received."""

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.reply: Reply | None = None


class BrokersEnd:
    """The brokers' process, as seen from the gateway.

    Args:
        link: The link.

    Attributes:
        has_ended: Set when the link is closed.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        self.has_ended = trio.Event()

    async def run(self) -> None:
        """Forward requests and responses until the link is closed."""
        frames = Frames(Reply)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._link.keep_sending)
                while data := await self._link.receive():
                    for reply in frames.feed(data):
                        if reply.number in self._asked:
                            self._asked[reply.number].reply = reply
                            self._asked[reply.number].is_over.set()
                nursery.cancel_scope.cancel()
        finally:
            self.has_ended.set()
            for asked in self._asked.values():
                asked.is_over.set()

    async def ask(
        self, method: str, path: str, query: str = "", body: bytes = b"", *, gone: Gone = trio.sleep_forever
    ) -> Reply:
        """Send a request and wait for the response; `gone` returns when the caller has disconnected.

        Raises:
            HasEnded: The brokers' process has ended.
            IsGone: The caller has disconnected.
        """
        if self.has_ended.is_set():
            raise HasEnded
        number = next(self._numbers)
        self._asked[number] = asked = _Asked()
        self._link.put(frame(Ask(number, method, path, query, body)))
        try:
            await _answered(asked, gone)
        finally:
            del self._asked[number]
            if not asked.is_over.is_set():
                self._link.put(frame(Ask(number, "")))
        if asked.reply is None:
            raise HasEnded if self.has_ended.is_set() else IsGone
        return asked.reply


async def _answered(asked: _Asked, gone: Gone) -> None:
    """Wait for a response, or until the caller has disconnected."""
    with trio.move_on_after(_SOON_S):
        await asked.is_over.wait()
        return
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await gone()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        await asked.is_over.wait()
        nursery.cancel_scope.cancel()
