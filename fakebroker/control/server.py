"""The control server: HTTP in a separate process, operations in the brokers' process.

Parsing and writing HTTP takes more time than the operations, and would delay the brokers if it were in their process.
So a second process (`gateway`) does that and forwards requests over a socket; this end runs them in the thread of the
first cluster, between requests to its brokers. If the gateway ends, it is restarted on the same port; the clusters and
their statistics are in this process and remain.
"""

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import trio

import fakebroker
from fakebroker.control.clusters import Clusters
from fakebroker.control.gateway.answering import Answering
from fakebroker.control.gateway.auth import TOKEN_VARIABLE, own_token
from fakebroker.control.gateway.link import Link
from fakebroker.control.routes.dispatch import Dispatcher
from fakebroker.errors import FakebrokerError
from fakebroker.server.fake_cluster import FakeCluster
from fakebroker.server.lifecycle import bound

logger = logging.getLogger("fakebroker")

_BACKLOG = 1024
_START_S = 60.0
"""The gateway's imports take less than a second on an idle machine."""

_END_S = 5.0
_MOST_STARTS = 5
"""A gateway that ends repeatedly has a defect that another start does not cure."""


class ControlServer:
    """HTTP control of a running cluster, and of others created by requests. A context manager that serves meanwhile.

    Args:
        cluster: The cluster with the name `default`.
        host: The address to listen on.
        port: The port; 0 selects a free one.
        token: Bearer token; generated for addresses other than loopback if None.

    Attributes:
        url: URL of the server.
        token: Required bearer token; None if none is required.
        has_made_token: Whether the token was generated, and has to be printed.

    Raises:
        FakebrokerError: On entering: the gateway process does not start.
        ListenError: The address or port is not available.
    """

    def __init__(self, cluster: FakeCluster, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        self._cluster = cluster
        self._host = host
        self._listener = bound(host, port)
        self.token = own_token(host, token)
        self.has_made_token = self.token != token
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._listener.getsockname()[1]}"
        self._scope = trio.CancelScope()
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        try:
            self._listener.listen(_BACKLOG)
            link = self._start()
        except BaseException:
            self._listener.close()
            raise
        self._cluster.start_task(lambda: self._serve(link))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.call(self._scope.cancel)
        self._listener.close()
        self._end()

    def _start(self) -> socket.socket:
        """Start the gateway process, and return the link to it.

        Raises:
            FakebrokerError: It does not start.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = _start_gateway(self._listener, theirs, self._host, self.token)
        try:
            ours.settimeout(_START_S)
            if ours.recv(1) == b"+":
                return ours
            why = f"ended at its start, with status {self._end()}"
        except TimeoutError:
            self._process.kill()
            self._end()
            why = f"was not there after {_START_S:g} s"
        ours.close()
        raise FakebrokerError(f"the process that speaks HTTP {why}")

    def _end(self) -> int:
        """Wait for the end of the gateway process, whose link is closed, and return its exit status."""
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    async def _serve(self, link: socket.socket) -> None:
        """Handle forwarded requests, and restart the gateway if it ends, until canceled."""
        clusters = Clusters(self._cluster)
        with self._scope, self._listener:
            try:
                async with clusters.watched():
                    for starts in range(1, _MOST_STARTS + 1):
                        await _answer(link, Dispatcher(clusters))
                        status = await trio.to_thread.run_sync(self._end)
                        logger.error("the process that speaks HTTP has ended, with status %d", status)
                        if starts < _MOST_STARTS:
                            link = await trio.to_thread.run_sync(self._start)
                            logger.warning("another process speaks HTTP now")
            except* Exception:  # An internal error stops the control, not the brokers.
                logger.exception("control over HTTP failed")
            logger.error("nothing is controlled over HTTP any more")


async def _answer(link: socket.socket, dispatcher: Dispatcher) -> None:
    """Handle forwarded requests until the gateway ends."""
    with Link(link) as end:
        async with trio.open_nursery() as nursery:
            await Answering(end, dispatcher, nursery).run()
            nursery.cancel_scope.cancel()


def _start_gateway(
    listener: socket.socket, link: socket.socket, host: str, token: str | None
) -> "subprocess.Popen[bytes]":
    """Start the gateway process; it ends when the link is closed."""
    home = str(Path(fakebroker.__file__).parent.parent)
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, TOKEN_VARIABLE: token or ""}
    sockets = (listener.fileno(), link.fileno())
    # -P: files in the working directory must not shadow modules.
    command = [sys.executable, "-P", "-m", "fakebroker.control.gateway.gateway", *map(str, sockets), host]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=sockets)
