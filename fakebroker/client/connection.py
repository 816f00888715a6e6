"""One connection to a broker: requests go out as they come, answers come back in their order (trio).

Knows the versions that both sides speak and matches answers to requests; nothing of what they mean.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

import trio

from fakebroker.client.member.reactions import error_code
from fakebroker.client.versions import in_newest_shape, in_shape_of, versions_needed, versions_of
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
    """No connection could be made, or what answers there is no broker.

    Args:
        broker: Which one; such as "broker 127.0.0.1:9092".
        why: The reason.
    """

    def __init__(self, broker: str, why: str) -> None:
        super().__init__(f"{broker} cannot be reached: {why}")
        self.broker, self.why = broker, why

    @classmethod
    def of_all(cls, reasons: "Sequence[BrokerUnreachable]") -> "BrokerUnreachable":
        """None of several can be reached."""
        brokers = ", ".join(each.broker.removeprefix("broker ") for each in reasons)
        return cls(f"none of the brokers {brokers}", "; ".join(dict.fromkeys(each.why for each in reasons)))


class ConnectionLost(FakebrokerError):  # noqa: N818  # a state of affairs, named as Kafka names such
    """The connection is gone; whether the broker has acted on what was sent is not known."""


class UnsupportedVersion(FakebrokerError):  # noqa: N818  # Kafka's name for it
    """The broker does not have the API, or no version of it that this client speaks and that can do what is asked.

    Attributes:
        hint: What its sentence ends with.
    """

    hint: ClassVar[str] = ""

    def __init__(self, api: str, theirs: Versions | None, ours: Versions, broker: str = "the broker") -> None:
        super().__init__(f"{api}: {broker} speaks {theirs or 'no version'}, this client {ours}{self.hint}")
        self.api, self.theirs, self.ours, self.broker = api, theirs, ours, broker


class Sent:
    """A request that has been sent. Where nobody waits for its answer, that is read and dropped."""

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
        """Whether there is neither an answer yet nor the certainty that there will be none."""
        return not self._answered.is_set()

    async def answer(self) -> Any:
        """Wait for the answer; see `Connection.request`.

        Raises:
            ConnectionLost: The connection is gone before there was one.
        """
        if self.is_open:
            await self._answered.wait()
        if self._answer is None:
            raise ConnectionLost(self._lost_because)
        return in_newest_shape(self._message, self._answer)

    def deliver(self, answer: Message) -> None:
        """There is the answer."""
        self._answer = answer
        self._answered.set()

    def lose(self, why: str) -> None:
        """There will be none."""
        self._lost_because = why
        self._answered.set()


class Connection(trio.abc.AsyncResource):
    """A connection on which any number of tasks may have requests in flight.

    A task in the nursery reads it. It never raises: what goes wrong closes the connection, and every request on it, now
    and later, gets `ConnectionLost` with the reason.

    Attributes:
        versions: The versions that the broker speaks, by API key.
        broker: Where the broker is, for people: "broker HOST:PORT".
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
        self._room = trio.Semaphore(max_in_flight)
        self._pending: deque[Sent] = deque()
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
        """Agree on versions over a stream that is there; see `open`.

        Raises:
            ConnectionLost: The stream ended, or what came is no answer of a broker.
            ProtocolError: The broker refuses to tell its versions.
        """
        connection = cls(stream, client_id, broker, max_in_flight, max_frame_bytes)
        try:
            nursery.start_soon(connection._read)
            await connection._agree()
        except BaseException:
            connection._lose("no versions agreed on")
            await trio.aclose_forcefully(stream)
            raise
        return connection

    @property
    def is_lost(self) -> bool:
        """Whether it is gone: nothing more is answered on it."""
        return self._lost_because is not None

    def version_for(self, request: type[Message]) -> int:
        """The version that requests of this class travel in, as a rule: the highest that both sides speak.

        Raises:
            UnsupportedVersion: There is none.
        """
        return self._highest_of(request, versions_of(request))

    async def request(self, message: Message) -> Any:
        """Send a request and wait for its answer.

        A caller that is cancelled while it waits leaves the connection as it is; one that is cancelled while its
        request is being written closes it, as half a request may be out.

        Args:
            message: The request in its newest shape; it is put into that of the version that both sides speak.

        Returns:
            The answer, of the response class that belongs to the request; in its newest shape, as the request was.

        Raises:
            ConnectionLost: The connection is gone, before or while this waited.
            UnsupportedVersion: There is no version that both sides speak and that can do what is asked.
            ProtocolError: The version that both speak cannot carry the request.
        """
        (sent,) = await self.send([message])
        return await sent.answer()

    async def send(self, messages: Sequence[Message]) -> list[Sent]:
        """Send requests in one write, as far as so many may be in flight, and leave waiting for answers to the caller.

        Raises:
            UnsupportedVersion: As `request` does; nothing is sent then.
            ProtocolError: As `request` does; nothing is sent then.
        """
        return await self._send([(message, self.version_of(message)) for message in messages])

    def version_of(self, message: Message) -> int:
        """The version that a request travels in.

        Raises:
            UnsupportedVersion: There is none that both sides speak and that can do what is asked.
        """
        needed = versions_needed(message)
        return self.version_for(type(message)) if needed is None else self._highest_of(type(message), needed)

    async def aclose(self) -> None:
        """Close it; requests in flight get `ConnectionLost`."""
        self._lose("closed by this client")
        await self._stream.aclose()

    def _highest_of(self, request: type[Message], ours: Versions) -> int:
        api = api_of(request)
        theirs = self.versions.get(api.key)
        if theirs is None or theirs.first > ours.last or theirs.last < ours.first:
            raise UnsupportedVersion(api.name, theirs, ours, self.broker)
        return min(ours.last, theirs.last)

    async def _agree(self) -> None:
        """Ask for the broker's versions; one that does not know ours of the question answers in version 0 (KIP-511)."""
        version = ApiVersionsRequest.VERSIONS.last
        while True:
            question = ApiVersionsRequest(client_software_name="fakebroker", client_software_version="unknown")
            (sent,) = await self._send([(question, version)])
            told: ApiVersionsResponse = await sent.answer()
            if told.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                known = {api.api_key: api.max_version for api in told.api_keys}
                version = max(0, min(known.get(ApiVersionsRequest.API_KEY, 0), version - 1))
                continue
            if told.error_code:
                raise ProtocolError(f"ApiVersions was answered {error_code(told.error_code).name}")
            self.versions = {api.api_key: Versions(api.min_version, api.max_version) for api in told.api_keys}
            return

    async def _send(self, messages: Sequence[tuple[Message, int]]) -> list[Sent]:
        async with self._sending:
            framed = [self._framed(message, version) for message, version in messages]
            unwritten = b""
            for sent, frame in framed:
                try:
                    self._room.acquire_nowait()
                except trio.WouldBlock:
                    await self._write(unwritten)
                    unwritten = b""
                    await self._room.acquire()
                self._pending.append(sent)
                unwritten += frame
            await self._write(unwritten)
        return [sent for sent, _ in framed]

    def _framed(self, message: Message, version: int) -> tuple[Sent, bytes]:
        correlation_id = self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        frame = request_frame(in_shape_of(version, message), version, correlation_id, self._client_id)
        return Sent(message, correlation_id, version), frame

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
        self._room.release()
        sent.deliver(answer)

    def _lose(self, why: str) -> None:
        """From here on nothing is answered; only the first reason counts."""
        if self._lost_because is None:
            self._lost_because = why
        while self._pending:
            self._pending.popleft().lose(self._lost_because)
            self._room.release()


def _version_of(frame: bytes, sent: Sent) -> int:
    """The version of an answer; a broker that does not know a version of ApiVersions says so in version 0 (KIP-511)."""
    error_code = int.from_bytes(frame[_ID_BYTES : _ID_BYTES + 2], "big", signed=True)
    is_refusal = sent.response_type is ApiVersionsResponse and error_code == ErrorCode.UNSUPPORTED_VERSION
    return 0 if is_refusal else sent.version
