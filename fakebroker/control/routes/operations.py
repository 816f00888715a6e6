"""The table of HTTP operations: each is a function with its path, arguments and result.

If an operation is a method of `FakeCluster`, its arguments are derived from the method's signature. Does not depend on
requests or clusters: `dispatch` calls the functions, `openapi` documents them.
"""

import inspect
import types
import typing
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

Method = Literal["GET", "POST", "PATCH", "DELETE"]


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        method: The HTTP method.
        path: Its path, with parameters in braces.
        run: The function. A plain one runs in the thread of its cluster at once, and a generator in steps; an async one
            runs as a trio task.
        status: The HTTP status of success.
        path_types: The types of the path parameters, without the cluster's name.
        query: The type of the query, if it takes one.
        body: The type of the body's JSON, if it takes one.
        result: The type of the result.
        changes_nothing: Whether it is read-only.
        is_documented: Whether the OpenAPI document has it.
    """

    method: Method
    path: str
    run: Callable[..., Any]
    status: int
    path_types: Mapping[str, type]
    query: type[msgspec.Struct] | None
    body: Any
    result: Any
    changes_nothing: bool
    is_documented: bool

    @property
    def name(self) -> str:
        """Its unique name."""
        return self.run.__name__

    @property
    def summary(self) -> str:
        """Its description in one sentence."""
        return (inspect.getdoc(self.run) or "").partition("\n")[0]

    @cached_property
    def names(self) -> list[str]:
        """The names of its path parameters."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @cached_property
    def is_about_one(self) -> bool:
        """Whether it operates on one cluster, rather than on the set of clusters."""
        return "{cluster}" in self.path and "cluster" not in self.path_types

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.run)

    @cached_property
    def is_in_steps(self) -> bool:
        return inspect.isgeneratorfunction(self.run)


@dataclass(frozen=True, slots=True)
class Content:
    """A result that is not JSON; its body may be produced while it is sent."""

    body: bytes | AsyncGenerator[bytes, None]
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


encoder = msgspec.json.Encoder(enc_hook=str)
"""Encodes results."""


OPERATIONS: list[Operation] = []
"""All operations, registered by the modules imported in `resources`."""

V1 = "/v1"
CLUSTER = f"{V1}/clusters/{{cluster}}"

F = typing.TypeVar("F", bound=Callable[..., Any])


def operation(
    method: Method,
    path: str,
    status: int = 200,
    body: Any = None,
    *,
    is_documented: bool = True,
) -> Callable[[F], F]:
    """Register a function as an operation. Its parameters are path parameters, `query` and `body`.

    Args:
        method: The HTTP method.
        path: The path.
        status: The status of success.
        body: The type of `body`, if there is one.
        is_documented: Whether the OpenAPI document has it.
    """

    def note(run: F) -> F:
        hints = typing.get_type_hints(run)
        names = list(inspect.signature(run).parameters)[1:]
        parts = {name: hints[name] for name in names if name not in ("query", "body")}
        query, result, only_looks = hints.get("query"), hints["return"], method == "GET"
        if typing.get_origin(result) is Generator:
            result = typing.get_args(result)[2]
        OPERATIONS.append(Operation(method, path, run, status, parts, query, body, result, only_looks, is_documented))
        return run

    return note


class Arguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The arguments of one operation."""

    def given(self) -> dict[str, Any]:
        """Return the arguments that were given."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: plain(value) for name, value in values.items() if value is not msgspec.UNSET}


def plain(value: Any) -> Any:
    """Replace the arguments of dataclasses in a value by instances of those."""
    if isinstance(value, _Built):
        return value.built()
    return [plain(each) for each in value] if isinstance(value, list) else value


class _Built(Arguments):
    """The arguments of a dataclass."""

    def built(self) -> Any:
        return _KINDS[type(self)](**self.given())


_KINDS: dict[type, type] = {}
_built_structs: dict[type, type[_Built]] = {}


def arguments_of(method: Callable[..., Any], *without: str) -> type[Arguments]:
    """Return a struct with the parameters of a method of `FakeCluster`, except some."""
    hints = typing.get_type_hints(method)
    found: list[Any] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        hint = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # **how: Unpack[Options]
            options = typing.get_type_hints(typing.get_args(hint)[0] if typing.get_args(hint) else hint)
            found += [_field(name, each, required=False) for name, each in options.items() if name not in without]
        elif parameter.name not in without:
            found.append(_field(parameter.name, hint, required=parameter.default is inspect.Parameter.empty))
    return msgspec.defstruct(_camel(method.__name__), found, bases=(Arguments,), kw_only=True)  # type: ignore[return-value]


def _field(name: str, hint: Any, *, required: bool) -> Any:
    kind = json_type(hint)
    return (name, kind) if required else (name, kind | msgspec.UnsetType, msgspec.UNSET)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def json_type(hint: Any) -> Any:
    """Return the JSON type for a Python type; alternatives of a union that JSON cannot represent are omitted."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [json_type(each) for each in typing.get_args(hint) if _is_in_json(each)]
        kinds = list(dict.fromkeys(options))
        return typing.Union[tuple(kinds)]  # noqa: UP007  # built at run time
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, json_type(inner[1])]  # type: ignore[misc]  # built at run time
    if origin is not None and origin is not tuple and isinstance(origin, type) and issubclass(origin, Sequence):
        return list[json_type(inner[0])]  # type: ignore[misc]  # built at run time
    if hint is object:
        return Any
    return _struct_of(hint) if is_dataclass(hint) else hint


def _is_in_json(hint: Any) -> bool:
    from enum import Enum

    if isinstance(hint, type) and issubclass(hint, Enum):
        return False  # their names are strings, which are among the alternatives
    return not (typing.get_origin(hint) is not None and _is_keyed_by_more_than_text(hint))


def _is_keyed_by_more_than_text(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping) and typing.get_args(hint)[0] is not str


def _struct_of(kind: Any) -> type[_Built]:
    if kind not in _built_structs:
        hints = typing.get_type_hints(kind)
        found = [
            _field(each.name, hints[each.name], required=each.default is MISSING and each.default_factory is MISSING)
            for each in fields(kind)
        ]
        struct = msgspec.defstruct(kind.__name__, found, bases=(_Built,), kw_only=True)
        _KINDS[struct], _built_structs[kind] = kind, struct  # type: ignore[assignment]
    return _built_structs[kind]
