"""One connection to a broker: requests go out as they come, answers come back in their order (trio).

Knows the versions that both sides speak and matches answers to requests; nothing of what they mean.
"""

from collections import deque
from typing import Any

import trio

from fakebroker.client.shapes import LAST_VERSION_WITH_TOPIC_NAMES, in_shape_of
from fakebroker.errors import ErrorCode, FakebrokerError, ProtocolError
from fakebroker.protocol.frames import DEFAULT_MAX_FRAME_BYTES, FrameBuffer, read_response, request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, Versions

DEFAULT_CONNECT_TIMEOUT_MS = 10_000
"""Kafka's default of `socket.connection.setup.timeout.ms`; here the exchange of versions is in it."""

_CHUNK_BYTES = 65_536
_ID_BYTES = 4


class BrokerUnreachable(FakebrokerError):  # noqa: N818  # a state of affairs, named as Kafka names such
    """No connection could be made, or what answers there is no broker."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(f"broker {host}:{port} cannot be reached: {why}")
        self.host, self.port = host, port


class ConnectionLost(FakebrokerError):  # noqa: N818  # a state of affairs, named as Kafka names such
    """The connection is gone; whether the broker has acted on what was sent is not known."""


class UnsupportedVersion(FakebrokerError):  # noqa: N818  # Kafka's name for it
    """The broker does not have the API, or no version of it that this client speaks."""

    def __init__(self, api: str, theirs: Versions | None, ours: Versions) -> None:
        super().__init__(f"{api}: the broker speaks {theirs or 'no version'}, this client {ours}")
        self.api, self.theirs, self.ours = api, theirs, ours


class _Pending:
    """A request that an answer is owed to. Where nobody waits any more, the answer is read and dropped."""

    __slots__ = ("answer", "answered", "correlation_id", "response_type", "version")

    def __init__(self, correlation_id: int, response_type: type[Message], version: int) -> None:
        self.correlation_id = correlation_id
        self.response_type = response_type
        self.version = version
        self.answer: Message | None = None
        self.answered = trio.Event()


class Connection(trio.abc.AsyncResource):
    """A connection on which any number of tasks may have requests in flight.

    A task in the nursery reads it. It never raises: what goes wrong closes the connection, and every request on it, now
    and later, gets `ConnectionLost` with the reason.

    Attributes:
        versions: The versions that the broker speaks, by API key.
    """

    def __init__(self, stream: trio.abc.Stream, client_id: str, max_in_flight: int, max_frame_bytes: int) -> None:
        self.versions: dict[int, Versions] = {}
        self._stream = stream
        self._client_id = client_id
        self._frames = FrameBuffer(max_frame_bytes)
        self._sending = trio.Lock()
        self._room = trio.Semaphore(max_in_flight)
        self._pending: deque[_Pending] = deque()
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
        """Connect to a broker and agree on versions.

        Args:
            host: Where it listens.
            port: Its port.
            client_id: What the broker is told in each request.
            nursery: Where the reading task runs; when it is cancelled, the connection closes.
            connect_timeout_ms: How long connecting and agreeing may take together.
            max_in_flight: How many requests may be unanswered; further ones wait before they are sent.
            max_frame_bytes: The largest answer accepted.

        Raises:
            BrokerUnreachable: That did not work, or took too long.
        """
        try:
            with trio.fail_after(connect_timeout_ms / 1000):
                stream = await trio.open_tcp_stream(host, port)
                return await cls.over(
                    stream, client_id, nursery, max_in_flight=max_in_flight, max_frame_bytes=max_frame_bytes
                )
        except trio.TooSlowError:
            why = f"no connection with versions agreed on after {connect_timeout_ms:g} ms"
        except (OSError, ConnectionLost, ProtocolError) as error:
            why = str(error)
        raise BrokerUnreachable(host, port, why)

    @classmethod
    async def over(
        cls,
        stream: trio.abc.Stream,
        client_id: str,
        nursery: trio.Nursery,
        *,
        max_in_flight: int = 1_000,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> "Connection":
        """Agree on versions over a stream that is there; see `open`.

        Raises:
            ConnectionLost: The stream ended, or what came is no answer of a broker.
            ProtocolError: The broker refuses to tell its versions.
        """
        connection = cls(stream, client_id, max_in_flight, max_frame_bytes)
        nursery.start_soon(connection._read)
        try:
            await connection._agree()
        except BaseException:
            connection._lose("no versions agreed on")
            await trio.aclose_forcefully(stream)
            raise
        return connection

    def version_for(self, request: type[Message]) -> int:
        """The version that requests of this class travel in: the highest that both sides speak.

        Raises:
            UnsupportedVersion: There is none.
        """
        api = api_of(request)
        last = LAST_VERSION_WITH_TOPIC_NAMES.get(request, api.versions.last)
        ours, theirs = Versions(api.versions.first, last), self.versions.get(api.key)
        if theirs is None or theirs.first > ours.last or theirs.last < ours.first:
            raise UnsupportedVersion(api.name, theirs, ours)
        return min(ours.last, theirs.last)

    async def request(self, message: Message) -> Any:
        """Send a request and wait for its answer.

        A caller that is cancelled while it waits leaves the connection as it is; one that is cancelled while its
        request is being written closes it, as half a request may be out.

        Returns:
            The answer, of the response class that belongs to the request.

        Raises:
            ConnectionLost: The connection is gone, before or while this waited.
            UnsupportedVersion: There is no version that both sides speak.
            ProtocolError: The version that both speak cannot carry the request.
        """
        version = self.version_for(type(message))
        return await self._request(in_shape_of(version, message), version)

    async def aclose(self) -> None:
        """Close it; requests in flight get `ConnectionLost`."""
        self._lose("closed by this client")
        await self._stream.aclose()

    async def _agree(self) -> None:
        """Ask for the broker's versions; one that does not know ours of the question answers in version 0 (KIP-511)."""
        version = ApiVersionsRequest.VERSIONS.last
        while True:
            question = ApiVersionsRequest(client_software_name="fakebroker", client_software_version="unknown")
            told: ApiVersionsResponse = await self._request(question, version)
            if told.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                known = {api.api_key: api.max_version for api in told.api_keys}
                version = max(0, min(known.get(ApiVersionsRequest.API_KEY, 0), version - 1))
                continue
            if told.error_code:
                raise ProtocolError(f"ApiVersions was answered {ErrorCode(told.error_code).name}")
            self.versions = {api.api_key: Versions(api.min_version, api.max_version) for api in told.api_keys}
            return

    async def _request(self, message: Message, version: int) -> Any:
        async with self._sending:
            self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
            frame = request_frame(message, version, self._next_correlation_id, self._client_id)
            pending = _Pending(self._next_correlation_id, api_of(message).response, version)
            await self._room.acquire()
            self._pending.append(pending)
            await self._write(frame)
        await pending.answered.wait()
        if pending.answer is None:
            raise ConnectionLost(self._lost_because)
        return pending.answer

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
        pending = self._pending[0]
        _, pending.answer = read_response(pending.response_type, _version_of(frame, pending), frame)
        self._pending.popleft()
        self._room.release()
        pending.answered.set()

    def _lose(self, why: str) -> None:
        """From here on nothing is answered; only the first reason counts."""
        if self._lost_because is None:
            self._lost_because = why
        while self._pending:
            self._pending.popleft().answered.set()
            self._room.release()


def _version_of(frame: bytes, pending: _Pending) -> int:
    """The version of an answer; a broker that does not know a version of ApiVersions says so in version 0 (KIP-511)."""
    error_code = int.from_bytes(frame[_ID_BYTES : _ID_BYTES + 2], "big", signed=True)
    is_refusal = pending.response_type is ApiVersionsResponse and error_code == ErrorCode.UNSUPPORTED_VERSION
    return 0 if is_refusal else pending.version
