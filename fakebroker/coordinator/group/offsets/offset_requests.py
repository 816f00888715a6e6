"""Results and records of OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, deleted topics and expiration.

The functions do not change groups. The coordinator first checks whether the group accepts the request, and later
appends the records and applies them.
"""

from collections.abc import Collection, Sequence
from math import inf

import msgspec

from fakebroker.coordinator.group.api import OffsetToCommit
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import CONSUMER_PROTOCOL_TYPE, EMPTY, STABLE
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.heartbeat import tombstones as consumer_group_tombstones
from fakebroker.coordinator.group.offsets.offset_store import CommittedOffset, OffsetStore
from fakebroker.coordinator.group.records import GroupRecord, OffsetRecord, Record
from fakebroker.coordinator.runtime.placement import java_string_length
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import TopicPartition

_NONE = ErrorCode.NONE  # A global is faster than an attribute of an enumeration.

Outcome = tuple[list[ErrorCode], tuple[OffsetRecord, ...]]
"""One error code for each partition, and the records to append."""


def commit(group_id: str, offsets: Sequence[OffsetToCommit], config: CoordinatorConfig, now_ms: float) -> Outcome:
    """Return a record for each offset, except those whose metadata has too many UTF-16 units.

    Before KIP-211 each offset is stored with its expiry time. The client gives it; otherwise it results from the
    broker's retention.
    """
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    for wanted in offsets:
        metadata = wanted.metadata or ""
        if metadata and java_string_length(metadata) > config.offset_metadata_max_bytes:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        timestamp_ms = int(now_ms) if wanted.commit_timestamp_ms is None else wanted.commit_timestamp_ms
        expire_timestamp_ms = wanted.expire_timestamp_ms
        if expire_timestamp_ms is None and config.is_before_kip_211:
            expire_timestamp_ms = timestamp_ms + config.offsets_retention_ms
        # By position, which takes half as long.
        committed = CommittedOffset(wanted.offset, timestamp_ms, wanted.leader_epoch, metadata, expire_timestamp_ms)
        errors.append(_NONE)
        records.append(OffsetRecord(group_id, wanted.topic, wanted.partition, committed))
    return errors, tuple(records)


def fetch(
    offsets: OffsetStore | None, partitions: Sequence[tuple[str, int]] | None
) -> list[tuple[str, int, CommittedOffset | None]]:
    """Return (topic, partition, committed offset) for these partitions; if None, for all that have an offset.

    A missing group has no offsets.
    """
    if partitions is None:
        return list(offsets) if offsets is not None else []
    if offsets is None:
        return [(topic, index, None) for topic, index in partitions]
    return [(topic, index, offsets.get(topic, index)) for topic, index in partitions]


def delete(
    group: Group | ConsumerGroup, partitions: Sequence[tuple[str, int]], pending: Collection[TopicPartition]
) -> Outcome:
    """Return a tombstone for each partition that has an offset, unless the group is subscribed to the topic.

    Args:
        group: The group.
        partitions: The partitions.
        pending: The partitions with pending offsets, which are deleted, too.
    """
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    for topic, partition in partitions:
        is_subscribed = group.is_subscribed_to(topic)
        errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE)
        has_offset = group.offsets.get(topic, partition) is not None or (topic, partition) in pending
        if not is_subscribed and has_offset:
            records.append(OffsetRecord(group.group_id, topic, partition, None))
    return errors, tuple(records)


def delete_topic(group: Group | ConsumerGroup, topic: str, pending: Collection[TopicPartition]) -> list[OffsetRecord]:
    """Return a tombstone for each partition of a topic that is being deleted for which a group has an offset.

    Args:
        group: The group.
        topic: The topic.
        pending: The partitions with pending offsets, which are deleted, too.
    """
    pending_here = (index for name, index in pending if name == topic)
    partitions = dict.fromkeys([*group.offsets.partitions_of(topic), *pending_here])
    return [OffsetRecord(group.group_id, topic, partition, None) for partition in partitions]


def expired_records(group: Group, now_ms: float, pending: Collection[TopicPartition] = ()) -> list[Record]:
    """Return tombstones for the expired offsets of a group, and for the group itself if it has expired (KIP-211).

    A group has expired if it is Empty, has no offset left (or never had any), and its extension reserves no places for
    members (batch joins, KAFKA-8397). See Kafka's `GroupCoordinatorShard.cleanupGroupMetadata`.

    Args:
        group: The group.
        now_ms: The time.
        pending: The partitions with pending offsets, whose offsets do not expire, and neither does the group.
    """
    if not _may_expire(group):
        return []
    expired: list[Record] = []
    is_anything_left = group.state is not EMPTY or group.extension.reserved_places > 0 or bool(pending)
    empty_since_ms = _empty_since_ms(group)
    for topic, partition, committed in group.offsets:
        is_kept = _is_kept(group, topic, partition, pending)
        if not is_kept and committed.is_expired(now_ms, group.config.offsets_retention_ms, empty_since_ms):
            expired.append(OffsetRecord(group.group_id, topic, partition, None))
        else:
            is_anything_left = True
    return expired if is_anything_left else [*expired, GroupRecord(group.group_id, None)]


def expired_records_of_consumer_group(
    group: ConsumerGroup, now_ms: float, retention_ms: int, pending: Collection[TopicPartition]
) -> list[Record]:
    """Return tombstones for the expired offsets of a consumer group, and for the group itself if nothing is left.

    Offsets for topics that a member is subscribed to do not expire. For the arguments see `expired_records`; the
    retention is that of the broker.
    """
    expired: list[Record] = []
    is_anything_left = bool(group.members or pending)
    for topic, partition, committed in group.offsets:
        is_kept = group.is_subscribed_to(topic) or (topic, partition) in pending
        if not is_kept and committed.is_expired(now_ms, retention_ms, None):
            expired.append(OffsetRecord(group.group_id, topic, partition, None))
        else:
            is_anything_left = True
    return expired if is_anything_left else [*expired, *consumer_group_tombstones(group)]


class Expiration(msgspec.Struct, frozen=True):
    """When offsets of a group, or the group itself, expire if nothing happens before. The next check removes them.

    Attributes:
        at_ms: The time, in milliseconds; it may have passed.
        offsets: How many offsets expire at this time.
        removes_group: Whether nothing of the group is left then, so that it is removed.
    """

    at_ms: float
    offsets: int
    removes_group: bool


def next_expiration(group: Group, check_ms: float, pending: Collection[TopicPartition] = ()) -> Expiration | None:
    """Return what expires next of a group that stays as it is; None if nothing does.

    Args:
        group: The group.
        check_ms: The time of the next check; what expires before expires together.
        pending: See `expired_records`.
    """
    if not _may_expire(group):
        return None
    empty_since_ms, times_ms = _empty_since_ms(group), []
    for topic, partition, committed in group.offsets:
        is_kept = _is_kept(group, topic, partition, pending)
        times_ms.append(inf if is_kept else committed.expires_ms(group.config.offsets_retention_ms, empty_since_ms))
    may_be_removed = group.state is EMPTY and not (group.extension.reserved_places or pending)
    return _expiration(times_ms, check_ms, may_be_removed=may_be_removed)


def next_expiration_of_consumer_group(
    group: ConsumerGroup, check_ms: float, retention_ms: int, pending: Collection[TopicPartition]
) -> Expiration | None:
    """Return what expires next of a consumer group; see `next_expiration` and `expired_records_of_consumer_group`."""
    times_ms = [
        inf
        if group.is_subscribed_to(topic) or (topic, partition) in pending
        else committed.expires_ms(retention_ms, None)
        for topic, partition, committed in group.offsets
    ]
    return _expiration(times_ms, check_ms, may_be_removed=not (group.members or pending))


def _expiration(times_ms: Sequence[float], check_ms: float, *, may_be_removed: bool) -> Expiration | None:
    at_ms = max(check_ms, min(times_ms, default=-inf))
    if at_ms == inf or not (times_ms or may_be_removed):
        return None
    expiring = sum(each <= at_ms for each in times_ms)
    return Expiration(at_ms, expiring, may_be_removed and expiring == len(times_ms))


def _is_kept(group: Group, topic: str, partition: int, pending: Collection[TopicPartition]) -> bool:
    """Return whether the offset for a partition does not expire, however old it is."""
    if (topic, partition) in pending:
        return True
    return group.is_subscribed_to(topic) and not group.config.is_before_kip_211


def _empty_since_ms(group: Group) -> float | None:
    """Return since when a group has had no members; None if it has some, or never had any."""
    had_members = group.state is EMPTY and group.protocol_type is not None and group.state_since_ms >= 0
    return group.state_since_ms if had_members else None


def _may_expire(group: Group) -> bool:
    """Return whether offsets may expire.

    Before KIP-211 they always may. Since then they may if the group is Empty, or is a Stable consumer group whose
    subscribed topics are known.
    """
    if group.config.is_before_kip_211:
        return True
    is_known_consumer_group = group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.subscribed_topics is not None
    return group.state is EMPTY or (group.state is STABLE and is_known_consumer_group)
