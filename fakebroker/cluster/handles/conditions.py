"""Conditions of a cluster as values: built without a cluster, shown in errors, composed, and sent as JSON.

`cluster.group("billing").stable(members=2) & cluster.topic("dlq").has(1)` is one moment in which both hold. The
conditions themselves are methods of the handles, such as `GroupHandle.stable`. Does not depend on waiting.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, Generic, NamedTuple, NoReturn, ParamSpec, TypeVar, cast

from fakebroker.cluster.handles.definition import CONVERTERS, DEFINITIONS, Definition, Handle, key_of, wrapped
from fakebroker.cluster.handles.local import Instant
from fakebroker.errors import ConfigError, one_of, shown
from fakebroker.validation import convert, plain

H = TypeVar("H", bound=Handle)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DEFAULT_TIMEOUT_S = 10.0
"""Maximum wait for a condition, in wall-clock seconds."""

CONDITION_IS = "is"
"""The key of a condition's name in JSON, such as `{"is": "group.stable", "group_id": "billing"}`."""


class Found(NamedTuple):
    """What a condition that holds has found."""

    value: Any


class Condition(Generic[T_co]):
    """A condition of a cluster. `a & b`: both hold in one moment. `a | b`: one of them. `~a`: it does not hold."""

    def __and__(self, other: "Condition[Any]") -> "Condition[tuple[Any, ...]]":
        return All((*_parts(self), *_parts(_checked(other))))

    def __or__(self, other: "Condition[Any]") -> "Condition[None]":
        return AnyOf((self, _checked(other)))

    def __invert__(self) -> "Condition[None]":
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"a condition is neither true nor false ({self}): expected cluster.holds(condition) to look once, or "
            "cluster.wait(condition); combine conditions with &, | and ~"
        )

    def leaves(self) -> "Iterator[Leaf]":
        """Yield the conditions that it is composed of."""
        raise NotImplementedError

    def evaluate(self, find: "Find") -> Found | None:
        """Return what the condition has found, given what its leaves find; None if it does not hold."""
        raise NotImplementedError

    def plain(self) -> dict[str, Any]:
        """Return the condition as JSON.

        Raises:
            ConfigError: It has a predicate, which cannot be sent.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self}>"


class HandleCondition(Condition[T_co]):
    """A condition of a handle.

    Args:
        definition: Its declaration.
        key: The key of the handle.
        arguments: The arguments that were given.
    """

    def __init__(self, definition: Definition, key: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        self.definition = definition
        self.key = dict(key)
        self.arguments = dict(arguments)

    def leaves(self) -> "Iterator[Leaf]":
        yield self

    def evaluate(self, find: "Find") -> Found | None:
        return find(self)

    def found(self, at: "Instant") -> Found | None:
        """Return what the condition finds at a moment; None if it does not hold. Runs in the cluster's thread."""
        at.condition = self
        found = self.definition.method(self.definition.of(at.local, self.key), at, **self.arguments)
        return None if found is None else Found(found)

    def plain(self) -> dict[str, Any]:
        arguments = {name: getattr(value, "name", value) for name, value in self.arguments.items() if value is not None}
        return {CONDITION_IS: self.definition.name, **self.key, **arguments}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HandleCondition) and self.plain() == other.plain()

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={shown(value)}" for name, value in self.arguments.items() if value is not None)
        return f"{_named(self.definition, self.key)}{self.definition.method.__name__}({arguments})"


class All(Condition[tuple[Any, ...]]):
    """All parts hold in one moment. It finds what the parts find, as a flat tuple."""

    def __init__(self, parts: Sequence[Condition[Any]]) -> None:
        self.parts = tuple(parts)

    def leaves(self) -> "Iterator[Leaf]":
        for part in self.parts:
            yield from part.leaves()

    def evaluate(self, find: "Find") -> Found | None:
        # All of them, because `requested` counts the requests that it has seen.
        found = [part.evaluate(find) for part in self.parts]
        return None if None in found else Found(tuple(each.value for each in found if each is not None))

    def plain(self) -> dict[str, Any]:
        return {"all": [part.plain() for part in self.parts]}

    def __str__(self) -> str:
        return " & ".join(f"({part})" if isinstance(part, AnyOf) else str(part) for part in self.parts)


class AnyOf(Condition[None]):
    """One of the parts holds."""

    def __init__(self, parts: Sequence[Condition[Any]]) -> None:
        self.parts = tuple(parts)

    def leaves(self) -> "Iterator[Leaf]":
        for part in self.parts:
            yield from part.leaves()

    def evaluate(self, find: "Find") -> Found | None:
        # All of them, as in `All`.
        found = [part.evaluate(find) for part in self.parts]
        return Found(None) if any(each is not None for each in found) else None

    def plain(self) -> dict[str, Any]:
        return {"any": [part.plain() for part in self.parts]}

    def __str__(self) -> str:
        return " | ".join(map(str, self.parts))


class Not(Condition[None]):
    """The other condition does not hold."""

    def __init__(self, other: Condition[Any]) -> None:
        self.other = other

    def leaves(self) -> "Iterator[Leaf]":
        yield from self.other.leaves()

    def evaluate(self, find: "Find") -> Found | None:
        return Found(None) if self.other.evaluate(find) is None else None

    def plain(self) -> dict[str, Any]:
        return {"not": self.other.plain()}

    def __str__(self) -> str:
        return f"~({self.other})" if isinstance(self.other, All | AnyOf) else f"~{self.other}"


class Predicate(Condition[T_co]):
    """A function of the application returns a true value; see `predicate`.

    Args:
        what: Describes it in errors.
        function: A function without arguments.
    """

    def __init__(self, what: str, function: Callable[[], T_co | None]) -> None:
        self.what = what
        self.function = function

    def leaves(self) -> "Iterator[Leaf]":
        yield self

    def evaluate(self, find: "Find") -> Found | None:
        return find(self)

    def found(self) -> Found | None:
        """Return what the function returns; None if that is not true."""
        value = self.function()
        return Found(value) if value else None

    def plain(self) -> dict[str, Any]:
        raise _not_sent(self)

    def __str__(self) -> str:
        return self.what


Leaf = HandleCondition[Any] | Predicate[Any]
"""A condition that is not composed of others."""

Find = Callable[[Leaf], Found | None]


def predicate(what: str, function: Callable[[], T | None]) -> Condition[T]:
    """Return the condition that a function returns a true value: `predicate("the stock is empty", stock.is_empty)`.

    The function runs in the thread that waits. It is called after each change of the cluster, every 20 ms without
    changes, and once at the deadline. It may look at anything, such as an application, a database, or the cluster.
    It must not block.

    Args:
        what: Describes the condition in errors.
        function: A function without arguments. Its exceptions end the wait.

    Raises:
        ConfigError: An argument has another type.
    """
    if not isinstance(what, str):
        raise ConfigError.of("what", what, "a string")
    if not callable(function):
        raise ConfigError.of("function", function, "a function without arguments")
    return Predicate(what, function)


def _not_sent(predicate: Predicate[Any]) -> ConfigError:
    return ConfigError.of("condition", predicate.what, "a condition without predicates, which cannot be sent")


def has_predicates(condition: Condition[Any]) -> bool:
    """Return whether a condition is a predicate, or a part of it is one."""
    return any(isinstance(each, Predicate) for each in condition.leaves())


def handle_conditions(condition: Condition[Any]) -> list[HandleCondition[Any]]:
    """Return the conditions of handles that a condition is composed of: all but its predicates."""
    return [each for each in condition.leaves() if isinstance(each, HandleCondition)]


def found_at(condition: Condition[Any], at: Instant) -> Found | None:
    """Return what a condition without predicates finds at a moment; None if it does not hold.

    Must run in the cluster's thread.

    Raises:
        ConfigError: The condition has a predicate.
    """

    def find(leaf: Leaf) -> Found | None:
        if isinstance(leaf, Predicate):
            raise _not_sent(leaf)
        return leaf.found(at)

    return condition.evaluate(find)


def condition_of(value: object) -> Condition[Any]:
    """Return a condition: itself, or what its JSON describes.

    Raises:
        ConfigError: The value is not a condition.
    """
    if isinstance(value, Condition):
        return value
    if isinstance(value, Mapping) and len(value) == 1:
        kind, parts = next(iter(value.items()))
        if kind in ("all", "any") and isinstance(parts, list | tuple) and parts:
            found = [condition_of(part) for part in parts]
            return All([each for part in found for each in _parts(part)]) if kind == "all" else AnyOf(found)
        if kind == "not":
            return Not(condition_of(parts))
    known = {name: each for name, each in sorted(DEFINITIONS.items()) if each.kind == "condition"}
    if not isinstance(value, Mapping) or CONDITION_IS not in value:
        expected = (
            f"a condition such as {{'{CONDITION_IS}': 'group.stable', 'group_id': 'g'}}, or {{'all': [...]}}, "
            "{'any': [...]} or {'not': ...} of conditions"
        )
        raise ConfigError.of("condition", value, expected)
    name = value[CONDITION_IS]
    if not isinstance(name, str) or name not in known:
        raise ConfigError.of(f"condition.{CONDITION_IS}", name, one_of(known, name))
    definition = known[name]
    given = {field: each for field, each in value.items() if field != CONDITION_IS}
    valid = convert(plain(given), definition.event, where="condition").given()
    key = {each: valid.pop(each) for each in definition.keys}
    return HandleCondition(definition, key, definition.checked(valid))


def _named(definition: Definition, key: Mapping[str, Any]) -> str:
    """Return the handle of a condition as its caller has written it, such as `group('billing').`."""
    kind = definition.thing
    if kind == "partition":
        return f"topic({key['topic']!r}).partition({key['partition']})."
    return f"{kind}({', '.join(map(repr, key.values()))})." if kind else ""


CONVERTERS["condition"] = condition_of


def condition(
    check: Callable[..., object] | None = None, *, after_requests: bool = False
) -> Callable[[Callable[Concatenate[H, Instant, P], R | None]], Callable[Concatenate[H, P], Condition[R]]]:
    """Declare a condition. The method gets a moment, and returns its finding. It returns None if the condition does
    not hold.

    Calling it returns a `Condition`, which does not touch the cluster.

    Args:
        check: Called with the arguments when the condition is built; raises ConfigError if they are invalid.
        after_requests: Whether to evaluate the condition after each request, not only after changes.
    """

    def declare(
        method: Callable[Concatenate[H, Instant, P], R | None],
    ) -> Callable[Concatenate[H, P], Condition[R]]:
        definition = Definition("condition", method, check=check, after_requests=after_requests)

        def run(self: H, *args: P.args, **kwargs: P.kwargs) -> Any:
            return HandleCondition(definition, key_of(self), definition.bound(args, kwargs))

        return cast(Callable[Concatenate[H, P], Condition[R]], wrapped(definition, run))

    return declare


def _parts(condition: Condition[Any]) -> Sequence[Condition[Any]]:
    return condition.parts if isinstance(condition, All) else [condition]


def _checked(other: object) -> Condition[Any]:
    if not isinstance(other, Condition):
        raise ConfigError.of("condition", other, "a condition, such as group.stable(), or predicate(what, function)")
    return other
