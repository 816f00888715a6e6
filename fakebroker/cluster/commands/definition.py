"""The `@command` decorator, which defines a command by a method.

A definition has a name, arguments with types and bounds, and documentation. Events, HTTP operations, the control client
and `scenarios/reference/commands.md` are derived from the definitions or compared with them. The definitions themselves
are in the modules of the subjects, such as `topic_commands.py`.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cache, cached_property, wraps
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from fakebroker.cluster.acl_rules import AclOptions, AclRule
from fakebroker.cluster.faults.rule import Fault, FaultOptions
from fakebroker.cluster.replication.coordinator_moves import Failover, FailoverOptions
from fakebroker.cluster.seeding.seed import GroupSeed, SeedOptions
from fakebroker.cluster.seeding.transaction_seed import TransactionSeed, TransactionSeedOptions
from fakebroker.errors import ConfigError, one_of
from fakebroker.validation import accepts_data, accepts_none, convert, plain

P = ParamSpec("P")
R = TypeVar("R")

OPTIONS: Mapping[Any, type[msgspec.Struct]] = {
    AclOptions: AclRule,
    FailoverOptions: Failover,
    FaultOptions: Fault,
    SeedOptions: GroupSeed,
    TransactionSeedOptions: TransactionSeed,
}
"""The struct with the types and bounds of each set of keyword arguments, such as `**how: Unpack[FailoverOptions]`."""


class Arguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base class of the arguments of one command or HTTP operation. Arguments that were not given are UNSET."""

    def given(self) -> dict[str, Any]:
        """Return the arguments that were given."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}


class Command:
    """The definition of a command.

    Attributes:
        name: The name of the method, which is the command's name in Python, events, HTTP and documents.
        method: The undecorated method, whose docstring documents the command and its arguments.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self.name = method.__name__
        self.method = method

    @cached_property
    def arguments(self) -> type[Arguments]:
        """A struct with the parameters of the method as fields, for validation."""
        return arguments_of(self.method)

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments, and convert plain data to Python objects.

        Returns:
            The arguments that were given, as Python objects.

        Raises:
            ConfigError: An argument is missing, unknown, of the wrong type or out of its range.
        """
        return convert(plain(arguments), self.arguments).given()


def command(method: Callable[P, R]) -> Callable[P, R]:
    """Define a command by a method of a class. Its arguments are validated before it runs; see `commands_of`."""
    definition, signature = Command(method), inspect.signature(method)
    shown_name = method.__name__ if method.__name__ != "__init__" else method.__qualname__.removesuffix(".__init__")

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{shown_name}() {error}") from None  # Python's own message has the name, too.
        owner = bound.pop("self")
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                bound |= bound.pop(name, {})
        return cast(Callable[..., R], method)(owner, **definition.checked(bound))

    run.definition = definition  # type: ignore[attr-defined]  # `commands_of` finds it
    return run


_by_class: dict[type, Mapping[str, Command]] = {}


def commands_of(owner: type) -> Mapping[str, Command]:
    """Return the commands of a class by name, in alphabetical order, including those that a subclass overrides."""
    if owner not in _by_class:
        methods = {name: method for base in owner.__mro__ for name, method in vars(base).items() if name[0] != "_"}
        defined = [name for name in sorted(methods) if hasattr(methods[name], "definition")]
        _by_class[owner] = {name: methods[name].definition for name in defined}
    return _by_class[owner]


NONE = "none"
"""Represents None in events, because TOML has no null."""


def checked_event(event: Mapping[str, Any], commands: Mapping[str, Command]) -> tuple[str, dict[str, Any]]:
    """Validate an event and return the name and the arguments of its command, without running it.

    Args:
        event: The name of the command as `do`, and its arguments.
        commands: The commands by name.

    Raises:
        ConfigError: The command does not exist; an argument is missing, unknown or invalid.
    """
    if not isinstance(event, Mapping):
        raise ConfigError.of("event", event, "a table")
    if "do" not in event:
        raise ConfigError.missing("do", one_of(commands))
    name = event["do"]
    if not isinstance(name, str) or name not in commands:
        raise ConfigError.of("do", name, one_of(commands, name))
    command = commands[name]
    fields = msgspec.structs.fields(command.arguments)
    # The key "none" of a record is text.
    optional = {field.name for field in fields if accepts_none(field.type) and not accepts_data(field.type)}
    arguments = {
        key: None if value == NONE and key in optional else value for key, value in event.items() if key != "do"
    }
    return name, command.checked(arguments)


@cache
def arguments_of(function: Callable[..., Any], *without: str) -> type[Arguments]:
    """Return a struct with the parameters of a method as fields.

    Args:
        function: The method; its first parameter, `self`, is left out.
        without: Names of parameters to leave out.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    found: list[Any] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        hint = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            options = typing.get_args(hint)[0]
            types = typing.get_type_hints(OPTIONS.get(options, options), include_extras=True)
            found += [(name, types[name] | msgspec.UnsetType, msgspec.UNSET) for name in options.__annotations__]
        elif parameter.default is inspect.Parameter.empty:
            found.append((parameter.name, hint))
        else:
            found.append((parameter.name, hint | msgspec.UnsetType, msgspec.UNSET))
    found = [field for field in found if field[0] not in without]
    name = "".join(word.capitalize() for word in function.__name__.split("_"))
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    struct = msgspec.defstruct(name, found, bases=(Arguments,), namespace={"__doc__": summary}, kw_only=True)
    return cast(type[Arguments], struct)


def check_type(field: str, value: object, kind: type, expected: str) -> None:
    """Check the type of an argument that plain data cannot represent.

    Args:
        field: Name of the argument.
        value: Its value.
        kind: The required type.
        expected: The required type for the error message, such as "a Fault".

    Raises:
        ConfigError: The value is of another type.
    """
    if not isinstance(value, kind):
        raise ConfigError.of(field, value, expected)
