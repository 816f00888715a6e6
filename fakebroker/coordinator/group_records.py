"""The records that a group coordinator appends to `__consumer_offsets`, as plain data.

Does not depend on their encoding, which is in `cluster/logs/`. The key of a group is its id; the key of an offset is
group id, topic and partition. Only the last record of a key is valid. A record without a value is a tombstone. Offsets
of transactions are valid when the transaction is committed; see `PendingOffsets`.

A new field also needs its encoding in `cluster/logs/`, and `persistence.py` has to store and restore it.
"""

import msgspec

from fakebroker.coordinator.consumer.records import ConsumerGroupRecord
from fakebroker.coordinator.offset_store import CommittedOffset


class MemberValue(msgspec.Struct, frozen=True):
    """One member in a group record; `subscription` is its metadata for the protocol of the generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(msgspec.Struct, frozen=True):
    """The value of a group record: a classic group (Kafka's `GroupMetadataValue`).

    Attributes:
        protocol_type: "" if the group has none.
        state_timestamp_ms: Time of the last transition before the record was written; -1 if unknown.
        extension_values: Values that a protocol extension stores with the group, in tagged fields; opaque here.
    """

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]
    extension_values: tuple[object, ...] = ()


class GroupRecord(msgspec.Struct, frozen=True):
    """A group with its members; without a value, the group is deleted."""

    group_id: str
    value: GroupValue | None


class OffsetRecord(msgspec.Struct, frozen=True):
    """One committed offset; without a value, the offset is deleted."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class PendingOffsetRecord(msgspec.Struct, frozen=True):
    """An offset that is committed in a transaction of a producer, and is stored when the transaction is committed."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset
    producer_id: int
    epoch: int


class TransactionEnd(msgspec.Struct, frozen=True):
    """The marker that ends the transaction of a producer in an offsets partition.

    Attributes:
        producer_id: The producer id.
        epoch: The producer epoch of the marker.
        is_commit: Whether the transaction is committed, else aborted.
        coordinator_epoch: The leader epoch of the transaction coordinator's partition.
    """

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int


KeyedRecord = GroupRecord | OffsetRecord | PendingOffsetRecord | ConsumerGroupRecord
"""A record of a group of either kind."""

Record = KeyedRecord | TransactionEnd
"""Any record. Groups and offsets can be in one batch; pending offsets are in batches of their own, as are ends."""
