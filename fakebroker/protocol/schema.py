"""Declaration of messages: one class for all versions of a message, with the versions of each field.

`codec.py` compiles declarations. Names, versions and defaults are those of Kafka's message definitions
(`clients/src/main/resources/common/message`).
"""

import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

import msgspec

from fakebroker.protocol.types import UUID, Primitive

S = TypeVar("S", bound="Struct")
T = TypeVar("T")


class Versions(msgspec.Struct, frozen=True):
    """An inclusive range of versions, possibly empty."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Parse Kafka's notation: `0-4`, `3+`, `2` or `none`."""
        if text == "none":
            return NO_VERSIONS
        first, dash, last = text.partition("-")
        if dash:
            return cls(int(first), int(last))
        return cls(int(first[:-1]), sys.maxsize) if first.endswith("+") else cls(int(first), int(first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __iter__(self) -> typing.Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


NO_VERSIONS = Versions(0, -1)


class Struct:
    """Base class of messages and of the structs nested in them.

    Declaring a class has to be cheap, because about 90 are declared at each start. Therefore comparison and
    representation are defined once, and the initializer of a class is compiled when its first object is created.
    """

    __slots__ = ()
    FIELDS: ClassVar["tuple[Field, ...]"] = ()
    VALUES: ClassVar["attrgetter[tuple[Any, ...]]"]
    """Returns the values of all fields of a struct, and `unknown_tags`."""
    if typing.TYPE_CHECKING:
        # Tagged fields that are not declared, as (tag, bytes). They are decoded and encoded unchanged.
        unknown_tags: tuple[tuple[int, bytes], ...]

        def __init__(self, **values: Any) -> None: ...
    else:

        def __init__(self, **values: Any) -> None:
            cls = type(self)
            cls.__init__ = _initializer(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values = self.VALUES
        return values(self) == values(other)

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in self.FIELDS)
        return f"{type(self).__qualname__}({', '.join(shown)})"


class Message(Struct):
    """Base class of everything with versions: requests, responses, keys and values of `__consumer_offsets`."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[Versions] = NO_VERSIONS
    FLEXIBLE: ClassVar[Versions] = NO_VERSIONS


WireType = Primitive | type[Struct]


class Field(msgspec.Struct, frozen=True):
    """One field of a struct, derived from its declaration."""

    name: str
    type: WireType
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    is_required: bool
    """Whether the initializer of the struct needs a value."""
    default: object

    def default_value(self) -> Any:
        """Return the value of the field in versions that lack it; a new object if it is mutable."""
        if self.default is not MISSING:
            return self.default
        if self.is_array:
            return []
        return self.type.zero if isinstance(self.type, Primitive) else self.type()


def field(
    *,
    versions: str = "0+",
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    default: Any = MISSING,
    default_factory: Any = MISSING,
) -> Any:
    """Declare a field of a message.

    Args:
        versions: The versions that have the field. In other versions it is decoded as its default.
        nullable: The versions in which it can be null; by default all versions if the type is `... | None`, else none.
        tag: The tag of a tagged field (KIP-482).
        ignorable: Whether its value is dropped when a version without the field is encoded. Otherwise encoding fails
            unless the value is the default.
        default: Its default value.
        default_factory: Returns its default value, for lists and structs.
    """
    return _Declared(
        versions=versions,
        nullable=nullable,
        tag=tag,
        ignorable=ignorable,
        default=default,
        default_factory=default_factory,
    )


class _Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `field`."""

    versions: str = "0+"
    nullable: str | None = None
    tag: int | None = None
    ignorable: bool = False
    default: Any = MISSING
    default_factory: Any = MISSING


def replaced(original: S, /, **changes: Any) -> S:
    """Return a copy of a message, or of a nested struct, with other values of some fields. Lists are not copied."""
    values = {field.name: getattr(original, field.name) for field in original.FIELDS}
    return type(original)(**{**values, "unknown_tags": original.unknown_tags, **changes})


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Decorate the declaration of a struct that can be nested in messages."""
    return _declare(cls, {})


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(*, versions: str, flexible: str, api_key: int = -1) -> Callable[[type[T]], type[T]]:
    """Decorate the declaration of a message.

    Args:
        versions: The versions that can be decoded and encoded, such as `0-4`.
        flexible: The versions with compact lengths and tagged fields (KIP-482), such as `4+`, or `none`.
        api_key: The key of the API, for requests and responses.
    """
    members = {"API_KEY": api_key, "VERSIONS": Versions.parse(versions), "FLEXIBLE": Versions.parse(flexible)}
    return lambda cls: _declare(cls, members)


def _declare(cls: type[T], members: dict[str, Any]) -> type[T]:
    """Return a class with a slot for each field: slots cannot be added to a class that exists."""
    declared = {
        name: (annotation, cls.__dict__.get(name, MISSING)) for name, annotation in inspect.get_annotations(cls).items()
    }
    names = (*declared, "unknown_tags")
    kept = {name: value for name, value in cls.__dict__.items() if name not in (*names, "__dict__", "__weakref__")}
    fields = tuple(_field(name, annotation, value) for name, (annotation, value) in declared.items())
    made = {"__slots__": names, "FIELDS": fields, "VALUES": attrgetter(*names)}
    metaclass: Any = type(cls)
    return cast("type[T]", metaclass(cls.__name__, cls.__bases__, {**kept, **members, **made}))


def _initializer(cls: type[Struct]) -> Any:
    """Compile the method `__init__`, which takes a keyword argument for each field."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = [], []
    for field in cls.FIELDS:
        name, default = field.name, f"default_of_{field.name}"
        if field.is_required:
            parameters.append(name)
        elif field.default is not MISSING:
            scope[default] = field.default
            parameters.append(f"{name}={default}")
        else:
            scope[default] = field.default_value
            parameters.append(f"{name}=MISSING")
            lines.append(f"if {name} is MISSING: {name} = {default}()")
        lines.append(f"self.{name} = {name}")
    source = [
        f"def __init__(self, *, {', '.join([*parameters, 'unknown_tags=()'])}):",
        *lines,
        "self.unknown_tags = unknown_tags",
    ]
    exec("\n    ".join(source), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _field(name: str, annotation: Any, value: Any) -> Field:
    spec = value if isinstance(value, _Declared) else _Declared(default=value)
    annotation, optional = _without_none(annotation)
    is_array = typing.get_origin(annotation) is list
    element = typing.get_args(annotation)[0] if is_array else annotation
    wire = element.__metadata__[0] if hasattr(element, "__metadata__") else element
    if not isinstance(wire, Primitive) and not (isinstance(wire, type) and issubclass(wire, Struct)):
        raise TypeError(f"field {name}: {annotation!r} is not a wire type")
    if is_array and wire is UUID:
        raise TypeError(f"field {name}: arrays of UUIDs are not supported")
    nullable = spec.nullable or ("0+" if optional else "none")
    return Field(
        name=name,
        type=wire,
        is_array=is_array,
        versions=Versions.parse(spec.versions),
        nullable=Versions.parse(nullable),
        tag=spec.tag,
        ignorable=spec.ignorable,
        is_required=spec.default is MISSING and spec.default_factory is MISSING,
        default=spec.default,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    return next(part for part in typing.get_args(annotation) if part is not type(None)), True
