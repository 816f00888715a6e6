"""The tables of the guide to workloads, from the types of the file format."""

import re
import types
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.workload import behavior
from fakebroker.replay.workload.expectations import ALLOWED_METRICS, METRICS, Expectation, Promises
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import Arrival, Groups, Sizes
from fakebroker.replay.workload.transaction import Transaction
from fakebroker.replay.workload.workload import Cluster, Pacing, Workload
from tests.documents.markdown import entries, table

WORKLOADS = Path("scenarios/workloads")

TABLES: dict[str, type[msgspec.Struct]] = {
    "workload": Workload,
    "cluster": Cluster,
    "groups": Groups,
    "members": Sizes,
    "arrival": Arrival,
    "leave": behavior.Leave,
    "crash": behavior.Crash,
    "pause": behavior.Pause,
    "slow": behavior.Slow,
    "zombie": behavior.Zombie,
    "restart": behavior.Restart,
    "grow": behavior.Grow,
    "transaction": Transaction,
    "load": Load,
    "pacing": Pacing,
    "expect": Expectation,
    "promises": Promises,
}
UNITS = {"_ms": "ms", "_per_s": "1/s", "_s": "s"}
TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}
PLURALS = {**{name: f"{name}s" for name in TYPES.values()}, "table": "tables"}


def type_name(hint: Any) -> str:
    """Return a type in TOML's terms."""
    options = get_args(hint)
    if get_origin(hint) is typing.Annotated:
        return type_name(options[0]) + "".join(map(bounds, options[1:]))
    if get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(type_name(option) for option in options if option is not type(None))
    if get_origin(hint) is Literal:
        return ", ".join(f"`{option}`" for option in options)
    if get_origin(hint) is tuple:
        if Ellipsis in options:
            return f"list of {plural(type_name(options[0]))}"
        return f"[{', '.join(map(type_name, options))}]"
    if get_origin(hint) is dict and options[1] is not Any:
        return f"table of {plural(type_name(options[1]))}"
    return TYPES.get(hint, "table")


def plural(name: str) -> str:
    """Return the plural of each noun: "integer ≥ 1 or table" -> "integers ≥ 1 or tables"."""
    return " ".join(PLURALS.get(word, word) for word in name.split(" "))


def bounds(meta: msgspec.Meta) -> str:
    least = meta.ge if meta.gt is None else meta.gt
    most = meta.le if meta.lt is None else meta.lt
    least_bound = "" if least is None else f" {'≥' if meta.gt is None else '>'} {least:g}"
    if most is None or most == 2**31 - 1:
        return least_bound
    if meta.ge is not None and meta.le is not None:
        return f" {least:g} to {most:,}"
    return f"{least_bound} and {'≤' if meta.lt is None else '<'} {most:,}"


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if default is None or default == () or default == {} or isinstance(default, msgspec.Struct):
        return ""
    return f"`{default:g}`" if isinstance(default, float) else f"`{str(default).lower()}`"


def keys_table(struct: type[msgspec.Struct]) -> str:
    hints, about = get_type_hints(struct, include_extras=True), entries(struct, "Attributes")
    rows = []
    for field in msgspec.structs.fields(struct):
        unit = next((unit for suffix, unit in UNITS.items() if field.name.endswith(suffix)), "")
        rows.append((f"`{field.name}`", type_name(hints[field.name]), unit, default_of(field), about[field.name]))
    return table(("key", "type", "unit", "default", "meaning"), rows)


def metrics_table() -> str:
    def filters(name: str) -> str:
        return ", ".join(f"`{key}`" for key, names in ALLOWED_METRICS.items() if name in names)

    rows = ((f"`{name}`", filters(name), meaning) for name, meaning in METRICS.items())
    return table(("metric", "allowed with", "meaning"), rows)


def workloads_table() -> str:
    rows = []
    for file in sorted(WORKLOADS.glob("*.toml")):
        head = re.match(r"(# [^\n]+\n)+", file.read_text())
        assert head, f"{file} does not begin with a comment that describes it"
        first = re.sub(r"\n?# ", " ", head[0]).strip()
        rows.append((f"[{file.stem}]({file.name})", re.split(r"(?<=[.])\s", first)[0]))
    return table(("workload", "description"), rows)


def promises_table() -> str:
    return table(
        ("name", "promise", "cases"),
        [(f"`{name}`", each.sentence, each.cases) for name, (each, *_) in PROMISES.items()],
    )


def tables() -> dict[str, Callable[[], str]]:
    """Return what generates each table of the guide, by name."""
    return {
        **{name: partial(keys_table, struct) for name, struct in TABLES.items()},
        "metrics": metrics_table,
        "all-promises": promises_table,
        "workloads": workloads_table,
    }
