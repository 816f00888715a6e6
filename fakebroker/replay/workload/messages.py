"""Converts msgspec's messages about an invalid file to messages for its author.

Depends on the wording of msgspec's messages and on how structs declare their keys.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "datetime": "a date and time",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "text",
}
Path = list[str | int]


def sentence(mistake: str, raw: dict[str, Any], declared: type) -> str:
    """Return msgspec's message, which names path and expectation, with the value found at that path.

    Args:
        mistake: msgspec's message.
        raw: The whole file.
        declared: The struct that the file was converted to.
    """
    what, _, where = mistake.partition(" - at ")
    path: Path = [int(step) if step.isdigit() else step for step in re.findall(r"[^.`$\[\]]+", where)]
    if where.endswith("[...]`"):
        path.append(_wrong_key(_at(raw, path), _type_at(declared, path)))
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        known = ", ".join(get_type_hints(_type_at(declared, path)))
        key: Path = [*path, unknown[1]]
        return f"{_dotted(key)} = {_at(raw, key)!r}: no such key; expected one of {known}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{_dotted([*path, missing[1]])} is missing"
    if what.startswith("Expected"):
        return f"{_dotted(path)} = {_at(raw, path)!r}: {_worded(what)}"
    if what.startswith("Invalid enum value"):
        choices = ", ".join(repr(choice) for choice in _choices(_type_at(declared, path)))
        return f"{_dotted(path)} = {_at(raw, path)!r}: expected one of {choices}"
    if what.startswith("expected"):
        return f"{_dotted(path)}: {what}"
    return f"{_dotted(path)}.{what}".lstrip(".")


def not_finite(raw: Any, path: Path | None = None) -> Iterator[str]:
    """Yield a message for each NaN or infinity in a file; TOML has literals for them."""
    path = path or []
    if isinstance(raw, float) and not math.isfinite(raw):
        yield f"{_dotted(path)} = {raw}: expected a number that is finite"
    steps = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for step, value in steps:
        yield from not_finite(value, [*path, step])


def _worded(what: str) -> str:
    words = re.sub(r"`([^`]*)`", _types, what.replace("`array` of length", "a list of"))
    return words[0].lower() + re.sub(r"\.0$", "", words[1:])


def _types(quoted: re.Match[str]) -> str:
    # TOML has no null.
    return " or ".join(_WORDS.get(word, word) for word in quoted[1].split(" | ") if word != "null")


def _dotted(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _at(raw: Any, path: Path) -> Any:
    for step in path:
        raw = raw[step]
    return raw


def _wrong_key(table: dict[str, Any], declared: Any) -> str:
    """Return the first key of a table with an invalid value: msgspec does not name it."""
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, declared)
        except msgspec.ValidationError:
            return key
    raise AssertionError("one of the values is wrong")


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the values of a literal, which may be optional."""
    literal = next((option for option in get_args(hint) if get_origin(option) is Literal), hint)
    return get_args(literal)


def _type_at(declared: Any, path: Path) -> Any:
    """Return the declared type at a path: of unions the struct, of arrays the type of their elements."""
    found: Any = declared
    for step in path:
        found = get_args(found)[0] if isinstance(step, int) else get_type_hints(found, include_extras=True)[step]
        for option in get_args(found):
            if isinstance(option, type) and issubclass(option, msgspec.Struct) and get_origin(found) is not tuple:
                found = option
                break
    return found
