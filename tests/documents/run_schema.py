"""The keys of `summary.json` and the columns of the Parquet files of a run, with their types, units and meanings.

Derived from the types in `run_summary`, `members.events` and `report.promise_checks`, and from the `Attributes`
of their docstrings. The tables in `scenarios/runs.md` are generated from this module.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import UnsetType

from fakebroker.replay.members.events import DDL, Event
from fakebroker.replay.promises.observer import Found
from fakebroker.replay.report.promise_checks import SCHEMA as VIOLATIONS_SCHEMA
from fakebroker.replay.run_summary import SUMMARY_VERSION, Head, Numbers, Section, Summary


class Key(NamedTuple):
    """A key of the summary, or a column of the events.

    Attributes:
        name: Its path: `apis[].p50_ms` is a key of each object in the list `apis`; `{}` is any name.
        type: Name of the JSON type; for columns, of the Spark SQL type.
        unit: Unit; empty if it has none.
        meaning: Description from the docstring.
    """

    name: str
    type: str
    unit: str
    meaning: str


_UNITS = {"_per_s": "1/s", "_ms": "ms", "_s": "s", "_us": "µs since 1970", "share": "0 to 1", "_skew": "times"}
"""Units by the suffix of a name."""

_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def summary_keys() -> list[Key]:
    """Return all keys of `summary.json`, in the order of the file."""
    version = Key("version", "integer", "", f"Version of this schema: {SUMMARY_VERSION}")
    return [version, *_keys(Head), *_keys(Numbers), *_keys(Summary, skipped=(Head, Numbers))]


def _keys(section: type[Section], path: str = "", skipped: tuple[type[Section], ...] = ()) -> Iterator[Key]:
    """Yield the keys of a section and of its nested sections; `path` is the prefix of their names."""
    meanings = _meanings(section)
    for name, hint in get_type_hints(section).items():
        if hint in skipped:
            continue
        suffix, innermost = _elements(hint)
        where = f"{path}{name}{suffix}"
        if isinstance(innermost, type) and issubclass(innermost, Section):
            yield from _keys(innermost, f"{where}.")
        else:
            yield Key(where, _json_type(innermost), _unit(name), meanings[name])


def _elements(hint: Any) -> tuple[str, Any]:
    """Return the suffix of the path and the type of the elements: `[]` for lists of objects, `.{}` for maps."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is dict and arguments[1] is not Any:
        return ".{}", arguments[1]
    if kind is list and (get_origin(arguments[0]) is dict or _json_type(arguments[0]) == "object"):
        return "[]", arguments[0]
    return "", hint


def _json_type(hint: Any) -> str:
    arguments = get_args(hint)
    if get_origin(hint) is list:
        return " or ".join(f"{word}s" for word in _json_type(arguments[0]).split(" or "))
    if get_origin(hint) is Literal:
        return "string"
    if arguments and get_origin(hint) is not dict:  # a union; numbers may be written as integers
        options = [each for each in arguments if each is not UnsetType and not (each is int and float in arguments)]
        return " or ".join(map(_json_type, options))
    return _JSON_TYPES.get(hint, "object")


def event_columns() -> list[Key]:
    """Return the columns of `events.parquet`, in their order."""
    types = dict(re.findall(r"`(\w+)` (.+?)(?:, (?=`)|$)", DDL))
    return _columns(Event, types, {"latency_us": "µs"})


def violation_columns() -> list[Key]:
    """Return the columns of `violations.parquet`, in their order."""
    return _columns(Found, {field.name: str(field.type) for field in VIOLATIONS_SCHEMA})


def _columns(row: type, types: Mapping[str, str], units: Mapping[str, str] = MappingProxyType({})) -> list[Key]:
    """Return columns with the descriptions of the fields of `row`.

    Args:
        row: The type of a row.
        types: Types by name, in the order of the columns.
        units: Units of names whose suffix does not tell the unit.
    """
    meanings = _meanings(row)
    return [Key(name, kind, units.get(name, _unit(name)), meanings[name]) for name, kind in types.items()]


def _unit(name: str) -> str:
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def _meanings(kind: type) -> dict[str, str]:
    """Return the descriptions of attributes by name, from the docstring of a class."""
    _, _, attributes = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", attributes, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", meaning) for name, meaning in entries}
