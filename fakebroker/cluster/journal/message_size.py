"""Estimates of the memory that decoded messages occupy. Depends on message declarations only."""

from collections.abc import Callable
from typing import Any

from fakebroker.protocol.schema import Field, Struct
from fakebroker.protocol.types import BYTES, RECORDS

OBJECT_FACTOR = 8
"""Bytes of Python objects per byte on the wire, for everything but binary data. Measured: 4 to 12."""

_MIN_SEARCHED_BYTES = 1024
"""Smaller messages are not searched for binary data; each of their bytes counts `OBJECT_FACTOR`."""


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
    count = _counter(type(message))
    data_bytes = count(message) if count is not None else 0
    return data_bytes + OBJECT_FACTOR * max(0, wire_bytes - data_bytes)


_Count = Callable[[Any], int]
"""Returns the size of the binary data in a value of a field, or in a struct."""

_counters: dict[type[Struct], _Count | None] = {}


def _counter(cls: type[Struct]) -> _Count | None:
    """Return a function that counts the binary data in structs of a class; None if they have none."""
    if cls not in _counters:
        found = [(field.name, count) for field in cls.FIELDS if (count := _field_counter(field)) is not None]
        _counters[cls] = _sum_of(found) if found else None
    return _counters[cls]


def _field_counter(field: Field) -> _Count | None:
    if field.type in (BYTES, RECORDS):
        count: _Count | None = len
    elif isinstance(field.type, type):
        count = _counter(field.type)
    else:
        return None
    return (lambda items: sum(map(count, items))) if field.is_array and count is not None else count


def _sum_of(fields: list[tuple[str, _Count]]) -> _Count:
    if len(fields) > 1:
        return lambda struct: sum(count(held) for name, count in fields if (held := getattr(struct, name)))
    ((name, count),) = fields
    return lambda struct: count(held) if (held := getattr(struct, name)) else 0
