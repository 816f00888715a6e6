"""The committed offsets of all groups of one coordinator: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

Also what changes them without a request of a client: ends of transactions, deleted topics and expiry. The counterpart
of Kafka's `OffsetMetadataManager`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any

import msgspec

from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import CONSUMER_PROTOCOL_TYPE, EMPTY, STABLE
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.heartbeat import tombstones as consumer_group_tombstones
from fakebroker.coordinator.groups import AnyGroup, Groups
from fakebroker.coordinator.offset_store import NO_TIMESTAMP, CommittedOffset, OffsetStore
from fakebroker.coordinator.partitions import Append, Partitions, java_string_length
from fakebroker.coordinator.pending_offsets import PartitionedPendingOffsets, PendingOffset
from fakebroker.coordinator.persistence import tombstones
from fakebroker.coordinator.records import (
    CoordinatorRecord,
    KeyedRecord,
    OffsetRecord,
    Record,
    TransactionalRecord,
    TransactionEnd,
    group_tombstone,
    offset_tombstone,
)
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_records import ConsumerGroupMetadataKey
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition
from fakebroker.topic_partition import TopicPartition

_NONE = ErrorCode.NONE  # A global is faster than an attribute of an enumeration.
_KEY: Any = OffsetCommitKey  # Type checkers accept fields by position only of `Any`.
_VALUE: Any = OffsetCommitValue

# Results and records of requests. These functions do not change groups. The coordinator first checks whether the group
# accepts the request, and later appends the records and applies them.


Outcome = tuple[list[ErrorCode], tuple[OffsetRecord, ...]]
"""One error code for each partition, and the records to append."""


Wanted = tuple[str, OffsetCommitRequestPartition] | tuple[str, TxnOffsetCommitRequestPartition]
"""The name of a topic, and a partition of a request."""


def _commit(
    group_id: str, offsets: Iterable[Wanted], config: CoordinatorConfig, now_ms: float, retention_ms: int = -1
) -> Outcome:
    """Return a record for each offset, except those whose metadata has too many UTF-16 units.

    Before KIP-211 each offset is stored with its expiry time. The client gives it as `retention_ms` from now; else it
    results from the broker's retention.
    """
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    wanted: Any  # Only partitions of an OffsetCommit can have a timestamp, in version 1.
    for topic, wanted in offsets:
        metadata = wanted.committed_metadata or ""
        if metadata and java_string_length(metadata) > config.offset_metadata_max_bytes:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        timestamp_ms, expire_timestamp_ms = int(now_ms), NO_TIMESTAMP
        if type(wanted) is OffsetCommitRequestPartition and wanted.commit_timestamp != -1:
            timestamp_ms = wanted.commit_timestamp
        if retention_ms != -1:
            expire_timestamp_ms = int(now_ms) + retention_ms
        elif config.is_before_kip_211:
            expire_timestamp_ms = timestamp_ms + config.offsets_retention_ms
        # By position, which takes half as long. The required fields of a struct are the first ones.
        key = _KEY(group_id, topic, wanted.partition_index)
        value = _VALUE(
            wanted.committed_offset, metadata, timestamp_ms, wanted.committed_leader_epoch, expire_timestamp_ms
        )
        errors.append(_NONE)
        records.append(CoordinatorRecord(key, value))
    return errors, tuple(records)


def _fetch(
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


def _delete(
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
            records.append(offset_tombstone(group.group_id, topic, partition))
    return errors, tuple(records)


def _delete_topic(group: Group | ConsumerGroup, topic: str, pending: Collection[TopicPartition]) -> list[OffsetRecord]:
    """Return a tombstone for each partition of a topic that is being deleted for which a group has an offset.

    Args:
        group: The group.
        topic: The topic.
        pending: The partitions with pending offsets, which are deleted, too.
    """
    pending_here = (index for name, index in pending if name == topic)
    partitions = dict.fromkeys([*group.offsets.partitions_of(topic), *pending_here])
    return [offset_tombstone(group.group_id, topic, partition) for partition in partitions]


def expired_records(group: Group, now_ms: float, pending: Collection[TopicPartition] = ()) -> list[KeyedRecord]:
    """Return tombstones for the expired offsets of a group, and for the group itself if it has expired (KIP-211).

    A group has expired if it is Empty, has no offset left (or never had any), and its extension reserves no places.
    See Kafka's `GroupCoordinatorShard.cleanupGroupMetadata`.

    Args:
        group: The group.
        now_ms: The time.
        pending: The partitions with pending offsets, whose offsets do not expire, and neither does the group.
    """
    if not _may_expire(group):
        return []
    expired: list[KeyedRecord] = []
    is_anything_left = group.state is not EMPTY or bool(group.extension.reserved_places) or bool(pending)
    empty_since_ms = _empty_since_ms(group)
    for topic, partition, committed in group.offsets:
        is_kept = _is_kept(group, topic, partition, pending)
        if not is_kept and committed.is_expired(now_ms, group.config.offsets_retention_ms, empty_since_ms):
            expired.append(offset_tombstone(group.group_id, topic, partition))
        else:
            is_anything_left = True
    return expired if is_anything_left else [*expired, group_tombstone(group.group_id)]


def expired_records_of_consumer_group(
    group: ConsumerGroup, now_ms: float, retention_ms: int, pending: Collection[TopicPartition]
) -> list[KeyedRecord]:
    """Return tombstones for the expired offsets of a consumer group, and for the group itself if nothing is left.

    While a member is subscribed to a topic, offsets for the topic do not expire. `retention_ms` is the setting of the
    broker. For the other arguments, see `expired_records`.
    """
    expired: list[KeyedRecord] = []
    is_anything_left = bool(group.members or pending)
    for topic, partition, committed in group.offsets:
        is_kept = group.is_subscribed_to(topic) or (topic, partition) in pending
        if not is_kept and committed.is_expired(now_ms, retention_ms, None):
            expired.append(offset_tombstone(group.group_id, topic, partition))
        else:
            is_anything_left = True
    return expired if is_anything_left else [*expired, *consumer_group_tombstones(group)]


class Expiration(msgspec.Struct, frozen=True):
    """When offsets of a group, or the group itself, expire if the group does not change. The next check removes them.

    Attributes:
        at_ms: The time, in milliseconds; it may have passed.
        offsets: How many offsets expire at this time.
        removes_group: Whether the group is removed then, because it has no offsets left.
    """

    at_ms: float
    offsets: int
    removes_group: bool


def next_expiration(group: Group, check_ms: float, pending: Collection[TopicPartition] = ()) -> Expiration | None:
    """Return the next expiration of a group, if the group does not change; None if nothing expires.

    Args:
        group: The group.
        check_ms: The time of the next check. Offsets that expire before it are counted together, at this time.
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
    """Return the next expiration of a consumer group.

    See `next_expiration` and `expired_records_of_consumer_group`.
    """
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


# The offsets of a coordinator


_OLDER_ERRORS = {
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
}


class CommittedOffsets:
    """The committed offsets of the groups of one coordinator, and the pending ones of open transactions.

    Commits and fetches accept the group id "". For `now_ms` see `Coordinator`.

    Args:
        partitions: The offsets partitions.
        append: Appends records to one of them.
        groups: The groups, which have the offsets.
        config: The settings. Replaced, not changed.
        pending: The offsets of open transactions.
    """

    def __init__(
        self,
        partitions: Partitions,
        append: Append[Record],
        groups: Groups,
        config: CoordinatorConfig,
        pending: PartitionedPendingOffsets,
    ) -> None:
        self.config = config
        self._partitions = partitions
        self._append = append
        self._groups = groups
        self._pending = pending

    # Commits

    def commit(
        self, request: OffsetCommitRequest, offsets: Sequence[tuple[str, OffsetCommitRequestPartition]], now_ms: float
    ) -> list[ErrorCode]:
        """Commit offsets, except those whose metadata is too long.

        Args:
            request: The request. Its generation is negative if a client that is not a member commits.
            offsets: The partitions of the request that exist and that the client may read, with the names of topics.
            now_ms: The time.

        Returns:
            One error code for each offset, in order. An error of the whole request is repeated for each. If the group
            does not exist and a generation is given, the error is GROUP_ID_NOT_FOUND, or ILLEGAL_GENERATION before
            KIP-848.
        """
        group_id, member_id = request.group_id, request.member_id
        generation_id = request.generation_id_or_member_epoch
        group = self._groups.classic.get(group_id)
        consumer_group = self._groups.consumer.get(group_id) if group is None else None
        if group is not None:
            error = group.check_commit(generation_id, member_id, request.group_instance_id)
        elif consumer_group is not None:
            error = consumer_group.check_commit(generation_id, member_id)
        else:
            not_found = ErrorCode.ILLEGAL_GENERATION if self.config.is_before_kip_848 else ErrorCode.GROUP_ID_NOT_FOUND
            error = self._partitions.error_for(group_id) or (_NONE if generation_id < 0 else not_found)
        if error:
            return [error] * len(offsets)
        if group is not None and (member := group.members.get(member_id)) is not None:
            group.arm_session(member, member.session_timeout_ms, now_ms)
            self._groups.schedule(group)
        if group is None and consumer_group is None and self.config.is_before_kip_848:
            # The group is made before the offsets are checked. It stays even if none of them is stored.
            group = self._groups.create_simple(group_id, "first OffsetCommit", now_ms)
        errors, records = _commit(group_id, offsets, self.config, now_ms, request.retention_time_ms)
        if consumer_group is not None:
            error = self._check_older_commit(consumer_group, generation_id, member_id, records)
        if records and not error:
            error = self._append(
                self._partitions.partition_for(group_id) if group is None else group.partition, records
            )
        if error:
            return [error] * len(offsets)
        if records:
            stored = self._groups.offsets_of(group_id)
            if stored is None:
                stored = self._groups.create_simple(group_id, "first OffsetCommit", now_ms).offsets
            for record in records:
                stored.apply(record.key.topic, record.key.partition, record.value)
            if self._pending.by_partition:
                self._pending.apply(self._partitions.partition_for(group_id), records)
        return errors

    def set(
        self, group_id: str, offsets: Mapping[TopicPartition, int | None], now_ms: float, *, is_forced: bool
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit and delete offsets for an administrator, all or none.

        Args:
            group_id: The group, which is created by the first commit.
            offsets: The offset of each partition; None deletes it.
            now_ms: The time.
            is_forced: Whether a group with members accepts it. Else the rules of OffsetCommit and OffsetDelete apply.

        Returns:
            The errors, by partition; empty if all is done.
        """
        wanted = [
            (topic, OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=""))
            for (topic, index), offset in offsets.items()
            if offset is not None
        ]
        removed = [place for place, offset in offsets.items() if offset is None]
        group, error = self._groups.get(group_id), _NONE
        if group is None:
            error = self._error_without_group(group_id) or (ErrorCode.GROUP_ID_NOT_FOUND if removed else _NONE)
        elif not is_forced and wanted:
            error = group.check_commit(-1, "", None) if isinstance(group, Group) else group.check_commit(-1, "")
        if error:
            return dict.fromkeys(offsets, error)
        if group is not None and not is_forced:
            codes, _ = _delete(group, removed, ())
            if refused := {place: code for place, code in zip(removed, codes, strict=True) if code}:
                return refused
        records = (
            *_commit(group_id, wanted, self.config, now_ms)[1],
            *(offset_tombstone(group_id, topic, index) for topic, index in removed),
        )
        error = self._append(self._partitions.partition_for(group_id), records) if records else _NONE
        if error:
            return dict.fromkeys(offsets, error)
        if group is None and records:
            self._groups.create_simple(group_id, "first OffsetCommit", now_ms)
        self._apply(records)
        return {}

    def _check_older_commit(
        self, group: ConsumerGroup, epoch: int, member_id: str, records: Sequence[OffsetRecord]
    ) -> ErrorCode:
        """Check a commit that a member sends with an epoch older than its own, partition by partition."""
        topics = self.config.consumer.topics
        found = ((topics.named(record.key.topic), record.key.partition) for record in records)
        places = ((b"" if topic is None else topic.topic_id, index) for topic, index in found)
        return group.check_older_commit(epoch, member_id, places)

    def _apply(self, records: Sequence[OffsetRecord]) -> None:
        """Apply records of one offsets partition."""
        for record in records:
            if (offsets := self._groups.offsets_of(record.key.group)) is not None:
                offsets.apply(record.key.topic, record.key.partition, record.value)
        if self._pending.by_partition and records:
            self._pending.apply(self._partitions.partition_for(records[0].key.group), records)

    # Fetches

    def fetch(
        self, group_id: str, partitions: Sequence[tuple[str, int]] | None
    ) -> tuple[ErrorCode, list[tuple[str, int, CommittedOffset | None]]]:
        """Return the committed offsets of a group; a group that does not exist has none.

        Args:
            group_id: The group.
            partitions: Topics, which need not exist, and partitions. None for all that have a committed offset.

        Returns:
            NONE and (topic, partition, offset or None), in the order of `partitions` or topic by topic; or an error of
            the whole request and an empty list.
        """
        error, offsets = self.of(group_id)
        return (error, []) if error else (_NONE, _fetch(offsets, partitions))

    def of(self, group_id: str) -> tuple[ErrorCode, OffsetStore | None]:
        """Return NONE and the offsets of a group, None if it does not exist; or an error as `fetch` does."""
        offsets = self._groups.offsets_of(group_id)
        return (self._partitions.error_for(group_id), None) if offsets is None else (_NONE, offsets)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error of an OffsetFetch with a member id and epoch, or NONE; only consumer groups check them."""
        group = self._groups.consumer.get(group_id)
        return _NONE if group is None else group.check_fetch(member_epoch, member_id)

    # Transactions

    def commit_pending(
        self,
        request: TxnOffsetCommitRequest,
        offsets: Sequence[tuple[str, TxnOffsetCommitRequestPartition]],
        now_ms: float,
        *,
        has_newer_errors: bool = False,
    ) -> list[ErrorCode]:
        """Commit offsets in a transaction: they are stored when it is committed (TxnOffsetCommit).

        Args:
            request: The request. Its group is created if it does not exist and no generation is given. The offsets
                partition of the group was added to the transaction of its producer.
            offsets: The partitions of the request that exist and that the client may read, with the names of topics.
            now_ms: The time.
            has_newer_errors: Whether the client knows STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-1319), which are
                ILLEGAL_GENERATION for others.

        Returns:
            One error code for each offset, in order. An error of the whole request is repeated.
        """
        group_id, member_id = request.group_id, request.member_id
        generation_id = request.generation_id_or_member_epoch
        group = self._groups.get(group_id)
        error = self._error_without_group(group_id) if group is None or not group_id else _NONE
        if group is None and not error and self.config.is_before_kip_848:
            group = self._groups.create_simple(group_id, "first TxnOffsetCommit", now_ms)
        if group is not None:
            error = error or group.check_transactional_commit(generation_id, member_id, request.group_instance_id)
        elif generation_id >= 0:
            error = error or ErrorCode.GROUP_ID_NOT_FOUND
        if not error:
            errors, records = _commit(group_id, offsets, self.config, now_ms)
            if isinstance(group, ConsumerGroup):
                error = self._check_older_commit(group, generation_id, member_id, records)
        if not error:
            pending = tuple(
                TransactionalRecord(record.key, record.value, request.producer_id, request.producer_epoch)
                for record in records
                if record.value is not None
            )
            partition = self._partitions.partition_for(group_id)
            error = self._append(partition, pending) if pending else _NONE
        if error:
            return [error if has_newer_errors else _OLDER_ERRORS.get(error, error)] * len(offsets)
        if pending and group_id not in self._groups:
            self._groups.create_simple(group_id, "first TxnOffsetCommit", now_ms)
        self._pending.add(partition, pending)
        return errors

    def end_transaction(self, partition: int, end: TransactionEnd) -> ErrorCode:
        """Append the end of a transaction to an offsets partition, then store its offsets or drop them.

        Args:
            partition: The offsets partition.
            end: The record.

        Returns:
            NONE or the error: NOT_COORDINATOR if the partition is not led here, else the error of the log.
        """
        error = self._append(partition, (end,)) if partition in self._partitions.led else ErrorCode.NOT_COORDINATOR
        if not error:
            for record in self._pending.end(partition, end):
                if (offsets := self._groups.offsets_of(record.key.group)) is not None:
                    offsets.apply(record.key.topic, record.key.partition, record.value)
        return error

    def pending_of(self, group_id: str) -> list[PendingOffset]:
        """Return the offsets of open transactions of a group."""
        pending = self._pending.by_partition.get(self._partitions.partition_for(group_id))
        return [] if pending is None else list(pending.of_group(group_id))

    def unstable_partitions(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions for which a group has offsets of open transactions (KIP-447)."""
        if not self._pending.by_partition:
            return ()
        pending = self._pending.by_partition.get(self._partitions.partition_for(group_id))
        return () if pending is None else pending.partitions_of(group_id)

    @property
    def has_pending(self) -> bool:
        """Whether any group has offsets of open transactions."""
        return bool(self._pending.by_partition)

    # Deletion and expiry

    def delete(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Delete committed offsets of topics that the group is not subscribed to (OffsetDelete).

        Args:
            group_id: The group.
            partitions: Topics and partitions.
        """
        group = self._groups.get(group_id) if group_id else None
        if group is None:
            return self._error_without_group(group_id) or ErrorCode.GROUP_ID_NOT_FOUND, []
        if isinstance(group, Group) and group.state is not EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP, []
        errors, records = _delete(group, partitions, self.unstable_partitions(group_id))
        error = self._append_tombstones(group.partition, records)
        return error, [] if error else errors

    def delete_topic(self, topic: str) -> None:
        """Delete the committed offsets of a topic that is being deleted, in one batch for each offsets partition."""
        for partition in dict.fromkeys(group.partition for group in self._groups):
            records = tuple(
                record
                for group in self._groups.of_partition(partition)
                for record in _delete_topic(group, topic, self.unstable_partitions(group.group_id))
            )
            self._append_tombstones(partition, records)

    def _append_tombstones(self, partition: int, records: tuple[OffsetRecord, ...]) -> ErrorCode:
        """Append tombstones of offsets and apply them, all or none."""
        if not records:
            return _NONE
        error = self._groups.error_of_tombstones(self._append(partition, records), partition)
        if not error:
            self._apply(records)
        return error

    def tombstones(self, group: AnyGroup) -> tuple[Record, ...]:
        """Return the records that delete a group and its offsets."""
        return tombstones(group, self.unstable_partitions(group.group_id))

    def expire(self, partition: int, now_ms: float) -> None:
        """Delete the expired offsets and groups of a partition in one batch. If this fails, the next check retries."""
        groups = self._groups.of_partition(partition)
        records = tuple(chain.from_iterable(self._expired(group, now_ms) for group in groups))

        error = self._append(partition, records) if records else _NONE
        if not self._groups.error_of_tombstones(error, partition):
            self._apply([record for record in records if isinstance(record.key, OffsetCommitKey)])
            for record in records:
                match record.key:
                    case GroupMetadataKey(group=group_id) | ConsumerGroupMetadataKey(group_id=group_id):
                        self._groups.drop(self._groups[group_id], "its offsets expired", now_ms)
        if self._groups.of_partition(partition):
            self._groups.schedule_offset_expiry(partition, now_ms)

    def _expired(self, group: AnyGroup, now_ms: float) -> list[KeyedRecord]:
        pending = self.unstable_partitions(group.group_id)
        if isinstance(group, ConsumerGroup):
            retention_ms = self.config.offsets_retention_ms
            return expired_records_of_consumer_group(group, now_ms, retention_ms, pending)
        return expired_records(group, now_ms, pending)

    def _error_without_group(self, group_id: str) -> ErrorCode:
        return self._partitions.error_for(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
