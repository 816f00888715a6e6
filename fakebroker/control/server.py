"""The control server: HTTP in the trio loop of the cluster."""

import logging
import threading
from types import TracebackType
from typing import Self

import trio
from hypercorn.config import Config

from fakebroker.control.app import App
from fakebroker.control.auth import Guard, effective_token
from fakebroker.control.clusters import Clusters
from fakebroker.control.connections import serve
from fakebroker.control.routes.dispatch import Dispatcher
from fakebroker.errors import FakebrokerError
from fakebroker.host_port import format_host_port
from fakebroker.server.fake_cluster import FakeCluster, internals
from fakebroker.server.lifecycle import bound, start_listening

logger = logging.getLogger("fakebroker")

_BACKLOG = 1024
_IDLE_S = 75.0
"""A connection without requests for this time is closed. Longer than the connection pools of most clients keep one,
because a client that sends a request while the server closes the connection gets an error."""
_MAX_HEAD_BYTES = 128 * 1024
"""The longest head of a request: a path can have the longest group id, whose 32,767 bytes are escaped by three each."""


class ControlServer:
    """HTTP control of a running cluster and of further ones that requests create. Serves while its context is active.

    On exit it waits until the server has stopped, except in the thread of the cluster's loop: there it only requests
    the stop, because waiting would block the loop.

    Args:
        cluster: The cluster with the name `default`.
        host: The address to listen on.
        port: The port; 0 selects a free one.
        token: Bearer token; generated for addresses other than loopback if None.
        data_dirs: The directory that contains the data directories of clusters that are created over HTTP; None if
            they cannot have any.

    Attributes:
        url: URL of the server.
        token: Required bearer token; None if none is required.
        has_generated_token: Whether the token was generated, and has to be printed.

    Raises:
        ListenError: The address or port is not available.
        FakebrokerError: On entering: the cluster is not running, or the server has been entered before.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        data_dirs: str | None = None,
    ) -> None:
        self._cluster, self._data_dirs = cluster, data_dirs
        self._host = host
        self._listener = bound(host, port)
        self.token = effective_token(host, token)
        self.has_generated_token = self.token != token
        self.url = f"http://{format_host_port(host, self._listener.getsockname()[1])}"
        self._has_started = False
        self._stop = trio.Event()
        self._has_stopped = threading.Event()

    def __enter__(self) -> Self:
        if self._has_started:
            raise FakebrokerError("the control server has been entered before: expected a new ControlServer")
        self._has_started = True
        start_listening(self._listener, _BACKLOG)
        try:
            internals(self._cluster).server.start_task(self._serve)
        except FakebrokerError:
            self._listener.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        internals(self._cluster).run(self._stop.set)
        if not internals(self._cluster).server.is_cluster_thread:
            self._has_stopped.wait()

    async def _serve(self) -> None:
        """Serve until `_stop` is set."""
        try:
            clusters = Clusters(self._cluster, self._data_dirs)
            async with clusters.running():
                app = App(Dispatcher(clusters), Guard(self._host, self.token))

                async def until_end() -> None:
                    await self._stop.wait()
                    app.end()
                    clusters.end_feeds()

                listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._listener))
                await serve(app, _config(), listener, until_end)
        except* Exception:  # An internal error stops the control, not the brokers.
            logger.exception("control server failed")
        finally:
            self._listener.close()
            self._has_stopped.set()


def _config() -> Config:
    config = Config()
    config.accesslog, config.errorlog = None, logging.getLogger("fakebroker.control")
    config.include_server_header = False
    config.keep_alive_timeout = _IDLE_S
    config.keep_alive_max_requests = 2**62
    config.h11_max_incomplete_size = _MAX_HEAD_BYTES
    return config
