"""Accepts HTTP connections and serves them with hypercorn.

`hypercorn.trio.serve` does not close connections whose callers do not read their responses, so it would not end.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, LifespanState

_GRACE_S = 0.5
"""How long requests may take after the end of the server until their connections are closed."""


async def serve(
    app: ASGIFramework, config: Config, listener: trio.SocketListener, until_end: Callable[[], Awaitable[None]]
) -> None:
    """Serve an application until `until_end` returns."""
    context = WorkerContext(None)

    async def handle(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_at_end, stream)
            tls_or_not: Any = stream  # hypercorn's annotation has only TLS.
            await TCPServer(ASGIWrapper(app), config, context, LifespanState(), tls_or_not)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as listening:
            listening.start_soon(partial(trio.serve_listeners, handle, [listener], handler_nursery=connections))
            await until_end()
            listening.cancel_scope.cancel()
        await context.terminated.set()  # Idle connections are closed.
        connections.cancel_scope.deadline = trio.current_time() + _GRACE_S


async def _close_at_end(stream: trio.SocketStream) -> None:
    """Close a connection when it is canceled: hypercorn shields what it sends from cancellation."""
    try:
        await trio.sleep_forever()
    finally:
        stream.socket.close()
