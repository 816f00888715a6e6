"""HTTP connections, served by Hypercorn with less work per request than by default.

Head and body of a response are sent together, and one task watches for idle timeouts, where Hypercorn starts a task
after each response. This saves a quarter of the processor time of a request in this process, which may share a
processor with brokers and clients. It overrides private methods of Hypercorn, so its version has an upper bound.
"""

from functools import partial
from math import inf

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Event, RawData, Updated
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework


class Connection(TCPServer):
    """One connection.

    Args:
        app: The application.
        config: Limits, and headers that Hypercorn adds.
        context: Signals the shutdown.
        stream: The transport.
    """

    def __init__(self, app: ASGIWrapper, config: Config, context: WorkerContext, stream: trio.SocketStream) -> None:
        super().__init__(app, config, context, {}, stream)  # type: ignore[arg-type]  # accepts streams without TLS
        self._head = b""
        self._closes_at = trio.current_time() + config.keep_alive_timeout

    async def protocol_send(self, event: Event) -> None:
        """Send data of the protocol, and note whether the connection is idle."""
        if isinstance(event, RawData):
            data = self._head + event.data
            # The head of a response is always followed by another event, if only its empty end.
            self._head = data if _is_head(event.data) else b""
            if data and not self._head:
                await super().protocol_send(RawData(data))
        elif isinstance(event, Updated):
            self._closes_at = trio.current_time() + self.config.keep_alive_timeout if event.idle else inf
        else:
            await super().protocol_send(event)

    async def _read_data(self) -> None:
        try:
            await super()._read_data()
        finally:
            await self.idle_task.stop()

    async def _idle_timeout(self) -> None:
        """Close the connection after the idle timeout, or during the shutdown when it is idle."""
        while (left_s := self._closes_at - trio.current_time()) > 0 and not self.context.terminated.is_set():
            with trio.move_on_after(min(left_s, self.config.keep_alive_timeout)):
                await self.context.terminated.wait()
        if self._closes_at < inf:
            with trio.CancelScope(shield=True):
                await self._initiate_server_close()


def _is_head(data: bytes) -> bool:
    """Return whether data is the head of a final response, unlike `100 Continue`."""
    return data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1")


async def serve(
    app: ASGIFramework,
    config: Config,
    listener: trio.abc.Listener[trio.SocketStream],
    has_ended: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until `has_ended`; pending responses have `graceful_timeout` to be sent."""
    context = WorkerContext(None)
    async with trio.open_nursery() as connections:

        async def handle(stream: trio.SocketStream) -> None:
            await Connection(ASGIWrapper(app), config, context, stream).run()

        async with trio.open_nursery() as accepting:
            await accepting.start(partial(trio.serve_listeners, handle, [listener], handler_nursery=connections))
            task_status.started()
            await has_ended.wait()
            accepting.cancel_scope.cancel()
        await context.terminated.set()
        connections.cancel_scope.deadline = trio.current_time() + config.graceful_timeout
