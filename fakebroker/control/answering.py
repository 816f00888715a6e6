"""Answers what the process that speaks HTTP passes on: at once where that is possible, else in a task for each."""

import trio

from fakebroker.control.dispatch import Dispatcher
from fakebroker.control.wire import Ask, Reply, frame


class Answering:
    """The brokers' end of the link.

    Args:
        stream: The link.
        dispatcher: Who knows the answers.
        nursery: Where those are worked on that take their time.
    """

    def __init__(self, stream: trio.abc.SendStream, dispatcher: Dispatcher, nursery: trio.Nursery) -> None:
        self._stream, self._dispatcher, self._nursery = stream, dispatcher, nursery
        self._lock = trio.Lock()
        self._pending: dict[int, trio.CancelScope] = {}

    async def take(self, asks: list[Ask]) -> None:
        """Answer some requests."""
        replies = []
        for ask in asks:
            if not ask.method:
                if ask.number in self._pending:
                    self._pending[ask.number].cancel()
            elif (reply := self._dispatcher.at_once(ask)) is not None:
                replies.append(frame(reply))
                await trio.lowlevel.checkpoint()  # The brokers go on between two answers.
            else:
                self._pending[ask.number] = scope = trio.CancelScope()
                self._nursery.start_soon(self._answer, ask, scope)
        if replies:
            await self._send(b"".join(replies))

    async def _answer(self, ask: Ask, scope: trio.CancelScope) -> None:
        reply: Reply | None = None
        with scope:
            reply = await self._dispatcher.answer(ask)
        del self._pending[ask.number]
        if reply is not None:
            await self._send(frame(reply))

    async def _send(self, data: bytes) -> None:
        async with self._lock:
            await self._stream.send_all(data)
