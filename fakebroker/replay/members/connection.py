"""One client connection to a broker: negotiated versions, pending requests, and how a request becomes bytes.

No socket is used here (see sockets.py), and the meaning of requests does not matter. `Transport` is what look-ups and
admin loads need of connections, over TCP and in virtual time alike.
"""

import socket
import struct
from collections.abc import Mapping
from typing import Any, Protocol

from fakebroker.client import pool
from fakebroker.client.errors import UnsupportedVersion
from fakebroker.client.versions import in_shape_of, versions_needed, versions_of
from fakebroker.errors import ProtocolError
from fakebroker.protocol.frames import FrameBuffer, read_response, request_frame
from fakebroker.protocol.registry import APIS, api_of
from fakebroker.protocol.schema import Message, Versions

Address = pool.Address

CLIENT_ID = "fakebroker-replay"
"""`client.id` of requests that no member sends."""

_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_OFFSET = 8
"""In a request's frame: after its size, API key and version."""

_RESPONSES: dict[type[Message], type[Message]] = {api.request: api.response for api in APIS}
_SMALL_RESPONSE_BYTES = 24
_MAX_SMALL_RESPONSES = 1_000
_small_responses: dict[tuple[type[Message], int, bytes], Message] = {}
"""Decoded small responses, such as a heartbeat's, by their bytes. They are shared: responses must not be changed."""


def addresses(bootstrap: str) -> list[Address]:
    """Parse the option `--bootstrap`.

    Raises:
        ConfigError: It is not HOST:PORT, or several with commas.
    """
    return pool.addresses(bootstrap, "--bootstrap")


class ConnectionUser(Protocol):
    """Sends requests over a connection and receives their responses."""

    def opened(self, connection: "BrokerConnection") -> None:
        """Requests can be sent from now on."""

    def answered(self, connection: "BrokerConnection", response: Any) -> None:
        """The oldest pending request of this user was answered."""

    def lost(self, connection: "BrokerConnection", why: str) -> None:
        """The connection is closed, or could not be made; pending requests will not be answered."""


class NegotiatedVersions:
    """The version of each API on connections to one broker: the highest that both sides support.

    Args:
        theirs: The versions that the broker supports, by API key.
    """

    def __init__(self, theirs: Mapping[int, Versions]) -> None:
        self._theirs = theirs
        self._versions: dict[type[Message], int] = {}
        for api in APIS:
            ours, reported = versions_of(api.request), theirs.get(api.key)
            if reported is not None and reported.first <= ours.last and ours.first <= reported.last:
                self._versions[api.request] = min(ours.last, reported.last)

    def version_for(self, request: type[Message]) -> int:
        """Return the version of requests of a class.

        Raises:
            UnsupportedVersion: Both sides have none in common.
        """
        version = self._versions.get(request)
        if version is None:
            api = api_of(request)
            raise UnsupportedVersion(api.name, self._theirs.get(api.key), versions_of(request))
        return version

    def version_of(self, request: Message) -> int:
        """Return the version of one request, whose fields may need a version of their own.

        Raises:
            UnsupportedVersion: As `version_for` does.
        """
        needed = versions_needed(request)
        if needed is None:
            return self.version_for(type(request))
        api = api_of(request)
        theirs = self._theirs.get(api.key)
        if theirs is None or theirs.first > needed.last or theirs.last < needed.first:
            raise UnsupportedVersion(api.name, theirs, needed)
        return min(needed.last, theirs.last)


class FrameCache:
    """The bytes of a request that is sent repeatedly with another correlation id, such as a heartbeat."""

    __slots__ = ("_frame", "_request", "_version")

    def __init__(self) -> None:
        self._request: Message | None = None
        self._version = -1
        self._frame = bytearray()

    def frame(self, request: Message, version: int, correlation_id: int, client_id: str) -> bytearray:
        """Return the frame of a request. It is valid until the next call."""
        if version == self._version and (request is self._request or request == self._request):
            _CORRELATION_ID.pack_into(self._frame, _CORRELATION_ID_OFFSET, correlation_id)
        else:
            self._frame = bytearray(request_frame(in_shape_of(version, request), version, correlation_id, client_id))
            self._request, self._version = request, version
        return self._frame


class BrokerConnection:
    """One connection, made by `Transport.connect`.

    Attributes:
        address: Host and port of the broker.
        users: Notified when the connection opens or is lost.
        is_shared: Requests of several users are collected until the end of a poll, to be written together.
        versions: None until versions are negotiated.
        asked_version: Version of the pending ApiVersions request, -1 before there is one.
        is_connecting: Whether the socket is not connected yet.
        begun_in_poll: Number of the poll in which the socket was made.
        is_closed: Whether the connection is over.
        untried: Resolved addresses that were not tried yet.
        frames: Splits received bytes into frames.
        unsent: Bytes that the socket did not take yet.
        is_dirty: Whether unsent bytes are to be written at the end of the poll.
        is_blocked: Whether the poller is to report when the socket takes more bytes.
    """

    __slots__ = (
        "_correlation_id",
        "_pending",
        "address",
        "asked_version",
        "begun_in_poll",
        "frames",
        "is_blocked",
        "is_closed",
        "is_connecting",
        "is_dirty",
        "is_shared",
        "socket",
        "unsent",
        "untried",
        "users",
        "versions",
    )

    def __init__(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> None:
        self.address = address
        self.users: dict[ConnectionUser, None] = {user: None}
        self.is_shared = is_shared
        self.versions: NegotiatedVersions | None = None
        self.asked_version = -1
        self.is_connecting = True
        self.is_closed = False
        self.is_dirty = False
        self.is_blocked = False
        self.begun_in_poll = 0
        self.socket: socket.socket | None = None
        self.untried: list[tuple[int, Any]] = []
        self.frames = FrameBuffer()
        self.unsent = bytearray()
        self._pending: list[tuple[int, type[Message], int, ConnectionUser | None]] = []
        self._correlation_id = 0

    def version_for(self, request: Message) -> int:
        """Return the version of a request; the connection must be open.

        Raises:
            UnsupportedVersion: Both sides have none in common.
        """
        assert self.versions is not None
        return self.versions.version_of(request)

    def frame(
        self, request: Message, version: int, client_id: str, user: ConnectionUser, cache: FrameCache | None
    ) -> bytes | bytearray:
        """Return the frame of a request, whose response goes to this user."""
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
        self._pending.append((number, _RESPONSES[type(request)], version, user))
        if cache is not None:
            return cache.frame(request, version, number, client_id)
        return request_frame(in_shape_of(version, request), version, number, client_id)

    def deliver(self, frame: bytes) -> None:
        """Pass a response to the user that sent the request, unless it has released the connection.

        Raises:
            ProtocolError: It does not answer the oldest request.
        """
        number = _CORRELATION_ID.unpack_from(frame)[0] if len(frame) >= _CORRELATION_ID.size else "none"
        expected = self._pending[0][0] if self._pending else "none"
        if number != expected:
            raise ProtocolError(f"answer with correlation id {number}, expected {expected}")
        _, kind, version, user = self._pending[0]
        response = _read(kind, version, frame)
        del self._pending[0]
        if user is not None:
            user.answered(self, response)

    def forget(self, user: ConnectionUser) -> None:
        """Remove a user: the responses to its pending requests are dropped."""
        self.users.pop(user, None)
        if self._pending:
            self._pending = [
                (number, kind, version, None if owner is user else owner)
                for number, kind, version, owner in self._pending
            ]

    def has_pending(self) -> bool:
        """Return whether any request is not answered yet."""
        return bool(self._pending)


class Transport(Protocol):
    """Makes connections and sends requests over them."""

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> BrokerConnection:
        """Begin to make a connection; the user is notified when it is open, or lost."""

    def send(
        self,
        connection: BrokerConnection,
        request: Message,
        version: int,
        client_id: str,
        user: ConnectionUser,
        cache: FrameCache | None = None,
    ) -> None:
        """Send a request over an open connection."""

    def fail(self, connection: BrokerConnection, why: str) -> None:
        """Close a connection as lost; its users are notified."""


def _read(kind: type[Message], version: int, frame: bytes) -> Message:
    if len(frame) > _SMALL_RESPONSE_BYTES:
        return read_response(kind, version, frame)[1]
    key = kind, version, frame[_CORRELATION_ID.size :]
    response = _small_responses.get(key)
    if response is None:
        if len(_small_responses) == _MAX_SMALL_RESPONSES:
            _small_responses.clear()
        response = _small_responses[key] = read_response(kind, version, frame)[1]
    return response
