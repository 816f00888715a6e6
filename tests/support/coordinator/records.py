"""Records of groups and offsets, briefly."""

from fakebroker.coordinator.records import CoordinatorRecord, KeyedRecord, OffsetRecord, TransactionalRecord
from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)


def offset_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue | None) -> OffsetRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value)


def pending_record(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue, producer_id: int
) -> TransactionalRecord:
    return TransactionalRecord(offset_record(group_id, topic, partition, None).key, value, producer_id, 0)


def offset_value(offset: int, timestamp_ms: int = 0) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, metadata="", commit_timestamp=timestamp_ms)


def group_record(group_id: str, value: GroupMetadataValue | None) -> KeyedRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value)


def group_value(
    protocol_type: str,
    generation: int,
    timestamp_ms: int,
    *members: MemberMetadata,
    protocol: str | None = None,
    leader: str | None = None,
) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=timestamp_ms,
        members=list(members),
    )
