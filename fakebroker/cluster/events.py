"""Commands as plain data: `{"do": "stop_broker", "node_id": 1}`.

An event names a command of `ClusterCommands` and its arguments. Events are used by `serve --events`, `[[event]]` tables
of workloads, transcripts and HTTP.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fakebroker.cluster.commands import COMMANDS
from fakebroker.errors import ConfigError, one_of
from fakebroker.validation import accepts_data, accepts_none, read_json

NONE = "none"
"""Represents None in events, because TOML has no null."""


def perform(commands: Any, event: Mapping[str, Any]) -> Any:
    """Run an event.

    Args:
        commands: `ClusterCommands`, or a `FakeCluster`, which has the same methods.
        event: The name of the command as `do`, and its arguments.

    Returns:
        The result of the command.

    Raises:
        ConfigError: The command does not exist; an argument is missing, unknown or invalid; or the command fails.
    """
    name, arguments = checked(event)
    return getattr(commands, name)(**arguments)


def event_of(line: str) -> dict[str, Any]:
    """Parse an event from a line of JSON.

    Raises:
        ConfigError: The line is not a JSON object.
    """
    return read_json(line, dict[str, Any], name="event")


def checked(event: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Validate an event and return the name and the arguments of its command, without running it.

    Raises:
        ConfigError: As `perform`, except for errors of the command itself.
    """
    if not isinstance(event, Mapping):
        raise ConfigError.of("event", event, "a table")
    if "do" not in event:
        raise ConfigError.missing("do", one_of(COMMANDS))
    name = event["do"]
    if not isinstance(name, str) or name not in COMMANDS:
        raise ConfigError.of("do", name, one_of(COMMANDS, name))
    command = COMMANDS[name]
    fields = msgspec.structs.fields(command.arguments)
    # In keys of records, "none" is text.
    optional = {field.name for field in fields if accepts_none(field.type) and not accepts_data(field.type)}
    arguments = {
        key: None if value == NONE and key in optional else value for key, value in event.items() if key != "do"
    }
    return name, command.checked(arguments)
