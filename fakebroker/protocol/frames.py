"""Framing of requests and responses in a byte stream, and their headers.

A frame is an int32 size and that many bytes: a header, then a message. ApiVersions responses have header version 0 in
all versions (KIP-511), because the client does not know the versions of the broker yet.
"""

import struct
from typing import TypeVar

import msgspec

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode_into
from fakebroker.protocol.compiler import PartsBuffer
from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import MAX_TAGS, decode_string, read_unsigned_varint

M = TypeVar("M", bound=Message)

DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024
"""Kafka's default of `socket.request.max.bytes`."""

_API_VERSIONS_KEY = 18
_SIZE = struct.Struct(">i")
SIZE_BYTES = _SIZE.size
"""How long the size of a frame is."""
_REQUEST_START = struct.Struct(">hhih")
_RESPONSE_START = struct.Struct(">ii")
_CORRELATION_ID = struct.Struct(">i")
_NOTHING = b""
_SMALL_BYTES, _JOINED_BYTES = 1024, 64 * 1024
_TLS_HANDSHAKE = 0x1603
"""The first two bytes of a connection with TLS: the type of the record, and the major version."""
_response_starts: dict[tuple[type[Message], int], bytes] = {}


class FrameBuffer:
    """Splits a byte stream, received in pieces of any size, into frames.

    Args:
        max_bytes: The largest accepted size of a frame.

    Attributes:
        held_bytes: The number of buffered bytes of an incomplete frame.
    """

    __slots__ = ("_needed", "_pieces", "held_bytes", "max_bytes")

    def __init__(self, max_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        self._pieces: list[bytes | bytearray] = []
        self._needed = 4
        self.held_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes, and return the frames that are complete now, without their size fields.

        Raises:
            ProtocolError: A size is negative or exceeds the limit. The rest of the stream cannot be decoded.
        """
        if not self._pieces and len(data) >= 4 and _SIZE.unpack_from(data)[0] == len(data) - 4 <= self.max_bytes:
            return [data[4:]]  # The common case: exactly one frame, returned without buffering.
        if self._pieces:
            self._hold(data)
            self.held_bytes += len(data)
            if self.held_bytes < self._needed:
                return []
            if self.held_bytes == self._needed > _SIZE.size:  # Exactly one frame: large ones are copied only once.
                first, *others = self._pieces
                self._pieces, self._needed, self.held_bytes = [], 4, 0
                return [_NOTHING.join((memoryview(first)[4:], *others))]
            data = _NOTHING.join(self._pieces)
        frames, position, end, self._needed = [], 0, len(data), 4
        while end - position >= 4:
            size = _SIZE.unpack_from(data, position)[0]
            if not 0 <= size <= self.max_bytes:
                hint = " (it looks like TLS)" if size >> 16 == _TLS_HANDSHAKE else ""
                raise ProtocolError(f"frame of {size} bytes, expected 0 to {self.max_bytes}{hint}")
            if end - position - 4 < size:
                self._needed = size + 4
                break
            position += 4 + size
            frames.append(data[position - size : position])
        self.held_bytes = end - position
        self._pieces = [data[position:]] if self.held_bytes else []
        return frames

    def _hold(self, data: bytes) -> None:
        """Keep a piece of a frame. Small pieces are joined: as objects, they would occupy many times their size."""
        last = self._pieces[-1]
        if len(data) >= _SMALL_BYTES:
            self._pieces.append(data)
        elif isinstance(last, bytearray) and len(last) < _JOINED_BYTES:
            last += data
        else:
            self._pieces.append(bytearray(data))

    @property
    def missing_bytes(self) -> int:
        """How many more bytes the incomplete frame has at least; 0 if there is none."""
        return self._needed - self.held_bytes if self.held_bytes else 0


class RequestHeader(msgspec.Struct, frozen=True):
    """The header of a request. A `client_id` of None is null on the wire."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: bytes, flexible: bool, limited: bool = False) -> tuple[RequestHeader, int]:
    """Decode a request header: version 2 in flexible versions of the request, otherwise version 1.

    Args:
        frame: The frame, without its size.
        flexible: Whether the header has tagged fields.
        limited: Whether more than `MAX_TAGS` tagged fields are an error.

    Returns:
        The header and the position of the message after it.

    Raises:
        ProtocolError: The header is malformed.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST_START.unpack_from(frame)
        stop = 10 + max(length, 0)
        try:
            client_id = frame[10:stop].decode() if length >= 0 else None
        except UnicodeDecodeError:
            client_id = decode_string(frame[10:stop])
        position = _skip_tags(frame, stop, limited) if flexible else stop
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(f"request header malformed: {error}") from None
    if position > len(frame):
        raise ProtocolError(f"request header malformed: {position} bytes announced, {len(frame)} received")
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def request_frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode a request as a frame, including the size field.

    Raises:
        ProtocolError: The version cannot represent the message.
    """
    client = (client_id or "").encode()
    length = -1 if client_id is None else len(client)
    out = bytearray(4)
    out += _REQUEST_START.pack(message.API_KEY, version, correlation_id, length) + client
    if version in message.FLEXIBLE:
        out.append(0)
    encode_into(message, version, out)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def response_frame(message: Message, version: int, correlation_id: int) -> bytearray:
    """Encode a response as a frame, including the size field.

    Raises:
        ProtocolError: The version cannot represent the message.
    """
    shared = _shared_responses.get(id(message))
    if shared is not None:
        frame = shared.frames.get(version)
        if frame is not None:
            out = bytearray(frame)
            _CORRELATION_ID.pack_into(out, _SIZE.size, correlation_id)
            return out
    out = bytearray(_response_start(type(message), version))
    encode_into(message, version, out)
    _RESPONSE_START.pack_into(out, 0, len(out) - 4, correlation_id)
    if shared is not None:
        shared.frames[version] = bytes(out)
    return out


def response_parts(message: Message, version: int, correlation_id: int) -> list[bytes | bytearray]:
    """Encode a response as the parts of a frame. Large record batches are parts of their own, which are not copied.

    Raises:
        ProtocolError: The version cannot represent the message.
    """
    out = PartsBuffer(_response_start(type(message), version))
    encode_into(message, version, out)
    size_bytes = len(out) + sum(len(records) for _, records in out.records)
    _RESPONSE_START.pack_into(out, 0, size_bytes - 4, correlation_id)
    return out.parts()


def _response_start(cls: type[Message], version: int) -> bytes:
    """Return zeros in the place of the size and the header of a response."""
    start = _response_starts.get((cls, version))
    if start is None:
        start = _response_starts[cls, version] = bytes(8 + has_tagged_header(cls, version))
    return start


class _SharedResponse:
    """A response that is the same object in all calls, with its frames by version."""

    __slots__ = ("frames", "message")

    def __init__(self, message: Message) -> None:
        self.message = message  # Keeps the message alive, so that its id is not reused.
        self.frames: dict[int, bytes] = {}


_shared_responses: dict[int, _SharedResponse] = {}
"""By the id of the message."""


def share_response(message: M) -> M:
    """Return the message; from now on it is encoded once per version. It must not be modified."""
    _shared_responses[id(message)] = _SharedResponse(message)
    return message


def forget_shared_response(message: Message) -> None:
    """Undo `share_response`: the message is encoded each time again."""
    del _shared_responses[id(message)]


def encoded_response_frame(cls: type[Message], body: bytes, version: int, correlation_id: int) -> bytearray:
    """Return an encoded response as a frame, including the size field."""
    out = bytearray(8 + has_tagged_header(cls, version))
    out += body
    _RESPONSE_START.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


def read_response(cls: type[M], version: int, frame: bytes) -> tuple[int, M]:
    """Decode a response frame, given without the size field.

    Returns:
        The correlation id and the response.

    Raises:
        ProtocolError: The response is malformed.
    """
    try:
        correlation_id = _SIZE.unpack_from(frame)[0]
        position = _skip_tags(frame, 4) if has_tagged_header(cls, version) else 4
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(f"{cls.__name__} v{version}: header malformed: {error}") from None
    return correlation_id, decode(cls, frame, version, position)


def has_tagged_header(cls: type[Message], version: int) -> bool:
    """Return whether a response has header version 1, which ends with tagged fields."""
    return version in cls.FLEXIBLE and cls.API_KEY != _API_VERSIONS_KEY


def _skip_tags(frame: bytes, position: int, limited: bool = False) -> int:
    count, position = read_unsigned_varint(frame, position)
    if limited and count > MAX_TAGS:
        raise ValueError(f"{count} tagged fields, expected at most {MAX_TAGS}")
    for _ in range(count):
        _, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        position += size
    if position > len(frame):
        raise IndexError("the tagged fields exceed the frame")
    return position
