"""`FakeCluster`, the pytest plugin and the command line, described from their docstrings and help texts.

A new fixture or option of the plugin changes the number that `fixtures` or `options` asserts.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import click
from click.testing import CliRunner

from fakebroker import FakeCluster, pytest_plugin
from fakebroker.cli.main import app
from fakebroker.cluster.commands import COMMANDS
from fakebroker.cluster.inspect.journal_filters import Filters
from tests.documents.markdown import description, entries, section, table

_HELP_COLUMNS = 100


def fake_cluster() -> str:
    parts = ["## Arguments", _entries(FakeCluster, "Args"), *_raises(FakeCluster)]
    for title, members in _sections(FakeCluster):
        parts += [f"## {title}", *map(_member, members)]
    journal = [function for base in reversed(FakeCluster.__mro__[1:-1]) for function in _public_functions(base)]
    filters = ["## Filters of requests", *description(Filters).split("\n\n")[:1], _entries(Filters, "Attributes")]
    return "\n\n".join([*parts, "## Journal", *map(_member, journal), *filters])


def _sections(cls: type) -> Iterator[tuple[str, list[Any]]]:
    """Yield the sections of a class, each of which begins with a comment, with its public methods and properties."""
    source = textwrap.dedent(inspect.getsource(cls))
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    titles = {number: line[6:] for number, line in enumerate(source.splitlines(), 1) if re.match(r"    # [A-Z]", line)}
    sections: dict[str, list[Any]] = {title: [] for title in titles.values()}
    for node in body.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_overload = "overload" in map(ast.unparse, node.decorator_list)
        if not (is_overload or node.name.startswith("_")):
            title = [title for line, title in titles.items() if line < node.lineno][-1]
            sections[title].append(inspect.getattr_static(cls, node.name))
    yield from sections.items()


def _public_functions(cls: type) -> list[FunctionType]:
    return [each for name, each in vars(cls).items() if isinstance(each, FunctionType) and not name.startswith("_")]


def _member(member: Any) -> str:
    """Describe a method or property."""
    function: Any = member.fget if isinstance(member, property) else member
    name = function.__name__
    if name.endswith("_async"):
        return f"### `await {name}(...)`\n\n{description(function)}"
    title = name if isinstance(member, property) else f"{name}({', '.join(_parameters(function))})"
    parts = [f"### `{title}`", description(function)]
    if section(function, "Args"):
        parts.append(_entries(function, "Args"))
    if returns := section(function, "Returns"):
        parts.append(f"Returns: {' '.join(returns.split())}")
    parts += _raises(function)
    if name in COMMANDS:
        parts.append(f"[As a command](commands.md#{name})")
    return "\n\n".join(parts)


def _parameters(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the parameters of a method with their defaults."""
    has_star = False
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            yield "*"
        has_star = has_star or parameter.kind is parameter.VAR_POSITIONAL
        prefix = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        yield f"{prefix}{name}" + ("" if parameter.default is parameter.empty else f"={parameter.default!r}")


def _entries(documented: object, name: str) -> str:
    return table(("argument", "meaning"), [(f"`{entry}`", about) for entry, about in entries(documented, name).items()])


def _raises(documented: object) -> list[str]:
    errors = entries(documented, "Raises")
    return ["Raises:", "\n".join(f"- `{error}`: {about}" for error, about in errors.items())] if errors else []


def fixtures() -> str:
    found = [each for each in vars(pytest_plugin).values() if type(each).__name__ == "FixtureFunctionDefinition"]
    assert len(found) == 8
    return table(
        ("fixture", "meaning"), [(f"`{each.__name__}`", " ".join(description(each).split())) for each in found]
    )


def options() -> str:
    pattern = r'"(--fakebroker-[a-z-]+)",\s+metavar="(\w+)",\s+help="([^"]+)"'
    found = re.findall(pattern, inspect.getsource(pytest_plugin.pytest_addoption))
    assert len(found) == 2
    return table(("option", "meaning"), [(f"`{name}={metavar}`", about) for name, metavar, about in found])


def command_line() -> str:
    commands = [f"## fakebroker {name}\n\n{_help(name)}" for name in app.commands]
    return "\n\n".join([_help(), *commands])


def _help(*command: str) -> str:
    result = CliRunner().invoke(
        app, [*command, "--help"], prog_name="fakebroker", max_content_width=_HELP_COLUMNS, terminal_width=_HELP_COLUMNS
    )
    assert result.exit_code == 0, result.output
    return f"```text\n{click.unstyle(result.output).rstrip()}\n```"
