"""Responses that carry an error which a fault gives: made from the request, or out of a real response.

Generic over the declarations of messages; the table of places says where. Knows no fault and no cluster.
"""

import copy
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, NamedTuple

from fakebroker.cluster.faults.error_catalog import Part, Place, TopicName, bare_part, is_identity, kind_of, part_of
from fakebroker.errors import ErrorCode
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import BYTES, Primitive

_BLANKS: dict[str, object] = {"node_id": -1, "port": -1, "metadata": "", "records": b""}
"""What Kafka puts beside an error where it is neither null, empty, -1 nor the field's default."""


class Injection(NamedTuple):
    """An error for some parts of a message.

    Attributes:
        error: The error.
        place: Where it stands.
        version: The version of the API.
        named: The things that it is for, by their kinds; nothing is for all.
        topic_name: Tells a topic by its id.
    """

    error: ErrorCode
    place: Place
    version: int
    named: Part
    topic_name: TopicName

    def covers(self, part: Part) -> bool:
        """Whether it is for a part; what the part says nothing of does not matter."""
        return all(part.get(kind, name) == name for kind, name in self.named.items())

    def part_of(self, struct: Struct, outer: Part) -> Part:
        return {**outer, **part_of(struct, self.version, self.topic_name)}


def refusal(injection: Injection, response: type[Message], request: Message) -> Message:
    """The response to a request that is refused as a whole."""
    made = _refused(injection, response, request, injection.place.asked, injection.place.told)
    assert isinstance(made, Message)
    return made


def _refused(injection: Injection, cls: Any, asked: object, way: tuple[str, ...], told: tuple[str, ...]) -> Any:
    made = failed(injection, cls, asked)
    if told:
        entries = (getattr(asked, way[0]) if way else None) or ()
        element = next(field.type for field in cls.FIELDS if field.name == told[0])
        setattr(made, told[0], [_refused(injection, element, entry, way[1:], told[1:]) for entry in entries])
    return made


def failed(injection: Injection, cls: Any, source: object) -> Any:
    """A struct with the error, and of the source only what it is about."""
    return cls(
        **{
            field.name: _value(field, source, injection)
            for field in cls.FIELDS
            if injection.version in field.versions or field.default is MISSING
        }
    )


def _value(field: Field, source: object, injection: Injection) -> object:
    if field.name == "error_code":
        return injection.error
    if is_identity(field.name):
        known = _identity(field, source)
        if known is not None:
            return known
    if not isinstance(field.type, Primitive) and not field.is_array and field.default is MISSING:
        return failed(injection, field.type, source)
    if field.name in _BLANKS and field.type is not BYTES:
        return _BLANKS[field.name]
    if injection.version in field.nullable:
        return None
    is_number = isinstance(field.type, Primitive) and isinstance(field.type.zero, int) and field.type.zero is not False
    return -1 if field.default is MISSING and is_number and not field.is_array else field.default_value()


def _identity(field: Field, source: object) -> object:
    """What the source calls itself in this field: by the same name, or, of a partition, by another one."""
    if not isinstance(source, Struct):
        return source if isinstance(field.type, Primitive) and isinstance(source, type(field.type.zero)) else None
    names = [each.name for each in source.FIELDS]
    if field.name in names:
        return getattr(source, field.name)
    if kind_of(field.name) == "partition":
        return next((getattr(source, name) for name in names if kind_of(name) == "partition"), None)
    return None


def put_error(injection: Injection, response: Message) -> Message:
    """A real response, with the error in place of what it says of the parts that the error is for."""
    changed = _put(injection, response, injection.place.told, {})
    assert isinstance(changed, Message)
    return changed


def _put(injection: Injection, struct: Struct, told: tuple[str, ...], outer: Part) -> Struct:
    part = injection.part_of(struct, outer)
    if not told:
        return failed(injection, type(struct), struct) if injection.covers(part) else struct
    changed = copy.copy(struct)
    setattr(changed, told[0], [_put(injection, entry, told[1:], part) for entry in getattr(struct, told[0]) or ()])
    return changed


def split(injection: Injection, request: Message) -> tuple[Message | None, Message | None]:
    """A request in two: what the error is for, and the rest; None where there is nothing of it."""
    asked = injection.place.asked
    hit = _kept(injection, request, asked, {}, injection.covers)
    return hit, _kept(injection, request, asked, {}, lambda part: not injection.covers(part))


def _kept(injection: Injection, source: Any, asked: tuple[str, ...], outer: Part, keeps: Callable[[Part], bool]) -> Any:
    """What is left of a request when only some of its parts are kept, or None."""
    part = injection.part_of(source, outer)
    if not asked:
        return source if keeps(part) else None
    entries = []
    for entry in getattr(source, asked[0]) or ():
        if isinstance(entry, Struct):
            kept = _kept(injection, entry, asked[1:], part, keeps)
        else:
            kept = entry if keeps({**part, **bare_part(asked[0], entry)}) else None
        if kept is not None:
            entries.append(kept)
    if not entries:
        return None
    changed = copy.copy(source)
    setattr(changed, asked[0], entries)
    return changed


def merge(injection: Injection, response: Any, more: Any, told: tuple[str, ...]) -> None:
    """Add to a response what another one of the same request says."""
    entries = getattr(response, told[0])
    for entry in getattr(more, told[0]):
        part = injection.part_of(entry, {})
        twin = next((each for each in entries if told[1:] and injection.part_of(each, {}) == part), None)
        if twin is None:
            entries.append(entry)
        else:
            merge(injection, twin, entry, told[1:])
