"""Options of the commands that run brokers, and how repeatable options with names are parsed."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import click

from fakebroker.errors import ConfigError

T = TypeVar("T")

port_option = click.option(
    "--port",
    type=int,
    default=9092,
    show_default=True,
    help="Port of the first broker; the others use the ports that follow. 0 selects free ports.",
)

config_option = click.option(
    "--config",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a broker config by Kafka's name, such as group.max.size=100; repeatable.",
)

until_stdin_ends_option = click.option(
    "--until-stdin-ends",
    is_flag=True,
    help="Stop when stdin is closed, which also happens when the parent process exits.",
)


def each_once(option: str, texts: Iterable[str], parse: Callable[[str], tuple[str, T]]) -> dict[str, T]:
    """Return the values of a repeatable option by name.

    Args:
        option: The option, for error messages.
        texts: The values of the option.
        parse: Returns the name and the value in a text.

    Raises:
        ConfigError: A text is malformed, or a name has two values.
    """
    first: dict[str, str] = {}
    values: dict[str, T] = {}
    for text in texts:
        name, value = parse(text)
        if values.setdefault(name, value) != value:
            raise ConfigError.of(option, text, f"{name} once: {option}={first[name]!r} is given, too")
        first.setdefault(name, text)
    return values


def setting(text: str) -> tuple[str, str]:
    """Return the name and the value of a config such as "group.max.size=100".

    Raises:
        ConfigError: There is no "=".
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError.of("--config", text, "KEY=VALUE, such as group.max.size=100")
    return name, value
