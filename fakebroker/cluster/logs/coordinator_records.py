"""Appends and reads the records of coordinators, in partitions of `__consumer_offsets` and `__transaction_state`.

Each key and value begins with its version, an int16; the version of a key is the type of the record. Writes the
versions of values that the emulated release writes, and reads all (`MetadataVersion`, `GroupCoordinatorRecordHelpers`,
`GroupCoordinatorRecordSerde`, `TransactionLog`).
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.coordinator.offset_store import NO_TIMESTAMP
from fakebroker.coordinator.records import (
    CoordinatorRecord,
    KeyedRecord,
    Record,
    TransactionalRecord,
    TransactionEnd,
)
from fakebroker.coordinator.transaction.transaction import TransactionRecord, TransactionState
from fakebroker.errors import ProtocolError
from fakebroker.protocol import records
from fakebroker.protocol.codec import decode, encode_into
from fakebroker.protocol.messages import consumer_group_records as groups
from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from fakebroker.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from fakebroker.protocol.records import RecordBatch
from fakebroker.protocol.releases import NEWEST, Release
from fakebroker.protocol.schema import Message, replaced
from fakebroker.protocol.transaction_markers import encode_marker, marker_in
from fakebroker.protocol.types import ZERO_UUID

T = TypeVar("T")

_VERSION = struct.Struct(">h")
"""The version before a key or a value."""

_KIP_62, _KIP_211, _KIP_345, _TAGGED_OFFSETS = Release(0, 10, 1), Release(2, 1), Release(2, 3), Release(4, 1)
_TOPIC_IDS = Release(4, 3)
_OFFSET_VALUE_VERSION = 4  # With tagged fields, since 4.1; with the id of the topic, since 4.3.
_UNTAGGED_OFFSET_VALUE_VERSION = 3  # Since 2.1, which added version 2 and the leader epoch of version 3.
_EXPIRING_OFFSET_VALUE_VERSION = 1  # The only version with an expire timestamp. It lacks the leader epoch.
# Version, offset, leader epoch, length of the metadata plus one, timestamp; one tagged field: number, size and value.
_PLAIN_OFFSET_VALUE = struct.Struct(">hqiBqBBB16s")
_MAX_CACHED_KEYS = 10_000
_GROUP_VALUE_VERSION = 3
_TAGGED_GROUP_VALUE_VERSION = 4  # Adds tagged fields to version 3. Written only for groups with expected instances.

_Types = Mapping[int, tuple[type[Message], type[Message]]]

_OFFSETS_TYPES: _Types = {
    key.VERSIONS.first: (key, value)
    for key, value in (
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (groups.ConsumerGroupMetadataKey, groups.ConsumerGroupMetadataValue),
        (groups.ConsumerGroupPartitionMetadataKey, groups.ConsumerGroupPartitionMetadataValue),
        (groups.ConsumerGroupMemberMetadataKey, groups.ConsumerGroupMemberMetadataValue),
        (groups.ConsumerGroupTargetAssignmentMetadataKey, groups.ConsumerGroupTargetAssignmentMetadataValue),
        (groups.ConsumerGroupTargetAssignmentMemberKey, groups.ConsumerGroupTargetAssignmentMemberValue),
        (groups.ConsumerGroupCurrentMemberAssignmentKey, groups.ConsumerGroupCurrentMemberAssignmentValue),
        (groups.ConsumerGroupRegularExpressionKey, groups.ConsumerGroupRegularExpressionValue),
    )
} | {1: (OffsetCommitKey, OffsetCommitValue)}
"""The messages of keys and values in `__consumer_offsets`, by the version of the key."""

_TRANSACTION_TYPES: _Types = {0: (TransactionLogKey, TransactionLogValue)}

# Appending


def append_records(
    log: PartitionLog,
    written: Sequence[Record],
    leader_epoch: int,
    now_ms: float,
    release: Release = NEWEST,
    topic_id_of: Callable[[str], bytes] = lambda name: ZERO_UUID,
    *,
    transaction_version: int = 0,
) -> int:
    """Append records as one batch, which is transactional if they are offsets of a transaction.

    Args:
        log: The log of a partition.
        written: The records, at least one; or the end of a transaction, which is appended as its marker.
        leader_epoch: The leader epoch of the partition.
        now_ms: The timestamp of the records, truncated to whole milliseconds.
        release: The release that the writing broker emulates.
        topic_id_of: Returns the id of a topic by name; zeros if it does not exist.
        transaction_version: The finalized level of the feature `transaction.version`.

    Returns:
        The offset of the first record.

    Raises:
        ProtocolError: A value does not fit its field, such as a string of more than 32767 bytes.
        DiskFullError: The storage of the log has no space. Nothing has changed.
    """
    first, producer = written[0], None
    if isinstance(first, TransactionEnd):
        marker = encode_marker(
            first.producer_id,
            first.epoch,
            is_commit=first.is_commit,
            coordinator_epoch=first.coordinator_epoch,
            now_ms=now_ms,
        )
        return log.append(marker, leader_epoch)
    if isinstance(first, TransactionalRecord):
        producer = first.producer_id, first.producer_epoch
    keyed: Sequence[KeyedRecord] = written  # type: ignore[assignment]  # not an end, which is alone
    pairs = [(record_key(each), record_value(each, release, topic_id_of, transaction_version)) for each in keyed]
    base_offset = log.log_end_offset
    batch = RecordBatch(records.encode_pairs(pairs, int(now_ms), producer, base_offset, leader_epoch))
    log.append_batch(batch, leader_epoch, of_producer=producer is not None)
    return base_offset


def record_key(record: KeyedRecord) -> bytes:
    """Return the encoded key of a record, prefixed by its version."""
    key = record.key
    if type(key) is OffsetCommitKey:
        return _offset_key(key.group, key.topic, key.partition)
    if type(key) is GroupMetadataKey:
        return _group_key(key.group)
    return _prefixed(key, key.VERSIONS.last)


@lru_cache(maxsize=_MAX_CACHED_KEYS)
def _group_key(group_id: str) -> bytes:
    return _prefixed(GroupMetadataKey(group=group_id), GroupMetadataKey.VERSIONS.last)


@lru_cache(maxsize=_MAX_CACHED_KEYS)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _prefixed(OffsetCommitKey(group=group_id, topic=topic, partition=partition), OffsetCommitKey.VERSIONS.last)


def record_value(
    record: KeyedRecord,
    release: Release = NEWEST,
    topic_id_of: Callable[[str], bytes] = lambda name: ZERO_UUID,
    transaction_version: int = 0,
) -> bytes | None:
    """Return the encoded value of a record, prefixed by its version; None for a tombstone. See `append_records`."""
    value = record.value
    if value is None:
        return None
    if type(value) is OffsetCommitValue:
        return _offset_value(value, release, topic_id_of(record.key.topic) if release >= _TOPIC_IDS else ZERO_UUID)
    if type(value) is GroupMetadataValue:
        return _prefixed(value, _TAGGED_GROUP_VALUE_VERSION if value.unknown_tags else _group_value_version(release))
    # Values of transactions have tagged fields in version 1; those of consumer groups have only version 0.
    return _prefixed(value, min(transaction_version, value.VERSIONS.last))


def _offset_value(value: OffsetCommitValue, release: Release, topic_id: bytes) -> bytes:
    if topic_id != ZERO_UUID and not value.metadata and value.expire_timestamp == NO_TIMESTAMP:
        # Most values; this takes a fifth of the time.
        numbers = value.offset, value.leader_epoch, 1, value.commit_timestamp
        return _PLAIN_OFFSET_VALUE.pack(_OFFSET_VALUE_VERSION, *numbers, 1, 0, len(topic_id), topic_id)
    if value.topic_id != topic_id:
        value = replaced(value, topic_id=topic_id)
    if value.expire_timestamp != NO_TIMESTAMP:
        return _prefixed(value, _EXPIRING_OFFSET_VALUE_VERSION)
    if release >= _TAGGED_OFFSETS:
        return _prefixed(value, _OFFSET_VALUE_VERSION)
    return _prefixed(value, _UNTAGGED_OFFSET_VALUE_VERSION if release >= _KIP_211 else _EXPIRING_OFFSET_VALUE_VERSION)


def _group_value_version(release: Release) -> int:
    """Return the version of group values: 1 adds the rebalance timeout, 2 a timestamp, 3 instance ids."""
    if release >= _KIP_345:
        return _GROUP_VALUE_VERSION
    return (release >= _KIP_62) + (release >= _KIP_211)


def _prefixed(message: Message, version: int) -> bytes:
    """Return an encoded key or value, prefixed by its version."""
    out = bytearray(_VERSION.pack(version))
    encode_into(message, version, out)
    return bytes(out)


# Reading


def read_records(log: PartitionLog, partition: int) -> list[Record]:
    """Read all records of a partition of `__consumer_offsets`, in order. Records with unknown key versions are skipped.

    Raises:
        ProtocolError: A record is malformed; the message contains the partition and the offset.
    """
    return list(_read_all(log, OFFSETS_TOPIC, partition, read_record))


def read_record(batch: RecordBatch, record: records.Record) -> Record | None:
    """Decode a record of a batch of `__consumer_offsets`, which may be transactional or a marker.

    Returns:
        The record; None if it is of another type.

    Raises:
        ProtocolError: The record is malformed.
    """
    if batch.is_control:
        marker = marker_in(batch)
        if marker is None:
            return None
        return TransactionEnd(batch.producer_id, batch.producer_epoch, marker.is_commit, marker.coordinator_epoch)
    parsed = parse_record(record.key, record.value)
    if batch.is_transactional and parsed is not None and type(parsed.value) is OffsetCommitValue:
        return TransactionalRecord(parsed.key, parsed.value, batch.producer_id, batch.producer_epoch)
    return parsed


def read_transaction_records(log: PartitionLog, partition: int) -> list[TransactionRecord]:
    """Read the records of a partition of `__transaction_state`, in order. Unknown key versions are skipped.

    As in Kafka, reading ends at a malformed record, such as a marker that an admin client has written to the partition.
    """
    found: list[TransactionRecord] = []
    with suppress(ProtocolError):
        for record in _read_all(
            log, TRANSACTIONS_TOPIC, partition, lambda _, each: parse_transaction_record(each.key, each.value)
        ):
            found.append(record)  # noqa: PERF402  # list() would lose the records before an error
    return found


def _read_all(
    log: PartitionLog, topic: str, partition: int, parse: Callable[[RecordBatch, records.Record], T | None]
) -> Iterator[T]:
    """Yield all records of a partition, in order.

    Args:
        log: The log.
        topic: The internal topic, for error messages.
        partition: The index of the partition, for error messages.
        parse: Decodes a record of a batch; returns None for records to skip.

    Raises:
        ProtocolError: A record is malformed; the message contains the partition and the offset.
    """
    for batch in log.batches_from(log.log_start_offset):
        offset = batch.base_offset
        try:
            for record in records.iterate_records(batch):
                offset = record.offset
                parsed = parse(batch, record)
                if parsed is not None:
                    yield parsed
        except ProtocolError as error:
            raise ProtocolError(f"{topic}-{partition}, offset {offset}: {error}") from error


def parse_record(key: bytes | None, value: bytes | None) -> KeyedRecord | None:
    """Decode a record of `__consumer_offsets` in any version of its key and value, without regard to transactions.

    Returns:
        The record; None if the key version belongs to another type of record.

    Raises:
        ProtocolError: The key or the value is malformed.
    """
    return _parsed(key, value, _OFFSETS_TYPES)


def parse_transaction_record(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """Decode a record of `__transaction_state`; see `parse_record`."""
    parsed: TransactionRecord | None = _parsed(key, value, _TRANSACTION_TYPES)
    if parsed is not None and parsed.value is not None and not 0 <= parsed.value.transaction_status < _STATE_COUNT:
        raise ProtocolError(f"transaction_status {parsed.value.transaction_status}, expected 0 to {_STATE_COUNT - 1}")
    return parsed


_STATE_COUNT = len(TransactionState)


def _parsed(key: bytes | None, value: bytes | None, types: _Types) -> CoordinatorRecord[Any, Any] | None:
    key_version = _version_of(key, "key")
    found = types.get(key_version)
    if found is None:
        return None
    decoded = decode(found[0], key or b"", key_version, _VERSION.size)
    if value is None:
        return CoordinatorRecord(decoded, None)
    return CoordinatorRecord(decoded, decode(found[1], value, _version_of(value, "value"), _VERSION.size))


def _version_of(data: bytes | None, what: str) -> int:
    """Return the version of a key or a value.

    Args:
        data: The key or value.
        what: "key" or "value", for error messages.

    Raises:
        ProtocolError: It is null or too short.
    """
    if data is None:
        raise ProtocolError(f"{what} null, expected a version and its fields")
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{what} of {len(data)} bytes, expected a version in the first {_VERSION.size}")
    version: int = _VERSION.unpack_from(data)[0]
    return version
