"""Records of groups for `__consumer_offsets`, groups restored from records, and the errors of appends.

A failover loses what is not stored: a rebalance in progress, pending ids, the time left of sessions, and each member's
protocols except the chosen one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from fakebroker.coordinator.classic.extension import NO_EXTENSION
from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.heartbeat import tombstones as consumer_group_tombstones
from fakebroker.coordinator.history import LOADED
from fakebroker.coordinator.offset_store import OffsetStore
from fakebroker.coordinator.pending_offsets import PendingOffsets
from fakebroker.coordinator.records import (
    CoordinatorRecord,
    KeyedRecord,
    Record,
    TransactionalRecord,
    TransactionEnd,
    group_tombstone,
    offset_tombstone,
)
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_records import ConsumerGroupMetadataKey
from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
)
from fakebroker.protocol.schema import replaced
from fakebroker.topic_partition import TopicPartition

# The errors that clients get if an append to the log of an offsets partition fails


_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
_OF_REPLICAS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)

_CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
_FORMER_CLIENT_ERRORS = {
    **_CLIENT_ERRORS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
_FORMER_COMMIT_ERRORS = {
    **_FORMER_CLIENT_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
}

APPEND_ERRORS = (
    *(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    *(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT),
    *(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
)
"""The errors with which a broker may refuse records of a coordinator."""


def client_error(error: ErrorCode, records: Sequence[Record], config: CoordinatorConfig) -> ErrorCode:
    """Return the error for clients if an append fails.

    Before KIP-848, tombstones are appended with acks=0: errors of replicas do not occur, and NONE is returned. The end
    of a transaction has the error of the log, because it is appended for the transaction coordinator.

    Args:
        error: The error of the log.
        records: The records of the append.
        config: The settings of the coordinator.

    Source: Kafka's `CoordinatorOperationExceptionHelper`; before KIP-848, `GroupMetadataManager.storeGroup` and
    `maybeConvertOffsetCommitError`.
    """
    first = records[0]
    if isinstance(first, TransactionEnd):
        return error
    if not config.is_before_kip_848:
        return _CLIENT_ERRORS.get(error, error)
    if error in _OF_REPLICAS and all(_is_tombstone(record) for record in records):
        return ErrorCode.NONE
    is_commit = isinstance(first.key, OffsetCommitKey)
    return (_FORMER_COMMIT_ERRORS if is_commit else _FORMER_CLIENT_ERRORS).get(error, error)


def _is_tombstone(record: Record) -> bool:
    return not isinstance(record, TransactionEnd) and record.value is None


# Storing


def store(group: Group, first: Sequence[Record] = ()) -> ErrorCode:
    """Append the current state of a group, after other records. Return NONE, or the error for clients."""
    return _store_value(group, group_value(group), first)


def store_extension(group: Group) -> ErrorCode:
    """Append the current values of a group's extension.

    The record repeats the other values that were last stored. A group that was never stored has the values of a new
    group.
    """
    return _store_value(group, group.stored or new_group_value(group))


def store_new(group: Group) -> ErrorCode:
    """Append a group that was just created, as an empty group even if members have joined already."""
    return _store_value(group, new_group_value(group))


def _store_value(group: Group, value: GroupMetadataValue, first: Sequence[Record] = ()) -> ErrorCode:
    tags = group.extension.stored_tags()
    written = replaced(value, unknown_tags=tags) if tags else value
    error = group.append((*first, CoordinatorRecord(GroupMetadataKey(group=group.group_id), written)))
    if not error:
        _remember_stored(group, value)
    return error


def _remember_stored(group: Group, value: GroupMetadataValue) -> None:
    group.stored_generation_id = value.generation
    if group.extension is not NO_EXTENSION:  # Only `store_extension` needs the value.
        group.stored = value


def group_value(group: Group) -> GroupMetadataValue:
    """Return the record value for the current state of a group, without the tagged fields of its extension."""
    protocol_name = group.protocol_name or ""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=int(group.state_since_ms),
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def new_group_value(group: Group) -> GroupMetadataValue:
    """Return the record value of a group that was just created (`newEmptyGroupMetadataRecord`)."""
    return _empty_value(int(group.state_since_ms))


def _empty_value(timestamp_ms: int) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=timestamp_ms,
        members=[],
    )


def tombstones(group: Group | ConsumerGroup, pending: Collection[TopicPartition]) -> tuple[Record, ...]:
    """Return the records that delete a group: a tombstone for each partition with an offset, then the group's own.

    Args:
        group: The group.
        pending: The partitions with pending offsets, which get tombstones, too.
    """
    partitions = dict.fromkeys([*((topic, partition) for topic, partition, _ in group.offsets), *pending])
    offsets = [offset_tombstone(group.group_id, *place) for place in partitions]
    own = consumer_group_tombstones(group) if isinstance(group, ConsumerGroup) else [group_tombstone(group.group_id)]
    return *offsets, *own


# Restoring

LoadedGroups = Mapping[str, tuple[GroupMetadataValue, OffsetStore]]
"""Groups and their offsets, by group id."""


class LoadedPartition(NamedTuple):
    """The contents of an offsets partition after all records of its log.

    Attributes:
        groups: The classic groups, in the order of their first record.
        pending: The offsets of transactions that are open.
        consumer_groups: The consumer groups, in the order of their first record, with their offsets.
    """

    groups: LoadedGroups
    pending: PendingOffsets
    consumer_groups: Mapping[str, ConsumerGroup]


_SIMPLE_GROUP = _empty_value(-1)


def replay(records: Iterable[Record], partition: int, release: tuple[int, ...]) -> LoadedPartition:
    """Return the groups and offsets that remain after all records of a partition.

    A group with offsets and without a group record is a simple group, also if the offsets are pending or were aborted
    (Kafka's `OffsetMetadataManager.replay`). Consumer groups have the behavior of the release.
    """
    values: dict[str, GroupMetadataValue] = {}
    consumer_groups: dict[str, ConsumerGroup] = {}
    offsets: dict[str, OffsetStore] = {}
    pending = PendingOffsets()
    for record in records:
        if isinstance(record, TransactionEnd):
            for stored in pending.end(record.producer_id, is_commit=record.is_commit):
                of_group = offsets.setdefault(stored.key.group, OffsetStore())
                of_group.apply(stored.key.topic, stored.key.partition, stored.value)
            continue
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            if isinstance(record, TransactionalRecord):
                pending.add(record)
            else:
                offsets.setdefault(key.group, OffsetStore()).apply(key.topic, key.partition, value)
                pending.apply(record)
            if value is not None and key.group not in consumer_groups:
                values.setdefault(key.group, _SIMPLE_GROUP)
        elif not isinstance(key, GroupMetadataKey):
            _replay_consumer_group(record, consumer_groups, values, partition, release)
        elif value is not None:
            values[key.group] = value
        else:
            values.pop(key.group, None)
    groups = {group_id: (each, offsets.get(group_id) or OffsetStore()) for group_id, each in values.items()}
    for group_id, group in consumer_groups.items():
        group.offsets = offsets.get(group_id) or group.offsets
    return LoadedPartition(groups, pending, consumer_groups)


def _replay_consumer_group(
    record: KeyedRecord,
    consumer_groups: dict[str, ConsumerGroup],
    values: dict[str, GroupMetadataValue],
    partition: int,
    release: tuple[int, ...],
) -> None:
    """Apply a record of a consumer group, which replaces a simple group; tombstones of unknown groups are ignored."""
    group_id = record.key.group_id
    group = consumer_groups.get(group_id)
    if group is None:
        if record.value is None:
            return
        values.pop(group_id, None)
        group = consumer_groups[group_id] = ConsumerGroup(group_id, partition, release)
    if isinstance(record.key, ConsumerGroupMetadataKey) and record.value is None:
        del consumer_groups[group_id]
    else:
        group.replay(record)


def restore(group: Group, value: GroupMetadataValue, offsets: OffsetStore, now_ms: float) -> None:
    """Set the contents of a group that was just created, except its state.

    The caller has created the group as Stable if the value has members, else as Empty. All sessions start over with
    their full timeout (Kafka's `GroupMetadataManager.replay` and `onLoaded`).
    """
    group.offsets = offsets
    group.state_since_ms = value.current_state_timestamp
    group.generation_id = value.generation
    group.protocol_name = value.protocol
    group.protocol_type = value.protocol_type or None
    for stored in value.members:
        member = _member(stored, value.protocol or "")
        group.add(member, value.protocol_type)
        group.arm_session(member, member.session_timeout_ms, now_ms)
    group.leader_id = value.leader
    _remember_stored(group, replaced(value, unknown_tags=()) if value.unknown_tags else value)
    group.extension.restore(value.unknown_tags, now_ms)
    group.subscribed_topics = group.compute_subscribed_topics()
    group.record_creation(LOADED, now_ms)


def _member(stored: MemberMetadata, protocol_name: str) -> Member:
    """Return a member. In version 0, which lacks the rebalance timeout, it equals the session timeout."""
    timeout_ms = stored.session_timeout
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=timeout_ms if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
        session_timeout_ms=timeout_ms,
        protocols=((protocol_name, stored.subscription),),
        is_new=False,
        assignment=stored.assignment,
    )
