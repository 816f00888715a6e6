"""The commands of a cluster with their arguments, from their definitions."""

import inspect
import textwrap
import typing
from typing import Any

import msgspec

from fakebroker.cluster.acl_rules import AclRule
from fakebroker.cluster.commands.cluster_commands import COMMANDS
from fakebroker.cluster.commands.definition import OPTIONS, Command
from fakebroker.cluster.emulation import Broker
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed
from fakebroker.cluster.seeding.transaction_seed import TransactionSeed
from fakebroker.validation import expectation
from tests.documents.markdown import description, entries, table

STRUCTS: dict[type[msgspec.Struct], str] = {
    AclRule: "An ACL",
    Failover: "Options of a failover",
    Fault: "Options of a fault",
    GroupSeed: "Options of a seeded group",
    MemberSeed: "A member of a seeded group",
    TransactionSeed: "Options of a seeded transaction",
    Broker: "A broker to add",
}

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


def commands() -> str:
    lines = [line for command in COMMANDS.values() for line in of_command(command)]
    lines += [line for struct, title in STRUCTS.items() for line in of_struct(struct, title)]
    return "\n".join(lines[1:])
