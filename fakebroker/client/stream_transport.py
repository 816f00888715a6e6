"""Connections over trio's streams, each with a task that reads and one that writes."""

import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from fakebroker.client.authentication import ClientAuthentication
from fakebroker.client.broker_connection import BrokerConnection
from fakebroker.client.errors import UnsupportedVersion
from fakebroker.client.transport import DEFAULT_CONNECT_TIMEOUT_MS, Address, ConnectionUser
from fakebroker.client.transport_security import TransportSecurity, is_refusal, reason
from fakebroker.errors import AuthenticationError, ProtocolError
from fakebroker.protocol.frames import DEFAULT_MAX_FRAME_BYTES
from fakebroker.protocol.schema import Message

_SHOWN_BYTES = 16
_CHUNK_BYTES = 65_536

OpenStream = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Connects to a host and port. Raises `OSError` if that fails."""


class StreamConnection(BrokerConnection):
    """A connection of `StreamTransport`.

    Attributes:
        scope: Cancelled when the connection is closed. Its deadline limits connecting, version negotiation and
            authentication only.
        has_unsent: Set when there are bytes to send, and when the connection is closed.
    """

    __slots__ = ("has_unsent", "scope")

    def __init__(
        self,
        address: Address,
        user: ConnectionUser,
        max_frame_bytes: int,
        deadline_s: float,
        authentication: ClientAuthentication | None,
    ) -> None:
        super().__init__(address, user, max_frame_bytes=max_frame_bytes, authentication=authentication)
        self.scope = trio.CancelScope(deadline=deadline_s)
        self.has_unsent = trio.Event()


class StreamTransport:
    """Connections over trio's streams; a `Transport`.

    Errors close the connection; its tasks raise nothing.

    Args:
        client_id: `client.id` of ApiVersions requests.
        nursery: Runs the tasks; when it is cancelled, connections are closed.
        connect_timeout_ms: Maximum duration of connecting, negotiating versions and authentication together.
        max_frame_bytes: Maximum size of a response.
        open_stream: Connects to a host and port.
        security: How connections are encrypted and authenticated.
    """

    def __init__(
        self,
        client_id: str,
        nursery: trio.Nursery,
        *,
        connect_timeout_ms: float = DEFAULT_CONNECT_TIMEOUT_MS,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        open_stream: OpenStream = trio.open_tcp_stream,
        security: TransportSecurity | None = None,
    ) -> None:
        self._client_id, self._nursery = client_id, nursery
        self._connect_timeout_ms, self._max_frame_bytes = connect_timeout_ms, max_frame_bytes
        self._open_stream = open_stream
        self._security = TransportSecurity() if security is None else security

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> StreamConnection:
        """Start to connect; the user is notified when the connection is open, or lost."""
        deadline_s = trio.current_time() + self._connect_timeout_ms / 1000
        authentication = self._security.new_authentication()
        connection = StreamConnection(address, user, self._max_frame_bytes, deadline_s, authentication)
        self._nursery.start_soon(self._run, connection)
        return connection

    def send(
        self,
        connection: StreamConnection,
        request: Message,
        version: int,
        client_id: str,
        user: ConnectionUser,
        cache: Any = None,
    ) -> None:
        """Send a request; ignored if the connection has been lost. See `Transport.send`."""
        if connection.is_closed:
            return
        try:
            self._write(connection, connection.frame(request, version, client_id, user, cache))
        except AuthenticationError as error:
            connection.is_refused = True
            self.fail(connection, str(error))

    def fail(self, connection: StreamConnection, why: str) -> None:
        """Close a connection; notify its users of the loss before this returns."""
        if not connection.is_closed:
            self._close(connection)
            for user in list(connection.users):
                user.lost(connection, why)

    def release(self, connection: StreamConnection, user: ConnectionUser) -> None:
        """Remove a user and its pending requests from a connection. A connection without users is closed."""
        connection.forget(user)
        if not connection.users:
            self._close(connection)

    def _write(self, connection: StreamConnection, data: bytes | bytearray) -> None:
        connection.unsent += data
        connection.has_unsent.set()

    async def _run(self, connection: StreamConnection) -> None:
        """Connect, negotiate versions, authenticate, then read."""
        why = f"no connection in {self._connect_timeout_ms:g} ms"
        try:
            with connection.scope:
                stream = await self._open_stream(*connection.address)
                why = f"connected, but no response to ApiVersions in {self._connect_timeout_ms:g} ms"
                if self._security.ssl_context is not None:
                    why = (
                        f"connected, but no TLS handshake or response to ApiVersions in {self._connect_timeout_ms:g} ms"
                    )
                    host = connection.address[0]
                    # https_compatible: peers may close the connection without close_notify.
                    stream = trio.SSLStream(
                        stream, self._security.ssl_context, server_hostname=host, https_compatible=True
                    )
                try:
                    if isinstance(stream, trio.SSLStream):
                        await stream.do_handshake()
                    self._nursery.start_soon(self._send_unsent, connection, stream)
                    why = await self._receive(connection, stream)
                except trio.Cancelled:
                    if connection.versions is not None:
                        why = "closed by this client"
                    elif connection.negotiated is not None:
                        why = f"no response to SaslAuthenticate in {self._connect_timeout_ms:g} ms"
                    raise
                except trio.BrokenResourceError as error:
                    why = _broken(connection, error)
                    if not connection.is_refused:
                        why = f"the TLS handshake failed (a plaintext listener?): {why}"
                finally:
                    self.fail(connection, why)  # before the writing task notices
                    await trio.aclose_forcefully(stream)
        except OSError as error:
            why = _reason(error)
        finally:
            self.fail(connection, why)

    async def _receive(self, connection: StreamConnection, stream: trio.abc.Stream) -> str:
        """Read until the connection ends; return the reason."""
        data = b""
        try:
            self._write(connection, connection.open(self._client_id))
            while data := bytes(await stream.receive_some(_CHUNK_BYTES)):
                if connection.versions is not None:
                    connection.receive(data)
                    if connection.authentication is not None:
                        self._write(connection, connection.take_authentication())
                    continue
                self._write(connection, connection.receive_opening(data))
                if connection.versions is not None:
                    connection.scope.deadline = float("inf")
                    for user in list(connection.users):
                        user.opened(connection)
        except ProtocolError as error:
            if connection.negotiated is None:
                expected = "a TLS port" if self._security.ssl_context is not None else "a plaintext port"
                return f"not a Kafka broker, or not {expected}: it sent {_shown(data)}; {error}"
            return str(error)
        except (AuthenticationError, UnsupportedVersion) as error:
            connection.is_refused = True
            return str(error)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            return _broken(connection, error)
        if connection.versions is None and connection.negotiated is not None:
            return "the broker has closed the connection before the authentication was complete"
        if connection.has_never_answered and connection.authentication is None:
            return "the broker has closed the connection (a listener that requires SASL authentication?)"
        return "the broker has closed the connection"

    async def _send_unsent(self, connection: StreamConnection, stream: trio.abc.Stream) -> None:
        try:
            while not connection.is_closed:
                data, connection.unsent = connection.unsent, bytearray()
                await stream.send_all(data)
                await connection.has_unsent.wait()
                connection.has_unsent = trio.Event()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.fail(connection, "the broker has closed the connection")

    @staticmethod
    def _close(connection: StreamConnection) -> None:
        connection.is_closed = True
        connection.scope.cancel()
        connection.has_unsent.set()


def _broken(connection: StreamConnection, error: Exception) -> str:
    """Return why a stream is broken."""
    cause = error.__cause__ or error
    if isinstance(cause, OSError) and is_refusal(cause):
        connection.is_refused = True
        return f"TLS failed: {reason(cause)}"
    # Numbers of TLS errors are not those of the operating system.
    return f"the connection failed: {reason(cause) if isinstance(cause, ssl.SSLError) else _reason(cause)}"


def _reason(error: BaseException) -> str:
    """Return the operating system's reason of an error, such as "Connection refused", else its message.

    An error about several addresses of a host has the errors as the group that caused it.
    """
    while isinstance(error.__cause__, OSError | BaseExceptionGroup):
        error = error.__cause__
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno and error.errno > 0:  # those of name resolution are negative
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)


def _shown(data: bytes) -> str:
    """Return the first bytes of what a peer sent, for a message."""
    return repr(data[:_SHOWN_BYTES])[1:]
