"""Estimates of the memory that decoded messages occupy. Depends on message declarations only."""

from typing import Any

from fakebroker.protocol.schema import Field, Struct
from fakebroker.protocol.types import BYTES, RECORDS

OBJECT_FACTOR = 8
"""Bytes of Python objects per byte on the wire, for everything but binary data. Measured: 4 to 12."""

_MIN_SEARCHED_BYTES = 1024
"""Smaller messages are not searched for binary data."""


def held_bytes(message: Struct | None, wire_bytes: int) -> int:
    """Estimate how many bytes a message keeps in memory.

    Binary data, such as record batches, counts as on the wire, even if the message shares it with a log: it stays in
    memory as long as the message.

    Args:
        message: The message; None if only its bytes are known.
        wire_bytes: The size of its frame.
    """
    if wire_bytes < _MIN_SEARCHED_BYTES or message is None:
        return OBJECT_FACTOR * wire_bytes
    data_bytes = _data_bytes(message)
    return data_bytes + OBJECT_FACTOR * max(0, wire_bytes - data_bytes)


def _data_bytes(struct: Struct) -> int:
    """Return the size of the binary data in a struct."""
    total = 0
    for field in _data_fields(type(struct)):
        held: Any = getattr(struct, field.name)
        for item in held or () if field.is_array else (held,):
            if isinstance(item, Struct):
                total += _data_bytes(item)
            elif item is not None:
                total += len(item)
    return total


_known_data_fields: dict[type[Struct], tuple[Field, ...]] = {}


def _data_fields(cls: type[Struct]) -> tuple[Field, ...]:
    """Return the fields of a struct that are binary data, or structs that contain some."""
    if cls not in _known_data_fields:
        _known_data_fields[cls] = tuple(
            field
            for field in cls.FIELDS
            if field.type in (BYTES, RECORDS) or (isinstance(field.type, type) and _data_fields(field.type))
        )
    return _known_data_fields[cls]
