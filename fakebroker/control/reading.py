"""Arguments of requests: read, checked against their types, and refused in one sentence. Knows no operation."""

import re
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from fakebroker.control.problems import Problem

S = TypeVar("S")

_AT = re.compile(r"(?P<what>.*?)(?: - at `\$?\.?(?P<path>.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<expected>.*?)`(?:, got `.*`)?")
_NAMED = re.compile(r"Object (?P<fault>contains unknown|missing required) field `(?P<name>.*)`")

_WORDS = {"array": "a list", "bool": "true or false", "float": "a number", "int": "a whole number", "str": "text"}


def read_body(kind: type[S], body: bytes) -> S:
    """The JSON of a request; none at all is an empty object.

    Raises:
        Problem: It is no JSON, or not of this type.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(error, body) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(422, f"body: expected JSON: {error}", field="body", expected="JSON") from None


def read_query(kind: type[S], text: str) -> S:
    """The arguments behind the question mark.

    Raises:
        Problem: One of them is unknown, or not of its type.
    """
    return converted(kind, dict(parse_qsl(text, keep_blank_values=True)), is_strict=False)


def converted(kind: type[S], value: Any, *, is_strict: bool = True) -> S:
    """JSON that has been read, as what it has to be.

    Raises:
        Problem: It is not.
    """
    try:
        return msgspec.convert(value, kind, strict=is_strict)
    except msgspec.ValidationError as error:
        raise _invalid(error, msgspec.json.encode(value)) from None


def path_value(name: str, text: str, kind: type) -> Any:
    """A part of the path.

    Raises:
        Problem: It is no number where one is expected: then it names nothing that is there.
    """
    value = unquote(text)
    if kind is str:
        return value
    if not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise Problem(404, f"{name}={value!r}: expected a number", field=name, value=value, expected="a number")
    return int(value)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number that is out of range.

    Raises:
        Problem: It is.
    """
    if not low <= value <= high:
        expected = f"{low:g} to {high:g}"
        raise Problem(422, f"{name}={value:g}: expected {expected}", field=name, value=value, expected=expected)


def _invalid(error: msgspec.ValidationError, body: bytes) -> Problem:
    """What msgspec's sentence says, as a problem."""
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
    expected = _in_words(wrong["expected"]) if wrong else what
    field, value = path or "body", _value_at(body, path)
    return Problem(422, f"{field}={value!r}: expected {expected}", field=field, value=value, expected=expected)


def _in_words(kinds: str) -> str:
    """What msgspec expects, without its words for types."""
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | "))


def _value_at(body: bytes, path: str) -> Any:
    """What stands at a path such as `members[0].client_id`; None where that cannot be told."""
    try:
        value = msgspec.json.decode(body or b"{}")
        for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
            value = value[int(index)] if index else value[name]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError):
        return None
    return value
