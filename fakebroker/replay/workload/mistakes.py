"""All mistakes of a workload file at once.

Rules of a table are checked if its values have the right types, and rules across tables if all tables are valid. So
mistakes are found in passes: after each, the mistakes found so far are corrected in a copy of the file.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any

from fakebroker.errors import MOST_COUNTED, ConfigError
from fakebroker.replay.workload.table import Table
from fakebroker.validation import convert

MAX_DURATION_S = 1_000_000
"""Maximum duration of a workload, in seconds."""

_INDEPENDENT = ("as_version", "check", "config", "groups", "metric", "require", "topics")
"""Keys that are checked by themselves, although a mistake in another key of the table is known."""

_REQUIRED: dict[str, Any] = {"comparison": "<", "value": 0, "metric": "generations"}
"""Correct values of the required keys of `[[expect]]`."""

Path = tuple[str | int, ...]


def all_mistakes(raw: Mapping[str, Any], kind: type[Table]) -> list[ConfigError]:
    """Return the mistakes of a file, except those in the arguments of events, up to `MOST_COUNTED`.

    Args:
        raw: The contents of the file.
        kind: The type of the file, `Workload`.
    """
    found: dict[str, ConfigError] = {}
    tables: set[Path] = set()  # Tables with a mistake, except those found in the current pass.
    corrected = copy.deepcopy(dict(raw))
    for number in range(MOST_COUNTED):
        try:
            convert(corrected, kind)
            break
        except ConfigError as error:
            mistakes = error.mistakes
        paths = [_path(corrected, mistake.field or "") for mistake in mistakes]
        for mistake, path in zip(mistakes, paths, strict=True):
            if number == 0 or not _is_consequence(raw, corrected, path, tables):
                found.setdefault(str(mistake), mistake)
        tables.update(path[:-1] for path in map(_of_key, paths))
        before = copy.deepcopy(corrected)
        for path in paths:
            _correct(corrected, path)
        if corrected == before:
            break
    return list(found.values())[:MOST_COUNTED]


def _path(tables: Mapping[str, Any], field: str) -> Path:
    """Return the keys and indexes in the name of a field, such as "groups[1].members"; keys may contain dots."""
    path: list[str | int] = []
    here: Any = tables
    while field:
        if index := re.match(r"\[(\d+)\]\.?", field):
            key, field = int(index[1]), field[index.end() :]
            path.append(key)
            here = here[key] if isinstance(here, list) and key < len(here) else None
            continue
        known = [key for key in here if _begins_with(field, key)] if isinstance(here, dict) else []
        name = max(known, key=len, default=re.match(r"[^.\[]*", field)[0])  # type: ignore[index]  # matches any text
        path.append(name)
        field = field[len(name) :].removeprefix(".")
        here = here.get(name) if isinstance(here, dict) else None
    return tuple(path)


def _begins_with(field: str, key: str) -> bool:
    return field == key or field.startswith((f"{key}.", f"{key}["))


def _of_key(path: Path) -> Path:
    """Return the path of the key that a mistake is in: without the indexes of a list of values."""
    while path and isinstance(path[-1], int) and len(path) > 2:
        path = path[:-1]
    return path


def _value(tables: Any, path: Path) -> Any:
    """Return the value at a path, or None."""
    for step in path:
        try:
            tables = tables[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tables


def _is_consequence(raw: Mapping[str, Any], corrected: Mapping[str, Any], path: Path, tables: set[Path]) -> bool:
    """Return whether a mistake may be due to a correction: it is about another value, or another key of its table."""
    if _value(raw, path) is None or _value(raw, path) != _value(corrected, path):
        return True
    *table, key = _of_key(path) or ("",)
    return tuple(table) in tables and key not in _INDEPENDENT


def _correct(tables: dict[str, Any], path: Path) -> None:
    """Correct a mistake by another value, or remove the key or table with it, if that is possible."""
    match _of_key(path):
        case ("duration_s",):
            tables["duration_s"] = MAX_DURATION_S
        case ("topics", str(name)):
            tables["topics"][name] = 1
        case ("cluster", "proposals"):
            tables["cluster"]["proposals"] = ["batch-join"]
        case ("load", int(index)) | ("load", int(index), "kind"):
            tables["load"][index] = {"kind": "list-groups", **_groups_of(tables["load"][index])}
        case ("expect", int(index)):
            tables["expect"][index] = dict(_REQUIRED)
        case ("expect", int(index), "metric"):
            tables["expect"][index] = {**_REQUIRED, **_groups_of(tables["expect"][index])}
        case ("expect", int(index), ("comparison" | "value") as key):
            tables["expect"][index][key] = _REQUIRED[key]
        case () | ("topics" | "groups",) | ("groups", int()):
            pass
        case (*table, key):
            holder = _value(tables, tuple(table))
            if isinstance(holder, dict) and key in holder:
                del holder[key]
            elif len(table) > 1 and isinstance(table[-1], str):  # a required key is missing
                _value(tables, tuple(table[:-1])).pop(table[-1], None)


def _groups_of(table: Any) -> dict[str, Any]:
    """Return the key `groups` of a load or an expectation, which is checked by itself."""
    return {"groups": table["groups"]} if isinstance(table, dict) and isinstance(table.get("groups"), str) else {}
