"""How commands, views and conditions are declared: as methods of a handle, once.

A handle names a thing of a cluster, such as `cluster.group("billing")`. Its methods are `@command`, `@view` or
`@condition`. The owner of the handle runs them: a cluster in this process, or a client of another process. The owner
of `fakebroker.actions` returns them as values instead. Events, HTTP operations, the OpenAPI document and the
reference are derived from `DEFINITIONS`.
"""

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, cached_property, wraps
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, Protocol, TypeVar, cast

import msgspec

from fakebroker.cluster.handles.local import Instant, Local
from fakebroker.cluster.handles.undo import Hold
from fakebroker.errors import ConfigError, one_of
from fakebroker.topic_partition import PartitionMap, parse_partition, partition_name
from fakebroker.validation import accepts_data, accepts_none, convert, plain

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound="Handle")


class Arguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base class of the arguments of one method or HTTP operation. Arguments that were not given are UNSET."""

    def given(self) -> dict[str, Any]:
        """Return the arguments that were given."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}


class Definition:
    """The declaration of a command, a view or a condition.

    Attributes:
        kind: "command", "view" or "condition".
        method: The undecorated method, whose docstring documents it and its arguments.
        handle: The class of its handle.
        name: Its name in events, HTTP and documents: "group.expire", or "advance" for a whole cluster.
        undo: The name of the command that undoes it; "" if there is none.
        fixed: Further arguments of the command that undoes it.
        after_requests: Whether a condition is evaluated after each request, not only after changes.
    """

    handle: "type[Handle]"
    name: str

    def __init__(
        self,
        kind: Literal["command", "view", "condition"],
        method: Callable[..., Any],
        *,
        undo: str = "",
        fixed: Mapping[str, Any] | None = None,
        check: Callable[..., object] | None = None,
        after_requests: bool = False,
    ) -> None:
        self.kind = kind
        self.method = method
        self.name = method.__name__
        self.undo, self.fixed = undo, fixed or {}
        self.after_requests = after_requests
        self._check = check

    @property
    def thing(self) -> str:
        """What the handle names: the first part of the name, such as "group"; "" for a whole cluster."""
        return self.handle._kind

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the attributes that identify the thing, such as `group_id`."""
        return self.handle._keys

    @property
    def path(self) -> str:
        """The path in HTTP below the cluster's, with keys in braces: "/groups/{group_id}/expire"."""
        folder = self.handle._path
        keys = [f"{{{name}}}" for name in self.keys if f"{{{name}}}" not in folder]
        return "/".join(["", *filter(None, [folder]), *keys, self.method.__name__])

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature of the method for callers, with `self`."""
        signature = inspect.signature(self.method)
        parameters = [each for name, each in signature.parameters.items() if name != "at" or self.kind != "condition"]
        return signature.replace(parameters=parameters)

    @cached_property
    def arguments(self) -> type[Arguments]:
        """A struct with the parameters of the method as fields, for validation."""
        keys = self.keys if hasattr(self, "handle") else ()  # A constructor has no handle.
        return arguments_of(self.method, *(("at",) if self.kind == "condition" else ()), *keys, *self.fixed)

    @cached_property
    def event(self) -> type[Arguments]:
        """A struct with the keys of the handle and the parameters of the method as fields."""
        hints = typing.get_type_hints(self.handle.__init__)
        arguments = msgspec.structs.fields(self.arguments)
        fields: list[Any] = [(name, hints[name]) for name in self.keys]
        fields += [(each.name, each.type, *([] if each.required else [each.default])) for each in arguments]
        name = self.handle.__name__.removesuffix("Handle") + self.arguments.__name__
        namespace = {"__doc__": self.arguments.__doc__}
        struct = msgspec.defstruct(name, fields, bases=(Arguments,), namespace=namespace, kw_only=True)
        return cast(type[Arguments], struct)

    @cached_property
    def result(self) -> Any:
        """The type of the result."""
        return typing.get_type_hints(self.method, include_extras=True)["return"]

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, after validation.

        Raises:
            TypeError: An argument is missing, or there are too many.
            ConfigError: An argument has the wrong type or is out of its range.
        """
        check_keywords(self.name, kwargs, self.signature)
        try:
            bound = self.signature.bind(None, *args, **kwargs).arguments
        except TypeError as error:
            # Python's messages begin with the name of the function: "expire() missing ...".
            raise TypeError(f"{self.name}() {error}") from None
        bound.pop("self")
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                bound |= bound.pop(name, {})
        return self.checked(bound)

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments, and convert plain data to Python objects.

        Returns:
            The arguments that were given, as Python objects.

        Raises:
            ConfigError: An argument is missing, unknown, of the wrong type or out of its range.
        """
        given = convert(plain(arguments), self.arguments).given()
        for name in CONVERTERS.keys() & given.keys():
            given[name] = CONVERTERS[name](given[name])
        if self._check is not None:
            self._check(**given)
        return given

    def of(self, owner: "Owner", key: Mapping[str, Any]) -> "Handle":
        """Return the handle with a key."""
        return self.handle(owner, *(key[name] for name in self.keys))


DEFINITIONS: dict[str, Definition] = {}
"""All definitions by name. The modules of the handles register theirs; the package imports them."""

CONVERTERS: dict[str, Callable[[object], Any]] = {}
"""Functions that convert arguments from plain data, by the name of the argument: every argument `condition`."""


class Owner(Protocol):
    """What runs the methods of handles."""

    def perform(self, handle: "Handle", definition: Definition, arguments: dict[str, Any]) -> Any:
        """Run a command or a view with valid arguments, and return its result."""
        ...


class Handle:
    """Names a thing of a cluster, which need not exist yet.

    Subclasses have three attributes, which are read with `Definition`: `_kind`, such as "group"; `_keys`, the names
    of the attributes that identify the thing; and `_path`, the beginning of its path in HTTP.
    """

    _kind: ClassVar[str]
    _keys: ClassVar[tuple[str, ...]] = ()
    _path: ClassVar[str] = ""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def __init_subclass__(cls) -> None:
        if "_kind" not in vars(cls):
            return
        for name, method in vars(cls).items():
            definition = getattr(method, "definition", None)
            if isinstance(definition, Definition):
                definition.handle = cls
                definition.name = f"{cls._kind}.{name}" if cls._kind else name
                DEFINITIONS[definition.name] = definition

    @property
    def _local(self) -> Local:
        """The owner, which is a cluster in this process: only such an owner runs the methods."""
        return cast(Local, self._owner)

    def __repr__(self) -> str:
        return " ".join([f"<{type(self).__name__}", *(repr(value) for value in key_of(self).values())]) + ">"

    def _state_text(self, at: Instant) -> str:
        """Return the state of the thing as text, for the error of a wait."""
        raise NotImplementedError


def key_of(handle: Handle) -> dict[str, Any]:
    """Return what identifies the thing that a handle names, by the names of the handle's attributes."""
    return {name: getattr(handle, name) for name in handle._keys}


def state_text(handle: Handle, at: Instant) -> str:
    """Return the state of the thing that a handle names, for the error of a wait."""
    return handle._state_text(at)


def wrapped(definition: Definition, run: Callable[..., Any]) -> Any:
    """Give a function the name, documentation and signature of a definition."""
    wraps(definition.method)(run)
    run.__signature__ = definition.signature  # type: ignore[attr-defined]  # for help() and documents
    run.definition = definition  # type: ignore[attr-defined]  # for `Handle.__init_subclass__`
    return run


def check_keywords(name: str, kwargs: Mapping[str, Any], signature: inspect.Signature) -> None:
    """Require that a function has all given keyword arguments.

    Raises:
        TypeError: It does not have one of them; the message has those that it has.
    """
    parameters = signature.parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.name != "self"]
    for given in kwargs:
        if given not in known:
            raise TypeError(f"{name}() got an unexpected keyword argument {given!r}: expected {one_of(known, given)}")


def named_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that says what its arguments are if it is called with an unknown one."""
    signature = inspect.signature(function)

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        check_keywords(function.__name__, kwargs, signature)
        return function(*args, **kwargs)

    @wraps(function)
    async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
        check_keywords(function.__name__, kwargs, signature)
        return await cast(Callable[P, Awaitable[Any]], function)(*args, **kwargs)

    return cast(Callable[P, R], run_async) if inspect.iscoroutinefunction(function) else run


def command(method: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """Declare a command: it changes the cluster."""
    return _run_by_owner("command", method)


def view(method: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """Declare a view: it returns what is in the cluster, and changes nothing."""
    return _run_by_owner("view", method)


def _run_by_owner(
    kind: Literal["command", "view"], method: Callable[Concatenate[H, P], R]
) -> Callable[Concatenate[H, P], R]:
    definition = Definition(kind, method)

    def run(self: H, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._owner.perform(self, definition, definition.bound(args, kwargs))

    return cast(Callable[Concatenate[H, P], R], wrapped(definition, run))


def holding(
    undo: str, **fixed: Any
) -> Callable[[Callable[Concatenate[H, P], None]], Callable[Concatenate[H, P], Hold]]:
    """Declare a command that lasts until another one undoes it. It returns a context manager that does so.

    Args:
        undo: The name of the other command. It gets the arguments of this command whose names it knows.
        fixed: Further arguments of the other command.
    """

    def declare(method: Callable[Concatenate[H, P], None]) -> Callable[Concatenate[H, P], Hold]:
        definition = Definition("command", method, undo=undo, fixed=fixed)

        def run(self: H, *args: P.args, **kwargs: P.kwargs) -> Any:
            arguments = definition.bound(args, kwargs)
            result = self._owner.perform(self, definition, arguments)
            if result is not None:  # `fakebroker.actions` has not run it, and returns an action.
                return result
            other = getattr(self, undo)
            known = other.definition.arguments.__struct_fields__
            given = {name: value for name, value in {**arguments, **fixed}.items() if name in known}
            return Hold(lambda: other(**given))

        return cast(Callable[Concatenate[H, P], Hold], wrapped(definition, run))

    return declare


def checked_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """Validate the arguments of a constructor before it runs."""
    definition = Definition("command", method)
    definition.name = method.__qualname__.removesuffix(".__init__")

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast(Callable[..., R], method)(args[0], **definition.bound(args[1:], kwargs))

    return run


# Events: commands as plain data


NONE = "none"
"""Represents None in events, because TOML has no null."""

_FORMER_NAMES = {
    "add_broker": "brokers.add",
    "create_topic": "topic.create",
    "fail": "inject_fault",
    "fail_append": "group.fail_append",
    "fence": "group.fence_instance",
    "force_rebalance": "group.rebalance",
    "hold": "group.hold or transaction.hold",
    "move_coordinator": "group.move_coordinator",
    "move_offsets_partition": "partition.move_leader",
    "release": "group.release or transaction.release",
    "remove_acl": "acls.remove",
    "seed_transaction": "transaction.seed",
}
"""New names of commands by their old names, where the new name has other words: `_known_commands` finds the rest."""


def commands() -> dict[str, Definition]:
    """Return the definitions of all commands by name, in alphabetical order."""
    return {name: each for name, each in sorted(DEFINITIONS.items()) if each.kind == "command"}


def checked_event(event: Mapping[str, Any]) -> tuple[Definition, dict[str, Any], dict[str, Any]]:
    """Validate an event, such as `{"do": "broker.stop", "node_id": 1}`, without running it.

    Returns:
        The command, the key of its handle, and the arguments that were given.

    Raises:
        ConfigError: The command does not exist; a key or an argument is missing, unknown or invalid.
    """
    known = commands()
    if not isinstance(event, Mapping):
        raise ConfigError.of("event", event, "a table")
    if "do" not in event:
        raise ConfigError.missing("do", one_of(known))
    name = event["do"]
    if not isinstance(name, str) or name not in known:
        raise ConfigError.of("do", name, _known_commands(name, known))
    definition = known[name]
    fields = msgspec.structs.fields(definition.event)
    # "none" is None where None is possible. The key or value "none" of a record is text.
    optional = {field.name for field in fields if accepts_none(field.type) and not accepts_data(field.type)}
    given = {
        key: None if isinstance(value, str) and value == NONE and key in optional else value
        for key, value in event.items()
        if key != "do"
    }
    valid = convert(plain(given), definition.event).given()
    key = {each: valid.pop(each) for each in definition.keys}
    return definition, key, definition.checked(valid)


def _known_commands(name: object, known: Mapping[str, Definition]) -> str:
    """Return which commands an event may name; for the name of a command in an earlier version, its new name."""
    if isinstance(name, str) and "." not in name:
        words = set(re.findall("[a-z]+", name))
        near = [each for each in known if words <= {*re.findall("[a-z]+", each)}]
        new = _FORMER_NAMES.get(name, near[0] if words and len(near) == 1 else "")
        if new:
            return f"{new}, which is the new name: see CHANGES.md"
    return one_of(known, name)


def perform(owner: Owner | Handle, event: Mapping[str, Any]) -> Any:
    """Run an event.

    Args:
        owner: What runs it; or a handle, whose owner does.
        event: The name of the command as `do`, the key of its handle, and the arguments.

    Returns:
        The result of the command.

    Raises:
        ConfigError: The event is invalid, or the command fails.
    """
    definition, key, arguments = checked_event(event)
    owner = owner._owner if isinstance(owner, Handle) else owner
    return getattr(definition.of(owner, key), definition.method.__name__)(**arguments)


def checked(event: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Validate an event, and return the name of its command and its arguments, with the key of the handle.

    Raises:
        ConfigError: As `checked_event`.
    """
    definition, key, arguments = checked_event(event)
    return definition.name, {**key, **arguments}


def options_of(hint: Any) -> type[msgspec.Struct] | None:
    """Return the struct whose fields are keyword arguments: `Failover` of `**how: Annotated[Any, Failover]`.

    The struct alone has their names, types and bounds. Fields that are parameters of the method, too, or keys of its
    handle, or fixed, are no such arguments.
    """
    metadata = getattr(hint, "__metadata__", ())
    return next((each for each in metadata if isinstance(each, type) and issubclass(each, msgspec.Struct)), None)


@cache
def arguments_of(function: Callable[..., Any], *without: str) -> type[Arguments]:
    """Return a struct with the parameters of a method as fields.

    Args:
        function: The method; its first parameter, `self`, is left out.
        without: Names of parameters, and of fields of options, to leave out.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    found: list[Any] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        hint = hints[parameter.name]
        if parameter.name in without:
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            struct = options_of(hint)
            if struct is None:  # `**filters: Unpack[Filters]`: the condition checks them, with the journal's function.
                found += [(name, Any, msgspec.UNSET) for name in typing.get_args(hint)[0].__annotations__]
                continue
            given = {*inspect.signature(function).parameters, *without}
            fields = [each for each in msgspec.structs.fields(struct) if each.name not in given]
            found += [(each.name, each.type | msgspec.UnsetType, msgspec.UNSET) for each in fields]
        elif parameter.default is inspect.Parameter.empty:
            found.append((parameter.name, hint))
        else:
            found.append((parameter.name, hint | msgspec.UnsetType, msgspec.UNSET))
    name = "".join(word.capitalize() for word in function.__name__.split("_"))
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    struct = msgspec.defstruct(name, found, bases=(Arguments,), namespace={"__doc__": summary}, kw_only=True)
    return cast(type[Arguments], struct)


# Results as JSON


def plain_result(value: Any) -> Any:
    """Return a result in a form that can be encoded as JSON: partitions as "orders-0", handles as their keys."""
    if isinstance(value, Handle):
        return key_of(value)
    if isinstance(value, dict):
        return {
            partition_name(key) if isinstance(key, tuple) else key: plain_result(each) for key, each in value.items()
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    return [plain_result(each) for each in value] if isinstance(value, list | tuple) else value


def result_of(data: Any, kind: Any) -> Any:
    """Convert the JSON of a result to its type: a struct, or a list or a dict of structs, text or numbers."""
    if kind is Any or kind is None or kind is type(None):
        return data
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is PartitionMap:
        return PartitionMap({parse_partition(name): result_of(each, arguments[0]) for name, each in data.items()})
    if typing.get_origin(kind) is list and hasattr(arguments[0], "_asdict"):
        return [arguments[0](**each) for each in data]
    return msgspec.json.decode(msgspec.json.encode(data), type=kind)  # Keys that are numbers are text in JSON.


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
