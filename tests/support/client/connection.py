"""A connection to a broker for tasks: sends requests, and waits for their responses (trio)."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import trio

from fakebroker.client.errors import AuthenticationFailed, BrokerUnreachable, ConnectionLost
from fakebroker.client.stream_transport import OpenStream, StreamConnection, StreamTransport
from fakebroker.client.transport import DEFAULT_CONNECT_TIMEOUT_MS
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.client.versions import NegotiatedVersions, convert_response
from fakebroker.host_port import format_host_port
from fakebroker.protocol.frames import DEFAULT_MAX_FRAME_BYTES
from fakebroker.protocol.schema import Message


class SentRequest:
    """A request that was sent. Its response is ignored unless `answer` is called."""

    __slots__ = ("_answer", "_answered", "_lost_because", "_message")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._answer: Message | None = None
        self._lost_because: str | None = None
        self._answered = trio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the response is pending: it has not arrived, and the connection is not lost."""
        return not self._answered.is_set()

    async def answer(self) -> Any:
        """Wait for the response and return it; see `Connection.request`.

        Raises:
            ConnectionLost: The connection was lost before the response arrived.
        """
        if self.is_open:
            await self._answered.wait()
        if self._answer is None:
            raise ConnectionLost(self._lost_because)
        return convert_response(self._message, self._answer)

    def deliver(self, answer: Message) -> None:
        """Set the response."""
        self._answer = answer
        self._answered.set()

    def lose(self, why: str) -> None:
        """Fail the request, because the connection was lost."""
        self._lost_because = why
        self._answered.set()


class Connection(trio.abc.AsyncResource):
    """A connection that any number of tasks can use; created by `open`.

    After it is lost, pending and later requests raise `ConnectionLost` with the reason.

    Attributes:
        broker: The broker in error messages: "broker HOST:PORT".
    """

    def __init__(self, transport: StreamTransport, host: str, port: int, client_id: str, max_in_flight: int) -> None:
        self.broker = f"broker {format_host_port(host, port)}"
        self._transport, self._client_id = transport, client_id
        self._sending = trio.Lock()
        self._slots = trio.Semaphore(max_in_flight)
        self._pending: deque[SentRequest] = deque()
        self._opened = trio.Event()
        self._lost_because: str | None = None
        self._connection: StreamConnection = transport.connect((host, port), self)

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        client_id: str,
        nursery: trio.Nursery,
        *,
        connect_timeout_ms: float = DEFAULT_CONNECT_TIMEOUT_MS,
        max_in_flight: int = 1_000,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        open_stream: OpenStream = trio.open_tcp_stream,
        security: TransportSecurity | None = None,
    ) -> "Connection":
        """Connect to a broker, negotiate versions and authenticate.

        Args:
            host: The broker's host name or address.
            port: The broker's port.
            client_id: The client id in each request.
            nursery: Runs the connection's tasks; when it is cancelled, the connection is closed.
            connect_timeout_ms: Maximum duration of connecting, version negotiation and authentication included.
            max_in_flight: Maximum number of pending requests; further ones wait before they are sent.
            max_frame_bytes: Maximum size of a response.
            open_stream: Connects to a host and port.
            security: How the connection is encrypted and authenticated; None for neither.

        Raises:
            BrokerUnreachable: Connecting failed or took too long.
            AuthenticationFailed: The broker has refused the client, or its certificate is not valid.
        """
        transport = StreamTransport(
            client_id,
            nursery,
            connect_timeout_ms=connect_timeout_ms,
            max_frame_bytes=max_frame_bytes,
            open_stream=open_stream,
            security=security,
        )
        connection = cls(transport, host, port, client_id, max_in_flight)
        try:
            await connection._opened.wait()
        except trio.Cancelled:
            transport.release(connection._connection, connection)
            raise
        if connection._lost_because is not None:
            kind = AuthenticationFailed if connection._connection.is_refused else BrokerUnreachable
            raise kind(connection.broker, connection._lost_because)
        return connection

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed: requests on it raise `ConnectionLost`."""
        return self._lost_because is not None

    @property
    def versions(self) -> NegotiatedVersions:
        """The versions of requests to this broker."""
        assert self._connection.versions is not None
        return self._connection.versions

    async def request(self, message: Message) -> Any:
        """Send a request and return its response. Cancellation while waiting does not affect the connection.

        Args:
            message: The request in the layout of the newest version; it is converted to the negotiated version.

        Returns:
            The response message, in the layout of the newest version. It may be shared and must not be changed.

        Raises:
            ConnectionLost: The connection was lost before the response arrived.
            UnsupportedVersion: No common version supports what the request needs.
            ProtocolError: The negotiated version cannot represent the request.
        """
        (sent,) = await self.send([message])
        return await sent.answer()

    async def send(self, messages: Sequence[Message]) -> list[SentRequest]:
        """Send requests in one write, as far as `max_in_flight` allows, without waiting for responses.

        Raises:
            UnsupportedVersion: As `request` does; nothing is sent.
            ProtocolError: As `request` does; requests after the one that fails are not sent.
        """
        versions = [self.versions.version_of(message) for message in messages]
        requests = [SentRequest(message) for message in messages]
        async with self._sending:
            for message, version, sent in zip(messages, versions, requests, strict=True):
                try:
                    self._slots.acquire_nowait()
                except trio.WouldBlock:
                    await self._slots.acquire()
                if self._lost_because is not None:
                    sent.lose(self._lost_because)
                    self._slots.release()
                    continue
                try:
                    self._transport.send(self._connection, message, version, self._client_id, self)
                except BaseException:
                    self._slots.release()
                    raise
                self._pending.append(sent)
                if self._lost_because is not None:  # by `send`: there is no valid token to authenticate again
                    self.lost(self._connection, self._lost_because)
        return requests

    async def aclose(self) -> None:
        """Close the connection; pending requests raise `ConnectionLost`."""
        self._transport.fail(self._connection, "closed by this client")
        await trio.lowlevel.checkpoint()

    # Methods of `ConnectionUser`

    def opened(self, connection: StreamConnection) -> None:
        self._opened.set()

    def answered(self, connection: StreamConnection, response: Message) -> None:
        self._slots.release()
        self._pending.popleft().deliver(response)

    def lost(self, connection: StreamConnection, why: str) -> None:
        """Fail pending and later requests; only the first reason counts."""
        if self._lost_because is None:
            self._lost_because = why
        self._opened.set()
        while self._pending:
            self._pending.popleft().lose(self._lost_because)
            self._slots.release()
