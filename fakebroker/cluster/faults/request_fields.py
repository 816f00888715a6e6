"""The filter `where` of faults: a test of the fields of a request, as plain data or as a function.

`("topics.partitions.committed_offset", ">=", 100)` holds if one of the partitions has such an offset. A path has the
names of fields as Kafka's message formats have them, in snake case. It leads through arrays and nested structs.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from fakebroker.errors import ConfigError, one_of
from fakebroker.protocol.registry import API_BY_NAME, Api
from fakebroker.protocol.schema import Field, Struct
from fakebroker.protocol.types import UUID, Primitive
from fakebroker.topic_partition import topic_id_text

Test = tuple[str, str, Any]
"""A path, an operator and a value."""

_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "contains": lambda found, value: value in found,
}
_OF_NUMBERS = ("<", "<=", ">", ">=")
_FORM = 'a path, an operator and a value, such as ("topics.partitions.committed_offset", ">=", 100)'


def tests_of(where: Any) -> tuple[Test, ...]:
    """Return the tests in the filter: one or several, which all have to hold.

    Raises:
        ConfigError: The value has another form.
    """
    if where is None:
        return ()
    tests = [where] if isinstance(where, Sequence) and where and isinstance(where[0], str) else where
    if not isinstance(tests, Sequence) or isinstance(tests, str | bytes) or not tests:
        raise _error(where, _FORM)
    for test in tests:
        is_test = isinstance(test, Sequence) and not isinstance(test, str | bytes) and len(test) == 3
        if not is_test or not isinstance(test[0], str):
            raise _error(test, _FORM)
    return tuple((path, name, value) for path, name, value in tests)


def check(where: Any, api_name: str | None) -> None:
    """Check that the requests of an API have the fields, and that the values can be compared with them.

    Raises:
        ConfigError: The filter can match no request.
    """
    if where is None or callable(where):
        return
    tests = tests_of(where)
    if api_name is None:
        raise ConfigError.of("api", None, f"the API whose requests have the field {tests[0][0]!r}", where="fault")
    for path, name, value in tests:
        field = _field(API_BY_NAME[api_name], path)
        if name not in _OPERATORS:
            raise _error(name, one_of(_OPERATORS, name))
        if not isinstance(value, str | int | float | bool | None):
            raise _error(value, "text, a number, a boolean or null as the value")
        kind = _kind(cast(Primitive, field.type).zero)
        if value is not None and kind != _kind(value):
            raise _error(value, f"{kind}, which {path} of {api_name} has")
        if name in _OF_NUMBERS and (kind != "a number" or value is None):
            raise _error(name, f"== or !=, because {path} is no number" if kind != "a number" else "a number")
        if name == "contains" and (kind != "text" or value is None):
            raise _error(name, f"another operator, because {path} is no text")


def holds(where: Any, call: Any) -> bool:
    """Return whether the request of a call has the fields. A function gets the `Call`."""
    if callable(where):
        return bool(where(call))
    return all(
        any(_compares(name, found, value) for found in _values(call.request, path.split("."), call.api_version))
        for path, name, value in tests_of(where)
    )


def _compares(name: str, found: Any, value: Any) -> bool:
    return (found is not None or name in ("==", "!=")) and _OPERATORS[name](found, value)


def _values(struct: Struct, path: Sequence[str], version: int) -> Iterator[Any]:
    """Yield the values at a path, without fields that the version lacks."""
    field = next(each for each in struct.FIELDS if each.name == path[0])
    value = getattr(struct, field.name)
    if version not in field.versions:
        return
    for each in value if field.is_array and value is not None else [value]:
        if len(path) > 1:
            yield from _values(each, path[1:], version) if each is not None else ()
        elif isinstance(each, bytes):
            yield topic_id_text(each) if field.type is UUID else each.decode(errors="replace")
        else:
            yield each


def _field(api: Api, path: str) -> Field:
    """Return the last field of a path, which is no struct."""
    struct: Any = api.request
    found: Field | None = None
    for name in path.split("."):
        known = {} if struct is None else {each.name: each for each in struct.FIELDS}
        if name not in known:
            raise _error(path, f"a path in {api.name}, {one_of(known, name, none='without further fields')}")
        found = known[name]
        struct = found.type if isinstance(found.type, type) else None
    assert found is not None
    if struct is not None:
        raise _error(path, f"one of its fields, {one_of([f'{path}.{each.name}' for each in struct.FIELDS])}")
    return found


def _kind(value: object) -> str:
    """Return what a value is: UUIDs and bytes are compared as text."""
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, int | float) else "text"


def _error(value: object, expected: str) -> ConfigError:
    return ConfigError.of("where", value, expected, where="fault")
