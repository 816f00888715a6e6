"""The link to the brokers' process: asks, and hands each answer to who has asked. Knows frames; no HTTP."""

from collections.abc import Awaitable, Callable
from itertools import count

import trio

from fakebroker.control.gateway.link import Link
from fakebroker.control.gateway.wire import Ask, Frames, Reply, frame

_SOON_S = 0.1
"""To watch whether who asks is gone costs as much as to ask; most answers are here before."""

Gone = Callable[[], Awaitable[object]]


class HasEnded(Exception):  # noqa: N818  # It is no error of who asks.
    """The brokers' process has ended, or has let go of this one."""


class IsGone(Exception):  # noqa: N818  # It is no error either.
    """Who has asked waits for the answer no longer."""


class _Asked:
    """A question, and its answer once that is there."""

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.reply: Reply | None = None


class BrokersEnd:
    """The brokers, as far as they can be asked.

    Args:
        link: The link.

    Attributes:
        has_ended: Whether the link has.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        self.has_ended = trio.Event()

    async def run(self) -> None:
        """Pass on questions and answers until the link ends."""
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
        """Ask something, and wait for the answer; `gone` returns when nobody wants it any more.

        Raises:
            HasEnded: There will be none.
            IsGone: Nobody waits for it.
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
    """Wait for an answer, or until nobody wants it any more."""
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
