"""Estimates of the memory that decoded messages occupy. Depends on message declarations only."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

from fakebroker.protocol.schema import Field, Struct
from fakebroker.protocol.types import BYTES, RECORDS, STRING, Primitive

OBJECT_FACTOR = 8
"""Bytes of Python objects per byte on the wire, for all but binary data. Measured: 4 to 12, for usual messages."""

_MIN_SEARCHED_BYTES = 1024
"""Smaller messages are not searched for binary data; each of their bytes counts `OBJECT_FACTOR`."""
_MIN_MEASURED_BYTES = 256
"""Smaller requests are not measured if they have few parts: it would take longer than all else that a journal does."""
_FEW_PARTS = 4
"""What these can take beyond `OBJECT_FACTOR` is less than what the journal adds to each call for its response."""


def request_bytes(request: Struct | None, wire_bytes: int) -> int:
    """Estimate how many bytes a request keeps in memory: not less than it does, unless it is small.

    Clients choose what a request is made of: a tagged field of three bytes becomes objects of a hundred. Of less than
    256 bytes on the wire, a request with few such parts can keep some hundred bytes more.

    Args:
        request: The request; None if only its bytes are known.
        wire_bytes: The size of its frame.
    """
    if wire_bytes < _MIN_MEASURED_BYTES and (request is None or _part_counters[type(request)](request) <= _FEW_PARTS):
        return OBJECT_FACTOR * wire_bytes
    measured = 0 if request is None else _measure(type(request))(request)
    return max(held_bytes(request, wire_bytes), measured)


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
    return _sum_of_items(count) if field.is_array and count is not None else count


def _sum_of(fields: list[tuple[str, _Count]]) -> _Count:
    if len(fields) > 1:
        return lambda struct: sum(count(held) for name, count in fields if (held := getattr(struct, name)))
    ((name, count),) = fields
    return lambda struct: count(held) if (held := getattr(struct, name)) else 0


class _PartCounters(dict[type[Struct], _Count]):
    """Functions that count the items of arrays, the structs and the tagged fields in structs of a class, by class.

    They are compiled, because one is called for each request: nested calls take three times as long.
    """

    def __missing__(self, cls: type[Struct]) -> _Count:
        scope: dict[str, Any] = {}
        lines = ["def parts_of(struct):", "    parts = 0", *_counting_lines(cls, "struct", 1), "    return parts"]
        exec("\n".join(lines), scope)
        parts_of: _Count = scope["parts_of"]
        self[cls] = parts_of
        return parts_of


def _counting_lines(cls: type[Struct], struct: str, depth: int) -> Iterator[str]:
    """Yield the code that counts the parts of the variable `struct`."""
    indent, item = "    " * depth, f"item_{depth}"
    yield f"{indent}parts += 1 + len({struct}.unknown_tags)"
    for field in cls.FIELDS:
        if isinstance(field.type, Primitive):
            if field.is_array:
                yield f"{indent}parts += len({struct}.{field.name} or ())"
        else:
            head = f"for {item} in {{}} or ():" if field.is_array else f"if ({item} := {{}}) is not None:"
            yield indent + head.format(f"{struct}.{field.name}")
            yield from _counting_lines(field.type, item, depth + 1)


_part_counters = _PartCounters()


def _sum_of_items(count: _Count) -> _Count:
    return lambda items: sum(map(count, items))


_OBJECT_BYTES = sys.getsizeof(object()) + 16  # With the header for the garbage collector.
_LIST_BYTES, _BYTES_BYTES = sys.getsizeof([]), sys.getsizeof(b"")
_POINTER_BYTES, _NUMBER_BYTES = 8, 32
_CACHED_NUMBERS = range(-5, 257)
_ITEM_BYTES = 10  # Lists grow by an eighth more than they need.


def _allocated(size_bytes: int) -> int:
    """Return how much memory an object of a size takes."""
    return size_bytes + 15 & ~15


_TAG_BYTES = _allocated(sys.getsizeof((0, b""))) + _NUMBER_BYTES


_measures: dict[type[Struct], _Count] = {}


def _measure(cls: type[Struct]) -> _Count:
    """Return a function that measures a struct of a class: the bytes of all objects in it."""
    if cls not in _measures:
        base = _allocated(_OBJECT_BYTES + _POINTER_BYTES * (len(cls.FIELDS) + 1))
        measured = [
            (field.name, _measured_array(field) if field.is_array else _measured(field)) for field in cls.FIELDS
        ]

        def size_of(struct: Struct) -> int:
            size = base
            for name, measure in measured:
                size += measure(getattr(struct, name))
            if struct.unknown_tags:
                size += _allocated(sys.getsizeof(struct.unknown_tags))
                size += sum(_TAG_BYTES + _bytes(data) for _, data in struct.unknown_tags)
            return size

        _measures[cls] = size_of
    return _measures[cls]


def _measured(field: Field) -> _Count:
    """Return a function that returns the size of one value of a field."""
    if not isinstance(field.type, Primitive):
        measure = _measure(field.type)
        return lambda struct: 0 if struct is None else measure(struct)
    if field.type is STRING:
        return _text
    return _bytes if isinstance(field.type.zero, bytes) else _number


def _measured_array(field: Field) -> _Count:
    measure = _measured(field)
    return lambda items: _LIST_BYTES + _ITEM_BYTES * len(items) + sum(map(measure, items)) if items else _LIST_BYTES


def _text(value: str | None) -> int:
    is_shared = not value or (len(value) == 1 and value <= "\xff")
    return 0 if is_shared else _allocated(sys.getsizeof(value))


def _number(value: float) -> int:
    return 0 if value in _CACHED_NUMBERS else _NUMBER_BYTES


def _bytes(value: bytes | None) -> int:
    return _allocated(_BYTES_BYTES + len(value)) if value and len(value) > 1 else 0
