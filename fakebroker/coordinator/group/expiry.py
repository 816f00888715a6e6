"""Which committed offsets, and which groups, nobody has needed for too long (KIP-211).

Says what should go and changes nothing. When to look is the coordinator's business.
"""

from fakebroker.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE, EMPTY, STABLE, Group
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.coordinator.group.records import GroupRecord, OffsetRecord, Record


def expired_records(group: Group, now_ms: float) -> list[Record]:
    """Tombstones for what of the group has expired; its own comes last, if it is Empty and no offset is left.

    See Kafka's `GroupCoordinatorShard.cleanupGroupMetadata`: so a group that never had offsets goes as well. One in
    which somebody is expected stays.
    """
    if not _may_expire(group):
        return []
    expired: list[Record] = []
    is_anything_left = group.state is not EMPTY or bool(group.expected.instances)
    for topic, partition, committed in group.offsets:
        is_read = group.is_subscribed_to(topic) and not group.config.is_before_kip_211
        if not is_read and _is_expired(group, committed, now_ms):
            expired.append(OffsetRecord(group.group_id, topic, partition, None))
        else:
            is_anything_left = True
    return expired if is_anything_left else [*expired, GroupRecord(group.group_id, None)]


def _may_expire(group: Group) -> bool:
    """Offsets of members are kept, except in a stable consumer group that is known not to read their topics."""
    if group.config.is_before_kip_211:
        return True
    is_known_consumer_group = group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.subscribed_topics is not None
    return group.state is EMPTY or (group.state is STABLE and is_known_consumer_group)


def _is_expired(group: Group, committed: CommittedOffset, now_ms: float) -> bool:
    """Retention counts from the commit; in an Empty group that had members, from when it became Empty."""
    if committed.expire_timestamp_ms is not None:
        return now_ms >= committed.expire_timestamp_ms
    had_members = group.state is EMPTY and group.protocol_type is not None and group.state_since_ms >= 0
    since_ms = group.state_since_ms if had_members else committed.commit_timestamp_ms
    return now_ms - since_ms >= group.config.offsets_retention_ms
