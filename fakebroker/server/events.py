"""What can be done to a cluster, as plain data: `{"do": "stop_broker", "node_id": 1}`.

An event is a method of `FakeCluster` by its name, with its arguments by theirs: there is one definition, for tests in
Python, for the `[[event]]` tables of workloads, for transcripts, and for whoever speaks JSON to a process. Knows the
methods' names and signatures, not what they do.
"""

import inspect
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.server.fake_cluster import FakeCluster

EVENTS = (
    "add_broker",
    "advance",
    "advance_to_next_deadline",
    "choose_leader",
    "clear_faults",
    "create_partitions",
    "create_topic",
    "delay_sync",
    "delete_topic",
    "evict",
    "expire",
    "fail",
    "fence",
    "finish_loading",
    "force_rebalance",
    "hold",
    "move_coordinator",
    "move_offsets_partition",
    "release",
    "release_sync",
    "remove_broker",
    "reset",
    "restart_broker",
    "rolling_restart",
    "seed_group",
    "set_broker",
    "start_broker",
    "stop_broker",
    "stop_zombies",
    "upgrade_broker",
)

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    ErrorCode: "text",
    types.NoneType: '"none"',
    tuple: "a list",
    Sequence: "a list",
    Mapping: "a table",
}

_TAKEN_FOR: Mapping[Any, tuple[type, ...]] = {float: (float, int), tuple: (tuple, list)}
"""What is as good as a value of a type: JSON and TOML have less of them than Python."""


def perform(cluster: FakeCluster, event: Mapping[str, Any]) -> Any:
    """Do an event.

    Args:
        cluster: To whom.
        event: `do`, the name of the event, and its arguments.

    Returns:
        What the method gives.

    Raises:
        ConfigError: There is no such event, an argument is missing, unknown or of the wrong type; or it cannot be done.
    """
    name, arguments = checked(event)
    return getattr(cluster, name)(**arguments)


def event_of(line: str) -> dict[str, Any]:
    """Read an event from a line of JSON.

    Raises:
        ConfigError: It is not a JSON object.
    """
    try:
        event = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"event {line.strip()!r}: expected JSON: {error}") from None
    if not isinstance(event, dict):
        raise ConfigError(f"event {line.strip()!r}: expected a JSON object")
    return event


def checked(event: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of an event, which may be done later.

    Raises:
        ConfigError: As `perform`, but for what only the cluster can tell.
    """
    name = event.get("do")
    if name not in EVENTS:
        raise ConfigError(f"do={name!r}: expected one of {', '.join(EVENTS)}")
    expected, required = _parameters(name)
    arguments = {key: _read(value, expected.get(key)) for key, value in event.items() if key != "do"}
    for key, value in arguments.items():
        if key not in expected:
            raise ConfigError(f"{name}: unknown {key}={value!r}, expected {_listed(expected)}")
        if not _fits(value, expected[key]):
            raise ConfigError(f"{name}: {key}={value!r}, expected {_told(expected[key])}")
    for key in required:
        if key not in arguments:
            raise ConfigError(f"{name}: {key} is missing, expected {_told(expected[key])}")
    return name, arguments


def _parameters(name: str) -> tuple[dict[str, Any], list[str]]:
    """The parameters of a method with their types, and those that must be given."""
    method = getattr(FakeCluster, name)
    hints = typing.get_type_hints(method, include_extras=True)
    found: dict[str, Any] = {}
    required: list[str] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        hint = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # **how: Unpack[Options]
            found |= typing.get_type_hints(typing.get_args(hint)[0])
            continue
        found[parameter.name] = hint
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    return found, required


def _read(value: Any, hint: Any) -> Any:
    """The value; TOML has no null, so "none" stands for it."""
    return None if value == "none" and types.NoneType in _options(hint) else value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type. What is in a list or a table is for the method to look at."""
    return any(_is_of(value, option) for option in _options(hint))


def _is_of(value: Any, option: Any) -> bool:
    kind = typing.get_origin(option) or option
    if kind is Literal:
        return value in typing.get_args(option)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if isinstance(value, str) or kind is str:
        return isinstance(value, str) and kind is str
    return isinstance(value, _TAKEN_FOR.get(kind, kind))


def _options(hint: Any) -> tuple[Any, ...]:
    """The types that a hint allows."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _told(hint: Any) -> str:
    return " or ".join(dict.fromkeys(map(_word, _options(hint))))


def _word(option: Any) -> str:
    kind = typing.get_origin(option) or option
    if kind is Literal:
        return f"one of {', '.join(typing.get_args(option))}"
    return _WORDS.get(kind) or str(kind.__name__)


def _listed(parameters: Mapping[str, Any]) -> str:
    return f"one of {', '.join(parameters)}" if parameters else "nothing more"
