"""The guide to workloads tells the truth: its tables are what the structs of the language say."""

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

FOLDER = Path("scenarios/workloads")
GUIDE = FOLDER / "README.md"

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
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What the docstring of a struct says of its attributes."""
    _, _, attributes = (inspect.getdoc(struct) or "").partition("Attributes:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", meaning) for name, meaning in entries}


def told(hint: Any) -> str:
    """A type in words."""
    options = get_args(hint)
    if get_origin(hint) is typing.Annotated:
        return told(options[0]) + "".join(map(bounds, options[1:]))
    if get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(told(option) for option in options if option is not type(None))
    if get_origin(hint) is Literal:
        return ", ".join(f"`{option}`" for option in options)
    if get_origin(hint) is tuple:
        return f"list: {told(options[0])}" if Ellipsis in options else f"[{', '.join(map(told, options))}]"
    if get_origin(hint) is dict and options[1] is not Any:
        return f"table: {told(options[1])}"
    return WORDS.get(hint, "table")


def bounds(meta: msgspec.Meta) -> str:
    least = meta.ge if meta.gt is None else meta.gt
    most = meta.le if meta.lt is None else meta.lt
    if most is None or most == 2**31 - 1:
        return "" if least is None else f" {'≥' if meta.gt is None else '>'} {least:g}"
    return f" {'over ' if meta.ge is None else ''}{least:g} to {'' if meta.lt is None else 'under '}{most:,}"


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "must be given"
    default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if default is None or default == () or default == {} or isinstance(default, msgspec.Struct):
        return ""
    return f"`{default:g}`" if isinstance(default, float) else f"`{str(default).lower()}`"


def keys_table(struct: type[msgspec.Struct]) -> str:
    hints, about = get_type_hints(struct, include_extras=True), meanings(struct)
    rows = []
    for field in msgspec.structs.fields(struct):
        unit = next((unit for suffix, unit in UNITS.items() if field.name.endswith(suffix)), "")
        rows.append((f"`{field.name}`", told(hints[field.name]), unit, default_of(field), about[field.name]))
    return table(("key", "type", "unit", "default", "meaning"), *rows)


def metrics_table() -> str:
    def about(name: str) -> str:
        ways = {"api": METRICS_OF_AN_API, "groups": METRICS_OF_A_POPULATION}
        return ", ".join(f"`{key}`" for key, names in ways.items() if name in names)

    return table(("metric", "may be of", "meaning"), *((f"`{n}`", about(n), what) for n, what in METRICS.items()))


def workloads_table() -> str:
    rows = []
    for file in sorted(FOLDER.glob("*.toml")):
        head = re.match(r"(# [^\n]+\n)+", file.read_text())
        assert head, f"{file} does not begin with what it shows"
        first = re.sub(r"\n?# ", " ", head[0]).strip()
        rows.append((f"[{file.stem}]({file.name})", re.split(r"(?<=[.])\s", first)[0]))
    return table(("workload", "what happens"), *rows)


def rewritten(text: str) -> str:
    """The guide with its tables as they should be."""
    tables = {name: keys_table(struct) for name, struct in TABLES.items()}
    promises = table(("promise", "what it says"), *((f"`{name}`", each.sentence) for name, each in PROMISES.items()))
    tables |= {"metrics": metrics_table(), "all-promises": promises, "workloads": workloads_table()}
    for name, rows in tables.items():
        head, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        assert begin, f"the guide has no table of {name}"
        assert end, f"the guide has no end of the table of {name}"
        text = f"{head}{begin}{rows}\n{end}{tail}"
    return text


def test_tables() -> None:
    assert GUIDE.read_text() == rewritten(GUIDE.read_text()), "run `make rewrite`"


def test_examples(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    (least,) = re.findall("```toml\n(.*?)```", text, re.DOTALL)
    examples = re.findall(r"`((?:members|arrival) = [^`]+)`", text)
    assert len(examples) == 8
    for example in ["", *examples]:
        (file := tmp_path / "example.toml").write_text(least.replace("members = 4\n", f"{example}\n"))
        assert load_workload(file).group_count == 100


@pytest.mark.parametrize("name", TABLES)
def test_every_key_is_explained_and_nothing_else(name: str) -> None:
    assert list(meanings(TABLES[name])) == [field.name for field in msgspec.structs.fields(TABLES[name])]


def test_every_table_of_the_language_has_its_place() -> None:
    found: list[Any] = [Workload]
    for struct in found:  # grows meanwhile
        parts = [part for hint in get_type_hints(struct).values() for part in (hint, *get_args(hint))]
        found += [part for part in parts if inspect.isclass(part) and msgspec.Struct in part.__mro__[1:]]
    assert set(found) == set(TABLES.values())


if __name__ == "__main__":
    GUIDE.write_text(rewritten(GUIDE.read_text()))
