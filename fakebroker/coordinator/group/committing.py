"""OffsetCommit, OffsetFetch, OffsetDelete and deleted topics: what each comes to, as answers and records.

Changes nothing. Who may commit is the group's to say.
"""

from collections.abc import Sequence

from fakebroker.coordinator.group.api import CoordinatorConfig, OffsetToCommit
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.coordinator.group.records import OffsetRecord
from fakebroker.coordinator.runtime.placement import java_string_length
from fakebroker.errors import ErrorCode

Outcome = tuple[list[ErrorCode], list[OffsetRecord]]


def commit(group_id: str, offsets: Sequence[OffsetToCommit], config: CoordinatorConfig, now_ms: float) -> Outcome:
    """A record for each offset, those with too long metadata excepted; the length counts UTF-16 units.

    Before KIP-211 each commit carries when it expires, by the broker's retention if by none of its own.
    """
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    for wanted in offsets:
        metadata = wanted.metadata or ""
        if java_string_length(metadata) > config.offset_metadata_max_bytes:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        timestamp_ms = int(now_ms) if wanted.commit_timestamp_ms is None else wanted.commit_timestamp_ms
        expire_timestamp_ms = wanted.expire_timestamp_ms
        if expire_timestamp_ms is None and config.is_before_kip_211:
            expire_timestamp_ms = timestamp_ms + config.offsets_retention_ms
        committed = CommittedOffset(
            offset=wanted.offset,
            leader_epoch=wanted.leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=timestamp_ms,
            expire_timestamp_ms=expire_timestamp_ms,
        )
        errors.append(ErrorCode.NONE)
        records.append(OffsetRecord(group_id, wanted.topic, wanted.partition, committed))
    return errors, records


def fetch(
    group: Group | None, partitions: Sequence[tuple[str, int]] | None
) -> list[tuple[str, int, CommittedOffset | None]]:
    """What is committed for these partitions, or for all that have something; a missing group has nothing."""
    if partitions is None:
        return list(group.offsets) if group is not None else []
    if group is None:
        return [(topic, index, None) for topic, index in partitions]
    return [(topic, index, group.offsets.get(topic, index)) for topic, index in partitions]


def delete(group: Group, partitions: Sequence[tuple[str, int]]) -> Outcome:
    """A tombstone for each partition that has an offset, unless the group is subscribed to the topic."""
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    for topic, partition in partitions:
        is_subscribed = group.is_subscribed_to(topic)
        errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE)
        if not is_subscribed and group.offsets.get(topic, partition) is not None:
            records.append(OffsetRecord(group.group_id, topic, partition, None))
    return errors, records


def delete_topic(groups: Sequence[Group], topic: str) -> list[OffsetRecord]:
    """A tombstone for each partition of a topic that is being deleted, in each group that has an offset of it."""
    return [
        OffsetRecord(group.group_id, topic, partition, None)
        for group in groups
        for partition in group.offsets.partitions_of(topic)
    ]
