"""Declaration of messages: one class for all versions of a message, with the versions of each field.

    class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: String | None = field(versions="3+", default=None)

Each class is a msgspec struct. `codec.py` compiles declarations. Names, versions and defaults are from Kafka's message
definitions (`clients/src/main/resources/common/message`).
"""

import sys
import types
import typing
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

import msgspec

from fakebroker.protocol.types import UUID, Primitive

S = TypeVar("S", bound="Struct")


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


class Field(msgspec.Struct, frozen=True):
    """One field of a struct, derived from its declaration."""

    name: str
    type: "WireType"
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


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the annotations in the body of a class, which Python 3.14 evaluates when asked (PEP 649)."""
    annotate = namespace.pop("__annotate_func__", None)
    if annotate is not None:
        namespace["__annotations__"] = annotate(1)  # 1 is `annotationlib.Format.VALUE`.
    return cast("dict[str, Any]", namespace.setdefault("__annotations__", {}))


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


class _Declaration(msgspec.StructMeta):
    """The class of structs and messages. It keeps their declarations in `FIELDS`, in the order on the wire."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: str | None = None,
        flexible: str = "none",
        api_key: int = -1,
        **options: Any,
    ) -> Any:
        annotations = _annotations(namespace)
        if "FIELDS" not in annotations:
            fields = tuple(_field(each, kind, namespace.pop(each, MISSING)) for each, kind in annotations.items())
            namespace["FIELDS"] = fields
            # A struct of msgspec takes its required fields first.
            namespace["__annotations__"] = {
                each.name: Any for is_required in (True, False) for each in fields if each.is_required is is_required
            }
            for each in fields:
                if not each.is_required:
                    is_made = each.default is MISSING
                    default = msgspec.field(default_factory=each.default_value) if is_made else each.default
                    namespace[each.name] = default
        if versions is not None:
            namespace["API_KEY"] = api_key
            namespace["VERSIONS"], namespace["FLEXIBLE"] = Versions.parse(versions), Versions.parse(flexible)
        return super().__new__(cls, name, bases, namespace, **options)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct(msgspec.Struct, metaclass=_Declaration, kw_only=True):
    """Base class of messages and of the structs nested in them.

    Attributes:
        unknown_tags: Tagged fields that are not declared, as (tag, bytes). They are decoded and encoded unchanged.
    """

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    unknown_tags: tuple[tuple[int, bytes], ...] = ()

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

        def __init_subclass__(cls, *, versions: str = "", flexible: str = "none", api_key: int = -1) -> None: ...

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in self.FIELDS)
        return f"{type(self).__qualname__}({', '.join(shown)})"


class Message(Struct):
    """Base class of everything with versions: requests, responses, keys and values of `__consumer_offsets`.

    A subclass is declared with these arguments:

    - `versions`: the versions that can be decoded and encoded, such as `0-4`;
    - `flexible`: the versions with compact lengths and tagged fields (KIP-482), such as `4+`, or `none`;
    - `api_key`: the key of the API, for requests and responses.
    """

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[Versions] = NO_VERSIONS
    FLEXIBLE: ClassVar[Versions] = NO_VERSIONS


WireType = Primitive | type[Struct]


def replaced(original: S, /, **changes: Any) -> S:
    """Return a copy of a message, or of a nested struct, with other values of some fields. Lists are not copied."""
    return msgspec.structs.replace(original, **changes)
