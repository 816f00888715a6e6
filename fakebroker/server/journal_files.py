"""Files of journals: one JSON object per line. The first line has the journal's properties, the others one call each.

Messages are objects with the fields of their version, by name. Bytes are in base64, error codes are Kafka's names.
Passwords, salts and tokens are left out: their fields are empty.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from os import PathLike
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from fakebroker.cluster.call import Boundaries, Call, CallSummary, Peer, is_error_code
from fakebroker.cluster.faults.injection import plain_fault
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.inspect.journal_queries import JournalQueries, JournalView, TopicName
from fakebroker.cluster.journal.journal import DroppedKind
from fakebroker.errors import ConfigError, ErrorCode, one_of
from fakebroker.proposals import PROPOSALS, api_of_version
from fakebroker.protocol.registry import API_BY_NAME, Api
from fakebroker.protocol.schema import Field, Struct
from fakebroker.protocol.types import BYTES, RECORDS, UUID, Primitive
from fakebroker.security.acls import ANONYMOUS
from fakebroker.validation import Count, convert, join, read_json

S = TypeVar("S", bound=Struct)
T = TypeVar("T")

_BINARY = (BYTES, RECORDS, UUID)
_SECRETS = ("auth_bytes", "hmac", "salt", "salted_password")
"""Fields with secrets of SASL, SCRAM and delegation tokens; all are bytes."""
_UNKNOWN_TAGS = "unknown_tags"
_MAX_CACHED_TYPES = 1_000
"""Maximum number of pairs of a struct and a version whose list of fields is cached."""
_Convert = Callable[[Any, int], Any]


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of a file: the attributes of `RecordedJournal`, where `brokers` are the node ids.

    `dropped_kinds` and `left_out` have the attributes of each `DroppedKind`; `only` has the filters of a part.
    """

    format: Literal[1]
    mode: Literal["full", "headers"]
    dropped: Count
    brokers: tuple[int, ...]
    dropped_kinds: tuple[DroppedKind, ...] = ()
    only: dict[str, Any] | None = None
    left_out: tuple[DroppedKind, ...] = ()


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a file after the first one: a call. `restored` and `restored_fault` validate messages and fault later.

    A new field must be added to `plain_call` and `_call`, too; without a default, files without it are rejected.
    """

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
    handled_ms: float | None
    answered_ms: float | None
    answered_after: int
    has_response: bool
    response_version: int
    errors: tuple[str, ...]
    fault: dict[str, Any] | None
    action_errors: tuple[str, ...]
    request: dict[str, Any] | None
    response: dict[str, Any] | None
    instances: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int | None], ...] = ()
    number: int = 0
    transactional_ids: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()
    proposal: str = ""
    principal: str = ANONYMOUS


class JournalExport(JournalQueries):
    """Journal queries, and export to a file. Subclasses define `view`."""

    def export(self, path: str | PathLike[str]) -> None:
        """Write the journal to a file that `read_journal` reads: JSON lines, one per request.

        Args:
            path: The file; it is overwritten if it exists.

        Raises:
            ConfigError: No journal is kept, or the path is not one.
            OSError: The file cannot be written.
        """
        _check_path(path)
        view = self.view()
        view.check_kept()
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(journal_lines(view))


class RecordedJournal(JournalExport):
    """A journal that was read from a file, with the queries and assertions of `FakeCluster`.

    Attributes:
        mode: "full"; or "headers", without messages.
        dropped: Number of calls that the journal had dropped because of its limits.
        node_ids: Node ids of the cluster's brokers.
        calls: The calls, oldest first.
    """

    def __init__(self, view: JournalView) -> None:
        self.mode, self.dropped, self.node_ids, self.calls = view.mode, view.dropped, view.node_ids, view.calls
        self._view = view

    def view(self) -> JournalView:
        return self._view


def read_journal(path: str | PathLike[str]) -> RecordedJournal:
    """Read a file that `cluster.journal.export` wrote.

    Args:
        path: The file.

    Raises:
        ConfigError: The file is not a journal; the error contains the number of the line.
        OSError: The file cannot be read.
    """
    _check_path(path)
    with open(path, "rb") as file:
        return parse_journal(file, str(path))


def _check_path(path: object) -> None:
    """Check that an argument is a path; an integer would be a file descriptor, which `open` closes."""
    if not isinstance(path, str | PathLike):
        raise ConfigError.of("path", path, "the path of a file")


def parse_journal(lines: Iterable[bytes | str], source: str) -> RecordedJournal:
    """Return the journal in the lines of a file.

    Args:
        lines: The lines.
        source: Name of the file, for errors.

    Raises:
        ConfigError: A line is malformed; the error contains its number.
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
    kinds = head.dropped_kinds or ((DroppedKind(calls=head.dropped),) if head.dropped else ())
    view = JournalView(calls, head.dropped, head.brokers, head.mode, kinds)
    return RecordedJournal(view if head.only is None else _part(view, head.only, head.left_out, f"{source}, line 1"))


def _part(view: JournalView, filters: dict[str, Any], left_out: Sequence[DroppedKind], where: str) -> JournalView:
    """Return the view of a part of a journal that has only the calls that match filters."""
    try:
        only = view.matcher(filters.pop("api", None), filters)
    except ConfigError as error:
        raise ConfigError.all_of(error.mistakes, where=where) from None
    return replace(view, only=only, left_out=left_out)


def journal_lines(view: JournalView) -> Iterator[str]:
    """Yield the lines of a journal's file, each with its line break."""
    first: dict[str, object] = {"format": 1, "mode": view.mode, "dropped": view.dropped, "brokers": view.node_ids}
    if view.dropped_kinds:
        first["dropped_kinds"] = view.dropped_kinds
    if view.only is not None:
        first |= {"only": view.only.given, "left_out": view.left_out}
    for entry in chain((first,), (plain_call(call, view.topic_name) for call in view.calls)):
        yield json.dumps(entry, separators=(",", ":")) + "\n"


def plain_call(call: Call, topic_name: TopicName) -> dict[str, object]:
    """Return a call as plain values, as in a line of a journal's file."""
    partitions = [
        (topic if isinstance(topic, str) else topic_name(topic) or topic.hex(), index)
        for topic, index in call.partitions
    ]
    return {
        "api": call.api.name,
        "version": call.api_version,
        "correlation_id": call.correlation_id,
        "client_id": call.client_id,
        "client_host": call.peer.client_host,
        "principal": call.principal,
        "connection": call.connection_id,
        "broker": call.node_id,
        "groups": call.group_ids,
        "members": call.member_ids,
        "instances": call.instance_ids,
        "partitions": partitions,
        "transactional_ids": call.transactional_ids,
        "producer_ids": call.producer_ids,
        "generations": call.generations,
        "size": call.size,
        "received_ms": call.received_ms,
        "handled_ms": call.handled_ms,
        "answered_ms": call.answered_ms,
        "answered_after": call.answered_after,
        "has_response": call.has_response,
        "response_version": call.response_version,
        "errors": [error.name for error in call.errors],
        "fault": None if call.fault is None else plain_fault(call.fault),
        "action_errors": call.action_errors,
        "request": None if call.request is None else plain(call.request, call.api_version),
        "response": None if call.response is None else plain(call.response, call.response_version),
        "number": call.number,
        **({"proposal": call.api.proposal} if _names_proposal(call) else {}),
    }


def _names_proposal(call: Call) -> bool:
    """Return whether the proposal of a call is named: not if it has added the version, which says the same."""
    return bool(call.api.proposal) and call.api is not api_of_version(API_BY_NAME[call.api.name], call.api_version)


def _api(entry: _Entry) -> Api:
    """Return the API of an entry, as Kafka or the entry's proposal defines it."""
    if entry.api not in API_BY_NAME:
        raise ConfigError.of("api", entry.api, one_of(API_BY_NAME, entry.api))
    if not entry.proposal:
        return api_of_version(API_BY_NAME[entry.api], entry.version)
    proposed = {name: {api.name: api for api in each.apis} for name, each in PROPOSALS.items()}
    apis = proposed.get(entry.proposal, {})
    if entry.api not in apis:
        known = [name for name, each in proposed.items() if entry.api in each]
        raise ConfigError.of("proposal", entry.proposal, one_of(known, entry.proposal))
    return apis[entry.api]


def restored_call(values: object) -> Call:
    """Return the call that `plain_call` converted to plain values.

    Raises:
        ConfigError: A value is malformed.
    """
    return _call(convert(values, _Entry))


def _call(entry: _Entry) -> Call:
    api, peer = _api(entry), Peer.recorded(entry.client_host, entry.connection, entry.principal)
    call = Call(peer, api, entry.version, entry.correlation_id, entry.client_id, None, entry.size)
    if entry.fault is not None:
        call.fault = restored_fault(entry.fault)
    if entry.request is not None:
        call.request = restored(api.request, entry.request, call.api_version, "request")
    call.received_ms, call.answered_ms = entry.received_ms, entry.answered_ms
    if entry.handled_ms != entry.received_ms or entry.action_errors:
        call.boundaries_or_none = Boundaries(entry.handled_ms, entry.action_errors)
    call.answered_after, call.response_version = entry.answered_after, entry.response_version
    call.number = entry.number
    call.summary = CallSummary(
        node_id=entry.broker,
        group_ids=entry.groups,
        member_ids=entry.members,
        has_response=entry.has_response,
        errors=tuple(_error_code("errors", name) for name in entry.errors),
        instance_ids=entry.instances,
        partitions=entry.partitions,
        transactional_ids=entry.transactional_ids,
        producer_ids=entry.producer_ids,
        generations=entry.generations,
    )
    if entry.response is not None:
        call.response = restored(api.response, entry.response, call.response_version, "response")
    return call


def restored_fault(values: dict[str, Any]) -> Fault:
    """Return the fault that `plain_fault` converted to plain values.

    Raises:
        ConfigError: A field is unknown, or its value is malformed.
    """
    fault = _converted(values, Fault, "fault")
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
    """Return a message, or a struct in one, as plain values: the fields of the version, by name."""
    values: dict[str, object] = {}
    for name, convert_field in _carried(type(value), version):
        held = getattr(value, name)
        values[name] = held if convert_field is None or held is None else convert_field(held, version)
    if value.unknown_tags:
        values[_UNKNOWN_TAGS] = [[tag, b64encode(data).decode()] for tag, data in value.unknown_tags]
    return values


@lru_cache(_MAX_CACHED_TYPES)
def _carried(cls: type[Struct], version: int) -> tuple[tuple[str, _Convert | None], ...]:
    """Return the names of a version's fields with their converters; None for values that are already plain."""
    return tuple((field.name, _convert(field)) for field in cls.FIELDS if version in field.versions)


def _convert(field: Field) -> _Convert | None:
    convert: _Convert
    if not isinstance(field.type, Primitive):
        convert = plain
    elif field.name in _SECRETS:
        convert = _left_out
    elif field.type in _BINARY:
        convert = _plain_bytes
    elif is_error_code(field):
        convert = _plain_error
    else:
        return None
    return (lambda held, version: [convert(each, version) for each in held]) if field.is_array else convert


def _plain_bytes(value: bytes, version: int) -> str:
    return b64encode(value).decode()


def _left_out(value: bytes, version: int) -> str:
    return ""


def _plain_error(value: int, version: int) -> str:
    return ErrorCode(value).name


def restored(cls: type[S], plain_values: dict[str, Any], version: int, path: str = "message") -> S:
    """Return the message, or struct in one, that `plain` converted to plain values.

    Args:
        cls: The type of the message.
        plain_values: The plain values, by name of the field.
        version: The version of the message.
        path: Path of the struct in the line, for errors, such as "request.topics".

    Raises:
        ConfigError: The version has other fields, or a value is malformed.
    """
    if not isinstance(plain_values, dict):
        raise ConfigError.of(path, plain_values, "a table")
    carried = {field.name: field for field in cls.FIELDS if version in field.versions}
    values = {name: value for name, value in plain_values.items() if name != _UNKNOWN_TAGS}
    if values.keys() != carried.keys():
        expected, where = ", ".join(carried), f"{path}: {cls.__name__} v{version}"
        raise ConfigError(f"{where} with {', '.join(values)}: expected {expected}", field=path, expected=expected)
    value = cls(**{name: _restored_field(carried[name], held, version, path) for name, held in values.items()})
    if _UNKNOWN_TAGS in plain_values:
        unknown = {_UNKNOWN_TAGS: plain_values[_UNKNOWN_TAGS]}
        tags = _converted(unknown, dict[str, list[tuple[int, str]]], path)[_UNKNOWN_TAGS]
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
