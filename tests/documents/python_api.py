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
from fakebroker.cluster.commands.cluster_commands import COMMANDS
from fakebroker.cluster.inspect.journal_queries import Filters
from tests.documents.markdown import description, entries, section, table

_HELP_COLUMNS = 100


def fake_cluster() -> str:
    parts = ["## Arguments", _entries(FakeCluster, "Args"), *_raises(FakeCluster)]
    for title, members in _sections(FakeCluster):
        parts += [f"## {title}", *map(_member, members)]
    filters = ["## Filters of requests", *description(Filters).split("\n\n")[:1], _entries(Filters, "Attributes")]
    return "\n\n".join([*parts, *filters])


def _sections(cls: type) -> Iterator[tuple[str, list[Any]]]:
    """Yield titles, with public methods and properties: the sections of a class, and one for each of its bases.

    Sections of a class begin with a comment. The title of a base is its name, such as "Broker commands". Methods of
    bases that the class overrides are in the section of the base.
    """
    bases = {base: _public_members(base) for base in cls.__mro__[1:-1]}
    inherited = {name for names in bases.values() for name in names}
    source = textwrap.dedent(inspect.getsource(cls))
    titles = {number: line[6:] for number, line in enumerate(source.splitlines(), 1) if re.match(r"    # [A-Z]", line)}
    sections: dict[str, list[str]] = {title: [] for title in titles.values()}
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name[0] != "_"
            and node.name not in inherited
        ):
            sections[[title for line, title in titles.items() if line < node.lineno][-1]].append(node.name)
    for base, names in bases.items():
        title = " ".join(re.findall("[A-Z][a-z]+", base.__name__)).capitalize()
        sections[title] = names
    for title, names in sections.items():
        if names:
            yield title, [inspect.getattr_static(cls, name) for name in names]


def _public_members(cls: type) -> list[str]:
    return [name for name, each in vars(cls).items() if isinstance(each, FunctionType | property) and name[0] != "_"]


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
