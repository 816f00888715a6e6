"""Converts JSON of the control API to views, and seeds and options to JSON."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import quote

import msgspec

from fakebroker.cluster.commands.definition import check_type
from fakebroker.cluster.inspect.deadlines import Deadline
from fakebroker.cluster.inspect.timelines import Timeline, TransactionTimeline
from fakebroker.cluster.inspect.transaction_views import AwaitedMarker, TransactionView
from fakebroker.cluster.inspect.views import (
    AwaitedPartition,
    BrokerView,
    GroupView,
    MemberView,
    PendingOffsetView,
    RecordView,
)
from fakebroker.cluster.seeding.seed import GroupSeed
from fakebroker.coordinator.group_history import MemberChange, Moment, Timer
from fakebroker.coordinator.history import DroppedMoments
from fakebroker.coordinator.transaction.history import TransactionMoment
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import format_partitions, is_partition, parse_partition
from fakebroker.validation import data_bytes


def group_path(group_id: str) -> str:
    """Return the path of a group below its cluster's.

    Raises:
        ConfigError: The id is not a string.
    """
    check_type("group_id", group_id, str, "a string")
    return f"groups/{_escaped(group_id)}"


def transaction_path(transactional_id: str) -> str:
    """Return the path of a transactional id below its cluster's.

    Raises:
        ConfigError: The id is not a string.
    """
    check_type("transactional_id", transactional_id, str, "a string")
    return f"transactions/{_escaped(transactional_id)}"


def _escaped(text: str) -> str:
    """Return an id as a segment of a path; see `fakebroker.control.routes.arguments.ANY_TEXT`."""
    escaped = text.replace("~", "~7E")
    return quote(escaped.replace(".", "~2E") if escaped in (".", "..") else escaped, safe="")


def transaction_view(row: Mapping[str, Any], history: TransactionTimeline) -> TransactionView:
    """Convert a `TransactionRow`."""
    values = {field.name: row[field.name] for field in fields(TransactionView) if field.name != "history"}
    values["partitions"] = tuple(map(parse_partition, row["partitions"]))
    values["awaited_markers"] = tuple(
        AwaitedMarker(parse_partition(each["partition"]), each["reason"]) for each in row["awaited_markers"]
    )
    return TransactionView(**values, history=history)


def transaction_timeline_of(transactional_id: str, row: Mapping[str, Any]) -> TransactionTimeline:
    """Convert a `TransactionTimelineView` or a `TransactionDetail`."""
    moments = (
        TransactionMoment(**{**each, "partitions": tuple(map(parse_partition, each["partitions"]))})
        for each in row["moments"]
    )
    return TransactionTimeline(transactional_id, tuple(moments), row["taken_ms"], DroppedMoments(**row["dropped"]))


def broker_view(row: Mapping[str, Any]) -> BrokerView:
    """Convert a `BrokerRow`."""
    return BrokerView(row["node_id"], row["host"], row["port"], row["up"], row["rack"])


def group_view(detail: Mapping[str, Any], history: Timeline) -> GroupView:
    """Convert a `GroupDetail` or a `FullGroup`."""
    members = tuple(map(_member_view, detail["members"]))
    names = (
        "group_id",
        "type",
        "state",
        "generation_id",
        "assignment_epoch",
        "protocol_type",
        "protocol_name",
        "leader_id",
    )
    pending = tuple(PendingOffsetView(**row) for row in detail["pending_offsets"])
    values = {name: detail[name] for name in names}
    return GroupView(**values, members=members, history=history, pending_offsets=pending)


def _member_view(row: Mapping[str, Any]) -> MemberView:
    values = {field.name: row[field.name] for field in msgspec.structs.fields(MemberView)}
    decoded: dict[str, Any] = {name: b64decode(values[name]) for name in ("assignment", "metadata")}
    decoded |= {name: tuple(map(parse_partition, values[name])) for name in ("pending_revocation", "target")}
    return MemberView(**values | decoded | {"awaited": tuple(AwaitedPartition(**each) for each in values["awaited"])})


def timeline_of(row: Mapping[str, Any], taken_ms: float) -> Timeline:
    """Convert a `TimelineView` or a `FullGroup` to the timeline at a time."""
    return Timeline(row["group_id"], tuple(map(_moment, row["moments"])), taken_ms, DroppedMoments(**row["dropped"]))


def _moment(row: dict[str, Any]) -> Moment:
    timers = tuple(Timer(**timer) for timer in row.pop("timers"))
    changes = tuple(
        MemberChange(**{name: _frozen(value) for name, value in each.items()}) for each in row.pop("changes")
    )
    return Moment(**{name: _frozen(value) for name, value in row.items()}, timers=timers, changes=changes)


def record_view(topic: str, row: Mapping[str, Any]) -> RecordView:
    """Convert a `RecordRow`."""
    return RecordView(
        topic,
        row["partition"],
        row["offset"],
        row["timestamp"],
        _data(row["key"]),
        _data(row["value"]),
        tuple((name, _data(value)) for name, value in row["headers"]),
    )


def _data(data: str | Mapping[str, str] | None) -> bytes | None:
    """Convert a key or value of a record; see `fakebroker.validation.json_data`."""
    return b64decode(data["base64"]) if isinstance(data, Mapping) else data_bytes(data)


def deadline(row: dict[str, Any]) -> Deadline:
    """Convert a deadline."""
    return Deadline(**{name: _frozen(value) for name, value in row.items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def named_error(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with error codes replaced by their names."""
    return {name: value.name if isinstance(value, ErrorCode) else value for name, value in options.items()}


def plain_seed(seed: GroupSeed) -> dict[str, Any]:
    """Return a seed as JSON: without null, and with partitions as "orders-0"."""
    plain = {name: value for name, value in msgspec.structs.asdict(seed).items() if value is not None}
    for name in ("offsets", "lag"):
        if isinstance(plain.get(name), Mapping):
            plain[name] = {
                format_partitions([partition]) if is_partition(partition) else partition: number
                for partition, number in plain[name].items()
            }
    return plain
