"""The protocol of the link between the brokers' process and the gateway: requests and responses as frames.

A frame is a message in MessagePack, after its length in four bytes. Does not depend on sockets or HTTP.
"""

import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

_LENGTH = struct.Struct(">I")

T = TypeVar("T")


class Ask(msgspec.Struct, array_like=True):
    """A request as received, without its headers.

    Attributes:
        number: Correlates the response.
        method: The method; "" cancels an earlier request.
        path: The path as received, percent-encoded.
        query: The query string, percent-encoded.
        body: The body.
    """

    number: int
    method: str
    path: str = ""
    query: str = ""
    body: bytes = b""


class Reply(msgspec.Struct, array_like=True):
    """The response to one request."""

    number: int
    status: int
    media_type: str
    body: bytes
    headers: dict[str, str] = {}


_encoder = msgspec.msgpack.Encoder()


def frame(message: Ask | Reply) -> bytes:
    """Encode a message as a frame."""
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


class Frames(Generic[T]):
    """Splits received bytes into messages.

    Args:
        kind: The type of the messages.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Add received bytes, and yield the messages that are complete."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            message = self._decoder.decode(self._data[_LENGTH.size : end])
            del self._data[:end]
            yield message
