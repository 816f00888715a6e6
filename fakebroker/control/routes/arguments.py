"""Parses the arguments of requests and validates them against their types."""

import re
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from fakebroker.control.problems import Problem
from fakebroker.errors import ConfigError
from fakebroker.validation import convert, read_json

S = TypeVar("S")


class NoArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The query or the body of an operation that takes none."""


ANY_TEXT = ("group_id", "transactional_id")
"""The path parameters that may have any value, even an empty one.

URL libraries remove the segments "." and ".." from paths, even if they are percent-encoded. These ids are written "~2E"
and "~2E~2E", and so "~" is written "~7E".
"""


def read_body(kind: type[S], body: bytes) -> S:
    """Parse the JSON body of a request; an empty body is an empty object.

    Raises:
        ConfigError: It is not JSON, or not of this type.
    """
    return read_json(body or b"{}", kind, name="body")


def read_query(kind: type[S], text: str) -> S:
    """Parse the query string.

    Raises:
        ConfigError: An argument is unknown, given twice, or not of its type.
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name in given:
            raise ConfigError.of(name, value, f"one value: {name} is given twice")
        given[name] = value
    return convert(given, kind, strict=False)


def path_value(name: str, text: str, kind: type) -> Any:
    """Parse a path parameter.

    Raises:
        Problem: It is not a number where one is expected, so no such resource exists.
    """
    value = unquote(text)
    if name in ANY_TEXT:
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
