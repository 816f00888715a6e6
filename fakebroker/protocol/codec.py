"""Encoding and decoding of messages, by one encoder and decoder for each message and version, compiled on first use.

Depends on declarations (`schema.py`), not on frames, headers or APIs. Errors name the message, its version, the field
and the byte offset.
"""

import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from fakebroker.errors import ProtocolError
from fakebroker.protocol import compiler
from fakebroker.protocol.schema import Message, Struct

M = TypeVar("M", bound=Struct)

Decoder = Callable[[bytes, int], tuple[Any, int]]
"""Reads a message from a buffer at a position; returns it and the position behind it."""

Encoder = Callable[[Any, bytearray], None]
"""Appends a message to a buffer."""

_MALFORMED = (struct.error, IndexError, ValueError, EOFError)
_UNWRITABLE = (struct.error, AttributeError, TypeError, ValueError, OverflowError)

_decoders: dict[tuple[type[Struct], int], Decoder] = {}
_encoders: dict[tuple[type[Struct], int], Encoder] = {}


def encode(message: Message, version: int) -> bytes:
    """Encode a message.

    Raises:
        ProtocolError: The version is not one of the message's, or cannot carry what a field holds.
    """
    out = bytearray()
    encode_into(message, version, out)
    return bytes(out)


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Append an encoded message to a buffer; see `encode`."""
    cls = type(message)
    encoder = _encoders.get((cls, version)) or encoder_for(cls, version)
    try:
        encoder(message, out)
    except _UNWRITABLE as error:
        raise _explained(error, cls, version, "cannot be written") from None


def decode(cls: type[M], data: bytes, version: int, position: int = 0, *, fills_data: bool = True) -> M:
    """Decode a message.

    Args:
        cls: What it should be.
        data: The bytes it is in.
        version: Its version.
        position: Where it begins.
        fills_data: Whether bytes behind it are an error.

    Raises:
        ProtocolError: The version is not one of the message's, or the bytes are not such a message.
    """
    try:
        message, end = decoder_for(cls, version)(data, position)
    except _MALFORMED as error:
        raise _explained(error, cls, version, "malformed") from None
    if fills_data and end != len(data):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(data) - end} bytes left over at byte {end}")
    return cast(M, message)


def decoder_for(cls: type[Struct], version: int) -> Decoder:
    """Return the compiled decoder. It raises built-in errors, which `decode` converts."""
    decoder = _decoders.get((cls, version))
    if decoder is None:
        decoder = _decoders[cls, version] = _compiled(cls, version, compiler.DecoderWriter)
    return decoder


def encoder_for(cls: type[Struct], version: int) -> Encoder:
    """Return the compiled encoder. It raises built-in errors, which `encode` converts."""
    encoder = _encoders.get((cls, version))
    if encoder is None:
        encoder = _encoders[cls, version] = _compiled(cls, version, compiler.EncoderWriter)
    return encoder


def _explained(error: Exception, cls: type[Struct], version: int, what: str) -> ProtocolError:
    path, where = [], ""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        fields = compiler.FIELDS_OF_LINE.get((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        if fields is not None:
            name, where = _found(fields, trace.tb_frame.f_locals)
            path.append(name)
        trace = trace.tb_next
    return ProtocolError(f"{cls.__name__} v{version}: field {'.'.join(path) or '?'} {what}{where}: {error}")


def _found(fields: compiler.FieldsOfLine, variables: dict[str, Any]) -> tuple[str, str]:
    """Return the field of a line of compiled code that failed, and its first byte or its value."""
    if "pos" in variables:
        name, position = _cut(fields, variables["pos"], len(variables["buf"]))
        return name, f" at byte {position}"
    message = variables["m"]
    name = next((name for name, code in fields[:-1] if not _fits(code, getattr(message, name, None))), fields[-1][0])
    return name, f", it holds {getattr(message, name, message)!r:.80}"


def _cut(fields: compiler.FieldsOfLine, position: int, end: int) -> tuple[str, int]:
    """Return the field in which the buffer ends, and where it starts."""
    for name, code in fields[:-1]:
        if position + struct.calcsize(f">{code}") > end:
            return name, position
        position += struct.calcsize(f">{code}")
    return fields[-1][0], position


def _fits(code: str, value: object) -> bool:
    try:
        struct.pack(f">{code}", value)
    except struct.error:
        return False
    return True


def _compiled(cls: type[Struct], version: int, writer_type: type[compiler.Writer]) -> Any:
    if issubclass(cls, Message) and version not in cls.VERSIONS:
        raise ProtocolError(f"{cls.__name__} v{version}: there are versions {cls.VERSIONS}")
    flexible = issubclass(cls, Message) and version in cls.FLEXIBLE
    return writer_type(cls, version, flexible).compile()
