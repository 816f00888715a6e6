"""Handles requests forwarded by the gateway: synchronously if possible, else in a task for each."""

from time import perf_counter

import trio

from fakebroker.control.gateway.link import Link
from fakebroker.control.gateway.wire import Ask, Frames, Reply, frame
from fakebroker.control.routes.dispatch import Dispatcher

_SHARE_S = 0.002
"""Other tasks run after requests have been handled for this many seconds; batches save task switches."""


class Answering:
    """The brokers' end of the link.

    Args:
        link: The link.
        dispatcher: Handles the requests.
        nursery: For the tasks of requests that cannot be handled synchronously.
        share_s: Other tasks run after requests have been handled for this long, in seconds.
    """

    def __init__(self, link: Link, dispatcher: Dispatcher, nursery: trio.Nursery, share_s: float = _SHARE_S) -> None:
        self._link, self._dispatcher, self._nursery, self._share_s = link, dispatcher, nursery, share_s
        self._pending: dict[int, trio.CancelScope] = {}

    async def run(self) -> None:
        """Handle requests until the link is closed."""
        frames = Frames(Ask)
        while data := await self._link.receive():
            since_s = perf_counter()
            for ask in frames.feed(data):
                self._take(ask)
                if perf_counter() - since_s >= self._share_s:
                    await trio.lowlevel.checkpoint()
                    await self._link.drain()
                    since_s = perf_counter()
            await self._link.drain()

    def _take(self, ask: Ask) -> None:
        if not ask.method:
            if ask.number in self._pending:
                self._pending[ask.number].cancel()
        elif (reply := self._dispatcher.at_once(ask)) is not None:
            self._link.put(frame(reply))
        else:
            self._pending[ask.number] = scope = trio.CancelScope()
            self._nursery.start_soon(self._answer, ask, scope)

    async def _answer(self, ask: Ask, scope: trio.CancelScope) -> None:
        reply: Reply | None = None
        with scope:
            reply = await self._dispatcher.answer(ask)
        del self._pending[ask.number]
        if reply is not None:
            self._link.put(frame(reply))
            await self._link.drain()
