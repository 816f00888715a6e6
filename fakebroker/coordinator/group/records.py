"""The records that a group coordinator appends to `__consumer_offsets`, as plain data.

Does not depend on their bytes. Per key the last record wins, and one without a value is a tombstone.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ErrorCode


@dataclass(slots=True)
class MemberValue:
    """One member in the record of its group; `subscription` is its metadata for the group's protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True)
class GroupValue:
    """A classic group (Kafka's `GroupMetadataValue`).

    Attributes:
        protocol_type: "" if the group has none.
        state_timestamp_ms: Time of the last transition before the record was written; -1 if unknown.
        extension_values: What a protocol extension stores with the group, in tagged fields; opaque here.
    """

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]
    extension_values: tuple[object, ...] = ()


@dataclass(slots=True)
class GroupRecord:
    """The group as a whole; without a value it is deleted."""

    group_id: str
    value: GroupValue | None


@dataclass(slots=True)
class OffsetRecord:
    """One committed offset; without a value it is deleted."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


Record = GroupRecord | OffsetRecord

T = TypeVar("T")

Procedure = Generator[tuple[Record, ...], ErrorCode, T]
"""A change of a group that may append records: it yields each batch and is resumed with the error of its append.

Run by `CoordinatorRuntime.run`; a procedure calls another one with `yield from`. What a procedure does after an append
happens when the append has completed.
"""
