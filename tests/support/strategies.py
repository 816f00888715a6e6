"""Hypothesis strategies for messages, built from their declarations.

Knows the declarations and no bytes; so whatever is declared is drawn, without a line here.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any, TypeVar

from hypothesis import strategies as st

from fakebroker.errors import ErrorCode
from fakebroker.protocol.registry import API_BY_NAME, APIS, PROPOSALS
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Primitive,
)

M = TypeVar("M", bound=Struct)

MESSAGES: tuple[type[Message], ...] = tuple(cls for api in APIS for cls in (api.request, api.response))
"""Every request and response."""

PROPOSED_VERSIONS = {
    (cls, version)
    for given in PROPOSALS.values()
    for name, versions in given.items()
    for cls in (API_BY_NAME[name].request, API_BY_NAME[name].response)
    for version in versions
    if version not in API_BY_NAME[name].advertised_versions
}
"""Versions of proposals: no Kafka has them, so no other codec does."""

MESSAGE_VERSIONS = tuple((cls, version) for cls in MESSAGES for version in cls.VERSIONS)
"""Every version of every request and response."""

LAST_TIME_MS = 2**47
"""The last time or duration drawn, in milliseconds: an oracle makes Python's own dates of them, which end in 9999."""

_PRIMITIVES: dict[Primitive, st.SearchStrategy[Any]] = {
    INT8: st.integers(-(2**7), 2**7 - 1),
    INT16: st.integers(-(2**15), 2**15 - 1),
    UINT16: st.integers(0, 2**16 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    FLOAT64: st.floats(allow_nan=False),
    BOOLEAN: st.booleans(),
    UUID: st.sampled_from([bytes(16), bytes(range(16))]) | st.binary(min_size=16, max_size=16),
    # The longest of them have lengths that take two bytes as a varint.
    STRING: st.text(max_size=5) | st.sampled_from(["", "grüße-群組", "x" * 126, "x" * 127, "é" * 100]),
    BYTES: st.binary(max_size=5) | st.just(bytes(128)),
    RECORDS: st.binary(max_size=5) | st.just(bytes(128)),
}
_ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode])
_TIMES_MS = st.integers(-1, LAST_TIME_MS)
_made: dict[tuple[type[Struct], int, bool], st.SearchStrategy[Any]] = {}
_TAGS = (0, 1, 2, 3, 4, 5, 127, 128, 2**32 - 1)


def messages(cls: type[M], version: int, *, unknown_tags: bool = False) -> st.SearchStrategy[M]:
    """Instances of a message, or of a struct in it, that the version can carry.

    Args:
        cls: The message.
        version: The version; fields that it lacks have their defaults.
        unknown_tags: Whether there are tagged fields too that the declaration does not know; for flexible versions.
    """
    key = (cls, version, unknown_tags)
    if key not in _made:
        _made[key] = _instances(cls, version, unknown_tags)
    return _made[key]


def _instances(cls: type[Struct], version: int, unknown_tags: bool) -> st.SearchStrategy[Any]:
    present = [field for field in cls.FIELDS if version in field.versions]
    values = {field.name: _values(field, version, unknown_tags) for field in present}
    if unknown_tags:
        known = {field.tag for field in present}
        tags = st.sampled_from([tag for tag in _TAGS if tag not in known])
        unknown = st.dictionaries(tags, st.binary(max_size=3), max_size=3)
        values["unknown_tags"] = unknown.map(lambda found: tuple(sorted(found.items())))
    return st.builds(cls, **values)


def _values(field: Field, version: int, unknown_tags: bool) -> st.SearchStrategy[Any]:
    if isinstance(field.type, Primitive):
        values = _primitives(field, field.type)
    else:
        values = messages(field.type, version, unknown_tags=unknown_tags)
    if field.is_array:
        values = st.lists(values, max_size=2)
    if version in field.nullable:
        values = st.none() | values
    # A tagged field is left out where it has its default: that has to come up.
    return st.builds(field.default_value) | values if field.tag is not None else values


def _primitives(field: Field, kind: Primitive) -> st.SearchStrategy[Any]:
    """The values of a primitive: fewer where an oracle makes an error code or a date of them."""
    if field.name.endswith("error_code"):
        return _ERROR_CODES
    return _TIMES_MS if kind is INT64 and field.name.endswith("_time_ms") else _PRIMITIVES[kind]


def filled(cls: type[M], version: int) -> M:
    """A message with another value in each field that the version has, and one element in each array."""
    return _filled(cls, version, count(1))


def _filled(cls: type[M], version: int, numbers: Iterator[int]) -> M:
    present = [field for field in cls.FIELDS if version in field.versions]
    return cls(**{field.name: _filled_value(field, version, numbers) for field in present})


def _filled_value(field: Field, version: int, numbers: Iterator[int]) -> Any:
    if isinstance(field.type, Primitive):
        value = _numbered(field.type, next(numbers))
    else:
        value = _filled(field.type, version, numbers)
    return [value] if field.is_array else value


def _numbered(kind: Primitive, number: int) -> Any:
    if kind in (BYTES, RECORDS):
        return b"bytes %d" % number
    if kind is UUID:
        return number.to_bytes(16, "big")
    return f"text {number}" if kind is STRING else type(kind.zero)(number)  # type: ignore[call-arg]  # a kind of number


def structs(value: Struct, version: int) -> list[Struct]:
    """A message and all structs inside it that the version carries, outermost first."""
    found = [value]
    for field in value.FIELDS:
        held = getattr(value, field.name)
        if version in field.versions:
            for item in held if isinstance(held, list) else [held]:
                found += structs(item, version) if isinstance(item, Struct) else []
    return found
