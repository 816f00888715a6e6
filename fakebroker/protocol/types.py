"""The primitive types of fields, decoding of strings, encoding and decoding of unsigned varints.

Fixed-width values need no functions, because generated code packs adjacent ones with one `struct` call.
"""

from typing import Annotated

import msgspec

from fakebroker.utf8 import decode_utf8


class Primitive(msgspec.Struct, frozen=True):
    """A primitive type: its name in Kafka's definitions, its `struct` format if its width is fixed, its zero value."""

    name: str
    format: str | None
    zero: object


INT8 = Primitive("int8", "b", 0)
INT16 = Primitive("int16", "h", 0)
UINT16 = Primitive("uint16", "H", 0)
INT32 = Primitive("int32", "i", 0)
INT64 = Primitive("int64", "q", 0)
FLOAT64 = Primitive("float64", "d", 0.0)
BOOLEAN = Primitive("bool", "?", False)
UUID = Primitive("uuid", "16s", bytes(16))
STRING = Primitive("string", None, "")
BYTES = Primitive("bytes", None, b"")
RECORDS = Primitive("records", None, b"")

# The types of fields in declarations: Python types for type checkers, annotated for the codec.
Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
UInt16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
Float64 = Annotated[float, FLOAT64]
Boolean = Annotated[bool, BOOLEAN]
Uuid = Annotated[bytes, UUID]
String = Annotated[str, STRING]
Bytes = Annotated[bytes, BYTES]
Records = Annotated[bytes, RECORDS]

ZERO_UUID = bytes(16)

MAX_STRING_BYTES = 0x7FFF
"""Kafka rejects longer strings even if their length field could hold more (`MessageDataGenerator`)."""

_MAX_VARINT_BYTES = 5
_MAX_GROWTH = 3
"""How many bytes replace a malformed byte."""


def decode_string(data: bytes) -> str:
    """Decode a string. Malformed bytes become U+FFFD, as in Kafka (`Readable.readString`).

    Raises:
        ValueError: The text is longer than a string can be: no response and no record of a log could have it.
    """
    text = decode_utf8(data)
    if len(data) * _MAX_GROWTH > MAX_STRING_BYTES and (size := len(text.encode())) > MAX_STRING_BYTES:
        raise ValueError(f"string of {size} bytes with replaced ones, expected at most {MAX_STRING_BYTES}")
    return text


MAX_ELEMENTS, MAX_TAGS = 1_000_000, 10_000
"""How many elements an array, and how many tagged fields a struct or a header of a limited request may have."""


def read_unsigned_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """Decode an unsigned varint of at most 32 bits (KIP-482).

    Returns:
        The value and the position after it.

    Raises:
        IndexError: The varint is incomplete.
        ValueError: The varint is longer than 5 bytes or larger than 32 bits.
    """
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    second = buffer[position + 1]
    if second < 0x80:  # Longer ones are rare.
        return first & 0x7F | second << 7, position + 2
    value = shift = 0
    for _ in range(_MAX_VARINT_BYTES):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise ValueError("unsigned varint larger than 32 bits")
            return value, position
        shift += 7
    raise ValueError("unsigned varint longer than 5 bytes")


def unsigned_varint(value: int) -> bytes:
    """Encode a non-negative integer as an unsigned varint (KIP-482)."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
