"""The link to the brokers' process: asks, and hands each answer to who has asked. Knows frames; no HTTP."""

from itertools import count

import trio

from fakebroker.control.link import Link
from fakebroker.control.wire import Ask, Frames, Reply, frame


class HasEnded(Exception):  # noqa: N818  # It is no error of who asks.
    """The brokers' process has ended, or has let go of this one."""


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
        """Pass on answers until the link ends."""
        frames = Frames(Reply)
        try:
            while data := await self._link.receive():
                for reply in frames.feed(data):
                    if reply.number in self._asked:
                        self._asked[reply.number].reply = reply
                        self._asked[reply.number].is_over.set()
        finally:
            self.has_ended.set()
            for asked in self._asked.values():
                asked.is_over.set()

    async def ask(self, method: str, path: str, query: str = "", body: bytes = b"") -> Reply:
        """Ask something, and wait for the answer.

        Raises:
            HasEnded: There will be none.
        """
        if self.has_ended.is_set():
            raise HasEnded
        number = next(self._numbers)
        self._asked[number] = asked = _Asked()
        self._link.put(frame(Ask(number, method, path, query, body)))
        try:
            await self._link.drain()
            await asked.is_over.wait()
        except trio.Cancelled:
            self._link.put(frame(Ask(number, "")))
            raise
        finally:
            del self._asked[number]
        if asked.reply is None:
            raise HasEnded
        return asked.reply
