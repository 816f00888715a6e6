"""Commands of a cluster as plain data: `{"do": "stop_broker", "node_id": 1}`.

An event is a method of `ClusterCommands` by its name, with its arguments by theirs; `FakeCluster` has the same methods.
So there is one definition for Python, `[[event]]` tables of workloads, transcripts, HTTP and `serve --events`.
"""

import inspect
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fakebroker.cluster.commands import ClusterCommands
from fakebroker.errors import ConfigError, ErrorCode

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

_ACCEPTED_TYPES: Mapping[Any, tuple[type, ...]] = {float: (float, int), tuple: (tuple, list)}
"""Types that are accepted for another one: JSON and TOML have fewer types than Python."""


def perform(commands: Any, event: Mapping[str, Any]) -> Any:
    """Run an event.

    Args:
        commands: `ClusterCommands`, or a `FakeCluster`, whose methods are the same.
        event: `do`, the name of the command, and its arguments.

    Returns:
        The result of the command.

    Raises:
        ConfigError: There is no such event; an argument is missing, unknown or of the wrong type; or the command fails.
    """
    name, arguments = checked(event)
    return getattr(commands, name)(**arguments)


def event_of(line: str) -> dict[str, Any]:
    """Parse an event from a line of JSON.

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
    """Return the name and the arguments of an event, without running it.

    Raises:
        ConfigError: As `perform`, except for errors of the command itself.
    """
    name = event.get("do")
    if name not in EVENTS:
        raise ConfigError(f"do={name!r}: expected one of {', '.join(EVENTS)}")
    parameters, required = _parameters(name)
    arguments = {key: _read(value, parameters.get(key)) for key, value in event.items() if key != "do"}
    for key, value in arguments.items():
        if key not in parameters:
            raise ConfigError(f"{name}: unknown {key}={value!r}, expected {_listed(parameters)}")
        if not _fits(value, parameters[key]):
            raise ConfigError(f"{name}: {key}={value!r}, expected {_expected(parameters[key])}")
    for key in required:
        if key not in arguments:
            raise ConfigError(f"{name}: {key} is missing, expected {_expected(parameters[key])}")
    return name, arguments


def _parameters(name: str) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of a command with their types, and the names of those without a default."""
    method = getattr(ClusterCommands, name)
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
    """Return the value of an argument; "none" stands for None, since TOML has no null."""
    return None if value == "none" and types.NoneType in _options(hint) else value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type. The contents of lists and tables are validated by the command."""
    return any(_is_of(value, option) for option in _options(hint))


def _is_of(value: Any, option: Any) -> bool:
    kind = typing.get_origin(option) or option
    if kind is Literal:
        return value in typing.get_args(option)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if isinstance(value, str) or kind is str:
        return isinstance(value, str) and kind is str
    return isinstance(value, _ACCEPTED_TYPES.get(kind, kind))


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the types that a hint allows."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _expected(hint: Any) -> str:
    return " or ".join(dict.fromkeys(map(_word, _options(hint))))


def _word(option: Any) -> str:
    kind = typing.get_origin(option) or option
    if kind is Literal:
        return f"one of {', '.join(typing.get_args(option))}"
    return _WORDS.get(kind) or str(kind.__name__)


def _listed(parameters: Mapping[str, Any]) -> str:
    return f"one of {', '.join(parameters)}" if parameters else "nothing more"
