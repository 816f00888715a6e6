"""Offsets that were committed in transactions which have not ended (KIP-98).

Follows `pendingTransactionalOffsets` of Kafka's `OffsetMetadataManager`. Does not depend on groups or logs: the methods
are called with the records of the log, in its order.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fakebroker.coordinator.records import CoordinatorRecord, OffsetRecord, TransactionalRecord, TransactionEnd
from fakebroker.protocol.messages.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from fakebroker.topic_partition import TopicPartition

_Place = tuple[str, TopicPartition]
"""A group and a partition."""


@dataclass(slots=True)
class _Pending:
    """A pending offset. `is_superseded`: a later offset in the log is stored already, and stays."""

    value: OffsetCommitValue
    is_superseded: bool = False


class PendingOffset(NamedTuple):
    """One pending offset of a group, with the producer whose transaction decides about it."""

    producer_id: int
    topic: str
    partition: int
    committed: OffsetCommitValue


class PendingOffsets:
    """The pending offsets of the groups of one offsets partition, by producer, group and partition.

    Several producers may have a pending offset for the same partition of a group.
    """

    __slots__ = ("_by_group", "_by_producer")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[_Place, _Pending]] = {}
        # The innermost dictionaries, by producer id, are in the order of the log.
        self._by_group: dict[str, dict[TopicPartition, dict[int, _Pending]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_group)

    def partitions_of(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions for which a group has pending offsets."""
        return self._by_group.get(group_id, {}).keys()

    def of_group(self, group_id: str) -> Iterator[PendingOffset]:
        """Yield the pending offsets of a group, partition by partition."""
        for (topic, index), by_producer in self._by_group.get(group_id, {}).items():
            for producer_id, pending in by_producer.items():
                yield PendingOffset(producer_id, topic, index, pending.value)

    def add(self, record: TransactionalRecord) -> None:
        """Add an offset. It replaces the earlier one of its producer."""
        group_id, place = record.key.group, (record.key.topic, record.key.partition)
        by_producer = self._by_group.setdefault(group_id, {}).setdefault(place, {})
        by_producer.pop(record.producer_id, None)
        by_producer[record.producer_id] = pending = _Pending(record.value)
        self._by_producer.setdefault(record.producer_id, {})[group_id, place] = pending

    def apply(self, record: OffsetRecord) -> None:
        """Apply an offset that was stored or deleted outside of transactions.

        A stored offset is later in the log than the pending offsets, so it stays when they are committed. A deletion
        also drops the pending offsets.
        """
        group_id, place = record.key.group, (record.key.topic, record.key.partition)
        by_producer = self._by_group.get(group_id, {}).get(place, {})
        if record.value is None:
            for producer_id in list(by_producer):
                self._remove(producer_id, (group_id, place))
        for pending in by_producer.values():
            pending.is_superseded = True

    def drop_group(self, group_id: str) -> None:
        """Drop the pending offsets of a group that was deleted."""
        for place, by_producer in list(self._by_group.get(group_id, {}).items()):
            for producer_id in list(by_producer):
                self._remove(producer_id, (group_id, place))

    def end(self, producer_id: int, *, is_commit: bool) -> list[OffsetRecord]:
        """End the transaction of a producer, which may have no pending offsets.

        Returns:
            The offsets to store; none if the transaction is aborted.
        """
        stored: list[OffsetRecord] = []
        for (group_id, place), pending in list(self._by_producer.get(producer_id, {}).items()):
            if is_commit and not pending.is_superseded:
                topic, partition = place
                key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
                stored.append(CoordinatorRecord(key, pending.value))
                for earlier, other in self._by_group[group_id][place].items():
                    if earlier == producer_id:
                        break
                    other.is_superseded = True
            self._remove(producer_id, (group_id, place))
        return stored

    def _remove(self, producer_id: int, place: _Place) -> None:
        group_id, topic_partition = place
        by_partition = self._by_group[group_id]
        of_producer, by_producer = self._by_producer[producer_id], by_partition[topic_partition]
        del of_producer[place], by_producer[producer_id]
        if not of_producer:
            del self._by_producer[producer_id]
        if not by_producer:
            del by_partition[topic_partition]
        if not by_partition:
            del self._by_group[group_id]


class PlacedGroup(Protocol):
    """A group in an offsets partition."""

    group_id: str
    partition: int


class PartitionedPendingOffsets:
    """The pending offsets of all groups of a coordinator.

    Attributes:
        by_partition: The pending offsets by offsets partition. Partitions without pending offsets are left out.
    """

    __slots__ = ("by_partition",)

    def __init__(self) -> None:
        self.by_partition: dict[int, PendingOffsets] = {}

    def load(self, partition: int, pending: PendingOffsets) -> None:
        """Set the pending offsets of a partition that had none."""
        if pending:
            self.by_partition[partition] = pending

    def add(self, partition: int, records: Iterable[TransactionalRecord]) -> None:
        """Add offsets of groups in a partition."""
        for record in records:
            self.by_partition.setdefault(partition, PendingOffsets()).add(record)

    def apply(self, partition: int, records: Iterable[OffsetRecord]) -> None:
        """Apply offsets that were stored or deleted outside of transactions."""
        if (pending := self.by_partition.get(partition)) is not None:
            for record in records:
                pending.apply(record)
            self._forget_if_empty(partition)

    def end(self, partition: int, end: TransactionEnd) -> list[OffsetRecord]:
        """End a transaction in a partition. Return the offsets to store."""
        if (pending := self.by_partition.get(partition)) is None:
            return []
        stored = pending.end(end.producer_id, is_commit=end.is_commit)
        self._forget_if_empty(partition)
        return stored

    def drop_group(self, group: PlacedGroup) -> None:
        """Drop the pending offsets of a group that was deleted."""
        if (pending := self.by_partition.get(group.partition)) is not None:
            pending.drop_group(group.group_id)
            self._forget_if_empty(group.partition)

    def _forget_if_empty(self, partition: int) -> None:
        if not self.by_partition[partition]:
            del self.by_partition[partition]
