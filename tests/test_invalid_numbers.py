"""NaN, infinite and negative numbers are rejected with the name of the argument, wherever a number can be given.

The arguments are found in signatures and types, so a new one is tested without an entry here. If its method has
required arguments, they are in `tests/support/cluster/method_arguments.py`.
"""

import functools
import inspect
import json
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import msgspec
import pytest
import trio

from fakebroker import (
    Admin,
    Broker,
    ConfigError,
    Consumer,
    FakebrokerError,
    FakeCluster,
    GroupSeed,
    MemberSeed,
    RecordSeed,
    Scaled,
    predicate,
)
from fakebroker.cli.main import app, main
from fakebroker.cluster.handles.definition import DEFINITIONS, Definition, Owner, commands, perform
from fakebroker.control import Client
from fakebroker.control.routes.resources import OPERATIONS
from fakebroker.control.server import ControlServer
from fakebroker.replay.workload.workload import load_workload
from fakebroker.server.fake_cluster import internals
from fakebroker.validation import read_json
from tests.support.cluster.method_arguments import call_of, event_of, new_cluster
from tests.support.control.control_server import ControlHarness, Response
from tests.support.invalid_numbers import NOT_FINITE, fields_of, invalid_arguments, parameters_of, structs_of
from tests.support.replay.workload_files import ALL_KEYS, MINIMAL
from tests.support.trio_runner import in_trio_with_sockets

MAY_BE_NEGATIVE = {
    "above": "a condition compares with any number",
    "seed": "any integer is a seed",
}
"""Arguments that may be negative, with the reasons."""

PARTS = {
    "topics": "partitions",
    "assignment": "partition",
    "groups": "group 'orders'",
    "lag": "partition",
    "node_id": "no broker",
    "offsets": "partition",
    "partitions": "partition",
}
"""How errors name a part of an argument that contains several values."""


def assert_named(name: str, error: object) -> None:
    """Assert that an error names an argument, or the invalid part of it."""
    texts = (name, PARTS.get(name, name), "orders-" if name.startswith("partition") or name == "offsets" else name)
    assert any(text in str(error) for text in texts)


def assert_rejected(name: str, call: Callable[[], object]) -> None:
    """Assert that a call is rejected by an error that names an argument."""
    with pytest.raises(ConfigError) as caught:
        call()
    assert_named(name, caught.value)


def cases(kinds: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return invalid_arguments(kinds, MAY_BE_NEGATIVE)


def cases_of(definition: Definition) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield invalid arguments of a method of a handle, and invalid keys of the handle."""
    also = {"node_id": "a broker that does not exist is not up"} if definition.kind == "condition" else {}
    return invalid_arguments(fields_of(definition.event), {**MAY_BE_NEGATIVE, **also})


def methods_of(owner: type) -> dict[str, Callable[..., Any]]:
    """Return the public methods of a class by name, apart from commands, views, conditions and those for handles."""
    found = dict(inspect.getmembers(owner, inspect.isfunction))
    others = {name for name, each in found.items() if name.startswith("_") or hasattr(each, "definition")}
    others |= {"broker", "group", "topic", "transaction"}
    return {name: each for name, each in found.items() if name not in others}


def bound(
    method: Callable[..., Any], owner: object, given: Sequence[Any], arguments: Mapping[str, Any]
) -> Callable[[], Any]:
    """Return a method with its required arguments, and with others in place of some of them."""
    positional, keywords = [*given], {**arguments}
    for index, name in enumerate(list(inspect.signature(method).parameters)[1:]):
        if name in keywords and index < len(positional):
            positional[index] = keywords.pop(name)
    return functools.partial(method, owner, *positional, **keywords)


# Python


def test_arguments_of_the_constructor(subtests: pytest.Subtests) -> None:
    for name, arguments in cases(parameters_of(FakeCluster.__init__)):
        with subtests.test(**arguments):
            assert_rejected(name, functools.partial(FakeCluster, **arguments))


def use(owner: Owner, definition: Definition, arguments: Mapping[str, Any]) -> None:
    """Call a method of a handle with the arguments of `method_arguments`, and with these."""
    key, given = call_of(definition)
    given |= arguments
    key = {name: given.pop(name, value) for name, value in key.items()}
    getattr(definition.of(owner, key), definition.method.__name__)(**given)


def test_arguments_of_handles(subtests: pytest.Subtests) -> None:
    with new_cluster() as cluster:
        before = cluster.report()
        for definition in DEFINITIONS.values():
            for name, arguments in cases_of(definition):
                with subtests.test(definition.name, **arguments):
                    assert_rejected(name, functools.partial(use, internals(cluster), definition, arguments))
        assert cluster.report() == before


METHOD_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "create_cluster": ("new",),
    "stays": (predicate("never", lambda: False), 0),
    "wait": (predicate("never", lambda: False),),
}
"""Required arguments of methods of `FakeCluster` and `Client`."""


def method_call(method: str, function: Callable[..., Any], owner: object, arguments: Mapping[str, Any]) -> Any:
    """Return a call of a method with the arguments that it requires, and with these."""
    call = bound(function, owner, METHOD_ARGUMENTS.get(method.removesuffix("_async"), ()), arguments)
    return functools.partial(trio.run, call) if inspect.iscoroutinefunction(function) else call


def test_arguments_of_methods(subtests: pytest.Subtests) -> None:
    with new_cluster() as cluster:
        before = cluster.report()
        for method, function in methods_of(FakeCluster).items():
            for name, arguments in cases(parameters_of(function)):
                with subtests.test(method=method, **arguments):
                    assert_rejected(name, method_call(method, function, cluster, arguments))
        assert cluster.report() == before


USES: dict[type[msgspec.Struct], Callable[[FakeCluster, Any], object]] = {
    Broker: lambda cluster, broker: FakeCluster([broker]),
    GroupSeed: lambda cluster, seed: cluster.seed_groups([seed]),
    MemberSeed: lambda cluster, seed: cluster.group("new").seed([seed]),
    RecordSeed: lambda cluster, seed: cluster.topic("orders").produce(records=[seed]),
}
"""How each struct that is an argument of methods is used."""

REQUIRED: dict[type[msgspec.Struct], dict[str, Any]] = {
    GroupSeed: {"group_id": "new", "topics": ["orders"]},
}
"""Required fields of structs."""


def test_fields_of_structs(subtests: pytest.Subtests) -> None:
    kinds = [kind for method in methods_of(FakeCluster).values() for kind in parameters_of(method).values()]
    kinds += [kind for definition in DEFINITIONS.values() for kind in fields_of(definition.arguments).values()]
    structs = {struct for kind in kinds for struct in structs_of(kind) if any(cases(fields_of(struct)))}
    assert structs <= set(USES), "expected an entry in USES"
    with new_cluster() as cluster:
        for struct, use in USES.items():
            for name, arguments in cases(fields_of(struct)):
                value = struct(**{**REQUIRED.get(struct, {}), **arguments})
                with subtests.test(struct=struct.__name__, **arguments):
                    assert_rejected(name, functools.partial(use, cluster, value))
        assert [group.group_id for group in cluster.groups()] == ["stable"]
        assert cluster.faults() == []


def test_scaled_clocks(subtests: pytest.Subtests) -> None:
    for factor in (*NOT_FINITE, -1, 0):
        with subtests.test(factor=factor):
            assert_rejected("factor", functools.partial(Scaled, factor))


# Events


def perform_line(cluster: FakeCluster, line: str) -> None:
    perform(cluster, read_json(line, dict[str, Any], name="event"))


def test_arguments_of_events(subtests: pytest.Subtests) -> None:
    with new_cluster() as cluster:
        for command, definition in commands().items():
            for name, arguments in cases_of(definition):
                event = {"do": command, **event_of(definition), **arguments}
                text = json.dumps(event, default=msgspec.to_builtins)
                with subtests.test(text):
                    assert_rejected(name, functools.partial(perform_line, cluster, text))


def test_arguments_of_actions_of_faults(subtests: pytest.Subtests) -> None:
    with new_cluster() as cluster:
        for command, definition in commands().items():
            for name, arguments in cases_of(definition):
                if arguments[name] in NOT_FINITE:
                    action = {"do": command, **event_of(definition), **arguments}
                    with subtests.test(action=action):
                        assert_rejected(name, functools.partial(cluster.inject_fault, "JoinGroup", then=action))
        with pytest.raises(ConfigError, match=r"seconds=-1: expected a number from 0 to 1000000000"):
            cluster.inject_fault("JoinGroup", then={"do": "advance", "seconds": -1})
        assert cluster.faults() == []


def test_numbers_above_the_largest_are_rejected_in_events() -> None:
    with pytest.raises(ConfigError, match=r"^seconds=inf: expected a finite number$"):
        read_json('{"do": "advance", "seconds": 1e999}', dict[str, Any], name="event")


# HTTP and its client

OF_OPERATIONS = {name.replace(".", "_"): each for name, each in DEFINITIONS.items()}
"""The definitions from which operations are derived, by the operation's name."""

PATHS = {"cluster": "default", "topic": "orders", "group_id": "stable", "transactional_id": "payments"}
"""Values of path parameters of other operations."""

BODIES: dict[str, dict[str, Any]] = {
    "create_cluster": {"name": "new"},
    "look": {"conditions": []},
    "stays": {"condition": {"is": "topic.exists", "topic": "none"}, "for_s": 0},
    "wait": {"condition": {"is": "topic.exists", "topic": "none"}, "timeout_s": 0},
}
"""Required values of bodies of other operations."""


@pytest.mark.slow
def test_bodies_queries_and_paths_of_http(subtests: pytest.Subtests) -> None:
    with new_cluster() as cluster, ControlServer(cluster) as server:
        control = ControlHarness(cluster, server)
        before = cluster.report()
        for operation in OPERATIONS:
            definition = OF_OPERATIONS.get(operation.name)
            key, given = call_of(definition) if definition else ({}, BODIES.get(operation.name, {}))
            values = defaultdict(lambda: "1", {**PATHS, **key})
            path = operation.path.format_map(values)
            for name, arguments in cases(_fields(operation.body)):
                text = json.dumps({**given, **arguments}, default=msgspec.to_builtins).encode()
                with subtests.test(f"{operation.method} {path} {text!r}"):
                    assert_refused(name, control.request(operation.method, path, text))
            for name, arguments in cases(_fields(operation.query)):
                url = f"{path}?{urlencode(arguments)}"
                with subtests.test(f"{operation.method} {url}"):
                    assert_refused(name, control.request(operation.method, url))
            for name, arguments in cases(operation.path_types):
                url = operation.path.format_map(defaultdict(lambda: "1", {**values, **arguments}))
                text = json.dumps(given, default=msgspec.to_builtins).encode()
                with subtests.test(f"{operation.method} {url}"):
                    assert_refused(name, control.request(operation.method, url, text))
        assert cluster.report() == before


def _fields(struct: Any) -> dict[str, Any]:
    return fields_of(struct) if isinstance(struct, type) and issubclass(struct, msgspec.Struct) else {}


def assert_refused(name: str, response: Response) -> None:
    """Assert that the response is an error that names an argument."""
    assert response.status in (404, 422)
    assert_named(name, f"{response.json['field']}: {response.json['detail']}")


def test_arguments_of_the_control_client(subtests: pytest.Subtests) -> None:
    for name, arguments in cases(parameters_of(Client.__init__)):
        with subtests.test(method="__init__", **arguments):
            assert_rejected(name, functools.partial(Client, "http://localhost", **arguments))
    with new_cluster() as cluster, ControlServer(cluster) as server:
        client = Client(server.url)
        for method, function in methods_of(Client).items():
            for name, arguments in cases(parameters_of(function)):
                with subtests.test(method=method, **arguments):
                    assert_rejected(name, method_call(method, function, client, arguments))
        for definition in DEFINITIONS.values():
            for name, arguments in cases_of(definition):
                if arguments[name] not in (NOT_FINITE[1:]):  # The others are tested with HTTP, to save time.
                    with subtests.test(definition.name, **arguments):
                        assert_rejected(name, functools.partial(use, client._remote, definition, arguments))


# Workloads

NUMBER = re.compile(r'(?P<key>[\w".]+) = (?:[\[] ?|\[\d+, )?(?P<number>-?[\d_.]+)')
"""A number in a workload file, also as the first or second entry of a list."""

WORKLOAD_MAY_BE_NEGATIVE = {("seed", "-5"), ("value", "-5"), ("node_id", "-5")}
"""Keys that may be negative: any integer is a seed, expectations compare with any number, and whether a broker exists
is only known in the rehearsal."""


@pytest.mark.slow
def test_numbers_of_workloads(tmp_path: Path, subtests: pytest.Subtests) -> None:
    file, lines = tmp_path / "workload.toml", ALL_KEYS.splitlines()
    for index, line in enumerate(lines):
        for found in NUMBER.finditer(line):
            for number in ("nan", "inf", "-inf", "-5"):
                if (found["key"], number) in WORKLOAD_MAY_BE_NEGATIVE:
                    continue
                changed = line[: found.start("number")] + number + line[found.end("number") :]
                file.write_text("\n".join([*lines[:index], changed, *lines[index + 1 :]]))
                with subtests.test(changed):
                    assert_rejected(found["key"].strip('"'), functools.partial(load_workload, file))


# Options


@pytest.mark.slow
def test_options_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(signal, "sigwait", lambda signals: None)  # An accepted number would start a cluster.
    file = tmp_path / "workload.toml"
    file.write_text(MINIMAL)
    required = {
        "replay": [str(file)],
        "report": [str(tmp_path)],
        "compare": [str(tmp_path)] * 2,
        "lab": ["scenarios/lab/pauses.toml"],
    }
    calls = [
        (option.opts[0], [name, *required.get(name, []), f"{option.opts[0]}={number}"])
        for name, subcommand in app.commands.items()
        for option in subcommand.params
        if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        for number in ("nan", "inf", "-inf", "-5")
        if (option.name, number) != ("seed", "-5")
    ]
    assert {"--brokers", "--port", "--seed", "--speed", "--lanes", "--tasks", "--every"} <= {name for name, _ in calls}
    for number in ("nan", "inf", "-5"):
        calls += [
            ("--topic", ["serve", f"--topic=orders:{number}"]),
            ("group.max.size", ["serve", f"--config=group.max.size={number}"]),
            ("--control", ["serve", f"--control=127.0.0.1:{number}"]),
            ("--bootstrap", ["replay", str(file), f"--bootstrap=127.0.0.1:{number}"]),
        ]
    for option, arguments in calls:
        monkeypatch.setattr(sys, "argv", ["fakebroker", *arguments])
        with subtests.test(arguments=arguments):
            with pytest.raises(SystemExit) as exit_:
                main()
            assert exit_.value.code in (1, 2)
            assert option.lstrip("-") in capsys.readouterr().err.replace("_", "-")


# The clients of this package


def test_settings_of_clients(subtests: pytest.Subtests) -> None:
    for client in (Admin, Consumer):
        for name, arguments in cases(parameters_of(client.__init__)):
            with subtests.test(client=client.__name__, **arguments):
                assert_rejected(name, functools.partial(client, "localhost:9092", **arguments))


CLIENT_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "abort_transaction": (("orders", 0),),
    "add_members_to_group": ("new", ["instance"]),
    "alter_group_offsets": ({},),
    "assign": ({},),
    "committed": ([("orders", 0)],),
    "delete_group_offsets": ({},),
    "describe_producers": ([("orders", 0)],),
    "list_group_offsets": ({},),
    "poll": (0,),
    "position": (("orders", 0),),
    "seek": (("orders", 0), 0),
}
CLIENT_KEYWORDS: dict[str, dict[str, Any]] = {"abort_transaction": {"producer_id": 0, "producer_epoch": 0}}
"""Required arguments of methods of `Admin` and `Consumer`."""


@in_trio_with_sockets
async def test_arguments_of_clients(subtests: pytest.Subtests) -> None:
    async with (
        new_cluster() as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Consumer(cluster.bootstrap_servers, group_id="other") as consumer,
    ):
        consumer.assign({("orders", 0): 0})
        for client in (admin, consumer):
            for method, function in methods_of(type(client)).items():
                for name, arguments in cases(parameters_of(function)):
                    given = {**CLIENT_KEYWORDS.get(method, {}), **arguments}
                    error = await error_of(bound(function, client, CLIENT_ARGUMENTS.get(method, ()), given))
                    with subtests.test(method=method, **arguments):
                        assert_named(name, error)


async def error_of(call: Callable[[], Any]) -> FakebrokerError | None:
    """Return the error of a plain or async call."""
    try:
        result = call()
        if inspect.iscoroutine(result):
            await result
    except FakebrokerError as error:
        return error
    return None
