"""Journals as files: one JSON object per line, first the journal's properties, then one line per request.

Messages are objects with the fields that their version carries, by name: bytes in base64, error codes by Kafka's names.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from os import PathLike
from typing import Any, Literal, TypeVar

import msgspec

from fakebroker.cluster.call import Call, CallSummary, Peer, is_error_code
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.inspect.journal_queries import JournalQueries, JournalView
from fakebroker.errors import ConfigError, ErrorCode, one_of
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Field, Struct
from fakebroker.protocol.types import BYTES, RECORDS, UUID, Primitive
from fakebroker.validation import Count, convert, join, read_json

S = TypeVar("S", bound=Struct)
T = TypeVar("T")

_BINARY = (BYTES, RECORDS, UUID)
_UNKNOWN_TAGS = "unknown_tags"
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Fault)}
_SHAPES_KEPT = 1_000
_Convert = Callable[[Any, int], Any]


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line: the journal's properties."""

    format: Literal[1]
    mode: Literal["full", "headers"]
    dropped: Count
    brokers: tuple[int, ...]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """Another line: a request. Its messages and its fault are validated when they are restored."""

    api: str
    version: int
    correlation_id: int
    client_id: str
    client_host: str
    connection: int
    broker: int
    groups: tuple[str, ...]
    members: tuple[str, ...]
    size: int
    received_ms: float
    answered_ms: float | None
    answered_after: int
    has_response: bool
    response_version: int
    errors: tuple[str, ...]
    fault: dict[str, Any] | None
    request: dict[str, Any] | None
    response: dict[str, Any] | None


class JournalExport(JournalQueries):
    """A journal that can be queried and written to a file."""

    def export_journal(self, path: str | PathLike[str]) -> None:
        """Write the journal to a file that `read_journal` reads: one JSON object per line, one line per request.

        Raises:
            ConfigError: No journal is kept.
        """
        view = self.journal_view()
        view.check_kept()
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(journal_lines(view))


class RecordedJournal(JournalExport):
    """A journal that was read from a file: it has the queries and assertions of a running cluster.

    Attributes:
        mode: "full", or "headers" (no messages).
        dropped: Number of older calls that the journal had dropped.
        node_ids: Node ids of the cluster's brokers.
        calls: The calls, oldest first.
    """

    def __init__(self, view: JournalView) -> None:
        self.mode, self.dropped, self.node_ids, self.calls = view.mode, view.dropped, view.node_ids, view.calls
        self._view = view

    def journal_view(self) -> JournalView:
        return self._view


def read_journal(path: str | PathLike[str]) -> RecordedJournal:
    """Read a journal that `export_journal` wrote.

    Raises:
        ConfigError: The file is not a journal; the message names the line.
    """
    with open(path, "rb") as file:
        return parse_journal(file, str(path))


def parse_journal(lines: Iterable[bytes | str], source: str) -> RecordedJournal:
    """Read a journal from the lines of a file.

    Args:
        lines: The lines.
        source: Where they come from, for errors.

    Raises:
        ConfigError: They are not a journal; the message names the line.
    """
    head: _Head | None = None
    calls: list[Call] = []
    for number, line in enumerate(lines, 1):
        where = f"{source}, line {number}"
        if head is None:
            head = read_json(line, _Head, where=where)
            continue
        entry = read_json(line, _Entry, where=where)
        try:
            calls.append(_call(entry))
        except ConfigError as error:
            raise ConfigError.all_of(error.mistakes, where=where) from None
    if head is None:
        raise ConfigError(f"{source}: empty, expected a journal")
    return RecordedJournal(JournalView(calls, head.dropped, head.brokers, head.mode))


def journal_lines(view: JournalView) -> Iterator[str]:
    """Yield the lines of a journal's file."""
    first = {"format": 1, "mode": view.mode, "dropped": view.dropped, "brokers": view.node_ids}
    for entry in chain((first,), map(_plain_call, view.calls)):
        yield json.dumps(entry, separators=(",", ":")) + "\n"


def _plain_call(call: Call) -> dict[str, object]:
    return {
        "api": call.api.name,
        "version": call.api_version,
        "correlation_id": call.correlation_id,
        "client_id": call.client_id,
        "client_host": call.peer.client_host,
        "connection": call.connection_id,
        "broker": call.node_id,
        "groups": call.group_ids,
        "members": call.member_ids,
        "size": call.size,
        "received_ms": call.received_ms,
        "answered_ms": call.answered_ms,
        "answered_after": call.answered_after,
        "has_response": call.has_response,
        "response_version": call.response_version,
        "errors": [error.name for error in call.errors],
        "fault": None if call.fault is None else plain_fault(call.fault),
        "request": None if call.request is None else plain(call.request, call.api_version),
        "response": None if call.response is None else plain(call.response, call.response_version),
    }


def _call(entry: _Entry) -> Call:
    if entry.api not in API_BY_NAME:
        raise ConfigError.of("api", entry.api, one_of(API_BY_NAME, entry.api))
    api, peer = API_BY_NAME[entry.api], Peer.recorded(entry.client_host, entry.connection)
    call = Call(peer, api, entry.version, entry.correlation_id, entry.client_id, None, entry.size)
    if entry.fault is not None:
        call.fault = restored_fault(entry.fault)
    if entry.request is not None:
        call.request = restored(api.request, entry.request, call.api_version, "request")
    call.received_ms, call.answered_ms = entry.received_ms, entry.answered_ms
    call.answered_after, call.response_version = entry.answered_after, entry.response_version
    call.summary = CallSummary(
        node_id=entry.broker,
        group_ids=entry.groups,
        member_ids=entry.members,
        has_response=entry.has_response,
        errors=tuple(_error_code("errors", name) for name in entry.errors),
    )
    if entry.response is not None:
        call.response = restored(api.response, entry.response, call.response_version, "response")
    return call


def plain_fault(fault: Fault) -> dict[str, object]:
    """Return the fields of a fault that differ from their defaults, as plain values."""
    given = msgspec.structs.asdict(fault).items()
    made = {name: value for name, value in given if name != "error" and value != _DEFAULTS[name]}
    return made if fault.code is None else {**made, "error": fault.code.name}


def restored_fault(made: dict[str, Any]) -> Fault:
    """Return the fault that `plain_fault` converted.

    Raises:
        ConfigError: It is malformed.
    """
    fault = _converted(made, Fault, "fault")
    if isinstance(fault.error, str):
        _error_code("fault.error", fault.error)
    return fault


def _converted(value: Any, kind: type[T], path: str) -> T:
    try:
        return convert(value, kind)
    except ConfigError as error:
        raise ConfigError.all_of([mistake.within(path) for mistake in error.mistakes]) from None


def _error_code(field: str, name: object) -> ErrorCode:
    if not isinstance(name, str) or name not in ErrorCode.__members__:
        raise ConfigError.of(field, name, f"an error of Kafka, {one_of(ErrorCode.__members__, name, most=3)}")
    return ErrorCode[name]


def plain(value: Struct, version: int) -> dict[str, object]:
    """Convert a message, or a struct in it, to plain values: the fields that the version carries, by name."""
    made: dict[str, object] = {}
    for name, convert_field in _carried(type(value), version):  # type: ignore[arg-type]  # Classes are hashable, even if their instances are not.
        held = getattr(value, name)
        made[name] = held if convert_field is None or held is None else convert_field(held, version)
    if value.unknown_tags:
        made[_UNKNOWN_TAGS] = [[tag, b64encode(data).decode()] for tag, data in value.unknown_tags]
    return made


@lru_cache(_SHAPES_KEPT)
def _carried(cls: type[Struct], version: int) -> tuple[tuple[str, _Convert | None], ...]:
    """Return the names of the fields that a version carries, with their converters to plain values, if needed."""
    return tuple((field.name, _convert(field)) for field in cls.FIELDS if version in field.versions)


def _convert(field: Field) -> _Convert | None:
    convert: _Convert
    if not isinstance(field.type, Primitive):
        convert = plain
    elif field.type in _BINARY:
        convert = _plain_bytes
    elif is_error_code(field):
        convert = _plain_error
    else:
        return None
    return (lambda held, version: [convert(each, version) for each in held]) if field.is_array else convert


def _plain_bytes(value: bytes, version: int) -> str:
    return b64encode(value).decode()


def _plain_error(value: int, version: int) -> str:
    return ErrorCode(value).name


def restored(cls: type[S], made: dict[str, Any], version: int, path: str = "message") -> S:
    """Return the message, or struct, that `plain` converted.

    Args:
        cls: Its type.
        made: The plain values.
        version: The version of the message.
        path: Where it is, for errors.

    Raises:
        ConfigError: The fields are not those that the version carries, or the value of one is malformed.
    """
    if not isinstance(made, dict):
        raise ConfigError.of(path, made, "a table")
    carried = {field.name: field for field in cls.FIELDS if version in field.versions}
    values = {name: value for name, value in made.items() if name != _UNKNOWN_TAGS}
    if values.keys() != carried.keys():
        expected, where = ", ".join(carried), f"{path}: {cls.__name__} v{version}"
        raise ConfigError(f"{where} with {', '.join(values)}: expected {expected}", field=path, expected=expected)
    value = cls(**{name: _restored_field(carried[name], held, version, path) for name, held in values.items()})
    if _UNKNOWN_TAGS in made:
        tags = _converted({_UNKNOWN_TAGS: made[_UNKNOWN_TAGS]}, dict[str, list[tuple[int, str]]], path)[_UNKNOWN_TAGS]
        value.unknown_tags = tuple((tag, _bytes(data, join(path, _UNKNOWN_TAGS))) for tag, data in tags)
    return value


def _restored_field(field: Field, held: Any, version: int, path: str) -> Any:
    path = join(path, field.name)
    if held is None or not field.is_array:
        return held if held is None else _restored_value(field, held, version, path)
    if not isinstance(held, list):
        raise ConfigError.of(path, held, "a list")
    return [_restored_value(field, item, version, path) for item in held]


def _restored_value(field: Field, value: Any, version: int, path: str) -> Any:
    if not isinstance(field.type, Primitive):
        return restored(field.type, value, version, path)
    if field.type in _BINARY:
        return _bytes(value, path)
    return _error_code(path, value) if is_error_code(field) else value


def _bytes(value: Any, path: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise ConfigError.of(path, value, "base64") from None
