"""One connection to a broker: what it speaks, what it is owed, how a request becomes bytes.

Knows frames and versions; no socket call is made here (wire.py), and what requests mean is of no matter.
"""

import socket
import struct
from collections.abc import Mapping
from typing import Any, Protocol

from fakebroker.client.errors import UnsupportedVersion
from fakebroker.client.versions import in_shape_of, versions_needed, versions_of
from fakebroker.errors import ProtocolError
from fakebroker.protocol.frames import FrameBuffer, read_response, request_frame
from fakebroker.protocol.registry import APIS, api_of
from fakebroker.protocol.schema import Message, Versions
from fakebroker.replay.members.bootstrap import Address

_ID = struct.Struct(">i")
_ID_AT = 8
"""Where a request's frame has its correlation id: behind its size, API key and version."""

_RESPONSES: dict[type[Message], type[Message]] = {api.request: api.response for api in APIS}
_SMALL_ANSWER_BYTES = 24
_MOST_SMALL_ANSWERS = 1_000
_small_answers: dict[tuple[type[Message], int, bytes], Message] = {}
"""Answers that are the same for everybody, such as a heartbeat's, are decoded once: nobody may change an answer."""


class User(Protocol):
    """Who has requests on a link."""

    def opened(self, link: "Link") -> None:
        """Requests can go out now."""

    def answered(self, link: "Link", response: Any) -> None:
        """The answer to this user's oldest request on the link."""

    def lost(self, link: "Link", why: str) -> None:
        """The link is gone, or could not be made; nothing on it will be answered any more."""


class Spoken:
    """In which versions one broker is asked: in the highest that both sides speak.

    Args:
        theirs: The versions that the broker speaks, by API key.
    """

    def __init__(self, theirs: Mapping[int, Versions]) -> None:
        self._theirs = theirs
        self._versions: dict[type[Message], int] = {}
        for api in APIS:
            ours, told = versions_of(api.request), theirs.get(api.key)
            if told is not None and told.first <= ours.last and ours.first <= told.last:
                self._versions[api.request] = min(ours.last, told.last)

    def version_for(self, request: type[Message]) -> int:
        """The version that requests of this class travel in.

        Raises:
            UnsupportedVersion: There is none that both sides speak.
        """
        version = self._versions.get(request)
        if version is None:
            api = api_of(request)
            raise UnsupportedVersion(api.name, self._theirs.get(api.key), versions_of(request))
        return version

    def version_of(self, request: Message) -> int:
        """The version that this request travels in, which may need one of its own.

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


class Memo:
    """The bytes of a request that is sent again and again, with nothing but its correlation id changed."""

    __slots__ = ("_frame", "_request", "_version")

    def __init__(self) -> None:
        self._request: Message | None = None
        self._version = -1
        self._frame = bytearray()

    def frame(self, request: Message, version: int, correlation_id: int, client_id: str) -> bytearray:
        """The frame of a request; good until the next one is asked for."""
        if version == self._version and (request is self._request or request == self._request):
            _ID.pack_into(self._frame, _ID_AT, correlation_id)
        else:
            self._frame = bytearray(request_frame(in_shape_of(version, request), version, correlation_id, client_id))
            self._request, self._version = request, version
        return self._frame


class Link:
    """One connection, made by `Wire.connect`.

    Attributes:
        address: Host and port of the broker.
        users: Who is told when it opens and when it is lost.
        is_shared: Requests of several users wait for the end of a turn, to go out together.
        spoken: None until versions are agreed on.
        asked_version: Of the ApiVersions request that is not answered yet.
        is_connecting: Whether the socket is not connected yet.
        begun_in_turn: In which turn of the loop its socket was made.
        is_closed: Whether it is over.
        ways: Resolved addresses that are not tried yet.
        frames: Cuts what arrives into frames.
        unsent: What the socket did not take yet.
        is_dirty: Whether it waits for the end of the turn, to be written.
        is_stuck: Whether the poller is asked to tell when the socket takes more.
    """

    __slots__ = (
        "_correlation_id",
        "_pending",
        "address",
        "asked_version",
        "begun_in_turn",
        "frames",
        "is_closed",
        "is_connecting",
        "is_dirty",
        "is_shared",
        "is_stuck",
        "socket",
        "spoken",
        "unsent",
        "users",
        "ways",
    )

    def __init__(self, address: Address, user: User, *, is_shared: bool = False) -> None:
        self.address = address
        self.users: dict[User, None] = {user: None}
        self.is_shared = is_shared
        self.spoken: Spoken | None = None
        self.asked_version = -1
        self.is_connecting = True
        self.is_closed = False
        self.is_dirty = False
        self.is_stuck = False
        self.begun_in_turn = 0
        self.socket: socket.socket | None = None
        self.ways: list[tuple[int, Any]] = []
        self.frames = FrameBuffer()
        self.unsent = bytearray()
        self._pending: list[tuple[int, type[Message], int, User | None]] = []
        self._correlation_id = 0

    def version_for(self, request: Message) -> int:
        """The version that a request travels in; the link must be open.

        Raises:
            UnsupportedVersion: There is none that both sides speak.
        """
        assert self.spoken is not None
        return self.spoken.version_of(request)

    def frame(self, request: Message, version: int, client_id: str, user: User, memo: Memo | None) -> bytes | bytearray:
        """The frame of a request, whose answer is this user's."""
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
        self._pending.append((number, _RESPONSES[type(request)], version, user))
        if memo is not None:
            return memo.frame(request, version, number, client_id)
        return request_frame(in_shape_of(version, request), version, number, client_id)

    def deliver(self, frame: bytes) -> None:
        """Give an answer to whom it belongs; one that has let go of the link gets none.

        Raises:
            ProtocolError: It is no answer to the oldest request.
        """
        number = _ID.unpack_from(frame)[0] if len(frame) >= _ID.size else "none"
        expected = self._pending[0][0] if self._pending else "none"
        if number != expected:
            raise ProtocolError(f"answer with correlation id {number}, expected {expected}")
        _, kind, version, user = self._pending[0]
        response = _read(kind, version, frame)
        del self._pending[0]
        if user is not None:
            user.answered(self, response)

    def forget(self, user: User) -> None:
        """A user is gone: what it is still owed is for nobody."""
        self.users.pop(user, None)
        if self._pending:
            self._pending = [
                (number, kind, version, None if owner is user else owner)
                for number, kind, version, owner in self._pending
            ]

    def is_owed(self) -> bool:
        """Whether anything sent is not answered yet."""
        return bool(self._pending)


def _read(kind: type[Message], version: int, frame: bytes) -> Message:
    if len(frame) > _SMALL_ANSWER_BYTES:
        return read_response(kind, version, frame)[1]
    key = kind, version, frame[_ID.size :]
    response = _small_answers.get(key)
    if response is None:
        if len(_small_answers) == _MOST_SMALL_ANSWERS:
            _small_answers.clear()
        response = _small_answers[key] = read_response(kind, version, frame)[1]
    return response
