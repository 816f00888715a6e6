"""The link to the brokers' process: asks, and hands each answer to who has asked. Knows frames; no HTTP."""

from itertools import count

import trio

from fakebroker.control.wire import Ask, Frames, Reply, frame

_READ_BYTES = 2**18


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
        stream: The link.

    Attributes:
        has_ended: Whether the link has.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        self._unsent = bytearray()
        self._has_news = trio.Event()
        self.has_ended = trio.Event()

    async def run(self) -> None:
        """Pass on questions and answers until the link ends."""
        frames = Frames(Reply)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                while data := await self._stream.receive_some(_READ_BYTES):
                    for reply in frames.feed(bytes(data)):
                        if reply.number in self._asked:
                            self._asked[reply.number].reply = reply
                            self._asked[reply.number].is_over.set()
                nursery.cancel_scope.cancel()
        except* trio.BrokenResourceError:
            pass
        finally:
            self.has_ended.set()
            for asked in self._asked.values():
                asked.is_over.set()

    async def _write(self) -> None:
        """Send what is to be sent, together: the fewer times the brokers wake up, the better."""
        while True:
            await self._has_news.wait()
            self._has_news = trio.Event()
            data, self._unsent = self._unsent, bytearray()
            await self._stream.send_all(data)

    def _send(self, ask: Ask) -> None:
        self._unsent += frame(ask)
        self._has_news.set()

    async def ask(self, method: str, path: str, query: str = "", body: bytes = b"") -> Reply:
        """Ask something, and wait for the answer.

        Raises:
            HasEnded: There will be none.
        """
        if self.has_ended.is_set():
            raise HasEnded
        number = next(self._numbers)
        self._asked[number] = asked = _Asked()
        self._send(Ask(number, method, path, query, body))
        try:
            await asked.is_over.wait()
        except trio.Cancelled:
            self._send(Ask(number, ""))
            raise
        finally:
            del self._asked[number]
        if asked.reply is None:
            raise HasEnded
        return asked.reply
