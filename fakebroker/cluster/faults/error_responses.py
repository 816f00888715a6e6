"""Responses with an injected error, built from the request or by changing a real response.

Works for all APIs, by their message declarations and `error_catalog.PLACES`.
"""

import copy
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, NamedTuple

from fakebroker.cluster.faults.error_catalog import (
    MESSAGES,
    Part,
    Place,
    TopicName,
    bare_part,
    has_names,
    is_identity,
    kind_of,
    part_of,
)
from fakebroker.errors import ErrorCode
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import BYTES, Primitive

ERROR_FIELDS = ("error_code", "partition_error_code")
"""The names of the fields with error codes."""

_BLANKS: dict[str, object] = {"node_id": -1, "port": -1, "metadata": "", "records": b""}
"""Values of fields in responses with an error, where Kafka uses another value than null, -1 or the default."""


class InjectedError(NamedTuple):
    """An error for all or some parts of a request.

    Attributes:
        code: The error.
        place: Its place in the messages.
        version: The version of the API.
        named: The names that a part must have to get the error; all parts get it if empty.
        topic_name: Returns the name of a topic by its id.
    """

    code: ErrorCode
    place: Place
    version: int
    named: Part
    topic_name: TopicName

    def covers(self, part: Part) -> bool:
        """Return whether a part gets the error."""
        return has_names(part, self.named)

    def part_of(self, struct: Struct, outer: Part) -> Part:
        return {**outer, **part_of(struct, self.version, self.topic_name)}


def refusal(error: InjectedError, response: type[Message], request: Message) -> Message:
    """Build the response to a request all of whose parts get the error."""
    made = _refused(error, response, request, error.place.request_path, error.place.response_path)
    assert isinstance(made, Message)
    return made


def _refused(
    error: InjectedError, cls: Any, source: object, request_path: tuple[str, ...], path: tuple[str, ...]
) -> Any:
    made = error_struct(error, cls, source)
    if path:
        entries = (getattr(source, request_path[0]) if request_path else None) or ()
        element = next(field.type for field in cls.FIELDS if field.name == path[0])
        setattr(made, path[0], [_refused(error, element, entry, request_path[1:], path[1:]) for entry in entries])
    return made


def error_struct(error: InjectedError, cls: Any, source: object) -> Any:
    """Build a struct of a response with the error, and with the names in a source: a struct or a plain value."""
    return cls(
        **{
            field.name: _value(field, source, error)
            for field in cls.FIELDS
            if error.version in field.versions or field.default is MISSING
        }
    )


def _value(field: Field, source: object, error: InjectedError) -> object:
    if field.name in ERROR_FIELDS:
        return error.code
    if field.name == "error_message" and error.place.has_messages:
        return MESSAGES[error.code]
    if is_identity(field.name):
        known = _identity(field, source)
        if known is not None:
            return known
    if not isinstance(field.type, Primitive) and not field.is_array and field.default is MISSING:
        return error_struct(error, field.type, source)
    if field.name in _BLANKS and field.type is not BYTES:
        return _BLANKS[field.name]
    if error.version in field.nullable:
        return None
    is_number = isinstance(field.type, Primitive) and isinstance(field.type.zero, int) and field.type.zero is not False
    return -1 if field.default is MISSING and is_number and not field.is_array else field.default_value()


def _identity(field: Field, source: object) -> object:
    """Return the value in the source of the same field or, for a partition, of the field with the partition index."""
    if not isinstance(source, Struct):
        return source if isinstance(field.type, Primitive) and isinstance(source, type(field.type.zero)) else None
    names = [each.name for each in source.FIELDS]
    if field.name in names:
        return getattr(source, field.name)
    if field.name == "user" and "name" in names:
        return getattr(source, "name")  # noqa: B009  # SCRAM credentials
    if kind_of(field.name) == "partition":
        return next((getattr(source, name) for name in names if kind_of(name) == "partition"), None)
    return None


def put_error(error: InjectedError, response: Message) -> Message:
    """Return a copy of a real response in which the covered parts have the error."""
    changed = _put(error, response, error.place.response_path, {})
    assert isinstance(changed, Message)
    return changed


def _put(error: InjectedError, struct: Struct, path: tuple[str, ...], outer: Part) -> Struct:
    part = error.part_of(struct, outer)
    if not path:
        return error_struct(error, type(struct), struct) if error.covers(part) else struct
    changed = copy.copy(struct)
    setattr(changed, path[0], [_put(error, entry, path[1:], part) for entry in getattr(struct, path[0]) or ()])
    return changed


def split(error: InjectedError, request: Message) -> tuple[Message | None, Message | None]:
    """Split a request into one with the parts that get the error, and one with the others; None if it has no parts."""
    path = error.place.request_path
    covered = _kept(error, request, path, {}, error.covers)
    return covered, _kept(error, request, path, {}, lambda part: not error.covers(part))


def _kept(error: InjectedError, source: Any, path: tuple[str, ...], outer: Part, keeps: Callable[[Part], bool]) -> Any:
    """Return a copy of a request with only the parts that `keeps` selects; None if it selects no part."""
    part = error.part_of(source, outer)
    if not path:
        return source if keeps(part) else None
    entries = []
    for entry in getattr(source, path[0]) or ():
        if isinstance(entry, Struct):
            kept = _kept(error, entry, path[1:], part, keeps)
        else:
            kept = entry if keeps({**part, **bare_part(path[0], entry)}) else None
        if kept is not None:
            entries.append(kept)
    if not entries:
        return None
    changed = copy.copy(source)
    setattr(changed, path[0], entries)
    return changed


def merge(error: InjectedError, response: Any, more: Any, path: tuple[str, ...]) -> None:
    """Add the entries of another response to `response`. Entries with the same names are merged."""
    entries = getattr(response, path[0])
    for entry in getattr(more, path[0]):
        part = error.part_of(entry, {})
        twin = next((each for each in entries if path[1:] and error.part_of(each, {}) == part), None)
        if twin is None:
            entries.append(entry)
        else:
            merge(error, twin, entry, path[1:])


def restore_order(error: InjectedError, request: Any, response: Any) -> None:
    """Put the entries of a merged response in the order of the request. Entries that it does not name are last."""
    _restore_order(error, request, error.place.request_path, response, error.place.response_path)


def _restore_order(
    error: InjectedError, source: Any, request_path: tuple[str, ...], response: Any, path: tuple[str, ...]
) -> None:
    if not path or not request_path:
        return
    left = list(getattr(response, path[0]))
    ordered = []
    for entry in getattr(source, request_path[0]) or ():
        part = error.part_of(entry, {}) if isinstance(entry, Struct) else bare_part(request_path[0], entry)
        answer = next((each for each in left if _is_about(error.part_of(each, {}), part)), None)
        if answer is not None:
            left = [each for each in left if each is not answer]
            _restore_order(error, entry, request_path[1:], answer, path[1:])
            ordered.append(answer)
    setattr(response, path[0], ordered + left)


def _is_about(answer: Part, requested: Part) -> bool:
    """Return whether an entry of a response has the names of an entry of the request."""
    common = answer.keys() & requested.keys()
    return bool(common) and all(answer[kind] == requested[kind] for kind in common)
