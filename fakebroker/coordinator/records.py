"""The records that coordinators append to `__consumer_offsets` and `__transaction_state`.

Keys and values are the messages of `protocol/messages/`; `cluster/logs/coordinator_records.py` encodes them. Only the
last record of a key is valid. Offsets of transactions are valid when the transaction is committed; see
`PendingOffsets`. A message does not change after it was appended.
"""

from typing import Any, Generic, TypeVar

import msgspec

from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue

K = TypeVar("K")
V = TypeVar("V")


class CoordinatorRecord(msgspec.Struct, Generic[K, V], frozen=True):
    """A record. The type of the key decides the type of the value. A tombstone has the value None."""

    key: K
    value: V


class TransactionalRecord(CoordinatorRecord[OffsetCommitKey, OffsetCommitValue], frozen=True):
    """An offset that a producer commits in its transaction. Its batch has the id and the epoch of the producer."""

    producer_id: int
    producer_epoch: int


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


KeyedRecord = CoordinatorRecord[Any, Any]
"""A record of any type."""

OffsetRecord = CoordinatorRecord[OffsetCommitKey, OffsetCommitValue | None]
"""An offset that is committed, or deleted."""

Record = KeyedRecord | TransactionEnd
"""A record of a group coordinator. Offsets of a transaction, and ends of transactions, have separate batches."""


def offset_tombstone(group_id: str, topic: str, partition: int) -> OffsetRecord:
    """Return the record that deletes an offset."""
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def group_tombstone(group_id: str) -> KeyedRecord:
    """Return the record that deletes a classic group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def group_of(record: KeyedRecord) -> str:
    """Return the group id in the key of a record of `__consumer_offsets`."""
    key = record.key
    group_id: str = key.group if isinstance(key, OffsetCommitKey | GroupMetadataKey) else key.group_id
    return group_id
