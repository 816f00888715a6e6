"""A transport over TCP for tens of thousands of connections: nonblocking sockets, one poller, one thread.

Users of a connection are called during `poll` only: a loss that `send` or `connect` detects is reported at the end of
the next poll.
"""

import errno
import os
import socket
import ssl
import time
from typing import Any

from fakebroker.client.authentication import ClientAuthentication
from fakebroker.client.broker_connection import BrokerConnection, FrameCache
from fakebroker.client.errors import UnsupportedVersion
from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.client.transport import DEFAULT_CONNECT_TIMEOUT_MS, Address, ConnectionUser
from fakebroker.client.transport_security import TransportSecurity, is_refusal, reason
from fakebroker.client.versions import NegotiatedVersions
from fakebroker.errors import AuthenticationError, FakebrokerError, ProtocolError
from fakebroker.host_port import format_host_port
from fakebroker.open_files import file_limit
from fakebroker.protocol.schema import Message
from fakebroker.replay.members.bootstrap import CLIENT_ID
from fakebroker.server.poller import READ, WRITE, best_poller

_MAX_EVENTS = 256
_READ_BYTES = 64 * 1024
"""More than a record of TLS, so that no decrypted bytes remain, which the poller would not report."""
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)

_NOT_READY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_NO_API_VERSIONS = "no valid response to ApiVersions (a TLS listener, or not Kafka?): {why}"


class SocketConnection(BrokerConnection):
    """A connection of `SocketTransport`.

    Attributes:
        socket: The socket; None before it is created and after it is closed.
        untried: Resolved addresses that have not been tried yet: family and socket address.
        is_connecting: Whether the socket is not connected yet.
        is_encrypting: Whether the TLS handshake is not complete yet.
        begun_in_poll: Number of the poll in which the socket was created.
        is_dirty: Whether `unsent` is to be written at the end of the poll.
        is_blocked: Whether the socket's send buffer is full: the poller reports when it is writable.
    """

    __slots__ = ("begun_in_poll", "is_blocked", "is_connecting", "is_dirty", "is_encrypting", "socket", "untried")

    def __init__(
        self,
        address: Address,
        user: ConnectionUser,
        *,
        is_shared: bool = False,
        authentication: ClientAuthentication | None = None,
    ) -> None:
        super().__init__(address, user, is_shared=is_shared, authentication=authentication)
        self.socket: socket.socket | None = None
        self.untried: list[tuple[int, Any]] = []
        self.is_connecting = True
        self.is_encrypting = False
        self.begun_in_poll = 0
        self.is_dirty = self.is_blocked = False


class SocketTransport:
    """All TCP connections of one loop; a `Transport`.

    Args:
        connect_timeout_ms: Limit for connecting, negotiating versions and authentication together, in real time.
        security: How connections are encrypted and authenticated.

    Raises:
        ConfigError: A file of certificates cannot be read.
    """

    def __init__(
        self, connect_timeout_ms: float = DEFAULT_CONNECT_TIMEOUT_MS, security: ClientSecurity = PLAINTEXT
    ) -> None:
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._security = TransportSecurity(security)
        self._poller = best_poller()
        self._connections: dict[int, SocketConnection] = {}  # By file descriptor.
        self._deadlines: dict[SocketConnection, float] = {}  # Of connections that are not open yet, in order.
        self._polls = 0
        self._dirty: list[SocketConnection] = []
        self._opened: list[SocketConnection] = []  # Not reported yet.
        self._lost: list[tuple[SocketConnection, str]] = []  # Not reported yet, with reasons.
        # Negotiated once per broker, and again after a connection to it was lost: the broker may have been upgraded.
        self._versions: dict[Address, NegotiatedVersions] = {}
        self._resolved: dict[Address, list[tuple[int, Any]]] = {}

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> SocketConnection:
        """Start to connect; see `Transport.connect`.

        Raises:
            FakebrokerError: This machine has no more files or ports for connections.
        """
        authentication = self._security.new_authentication()
        connection = SocketConnection(address, user, is_shared=is_shared, authentication=authentication)
        self._deadlines[connection] = time.monotonic() + self._connect_timeout_s
        try:
            connection.untried = list(self._resolve(address))
        except OSError as error:
            self.fail(connection, error.strerror or str(error))
            return connection
        self._try_next_address(connection, "the host name has no address")
        return connection

    def send(
        self,
        connection: SocketConnection,
        request: Message,
        version: int,
        client_id: str,
        user: ConnectionUser,
        cache: FrameCache | None = None,
    ) -> None:
        """Send a request over an open connection; no effect on a closed one, whose users are notified of the loss."""
        if connection.is_closed:
            return
        try:
            frame = connection.frame(request, version, client_id, user, cache)
        except AuthenticationError as error:
            self.fail(connection, str(error))
            return
        if not frame:  # held until the client has authenticated again
            return
        if not connection.is_shared and not connection.unsent:
            self._write(connection, frame)
            return
        connection.unsent += frame
        if not connection.is_dirty:
            connection.is_dirty = True
            self._dirty.append(connection)

    def fail(self, connection: SocketConnection, why: str) -> None:
        """Close a connection; its users are notified of the loss at the end of the next poll."""
        if connection.is_closed:
            return
        if connection.is_negotiating and self._security.ssl_context is None:
            why = _NO_API_VERSIONS.format(why=why)
        self._versions.pop(connection.address, None)
        self._close(connection)
        self._lost.append((connection, why))

    def release(self, connection: SocketConnection, user: ConnectionUser) -> None:
        """Remove a user of a connection, with its pending requests. A connection without users is closed."""
        connection.forget(user)
        if not connection.users and not connection.is_closed:
            self._close(connection)

    def poll(self, timeout_s: float) -> None:
        """Wait for ready sockets, read and write them, and notify users."""
        if self._deadlines:
            timeout_s = min(timeout_s, max(0.0, next(iter(self._deadlines.values())) - time.monotonic()))
        if self._lost or self._opened or self._dirty:
            timeout_s = 0.0
        self._polls += 1
        connections = self._connections
        for fd, event in self._poller.poll(timeout_s, _MAX_EVENTS):
            connection = connections.get(fd)
            if connection is None:
                continue  # closed by an event earlier in this poll
            if connection.is_encrypting:
                self._encrypt(connection)
                continue
            if connection.is_connecting:
                # An event of the poll in which the socket was created is for a closed socket with the same descriptor.
                if connection.begun_in_poll != self._polls:
                    self._connected(connection)
                continue
            if event & ~WRITE:
                self._read(connection)
            if event & WRITE and not connection.is_closed:
                self._write(connection, b"")
        self._finish_poll()

    def close(self) -> None:
        """Close all connections without notifying their users."""
        for connection in list(self._connections.values()):
            self._close(connection)
        self._poller.close()

    def _finish_poll(self) -> None:
        """Time out connections, notify users, and write the requests collected for shared connections."""
        while self._deadlines:
            connection, deadline_s = next(iter(self._deadlines.items()))
            if deadline_s > time.monotonic():
                break
            self.fail(connection, f"no connection with negotiated versions in {self._connect_timeout_s * 1000:g} ms")
        opened, self._opened = self._opened, []
        for connection in opened:
            for user in list(connection.users):
                user.opened(connection)
        lost, self._lost = self._lost, []
        for connection, why in lost:
            for user in list(connection.users):
                user.lost(connection, why)
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.is_dirty = False
            if not connection.is_closed:
                self._write(connection, b"")

    def _resolve(self, address: Address) -> list[tuple[int, Any]]:
        if address not in self._resolved:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
            self._resolved[address] = [(family, socket_address) for family, _, _, _, socket_address in found]
        return self._resolved[address]

    def _try_next_address(self, connection: SocketConnection, why: str) -> None:
        """Connect to the next resolved address of the host; if there is none, the connection is lost.

        Args:
            connection: The connection.
            why: The error of the previous address.
        """
        while connection.untried:
            family, socket_address = connection.untried.pop(0)
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                raise self._exhausted(connection.address, error) from None
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex(socket_address)
            if code in (0, errno.EINPROGRESS):
                connection.socket, connection.begun_in_poll = sock, self._polls
                self._connections[sock.fileno()] = connection
                self._poller.register(sock.fileno(), WRITE)
                return
            sock.close()
            if code == errno.EADDRNOTAVAIL:
                raise self._exhausted(connection.address, OSError(code, os.strerror(code)))
            why = os.strerror(code)
        self._resolved.pop(connection.address, None)
        self.fail(connection, why)

    def _exhausted(self, address: Address, error: OSError) -> FakebrokerError:
        what = f"cannot connect to {format_host_port(*address)} with {len(self._connections):,} open connections"
        if error.errno in _NO_MORE_FILES:
            return FakebrokerError(f"{what}: the limit of open files is {file_limit():,}; raise it with `ulimit -n`")
        return FakebrokerError(
            f"{what}: {error.strerror}; each connection needs a local port (see net.ipv4.ip_local_port_range); use "
            "`--lanes` for fewer connections"
        )

    def _connected(self, connection: SocketConnection) -> None:
        assert connection.socket is not None
        code = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._drop_socket(connection)
            self._try_next_address(connection, os.strerror(code))
            return
        connection.is_connecting = False
        context = self._security.ssl_context
        if context is None:
            self._begin(connection)
            return
        sock, connection.socket = connection.socket, None
        fd = sock.fileno()
        self._poller.unregister(fd)
        del self._connections[fd]
        try:
            sock = context.wrap_socket(sock, server_hostname=connection.address[0], do_handshake_on_connect=False)
        except OSError as error:  # the peer has closed the connection; the socket is closed
            self.fail(connection, reason(error))
            return
        connection.socket, connection.is_encrypting = sock, True
        self._connections[fd] = connection
        self._poller.register(fd, READ)
        self._encrypt(connection)

    def _encrypt(self, connection: SocketConnection) -> None:
        """Continue the TLS handshake."""
        assert isinstance(connection.socket, ssl.SSLSocket)
        try:
            connection.socket.do_handshake()
        except ssl.SSLWantReadError:
            self._poller.modify(connection.socket.fileno(), READ)
        except ssl.SSLWantWriteError:
            self._poller.modify(connection.socket.fileno(), WRITE)
        except OSError as error:
            hint = "" if is_refusal(error) else " (a plaintext listener?)"
            self.fail(connection, f"the TLS handshake failed{hint}: {reason(error)}")
        else:
            connection.is_encrypting = False
            self._begin(connection)

    def _begin(self, connection: SocketConnection) -> None:
        """Negotiate versions, unless they are known, and authenticate, if the listener asks for it."""
        assert connection.socket is not None
        self._poller.modify(connection.socket.fileno(), READ)
        try:
            first = connection.open(CLIENT_ID, self._versions.get(connection.address))
        except AuthenticationError as error:
            self.fail(connection, str(error))
            return
        self._send_bytes(connection, first)
        self._finish_opening(connection)

    def _finish_opening(self, connection: SocketConnection) -> None:
        if connection.is_closed or connection.negotiated is None:
            return
        self._versions[connection.address] = connection.negotiated
        if connection.versions is not None:
            del self._deadlines[connection]
            self._opened.append(connection)

    def _read(self, connection: SocketConnection) -> None:
        assert connection.socket is not None
        try:
            data = connection.socket.recv(_READ_BYTES)
        except _NOT_READY:
            return
        except OSError as error:
            self.fail(connection, reason(error))
            return
        if not data:
            is_authenticating = connection.negotiated is not None and connection.versions is None
            when = " before the authentication was complete" if is_authenticating else ""
            self.fail(connection, f"the broker has closed the connection{when}")
            return
        try:
            if connection.versions is None:
                self._send_bytes(connection, connection.receive_opening(data))
                self._finish_opening(connection)
            else:
                connection.receive(data)
                if connection.authentication is not None and not connection.is_closed:
                    self._send_bytes(connection, connection.take_authentication())
        except (ProtocolError, AuthenticationError, UnsupportedVersion) as error:
            self.fail(connection, str(error))

    def _send_bytes(self, connection: SocketConnection, data: bytes | bytearray) -> None:
        """Send bytes after those that are unsent."""
        if connection.unsent:
            connection.unsent += data
        elif data:
            self._write(connection, data)

    def _write(self, connection: SocketConnection, frame: bytes | bytearray) -> None:
        """Write the unsent bytes, or a frame if there are none. Bytes that the socket does not take stay unsent."""
        assert connection.socket is not None
        data = connection.unsent if connection.unsent else frame
        try:
            sent = connection.socket.send(data)
        except _NOT_READY:
            sent = 0
        except OSError as error:
            self.fail(connection, reason(error))
            return
        is_blocked = sent < len(data)
        if is_blocked:
            connection.unsent = bytearray(data[sent:])
        elif connection.unsent:
            connection.unsent = bytearray()
        if is_blocked is not connection.is_blocked:
            connection.is_blocked = is_blocked
            self._poller.modify(connection.socket.fileno(), READ | WRITE if is_blocked else READ)

    def _close(self, connection: SocketConnection) -> None:
        connection.is_closed = True
        self._deadlines.pop(connection, None)
        if connection.socket is not None:
            self._drop_socket(connection)

    def _drop_socket(self, connection: SocketConnection) -> None:
        assert connection.socket is not None
        fd = connection.socket.fileno()
        self._poller.unregister(fd)
        del self._connections[fd]
        connection.socket.close()
        connection.socket = None
