"""`FakeCluster`, its handles, the pytest plugin and the command line, from their docstrings and help texts.

A new fixture or option of the plugin changes the number that `fixtures` or `options` asserts.
"""

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, cast

import click
import msgspec
import pytest
from click.testing import CliRunner

from fakebroker import FakeCluster, pytest_plugin
from fakebroker.cli.main import app
from fakebroker.cluster.acl_rules import AclRule
from fakebroker.cluster.call import Call
from fakebroker.cluster.emulation import Broker
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.handles.acls import AclsHandle
from fakebroker.cluster.handles.brokers import BrokerHandle, BrokersHandle
from fakebroker.cluster.handles.cluster import ClusterHandle, LocalCluster
from fakebroker.cluster.handles.definition import DEFINITIONS, Definition, Handle, options_of
from fakebroker.cluster.handles.faults import AppendFailureHandle, FaultHandle, FaultView
from fakebroker.cluster.handles.group import GroupHandle
from fakebroker.cluster.handles.topic import PartitionHandle, PartitionView, TopicHandle, TopicView
from fakebroker.cluster.handles.transaction import TransactionHandle
from fakebroker.cluster.inspect.commits import CommitView
from fakebroker.cluster.inspect.deadlines import Deadline
from fakebroker.cluster.inspect.journal_queries import Filters, JournalQueries
from fakebroker.cluster.inspect.timelines import Timeline, TransactionTimeline
from fakebroker.cluster.inspect.transaction_views import HangingTransaction, TransactionView
from fakebroker.cluster.inspect.views import BrokerView, GroupView, MemberView, RecordView
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.seeding.producer import RecordSeed
from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed
from fakebroker.cluster.seeding.transaction_seed import TransactionSeed
from fakebroker.coordinator.group_history import Moment
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.coordinator.transaction.history import TransactionMoment
from fakebroker.kafka.kafka_owner import CONDITIONS, OPERATIONS
from fakebroker.server.journal_files import JournalExport
from fakebroker.server.waits import WaitingCluster
from fakebroker.validation import expectation
from tests.documents.markdown import description, entries, section, table

_HELP_COLUMNS = 100


HANDLES: Mapping[type[Handle], str] = {
    GroupHandle: "A group",
    TopicHandle: "A topic",
    PartitionHandle: "A partition",
    TransactionHandle: "A transactional id",
    BrokerHandle: "A broker",
    BrokersHandle: "All brokers",
    AclsHandle: "ACLs",
    FaultHandle: "A fault",
    AppendFailureHandle: "Appends that fail",
}

_EXAMPLES: Mapping[type[Handle], str] = {
    GroupHandle: 'group("billing")',
    TopicHandle: 'topic("orders")',
    PartitionHandle: 'topic("orders").partition(0)',
    TransactionHandle: 'transaction("payments")',
    BrokerHandle: "broker(1)",
    BrokersHandle: "brokers",
    AclsHandle: "acls",
    FaultHandle: 'inject_fault("Heartbeat", ...)',
    AppendFailureHandle: 'group("billing").fail_append()',
}
_KINDS = ("command", "view", "condition")
_OF_HANDLES = {Fault: "api", GroupSeed: "group_id", TransactionSeed: "transactional_id"}
"""The field of options that is the key of a handle, or an argument of its own."""
_INTERNAL = (
    *(
        "answered_after",
        "body",
        "boundaries_or_none",
        "closes_connection",
        "closing_reason",
        "held_bytes",
        "is_decoded",
    ),
    *("kept", "may_describe", "peer", "summary", "throttle_ms"),
)
"""Attributes of a `Call` that are not for tests."""

STRUCTS: Mapping[type[msgspec.Struct], str] = {
    Failover: "Options of a failover",
    Fault: "Options of a fault",
    GroupSeed: "Options of a seeded group",
    MemberSeed: "A member of a seeded group",
    RecordSeed: "A record to produce",
    TransactionSeed: "Options of a seeded transaction",
    AclRule: "An ACL",
    Broker: "A broker to add",
}

VIEWS = (
    GroupView,
    MemberView,
    CommittedOffset,
    CommitView,
    TopicView,
    PartitionView,
    RecordView,
    TransactionView,
    HangingTransaction,
    BrokerView,
    Deadline,
    FaultView,
    Timeline,
    Moment,
    TransactionTimeline,
    TransactionMoment,
    Call,
)


def fake_cluster() -> str:
    waits = [getattr(WaitingCluster, name) for name in ("wait", "wait_async", "stays", "stays_async", "holds")]
    shown = {each.__name__ for each in waits}
    whole = [
        inspect.getattr_static(FakeCluster, name)
        for cls in (FakeCluster, LocalCluster, ClusterHandle)
        for name in _public_members(cls)
        if name not in shown
    ]
    parts = ["## Arguments", _entries(FakeCluster, "Args"), *_raises(FakeCluster)]
    parts += ["## Waiting", *map(_member, waits)]
    parts += ["## The whole cluster", _member(WaitingCluster.name), *map(_member, dict.fromkeys(whole))]
    for cls, title in HANDLES.items():
        members = [vars(cls)[name] for name in _public_members(cls)]
        parts += [f"## {title}", description(cls), *map(_member, members)]
    parts += ["## The journal", "`cluster.journal`, and what `fakebroker.read_journal(path)` returns."]
    parts += [_member(vars(cls)[name]) for cls in (JournalQueries, JournalExport) for name in _public_members(cls)]
    parts += ["## Filters of requests", description(Filters), _entries(Filters, "Attributes")]
    parts += [part for struct, title in STRUCTS.items() for part in (f"## {title}", _options(struct))]
    parts += ["## Views", "What the methods above return. Views are copies, which later changes do not affect."]
    for view in VIEWS:
        fields = _attributes(view)
        parts += [f"### `{view.__name__}`", description(view), table(("attribute", "meaning"), fields)]
    return "\n\n".join(parts)


def _public_members(cls: type) -> list[str]:
    found = [name for name, each in vars(cls).items() if isinstance(each, FunctionType | property)]
    return [name for name in found if name[0] != "_"]


def index() -> str:
    """Return a table with the names of what each handle has."""
    rows = []
    handles: list[type[Handle]] = [ClusterHandle, *HANDLES]
    for cls in handles:
        title = HANDLES.get(cls, "The cluster")
        example = f"cluster.{_EXAMPLES[cls]}" if cls in _EXAMPLES else "cluster"
        definitions = [each for each in DEFINITIONS.values() if each.handle is cls]
        names = {kind: [f"`{each.method.__name__}`" for each in definitions if each.kind == kind] for kind in _KINDS}
        rows.append((f"{title}: `{example}`", *(", ".join(names[kind]) for kind in _KINDS)))
    return table(("handle", "commands", "views", "conditions"), rows)


def on_kafka() -> str:
    """Return a table with the methods of each handle that work on a real Kafka, and with the others."""
    rows = []
    handles: list[type[Handle]] = [ClusterHandle, *HANDLES]
    for cls in handles:
        known = [each for each in DEFINITIONS.values() if each.handle is cls]
        works = [f"`{each.method.__name__}`" for each in known if each.name in {*OPERATIONS, *CONDITIONS}]
        works += ["`holds`"] if cls is ClusterHandle else []
        others = [f"`{each.method.__name__}`" for each in known if f"`{each.method.__name__}`" not in works]
        rows.append((HANDLES.get(cls, "The cluster"), ", ".join(works) or "-", ", ".join(others) or "-"))
    return table(("handle", "on Kafka", "only on a fake cluster"), rows)


def _attributes(view: type) -> list[tuple[str, str]]:
    """Return the attributes of a view and of its bases with their meanings."""
    found: dict[str, str] = {}
    for cls in reversed(view.__mro__):
        for names, about in entries(cls, "Attributes").items():
            found |= dict.fromkeys(names.split(", "), about)
    fields = getattr(view, "__struct_fields__", found)
    properties = [name for name, each in vars(view).items() if isinstance(each, property) and name[0] != "_"]
    rows = [(f"`{name}`", found.get(name, "")) for name in fields if name not in _INTERNAL]
    return rows + [(f"`{name}`", description(vars(view)[name]).split("\n\n")[0]) for name in properties]


def _options(struct: type[msgspec.Struct]) -> str:
    about = entries(struct, "Attributes")
    rows = [
        (f"`{field.name}`", expectation(field.type).removeprefix("one of "), _default(field), about[field.name])
        for field in msgspec.structs.fields(struct)
        if field.name != _OF_HANDLES.get(struct)
    ]
    return table(("option", "type", "default", "meaning"), rows)


def _default(field: Any) -> str:
    """Return the default of an option as it is written in events."""
    if field.required:
        return "required"
    if field.default is msgspec.NODEFAULT:
        return "empty"
    if field.default is None:
        return "`none`"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _member(member: Any) -> str:
    """Describe a method or property."""
    function: Any = member.fget if isinstance(member, property) else member
    definition: Definition | None = getattr(function, "definition", None)
    name = function.__name__
    title = name if isinstance(member, property) else f"{name}({', '.join(_parameters(function))})"
    prefix = f"{definition.thing}." if definition is not None and definition.thing else ""
    is_async = inspect.iscoroutinefunction(function)
    parts = [f"### `{'await ' * is_async}{prefix}{title}`"]
    if definition is not None and definition.kind == "condition":
        parts.append(f'Condition, in JSON `{{"is": "{definition.name}"}}`; a wait returns `{_type(definition.result)}`')
    elif definition is not None:
        path = f"{'GET' if definition.kind == 'view' else 'POST'} {definition.path}"
        returns = f"View, `{path}`; returns `{_type(definition.result)}`"
        parts.append(returns if definition.kind == "view" else f"Command `{definition.name}`, `{path}`")
    parts.append(description(function))
    if section(function, "Args"):
        parts.append(_entries(function, "Args"))
    for parameter in inspect.signature(function).parameters.values():
        struct = options_of(parameter.annotation)
        if struct is not None:
            parts.append(f"Options: [{STRUCTS[struct]}](#{STRUCTS[struct].lower().replace(' ', '-')})")
    if returns := section(function, "Returns"):
        parts.append(f"Returns: {' '.join(returns.split())}")
    # The text above all members says when commands and views raise ConfigError.
    return "\n\n".join(parts + (_raises(function) if definition is None else []))


def _type(kind: Any) -> str:
    """Return the name of the type of a result, without modules and None."""
    text = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    return re.sub(r"\b[a-z_]+(\.[a-z_]+)*\.(?=[A-Z])", "", text).removesuffix(" | None")


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
    rows: list[tuple[str, str]] = []

    class Group:
        def addoption(self, name: str, *, help: str, metavar: str = "", **how: Any) -> None:  # noqa: A002
            rows.append((f"`{name}{'=' if metavar else ''}{metavar}`", help))

    class Parser:
        def getgroup(self, name: str) -> Group:
            return Group()

    pytest_plugin.pytest_addoption(cast(pytest.Parser, Parser()))
    return table(("option", "meaning"), rows)


def command_line() -> str:
    commands = [f"## fakebroker {name}\n\n{_help(name)}" for name in app.commands]
    return "\n\n".join([_help(), *commands])


def _help(*command: str) -> str:
    result = CliRunner().invoke(
        app, [*command, "--help"], prog_name="fakebroker", max_content_width=_HELP_COLUMNS, terminal_width=_HELP_COLUMNS
    )
    assert result.exit_code == 0, result.output
    return f"```text\n{click.unstyle(result.output).rstrip()}\n```"
