"""Finds the numbers in signatures and types, and makes arguments with invalid ones: NaN, infinite, negative."""

import inspect
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

NOT_FINITE = (math.nan, math.inf, -math.inf)
NEGATIVE = -5
INVALID = (*NOT_FINITE, NEGATIVE)

EXAMPLE_KEYS = {"api_versions": "Fetch", "offsets": "orders-0", "lag": "orders-0", "assignment": "app"}
"""Keys of arguments that are mappings, by argument."""


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the parameters of a function by name, those of `**options: Unpack[...]` included."""
    hints = typing.get_type_hints(function, include_extras=True)
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            if hints[name] is Any:
                continue
            found |= typing.get_type_hints(typing.get_args(hints[name])[0], include_extras=True)
        elif name in hints:
            found[name] = hints[name]
    return found


def fields_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of the fields of a struct by name."""
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def with_invalid(kind: Any, number: float, key: str = "orders") -> Iterator[Any]:
    """Yield a value of a type for each number in it, with an invalid one in its place. Structs are not entered.

    Args:
        kind: The type.
        number: The invalid number.
        key: The key in mappings.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in (int, float):
        yield number
    elif origin is Annotated:
        yield from with_invalid(arguments[0], number, key)
    elif origin in (typing.Union, types.UnionType):
        for each in arguments:
            yield from with_invalid(each, number, key)
    elif origin is tuple and arguments[1:] != (Ellipsis,):
        for index, each in enumerate(arguments):
            for value in with_invalid(each, number, key):
                yield tuple(value if index == place else _example(one) for place, one in enumerate(arguments))
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        for value in with_invalid(arguments[1], number, key):
            yield {_example(arguments[0]) if typing.get_origin(arguments[0]) is tuple else key: value}
        for invalid_key in with_invalid(arguments[0], number, key):
            yield {invalid_key: _example(arguments[1])}
    elif isinstance(origin, type) and issubclass(origin, Collection | Iterable):
        for value in with_invalid(arguments[0], number, key):
            yield [value]


def structs_of(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs in a type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for each in typing.get_args(kind):
        yield from structs_of(each)


def _example(kind: Any) -> Any:
    if str in typing.get_args(kind) and typing.get_origin(kind) is tuple:
        return tuple(_example(each) for each in typing.get_args(kind))
    return "orders" if kind is str else 5


def invalid_arguments(
    kinds: Mapping[str, Any], allowed: Mapping[str, str] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each argument that has a number, with arguments in which the number is invalid.

    Args:
        kinds: The types of the arguments by name.
        allowed: Names of arguments that may be negative, with the reasons.
    """
    for name, kind in kinds.items():
        for number in INVALID:
            if number == NEGATIVE and name in (allowed or {}):
                continue
            for value in with_invalid(kind, number, EXAMPLE_KEYS.get(name, "orders")):
                yield name, {name: value}
