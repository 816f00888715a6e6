"""Hypothesis strategies for messages, built from their declarations.

Derived from the fields of `fakebroker.protocol.messages`: a new message or version needs no change here.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, given, settings, strategies as st

from fakebroker.errors import ErrorCode
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
from tests.support.message_versions import MESSAGE_VERSIONS, message_subtest
from tests.support.soak import examples

M = TypeVar("M", bound=Struct)

LAST_TIME_MS = 2**47
"""The largest time or duration drawn, in milliseconds: `kio` converts them to `datetime`, which ends in 9999."""

_PRIMITIVES: dict[Primitive, st.SearchStrategy[Any]] = {
    INT8: st.integers(-(2**7), 2**7 - 1),
    INT16: st.integers(-(2**15), 2**15 - 1),
    UINT16: st.integers(0, 2**16 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    FLOAT64: st.floats(allow_nan=False),
    BOOLEAN: st.booleans(),
    UUID: st.sampled_from([bytes(16), bytes(range(16))]) | st.binary(min_size=16, max_size=16),
    # The lengths of the longest values take two bytes as varints.
    STRING: st.text(max_size=5) | st.sampled_from(["", "grüße-群組", "x" * 126, "x" * 127, "é" * 100]),
    BYTES: st.binary(max_size=5) | st.just(bytes(128)),
    RECORDS: st.binary(max_size=5) | st.just(bytes(128)),
}
_ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode])
_TIMES_MS = st.integers(-1, LAST_TIME_MS)
_STRATEGIES: dict[tuple[type[Struct], int, bool], st.SearchStrategy[Any]] = {}
_TAGS = (0, 1, 2, 3, 4, 5, 127, 128, 2**32 - 1)


def messages(cls: type[M], version: int, *, unknown_tags: bool = False) -> st.SearchStrategy[M]:
    """Instances of a message, or of a struct inside one, that can be encoded in a version.

    Args:
        cls: The message or struct.
        version: The version; fields that it lacks have their defaults.
        unknown_tags: Whether to add tagged fields that are not declared; flexible versions only.
    """
    key = (cls, version, unknown_tags)
    if key not in _STRATEGIES:
        _STRATEGIES[key] = _instances(cls, version, unknown_tags)
    return _STRATEGIES[key]


def check_drawn_messages(
    subtests: pytest.Subtests,
    cls: type[Message],
    check: Callable[[type[Message], int, Message], object],
    *,
    among: Iterable[tuple[type[Message], int]] = MESSAGE_VERSIONS,
    unknown_tags: bool = False,
    sample: int,
    soak: int,
) -> None:
    """Check drawn messages in each version, as with `@given`; versions that fail are subtests.

    Args:
        subtests: pytest's fixture.
        cls: The request or response.
        check: Called with class, version and message; fails by raising.
        among: The versions to check; versions of other messages are skipped.
        unknown_tags: Whether flexible versions have tagged fields that are not declared.
        sample: The number of messages per version in `make test`. The first one is always the smallest possible.
        soak: The number of messages per version in `make soak`.
    """
    for version in [version for other, version in among if other is cls]:
        strategy = messages(cls, version, unknown_tags=unknown_tags and version in cls.FLEXIBLE)
        with message_subtest(subtests, cls, version):
            _check_drawn(strategy, partial(check, cls, version), examples(sample, soak=soak))


def _check_drawn(strategy: st.SearchStrategy[M], check: Callable[[M], object], max_examples: int) -> None:
    # Without Phase.explain, which takes most of the time of a failure.
    @settings(max_examples=max_examples, phases=[Phase.generate, Phase.shrink])
    @given(strategy)
    def check_message(message: M) -> None:
        check(message)

    check_message()


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
    # A tagged field with its default is not encoded, so the default must be drawn, too.
    return st.builds(field.default_value) | values if field.tag is not None else values


def _primitives(field: Field, kind: Primitive) -> st.SearchStrategy[Any]:
    """Values of a primitive. Error codes and times are limited to those that `kio` can convert to its own types."""
    if field.name.endswith("error_code"):
        return _ERROR_CODES
    is_time = kind is INT64 and field.name.endswith(("_time_ms", "_timestamp_ms", "expiry_timestamp", "max_timestamp"))
    return _TIMES_MS if is_time else _PRIMITIVES[kind]
