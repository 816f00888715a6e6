"""Accepts connections: the listening sockets of the brokers, and whether they are watched.

The reactor asks for new connections when the poller reports a listening socket, and reports connections that close.
"""

import errno
import logging
import socket
from collections.abc import Iterator

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.listeners import Listener
from fakebroker.server.connection import Connection
from fakebroker.server.poller import READ, Poller

logger = logging.getLogger("fakebroker")

MAX_ACCEPTED = 256
"""Maximum number of connections that are accepted before other sockets get their turn."""


class Acceptor:
    """The listening sockets of one cluster.

    Args:
        poller: Watches them.
        max_request_bytes: The largest request that new connections may send.
    """

    def __init__(self, poller: Poller, max_request_bytes: int) -> None:
        self._poller = poller
        self._max_request_bytes = max_request_bytes
        self._listening: dict[int, tuple[socket.socket, BrokerNode, Listener]] = {}
        self._connections_made = 0
        self._is_paused = False

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

    def stop(self) -> None:
        """Close all listening sockets."""
        for sock, _, _ in self._listening.values():
            sock.close()
        self._listening.clear()

    def __contains__(self, fd: int) -> bool:
        """Return whether a file descriptor is that of a listening socket."""
        return fd in self._listening

    def accept(self, fd: int) -> Iterator[Connection]:
        """Accept and yield connections that wait at a listening socket, at most `MAX_ACCEPTED`."""
        listening, broker, listener = self._listening[fd]
        for _ in range(MAX_ACCEPTED):
            try:
                sock, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._pause(error)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                connection = Connection(sock, broker, listener, self._connections_made, self._max_request_bytes)
            except OSError:  # The client has closed the connection already.
                sock.close()
                continue
            self._connections_made += 1
            yield connection

    def released(self) -> None:
        """Accept connections again if file descriptors were exhausted. Called after a connection was closed."""
        if self._is_paused:
            self._is_paused = False
            for fd in self._listening:
                self._poller.modify(fd, READ)

    def _pause(self, error: OSError) -> None:
        logger.warning(
            "new connections are not accepted until a connection closes: %s (raise the limit of open files)",
            error.strerror,
        )
        self._is_paused = True
        for fd in self._listening:
            self._poller.modify(fd, 0)
