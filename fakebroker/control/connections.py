"""Accepts HTTP connections and serves them with hypercorn.

It replaces `hypercorn.trio.serve`, which never returns if a client does not read its response.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Event, Updated
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, LifespanState

_GRACE_S = 0.5
"""Time for pending responses at the end, until connections are closed."""


async def serve(
    app: ASGIFramework, config: Config, listener: trio.SocketListener, until_end: Callable[[], Awaitable[None]]
) -> None:
    """Serve an application until `until_end` returns."""
    context = WorkerContext(None)

    async def handle(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_at_end, stream)
            any_stream: Any = stream  # hypercorn annotates a TLS stream, but accepts both.
            await _Connection(ASGIWrapper(app), config, context, LifespanState(), any_stream)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as listening:
            listening.start_soon(partial(trio.serve_listeners, handle, [listener], handler_nursery=connections))
            await until_end()
            listening.cancel_scope.cancel()
        await context.terminated.set()  # Makes hypercorn close idle connections.
        connections.cancel_scope.deadline = trio.current_time() + _GRACE_S


class _Connection(TCPServer):
    """One connection. It ends when the client closes it; hypercorn would keep it until the idle timeout."""

    _has_ended = False

    async def _read_data(self) -> None:
        await super()._read_data()
        self._has_ended = True
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        if not (self._has_ended and isinstance(event, Updated)):  # It would start the idle timeout again.
            await super().protocol_send(event)


async def _close_at_end(stream: trio.SocketStream) -> None:
    """Close a connection when canceled. hypercorn shields sends, so cancellation alone would not end them."""
    try:
        await trio.sleep_forever()
    finally:
        stream.socket.close()
