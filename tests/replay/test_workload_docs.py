"""The tables in the guide to workloads are generated from the types of the file format: `make rewrite` updates them."""

import inspect
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from fakebroker.replay.verify.promises import PROMISES
from fakebroker.replay.workload import behavior
from fakebroker.replay.workload.expectations import (
    METRICS,
    METRICS_OF_A_POPULATION,
    METRICS_OF_AN_API,
    Expectation,
    Promises,
)
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import Arrival, Groups, Sizes
from fakebroker.replay.workload.workload import Cluster, Pacing, Workload, load_workload
from tests.documents.test_readme import table
from tests.support.replay.workload_files import ALL_KEYS, INVALID

WORKLOADS = Path("scenarios/workloads")
GUIDE = WORKLOADS / "README.md"

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
    "load": Load,
    "pacing": Pacing,
    "expect": Expectation,
    "promises": Promises,
}
UNITS = {"_ms": "ms", "_per_s": "1/s", "_s": "s"}
TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}
PLURALS = {**{name: f"{name}s" for name in TYPES.values()}, "table": "tables"}


def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the descriptions of a struct's fields, from its docstring."""
    _, _, attributes = (inspect.getdoc(struct) or "").partition("Attributes:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", meaning) for name, meaning in entries}


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
    hints, about = get_type_hints(struct, include_extras=True), meanings(struct)
    rows = []
    for field in msgspec.structs.fields(struct):
        unit = next((unit for suffix, unit in UNITS.items() if field.name.endswith(suffix)), "")
        rows.append((f"`{field.name}`", type_name(hints[field.name]), unit, default_of(field), about[field.name]))
    return table(("key", "type", "unit", "default", "meaning"), *rows)


def metrics_table() -> str:
    def filters(name: str) -> str:
        metrics = {"api": METRICS_OF_AN_API, "groups": METRICS_OF_A_POPULATION}
        return ", ".join(f"`{key}`" for key, names in metrics.items() if name in names)

    rows = ((f"`{name}`", filters(name), meaning) for name, meaning in METRICS.items())
    return table(("metric", "allowed with", "meaning"), *rows)


def workloads_table() -> str:
    rows = []
    for file in sorted(WORKLOADS.glob("*.toml")):
        head = re.match(r"(# [^\n]+\n)+", file.read_text())
        assert head, f"{file} does not begin with a comment that describes it"
        first = re.sub(r"\n?# ", " ", head[0]).strip()
        rows.append((f"[{file.stem}]({file.name})", re.split(r"(?<=[.])\s", first)[0]))
    return table(("workload", "description"), *rows)


def rewritten(text: str) -> str:
    """Return the guide with generated tables."""
    tables = {name: keys_table(struct) for name, struct in TABLES.items()}
    promises = table(("name", "promise"), *((f"`{name}`", each.sentence) for name, each in PROMISES.items()))
    tables |= {"metrics": metrics_table(), "all-promises": promises, "workloads": workloads_table()}
    for name, rows in tables.items():
        head, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        assert begin, f"{GUIDE}: no line <!-- {name} -->"
        assert end, f"{GUIDE}: no line <!-- /{name} -->"
        text = f"{head}{begin}{rows}\n{end}{tail}"
    return text


def test_the_tables_are_up_to_date() -> None:
    assert GUIDE.read_text() == rewritten(GUIDE.read_text()), "run `make rewrite`"


def test_the_examples_are_valid_workloads(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    (minimal,) = re.findall("```toml\n(.*?)```", text, re.DOTALL)
    examples = re.findall(r"`((?:members|arrival) = [^`]+)`", text)
    assert len(examples) == 8
    for example in ["", *examples]:
        (file := tmp_path / "example.toml").write_text(minimal.replace("members = 4\n", f"{example}\n"))
        assert load_workload(file).group_count == 100


def test_the_docstring_of_a_table_describes_each_key_in_order(subtests: pytest.Subtests) -> None:
    for name, struct in TABLES.items():
        with subtests.test(table=name):
            assert list(meanings(struct)) == [field.name for field in msgspec.structs.fields(struct)]


def test_every_key_is_in_a_test_workload() -> None:
    texts = ALL_KEYS + "".join(text for cases in INVALID.values() for text in cases)
    keys = {field.name for struct in TABLES.values() for field in msgspec.structs.fields(struct)}
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", texts)] == [], "expected in ALL_KEYS"


def test_every_table_of_the_format_is_in_the_guide() -> None:
    found: list[Any] = [Workload]
    for struct in found:  # the loop appends to the list
        parts = [part for hint in get_type_hints(struct).values() for part in (hint, *get_args(hint))]
        found += [part for part in parts if inspect.isclass(part) and msgspec.Struct in part.__mro__[1:]]
    assert set(found) == set(TABLES.values())


if __name__ == "__main__":
    GUIDE.write_text(rewritten(GUIDE.read_text()))
