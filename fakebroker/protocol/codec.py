"""Encoding and decoding of messages with one encoder and decoder per message and version, compiled on first use.

Depends on declarations (`schema.py`), not on frames, headers or APIs. Errors name the message, its version, the field,
and the byte offset or the field's value.
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
"""Decodes a message at a position of a buffer; returns the message and the position after it."""

Encoder = Callable[[Any, bytearray], None]
"""Appends an encoded message to a buffer."""

_MALFORMED = (struct.error, IndexError, ValueError, EOFError)
_NOT_ENCODABLE = (struct.error, AttributeError, TypeError, ValueError, OverflowError)

_decoders: dict[tuple[type[Struct], int], Decoder] = {}
_limited_decoders: dict[tuple[type[Struct], int], Decoder] = {}
_encoders: dict[tuple[type[Struct], int], Encoder] = {}


def encode(message: Message, version: int) -> bytes:
    """Encode a message.

    Raises:
        ProtocolError: The message has no such version, or the version cannot represent the value of a field.
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
    except _NOT_ENCODABLE as error:
        raise _located(error, cls, version) from None


def decode(
    cls: type[M], data: bytes, version: int, position: int = 0, *, fills_data: bool = True, limited: bool = False
) -> M:
    """Decode a message.

    Args:
        cls: The class of the message.
        data: A buffer that contains the message.
        version: The version of the message.
        position: The index of its first byte in the buffer.
        fills_data: Whether bytes after the message are an error; if not, they are ignored.
        limited: Whether arrays with more than `MAX_ELEMENTS`, and more than `MAX_TAGS` tagged fields, are an error.

    Raises:
        ProtocolError: The message has no such version, or it is malformed.
    """
    try:
        message, end = decoder_for(cls, version, limited)(data, position)
    except _MALFORMED as error:
        raise _located(error, cls, version) from None
    if fills_data and end != len(data):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(data) - end} unexpected bytes at byte {end}")
    return cast(M, message)


def decoder_for(cls: type[Struct], version: int, limited: bool = False) -> Decoder:
    """Return the compiled decoder. It raises built-in errors, which `decode` converts."""
    decoders = _limited_decoders if limited else _decoders
    decoder = decoders.get((cls, version))
    if decoder is None:
        decoder = decoders[cls, version] = _compiled(cls, version, compiler.DecoderWriter, limited)
    return decoder


def encoder_for(cls: type[Struct], version: int) -> Encoder:
    """Return the compiled encoder. It raises built-in errors, which `encode` converts."""
    encoder = _encoders.get((cls, version))
    if encoder is None:
        encoder = _encoders[cls, version] = _compiled(cls, version, compiler.EncoderWriter)
    return encoder


def _located(error: Exception, cls: type[Struct], version: int) -> ProtocolError:
    """Convert an error of compiled code: find the field by the lines in the traceback, one per nested struct."""
    path, fault = [], " invalid"
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        fields = compiler.FIELDS_OF_LINE.get((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        if fields is not None:
            name, fault = _field_and_fault(fields, trace.tb_frame.f_locals)
            path.append(name)
        trace = trace.tb_next
    return ProtocolError(f"{cls.__name__} v{version}: field {'.'.join(path) or '?'}{fault}: {error}")


def _field_and_fault(fields: compiler.FieldsOfLine, variables: dict[str, Any]) -> tuple[str, str]:
    """Return the field at which a line of compiled code failed, and its position (decoding) or value (encoding)."""
    if "pos" in variables:
        name, position = _truncated_field(fields, variables["pos"], len(variables["buf"]))
        return name, f" malformed at byte {position}"
    message = variables["m"]
    name = next((name for name, code in fields[:-1] if not _fits(code, getattr(message, name, None))), fields[-1][0])
    return name, f"={getattr(message, name, message)!r:.80} cannot be encoded"


def _truncated_field(fields: compiler.FieldsOfLine, position: int, end: int) -> tuple[str, int]:
    """Return the field that exceeds the buffer, and its position."""
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


def _compiled(cls: type[Struct], version: int, writer_type: type[compiler.Writer], limited: bool = False) -> Any:
    if issubclass(cls, Message) and version not in cls.VERSIONS:
        raise ProtocolError(f"{cls.__name__} v{version}: expected a version from {cls.VERSIONS}")
    flexible = issubclass(cls, Message) and version in cls.FLEXIBLE
    return writer_type(cls, version, flexible, limited).compile()
