"""Encodes records of group coordinators, appends them to partitions of `__consumer_offsets`, and reads them back.

Writes the versions of values that the emulated release writes, and reads all (`MetadataVersion`,
`GroupCoordinatorRecordHelpers`, `GroupCoordinatorRecordSerde`).
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from fakebroker.cluster.logs.coordinator_records import VERSION, append_pairs, prefixed, read_all, version_of
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.coordinator.batch_join.expected_instances import StoredInstance
from fakebroker.coordinator.consumer.records import ConsumerGroupRecord
from fakebroker.coordinator.group_records import (
    GroupRecord,
    GroupValue,
    KeyedRecord,
    MemberValue,
    OffsetRecord,
    PendingOffsetRecord,
    Record,
    TransactionEnd,
)
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.consumer_offsets import (
    EXPECTED_MEMBERS_TAG,
    ExpectedMember,
    ExpectedMembers,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from fakebroker.protocol.records import Record as LogRecord, RecordBatch
from fakebroker.protocol.releases import NEWEST, Release
from fakebroker.protocol.transaction_markers import encode_marker, marker_in
from fakebroker.protocol.types import ZERO_UUID

_OFFSET_KEY_VERSION = 1
_GROUP_KEY_VERSION = 2
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
_NO_TIMESTAMP = -1
_OFFSET_RECORDS = (OffsetRecord, PendingOffsetRecord)  # A union in `isinstance` takes longer.


def append_records(
    log: PartitionLog,
    written: Sequence[Record],
    leader_epoch: int,
    now_ms: float,
    release: Release = NEWEST,
    topic_id_of: Callable[[str], bytes] = lambda name: ZERO_UUID,
) -> int:
    """Append records as one batch, which is transactional if they are offsets of a transaction.

    Args:
        log: The log of a partition of `__consumer_offsets`.
        written: The records, at least one; or the end of a transaction, which is appended as its marker.
        leader_epoch: The leader epoch of the partition.
        now_ms: The timestamp of the records, truncated to whole milliseconds.
        release: The release that the writing broker emulates.
        topic_id_of: Returns the id of a topic by name; zeros if it does not exist.

    Returns:
        The offset of the first record.

    Raises:
        ProtocolError: A value does not fit its field, such as a string of more than 32767 bytes.
    """
    first, producer = written[0], None
    if not isinstance(first, OffsetRecord):  # Most are commits.
        if isinstance(first, TransactionEnd):
            return log.append(_marker(first, now_ms), leader_epoch)
        if isinstance(first, PendingOffsetRecord):
            producer = first.producer_id, first.epoch
    keyed: Sequence[KeyedRecord] = written  # type: ignore[assignment]  # not an end, which is alone
    pairs = [(record_key(record), record_value(record, release, topic_id_of)) for record in keyed]
    return append_pairs(log, pairs, leader_epoch, now_ms, producer)


def _marker(end: TransactionEnd, now_ms: float) -> bytes:
    return encode_marker(
        end.producer_id,
        end.epoch,
        is_commit=end.is_commit,
        coordinator_epoch=end.coordinator_epoch,
        now_ms=now_ms,
    )


def read_records(log: PartitionLog, partition: int) -> list[Record]:
    """Read all records of a partition of `__consumer_offsets`, in order. Records with unknown key versions are skipped.

    Raises:
        ProtocolError: A record is malformed; the message contains the partition and the offset.
    """
    return list(read_all(log, OFFSETS_TOPIC, partition, _read_record))


def _read_record(batch: RecordBatch, record: LogRecord) -> Record | None:
    """Decode a record of a batch, which may be transactional or a marker."""
    if batch.is_control:
        marker = marker_in(batch)
        if marker is None:
            return None
        return TransactionEnd(batch.producer_id, batch.producer_epoch, marker.is_commit, marker.coordinator_epoch)
    parsed = parse_record(record.key, record.value)
    if isinstance(parsed, OffsetRecord) and parsed.value is not None and batch.is_transactional:
        return PendingOffsetRecord(
            parsed.group_id, parsed.topic, parsed.partition, parsed.value, batch.producer_id, batch.producer_epoch
        )
    return parsed


@cache
def _consumer_group_records() -> Any:
    """Return the module with the encoding of consumer groups, which is imported when the first of them is used."""
    return import_module("fakebroker.cluster.logs.consumer_group_records")


def record_key(record: KeyedRecord) -> bytes:
    """Return the encoded key of a record, prefixed by its version."""
    if isinstance(record, GroupRecord):
        return _group_key(record.group_id)
    if isinstance(record, _OFFSET_RECORDS):
        return _offset_key(record.group_id, record.topic, record.partition)
    encoded: bytes = _consumer_group_records().record_key(record)
    return encoded


@lru_cache(maxsize=_MAX_CACHED_KEYS)
def _group_key(group_id: str) -> bytes:
    return prefixed(GroupMetadataKey(group=group_id), _GROUP_KEY_VERSION)


@lru_cache(maxsize=_MAX_CACHED_KEYS)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return prefixed(OffsetCommitKey(group=group_id, topic=topic, partition=partition), _OFFSET_KEY_VERSION)


def record_value(
    record: KeyedRecord, release: Release = NEWEST, topic_id_of: Callable[[str], bytes] = lambda name: ZERO_UUID
) -> bytes | None:
    """Return the encoded value of a record as a release writes it, prefixed by its version; None for a tombstone."""
    if isinstance(record, GroupRecord):
        return None if record.value is None else _group_value(record.value, release)
    if isinstance(record, _OFFSET_RECORDS):
        if record.value is None:
            return None
        return _offset_value(record.value, release, topic_id_of(record.topic) if release >= _TOPIC_IDS else ZERO_UUID)
    encoded: bytes | None = _consumer_group_records().record_value(record, release)
    return encoded


def parse_record(key: bytes | None, value: bytes | None) -> GroupRecord | OffsetRecord | ConsumerGroupRecord | None:
    """Decode a record in any version of its key and value, without regard to transactions.

    Returns:
        The record; None if the key version belongs to another type of record.

    Raises:
        ProtocolError: The key or the value is malformed.
    """
    key_version, key = version_of(key, "key"), key or b""
    if key_version in OffsetCommitKey.VERSIONS:
        return _offset_record(decode(OffsetCommitKey, key, key_version, VERSION.size), value)
    if key_version in GroupMetadataKey.VERSIONS:
        return _group_record(decode(GroupMetadataKey, key, key_version, VERSION.size), value)
    parsed: ConsumerGroupRecord | None = _consumer_group_records().parse_record(key_version, key, value)
    return parsed


def _offset_value(committed: CommittedOffset, release: Release, topic_id: bytes) -> bytes:
    if topic_id != ZERO_UUID and not committed.metadata and committed.expire_timestamp_ms is None:
        # Most values; this takes a fifth of the time.
        numbers = committed.offset, committed.leader_epoch, 1, committed.commit_timestamp_ms
        return _PLAIN_OFFSET_VALUE.pack(_OFFSET_VALUE_VERSION, *numbers, 1, 0, len(topic_id), topic_id)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        topic_id=topic_id,
    )
    if committed.expire_timestamp_ms is not None:
        value.expire_timestamp = committed.expire_timestamp_ms
    elif release >= _TAGGED_OFFSETS:
        return prefixed(value, _OFFSET_VALUE_VERSION)
    elif release >= _KIP_211:
        return prefixed(value, _UNTAGGED_OFFSET_VALUE_VERSION)
    return prefixed(value, _EXPIRING_OFFSET_VALUE_VERSION)


def _offset_record(key: OffsetCommitKey, data: bytes | None) -> OffsetRecord:
    if data is None:
        return OffsetRecord(key.group, key.topic, key.partition, None)
    value = decode(OffsetCommitValue, data, version_of(data, "value"), VERSION.size)
    committed = CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=None if value.expire_timestamp == _NO_TIMESTAMP else value.expire_timestamp,
    )
    return OffsetRecord(key.group, key.topic, key.partition, committed)


def _group_value(group: GroupValue, release: Release) -> bytes:
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in group.members
        ],
    )
    expected = [each for each in group.extension_values if isinstance(each, StoredInstance)]
    if not expected:
        return prefixed(value, _group_value_version(release))
    value.unknown_tags = ((EXPECTED_MEMBERS_TAG, _expected_members(expected)),)
    return prefixed(value, _TAGGED_GROUP_VALUE_VERSION)


def _group_value_version(release: Release) -> int:
    """Return the version of group values: 1 adds the rebalance timeout, 2 a timestamp, 3 instance ids."""
    if release >= _KIP_345:
        return _GROUP_VALUE_VERSION
    return (release >= _KIP_62) + (release >= _KIP_211)


def _expected_members(expected: Sequence[StoredInstance]) -> bytes:
    members = [
        ExpectedMember(
            group_instance_id=each.instance_id, member_id=each.member_id, rebalance_timeout=each.rebalance_timeout_ms
        )
        for each in expected
    ]
    return encode(ExpectedMembers(members=members), 0)


def _group_record(key: GroupMetadataKey, data: bytes | None) -> GroupRecord:
    if data is None:
        return GroupRecord(key.group, None)
    value = decode(GroupMetadataValue, data, version_of(data, "value"), VERSION.size)
    group = GroupValue(
        protocol_type=value.protocol_type,
        generation_id=value.generation,
        protocol_name=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
        members=tuple(_member_value(member) for member in value.members),
        extension_values=tuple(
            StoredInstance(each.group_instance_id, each.member_id, each.rebalance_timeout)
            for tag, tagged in value.unknown_tags
            if tag == EXPECTED_MEMBERS_TAG
            for each in decode(ExpectedMembers, tagged, 0).members
        ),
    )
    return GroupRecord(key.group, group)


def _member_value(member: MemberMetadata) -> MemberValue:
    """Convert a member. In version 0, which lacks the rebalance timeout, it equals the session timeout."""
    return MemberValue(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )
