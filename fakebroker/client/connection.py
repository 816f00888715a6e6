"""A connection to a broker: negotiates versions, sends requests, and matches responses to them (trio)."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import trio

from fakebroker.client.errors import BrokerUnreachable, ConnectionLost, UnsupportedVersion, error_code
from fakebroker.client.versions import in_newest_shape, in_shape_of, versions_needed, versions_of
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.frames import DEFAULT_MAX_FRAME_BYTES, FrameBuffer, read_response, request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, Versions

DEFAULT_CONNECT_TIMEOUT_MS = 10_000
"""Kafka's default of `socket.connection.setup.timeout.ms`; here it includes version negotiation."""

_CHUNK_BYTES = 65_536
_ID_BYTES = 4


class SentRequest:
    """A request that was sent. Its response is read and dropped unless `answer` is called."""

    __slots__ = ("_answer", "_answered", "_lost_because", "_message", "correlation_id", "response_type", "version")

    def __init__(self, message: Message, correlation_id: int, version: int) -> None:
        self.correlation_id = correlation_id
        self.response_type = api_of(message).response
        self.version = version
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
        return in_newest_shape(self._message, self._answer)

    def deliver(self, answer: Message) -> None:
        """Set the response."""
        self._answer = answer
        self._answered.set()

    def lose(self, why: str) -> None:
        """Fail: the connection was lost."""
        self._lost_because = why
        self._answered.set()


class Connection(trio.abc.AsyncResource):
    """A connection for requests of any number of tasks.

    A task in the nursery reads responses. It raises nothing: an error closes the connection, and all its requests,
    pending and later ones, raise `ConnectionLost` with the reason.

    Attributes:
        versions: The versions that the broker supports, by API key.
        broker: The broker in error messages: "broker HOST:PORT".
    """

    def __init__(
        self, stream: trio.abc.Stream, client_id: str, broker: str, max_in_flight: int, max_frame_bytes: int
    ) -> None:
        self.versions: dict[int, Versions] = {}
        self.broker = broker
        self._stream = stream
        self._client_id = client_id
        self._frames = FrameBuffer(max_frame_bytes)
        self._sending = trio.Lock()
        self._slots = trio.Semaphore(max_in_flight)
        self._pending: deque[SentRequest] = deque()
        self._next_correlation_id = 0
        self._lost_because: str | None = None

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
    ) -> "Connection":
        """Connect to a broker and negotiate versions.

        Args:
            host: The broker's host name or address.
            port: The broker's port.
            client_id: The client id in each request.
            nursery: Runs the reading task; when it is cancelled, the connection is closed.
            connect_timeout_ms: Maximum duration of connecting, version negotiation included.
            max_in_flight: Maximum number of pending requests; further ones wait before they are sent.
            max_frame_bytes: Maximum size of a response.

        Raises:
            BrokerUnreachable: Connecting failed or took too long.
        """
        try:
            with trio.fail_after(connect_timeout_ms / 1000):
                stream = await trio.open_tcp_stream(host, port)
                return await cls.over(
                    stream,
                    client_id,
                    nursery,
                    broker=f"broker {host}:{port}",
                    max_in_flight=max_in_flight,
                    max_frame_bytes=max_frame_bytes,
                )
        except trio.TooSlowError:
            why = f"no connection with versions agreed on after {connect_timeout_ms:g} ms"
        except (OSError, ConnectionLost, ProtocolError) as error:
            why = str(error)
        raise BrokerUnreachable(f"broker {host}:{port}", why)

    @classmethod
    async def over(
        cls,
        stream: trio.abc.Stream,
        client_id: str,
        nursery: trio.Nursery,
        *,
        broker: str = "the broker",
        max_in_flight: int = 1_000,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> "Connection":
        """Negotiate versions over an existing stream; see `open`.

        Raises:
            ConnectionLost: The stream ended, or the response is malformed.
            ProtocolError: The broker returned an error.
        """
        connection = cls(stream, client_id, broker, max_in_flight, max_frame_bytes)
        try:
            nursery.start_soon(connection._read)
            await connection._negotiate_versions()
        except BaseException:
            connection._lose("no versions agreed on")
            await trio.aclose_forcefully(stream)
            raise
        return connection

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed: requests on it raise `ConnectionLost`."""
        return self._lost_because is not None

    def version_for(self, request: type[Message]) -> int:
        """Return the version for requests of this class without special needs: the highest that both sides support.

        Raises:
            UnsupportedVersion: There is no common version.
        """
        return self._highest_of(request, versions_of(request))

    async def request(self, message: Message) -> Any:
        """Send a request and return its response.

        Cancellation while waiting does not affect the connection; cancellation while the request is being written
        closes it, because half of the request may have been sent.

        Args:
            message: The request in the layout of the newest version; it is converted to the negotiated version.

        Returns:
            The response message, in the layout of the newest version.

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
            ProtocolError: As `request` does; nothing is sent.
        """
        return await self._send([(message, self.version_of(message)) for message in messages])

    def version_of(self, message: Message) -> int:
        """Return the version in which a request would be sent.

        Raises:
            UnsupportedVersion: No common version supports what the request needs.
        """
        needed = versions_needed(message)
        return self.version_for(type(message)) if needed is None else self._highest_of(type(message), needed)

    async def aclose(self) -> None:
        """Close the connection; pending requests raise `ConnectionLost`."""
        self._lose("closed by this client")
        await self._stream.aclose()

    def _highest_of(self, request: type[Message], ours: Versions) -> int:
        api = api_of(request)
        theirs = self.versions.get(api.key)
        if theirs is None or theirs.first > ours.last or theirs.last < ours.first:
            raise UnsupportedVersion(api.name, theirs, ours, self.broker)
        return min(ours.last, theirs.last)

    async def _negotiate_versions(self) -> None:
        """Request the broker's versions; a broker that does not support our ApiVersions answers in version 0."""
        version = ApiVersionsRequest.VERSIONS.last
        while True:
            request = ApiVersionsRequest(client_software_name="fakebroker", client_software_version="unknown")
            (sent,) = await self._send([(request, version)])
            response: ApiVersionsResponse = await sent.answer()
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                known = {api.api_key: api.max_version for api in response.api_keys}
                version = max(0, min(known.get(ApiVersionsRequest.API_KEY, 0), version - 1))
                continue
            if response.error_code:
                raise ProtocolError(f"ApiVersions was answered {error_code(response.error_code).name}")
            self.versions = {api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys}
            return

    async def _send(self, messages: Sequence[tuple[Message, int]]) -> list[SentRequest]:
        async with self._sending:
            framed = [self._framed(message, version) for message, version in messages]
            unwritten = b""
            for sent, frame in framed:
                try:
                    self._slots.acquire_nowait()
                except trio.WouldBlock:
                    await self._write(unwritten)
                    unwritten = b""
                    await self._slots.acquire()
                self._pending.append(sent)
                unwritten += frame
            await self._write(unwritten)
        return [sent for sent, _ in framed]

    def _framed(self, message: Message, version: int) -> tuple[SentRequest, bytes]:
        correlation_id = self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        frame = request_frame(in_shape_of(version, message), version, correlation_id, self._client_id)
        return SentRequest(message, correlation_id, version), frame

    async def _write(self, frame: bytes) -> None:
        try:
            await self._stream.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._lose(f"the broker takes no more: {error!r}")
            await trio.aclose_forcefully(self._stream)
        except trio.Cancelled:
            self._lose("a request was cancelled while it was being written")
            await trio.aclose_forcefully(self._stream)
            raise

    async def _read(self) -> None:
        why = "the broker has closed it"
        try:
            while data := await self._stream.receive_some(_CHUNK_BYTES):
                for frame in self._frames.feed(bytes(data)):
                    self._deliver(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            why = f"it broke: {error!r}"
        except ProtocolError as error:
            why = str(error)
        finally:
            self._lose(why)
            await trio.aclose_forcefully(self._stream)

    def _deliver(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[:_ID_BYTES], "big", signed=True)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            expected = self._pending[0].correlation_id if self._pending else "none"
            raise ProtocolError(f"answer with correlation id {correlation_id}, expected {expected}")
        sent = self._pending[0]
        _, answer = read_response(sent.response_type, _version_of(frame, sent), frame)
        self._pending.popleft()
        self._slots.release()
        sent.deliver(answer)

    def _lose(self, why: str) -> None:
        """Fail pending and later requests; only the first reason counts."""
        if self._lost_because is None:
            self._lost_because = why
        while self._pending:
            self._pending.popleft().lose(self._lost_because)
            self._slots.release()


def _version_of(frame: bytes, sent: SentRequest) -> int:
    """Return the version of a response: 0 if it says that the ApiVersions version is unsupported (KIP-511)."""
    error_code = int.from_bytes(frame[_ID_BYTES : _ID_BYTES + 2], "big", signed=True)
    is_refusal = sent.response_type is ApiVersionsResponse and error_code == ErrorCode.UNSUPPORTED_VERSION
    return 0 if is_refusal else sent.version
