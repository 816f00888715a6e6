"""The control server: HTTP beside the brokers, spoken by a process of its own.

Reading and writing HTTP takes more time than what is asked for: in the brokers' process it would be time that they have
not. So a second process does that (`gateway`), and passes on what is asked; this end answers in the thread of the first
cluster, between two requests to its brokers. If that process ends, another one takes over its port; the clusters, and
what is kept of them, are here and remain.
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
"""An import of all that it needs takes under a second, on a machine that has time for it."""

_END_S = 5.0
_MOST_STARTS = 5
"""One that ends again and again has a fault, which a further start does not mend."""


class ControlServer:
    """HTTP control of a cluster that runs, and of others that are asked for. As a context manager it serves meanwhile.

    Args:
        cluster: What is controlled, under the name `default`.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        token: What callers have to show. Without one, one is made if others than this machine can ask.

    Attributes:
        url: Where it is reached.
        token: What callers have to show; None is nothing.
        has_made_token: Whether nobody knows it yet.

    Raises:
        FakebrokerError: On entering: the process that speaks HTTP does not come up.
        ListenError: The address or port cannot be had.
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
        """Start the process that speaks HTTP; the link to it.

        Raises:
            FakebrokerError: It does not come up.
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
        """Wait for the end of the process that speaks HTTP, which has lost its link; its status."""
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    async def _serve(self, link: socket.socket) -> None:
        """Answer what the other process passes on, and start another one if it ends, until this is to end."""
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
            except* Exception:  # A fault of ours costs the control, not the brokers.
                logger.exception("control over HTTP failed")
            logger.error("nothing is controlled over HTTP any more")


async def _answer(link: socket.socket, dispatcher: Dispatcher) -> None:
    """Answer what the other process passes on, until it ends."""
    with Link(link) as end:
        async with trio.open_nursery() as nursery:
            await Answering(end, dispatcher, nursery).run()
            nursery.cancel_scope.cancel()


def _start_gateway(
    listener: socket.socket, link: socket.socket, host: str, token: str | None
) -> "subprocess.Popen[bytes]":
    """Start the process that speaks HTTP; it ends when the link does."""
    home = str(Path(fakebroker.__file__).parent.parent)
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, TOKEN_VARIABLE: token or ""}
    sockets = (listener.fileno(), link.fileno())
    # -P: nothing in the working directory passes for one of Python's modules.
    command = [sys.executable, "-P", "-m", "fakebroker.control.gateway.gateway", *map(str, sockets), host]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=sockets)
