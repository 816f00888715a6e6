"""Parses the arguments of requests and validates them against their types."""

import re
from collections.abc import Iterator
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import inspect

from fakebroker.control.problems import Problem

S = TypeVar("S")

GROUP_ID = "group_id"
"""The only path parameter that may have any value, even an empty one.

URL libraries remove the segments "." and ".." from paths, quoted or not. These ids are written "~2E" and "~2E~2E", and
"~" is written "~7E" so that every id is unambiguous.
"""

_AT = re.compile(r"(?P<what>.*?)(?: - at `\$?\.?(?P<path>.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<expected>.*?)`(?P<more>.*?)(?:, got .*)?")
_NAMED = re.compile(r"Object (?P<fault>contains unknown|missing required) field `(?P<name>.*)`")

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")

_WORDS = {"array": "a list", "bool": "true or false", "float": "a number", "int": "a whole number", "str": "text"}


def read_body(kind: type[S], body: bytes) -> S:
    """Parse the JSON body of a request; an empty body is an empty object.

    Raises:
        Problem: It is not JSON, or not of this type.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(error, kind, body) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(422, f"body: expected JSON: {error}", field="body", expected="JSON") from None


def read_query(kind: type[S], text: str) -> S:
    """Parse the query string.

    Raises:
        Problem: An argument is unknown, or not of its type.
    """
    return converted(kind, dict(parse_qsl(text, keep_blank_values=True)), is_strict=False)


def converted(kind: type[S], value: Any, *, is_strict: bool = True) -> S:
    """Convert parsed JSON to a type.

    Raises:
        Problem: It is not of this type.
    """
    try:
        return msgspec.convert(value, kind, strict=is_strict)
    except msgspec.ValidationError as error:
        raise _invalid(error, kind, msgspec.json.encode(value)) from None


def path_value(name: str, text: str, kind: type) -> Any:
    """Parse a path parameter.

    Raises:
        Problem: It is not a number where one is expected, so no such resource exists.
    """
    value = unquote(text)
    if name == GROUP_ID:
        return value.replace("~2E", ".").replace("~7E", "~")
    if kind is str:
        return value
    if not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise Problem(404, f"{name}={value!r}: expected a number", field=name, value=value, expected="a number")
    return int(value)


def check_range(name: str, value: float, low: int, high: int) -> None:
    """Validate the range of a number.

    Raises:
        Problem: It is out of range.
    """
    if not low <= value <= high:
        expected = f"{low} to {high}"
        raise Problem(422, f"{name}={value!r}: expected {expected}", field=name, value=value, expected=expected)


def _invalid(error: msgspec.ValidationError, kind: Any, body: bytes) -> Problem:
    """Convert msgspec's error to a problem; `kind` is the expected type of the body."""
    told = _AT.fullmatch(str(error))
    assert told is not None
    what, path = told["what"], told["path"] or ""
    named, wrong = _NAMED.fullmatch(what), _EXPECTED.fullmatch(what)
    if named is not None:
        field = f"{path}.{named['name']}" if path else named["name"]
        is_missing = named["fault"] == "missing required"
        expected = "a value" if is_missing else "no such field"
        sentence = f"{field} is missing" if is_missing else f"{field}: expected no such field"
        return Problem(422, sentence, field=field, value=_value_at(body, field), expected=expected)
    field, value = path or "body", _value_at(body, path)
    if wrong:
        expected = _in_words(wrong["expected"]) + wrong["more"]
    else:
        choices = list(_choices(inspect.type_info(kind), _STEP.findall(path)))
        expected = f"one of {', '.join(map(str, choices))}" if choices else "a number that is not as large"
    return Problem(422, f"{field}={value!r}: expected {expected}", field=field, value=value, expected=expected)


def _in_words(kinds: str) -> str:
    """Return msgspec's names of types in words."""
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | "))


def _choices(kind: inspect.Type, steps: list[tuple[str, str]]) -> Iterator[Any]:
    """Yield the allowed values at a path within a type."""
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _choices(each, steps)
    elif isinstance(kind, inspect.LiteralType) and not steps:
        yield from filter(None, kind.values)
    elif isinstance(kind, inspect.ListType) and steps:
        yield from _choices(kind.item_type, steps[1:])
    elif isinstance(kind, inspect.StructType) and steps:
        (name, _), *rest = steps
        if name == kind.tag_field:
            yield kind.tag
        for field in kind.fields:
            if field.encode_name == name:
                yield from _choices(field.type, rest)


def _value_at(body: bytes, path: str) -> Any:
    """Return the value at a path such as `members[0].client_id`; None if there is none."""
    try:
        value = msgspec.json.decode(body or b"{}")
        for name, index in _STEP.findall(path):
            value = value[int(index)] if index else value[name]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError):
        return None
    return value
