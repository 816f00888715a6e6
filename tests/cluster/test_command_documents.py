"""The list of all commands with their arguments is generated from their definitions."""

import inspect
import textwrap
import typing
from pathlib import Path
from typing import Any

import msgspec

from fakebroker.cluster.command import OPTIONS, Command
from fakebroker.cluster.commands import COMMANDS
from fakebroker.cluster.controller import Failover
from fakebroker.cluster.emulation import Broker
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.seed import GroupSeed, MemberSeed
from fakebroker.validation import expectation
from tests.documents.markdown import description, entries, table

DOCUMENT = Path(__file__).parents[2] / "scenarios" / "reference" / "commands.md"
STRUCTS: dict[type[msgspec.Struct], str] = {
    Failover: "Options of a failover",
    Fault: "Options of a fault",
    GroupSeed: "Options of a seeded group",
    MemberSeed: "A member of a seeded group",
    Broker: "A broker to add",
}

INTRODUCTION = """\
The commands that change a cluster. Each command is a method of `FakeCluster` and of the control client. As an event,
with its name as `do` and its arguments, it can be used in `fakebroker serve --events`, in `[[event]]` tables of
workloads, in steps `do` of transcripts, and over HTTP with `POST /v1/clusters/{cluster}/events`. In events, `"none"`
represents None, the absence of a value. A member is identified by its member id, its instance id, or its client id if
no other member of the group has that."""


HEADER = ("argument", "type", "default", "meaning")


def row(name: str, kind: Any, default: object, about: str) -> tuple[str, ...]:
    is_required = default in (inspect.Parameter.empty, msgspec.NODEFAULT)
    return (
        f"`{name}`",
        expectation(kind).removeprefix("one of "),
        "required" if is_required else literal(default),
        about,
    )


def literal(default: object) -> str:
    """Return a default value as it is written in events."""
    if default is None:
        return "`none`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def of_command(command: Command) -> list[str]:
    """Return the lines of the section of a command."""
    about, hints = entries(command.method, "Args"), typing.get_type_hints(command.method, include_extras=True)
    lines = ["", f"## {command.name}"]
    for paragraph in description(command.method).split("\n\n"):
        lines += ["", *textwrap.wrap(paragraph, 120)]
    rows, options = [], ""
    for name, parameter in list(inspect.signature(command.method).parameters.items())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            title = STRUCTS[OPTIONS[typing.get_args(hints[name])[0]]]
            options = f"[{title}](#{title.lower().replace(' ', '-')})"
        else:
            rows.append(row(name, hints[name], parameter.default, about.get(name, "")))
    if rows:
        lines += ["", table(HEADER, rows)]
    return [*lines, "", f"{'Further arguments:' if rows else 'Arguments:'} {options}"] if options else lines


def of_struct(struct: type[msgspec.Struct], title: str) -> list[str]:
    """Return the lines of the section of a struct with options."""
    about = entries(struct, "Attributes")
    rows = [
        row(
            field.name,
            field.type,
            field.default if field.required or not callable(field.default_factory) else "empty",
            about[field.name],
        )
        for field in msgspec.structs.fields(struct)
    ]
    return ["", f"## {title}", "", table(HEADER, rows)]


def document() -> str:
    lines = ["# Commands", "", INTRODUCTION]
    for command in COMMANDS.values():
        lines += of_command(command)
    for struct, title in STRUCTS.items():
        lines += of_struct(struct, title)
    return "\n".join([*lines, ""])


def test_the_document_follows_the_definitions() -> None:
    assert DOCUMENT.read_text() == document(), "run `make rewrite`"


def test_all_arguments_and_options_are_documented() -> None:
    for name, command in COMMANDS.items():
        _, *names = inspect.signature(command.method).parameters
        assert list(entries(command.method, "Args")) == names, name
    for struct in STRUCTS:
        assert list(entries(struct, "Attributes")) == list(struct.__struct_fields__)


if __name__ == "__main__":
    DOCUMENT.write_text(document())
