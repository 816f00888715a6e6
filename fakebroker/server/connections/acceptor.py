"""Accepts connections: the listening sockets of the brokers, and which of them have to wait.

The reactor asks for new connections when the poller reports a listening socket, and reports connections that close.
Connections that are not accepted wait in the backlog of the socket.
"""

import errno
import logging
import socket
from collections.abc import Iterator
from typing import Any

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.listeners import Listener
from fakebroker.coordinator.timers import Rank, TimedValue, TimerQueue, Timers
from fakebroker.server.connections.connection import Connection
from fakebroker.server.connections.connection_limits import RETRY_MS, ConnectionLimits
from fakebroker.server.poller import READ, Poller

logger = logging.getLogger("fakebroker")

MAX_ACCEPTED = 256
"""Maximum number of connections that are accepted before other sockets get their turn."""


class Acceptor:
    """The listening sockets of one cluster.

    Args:
        poller: Watches them.
        limits: The limits of connections.
        max_request_bytes: The largest request that new connections may send.
        queue: The timers of the cluster by the clients' clock.
    """

    def __init__(
        self, poller: Poller, limits: ConnectionLimits, max_request_bytes: int, queue: TimerQueue[Any]
    ) -> None:
        self._retry = TimedValue("listening sockets that wait")
        self._timers: Timers[TimedValue[str]] = queue.service(
            Rank.NETWORK, lambda timer, due_ms, now_ms: self.resume(), 2
        )
        self._poller = poller
        self._limits = limits
        self._max_request_bytes = max_request_bytes
        self._listening: dict[int, tuple[socket.socket, BrokerNode, Listener]] = {}
        self._connections_made = 0
        self._waiting: set[int] = set()
        self._is_exhausted = False

    @property
    def retry_ms(self) -> float:
        """When listening sockets that wait try again, in real time; infinite if none waits."""
        return self._retry.scheduled_ms

    def listen(self, broker: BrokerNode, listener: Listener, sock: socket.socket) -> None:
        """Accept connections to a broker's listener from a listening socket, which the acceptor closes later."""
        sock.setblocking(False)
        self._listening[sock.fileno()] = (sock, broker, listener)
        self._poller.register(sock.fileno(), READ)

    def close(self, broker: BrokerNode) -> None:
        """Close the listening sockets of a broker; its connections remain."""
        for fd, (sock, owner, _) in list(self._listening.items()):
            if owner is broker:
                self._poller.unregister(fd)
                sock.close()
                del self._listening[fd]
                self._waiting.discard(fd)

    def stop(self) -> None:
        """Close all listening sockets."""
        for sock, _, _ in self._listening.values():
            sock.close()
        self._listening.clear()

    def __contains__(self, fd: int) -> bool:
        """Return whether a file descriptor belongs to a listening socket."""
        return fd in self._listening

    def accept(self, fd: int, now_ms: float) -> Iterator[Connection]:
        """Accept and yield connections that wait at a listening socket, at most `MAX_ACCEPTED`."""
        listening, broker, listener = self._listening[fd]
        for _ in range(MAX_ACCEPTED):
            wait_ms = self._limits.wait_ms(broker, listener, now_ms)
            if wait_ms:
                self._wait(fd, now_ms + wait_ms)
                return
            try:
                sock, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._warn(error)
                    self._wait(fd, now_ms + RETRY_MS)
                return
            self._is_exhausted = False
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                connection = Connection(sock, broker, listener, self._connections_made, self._max_request_bytes)
            except OSError:  # The client has closed the connection already.
                sock.close()
                continue
            self._connections_made += 1
            yield connection

    def resume(self) -> None:
        """Let listening sockets that wait try again: after a time, or after a connection was closed."""
        waiting, self._waiting = self._waiting, set()
        self._timers.cancel(self._retry)
        for fd in waiting:
            self._poller.modify(fd, READ)

    def _wait(self, fd: int, until_ms: float) -> None:
        self._waiting.add(fd)
        self._timers.schedule(self._retry, until_ms)
        self._poller.modify(fd, 0)

    def _warn(self, error: OSError) -> None:
        if not self._is_exhausted:
            logger.warning(
                "new connections are not accepted until files are closed: %s (raise the limit of open files)",
                error.strerror,
            )
        self._is_exhausted = True
