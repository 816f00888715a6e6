"""Commands as plain data: `{"do": "stop_broker", "node_id": 1}`.

An event names a command of `ClusterCommands` and its arguments. Events are used by `serve --events`, `[[event]]` tables
of workloads, transcripts and HTTP.
"""

from collections.abc import Mapping
from typing import Any

from fakebroker.cluster.commands.cluster_commands import COMMANDS
from fakebroker.cluster.commands.definition import checked_event
from fakebroker.validation import read_json


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
    return checked_event(event, COMMANDS)
