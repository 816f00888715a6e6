"""What passes between the process of the brokers and the one that speaks HTTP: questions and answers as frames.

A frame is its length in four bytes and a message in MessagePack. Knows no sockets and no HTTP.
"""

import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

_LENGTH = struct.Struct(">I")

T = TypeVar("T")


class Ask(msgspec.Struct, array_like=True):
    """A request as it came, but for its headers.

    Attributes:
        number: Tells its answer from others.
        method: The method; "" takes an earlier question back, whose answer nobody waits for any more.
        path: The path as it came, quoted.
        query: What stands behind the question mark, quoted.
    """

    number: int
    method: str
    path: str = ""
    query: str = ""
    body: bytes = b""


class Reply(msgspec.Struct, array_like=True):
    """The answer to one request."""

    number: int
    status: int
    media_type: str
    body: bytes
    headers: dict[str, str] = {}


_encoder = msgspec.msgpack.Encoder()


def frame(message: Ask | Reply) -> bytes:
    """A message as a frame."""
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


class Frames(Generic[T]):
    """Cuts what arrives into messages.

    Args:
        kind: Which messages come.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Take up what has arrived; gives the messages that are whole with it."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            message = self._decoder.decode(self._data[_LENGTH.size : end])
            del self._data[:end]
            yield message
