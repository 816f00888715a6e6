"""The offsets of the groups that a broker coordinates: it leads their partition of the offsets topic."""

from collections.abc import Callable, Hashable, Mapping
from typing import cast

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.design import CoordinatorPort, Records
from fakebroker.lab.designs.options.messages import UNKNOWN_OFFSET, PartitionAndOffset
from fakebroker.topic_partition import TopicPartition

_Key = tuple[str, str, int]
"""The key of a record: group, topic and partition."""


class OffsetCache:
    """The latest offsets of each group, by partition.

    Args:
        partitions: Number of partitions of the offsets topic.
        port: Appends offsets to it.
    """

    def __init__(self, partitions: int, port: CoordinatorPort) -> None:
        self._count, self._port = partitions, port
        self._loaded: dict[int, dict[str, dict[TopicPartition, int]]] = {}

    def load(self, partition: int, records: Records) -> None:
        """Serve a partition with its records."""
        groups = self._loaded[partition] = {}
        for (group_id, topic, index), offset in cast(Mapping[_Key, int], records).items():
            groups.setdefault(group_id, {})[topic, index] = offset

    def serves(self, group_id: str) -> bool:
        """Return whether this broker leads the partition of a group, and has loaded it."""
        return partition_for(group_id, self._count) in self._loaded

    def offsets(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Return the latest offsets of a group."""
        return self._loaded.get(partition_for(group_id, self._count), {}).get(group_id, {})

    def with_offsets(self, group_id: str, partitions: list[TopicPartition]) -> list[PartitionAndOffset]:
        """Return partitions with their latest offsets."""
        offsets = self.offsets(group_id)
        return [
            PartitionAndOffset(
                topic=partition[0], partition=partition[1], offset=offsets.get(partition, UNKNOWN_OFFSET)
            )
            for partition in partitions
        ]

    def record(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep offsets, without storing them."""
        groups = self._loaded.get(partition_for(group_id, self._count))
        if groups is not None and offsets:
            groups.setdefault(group_id, {}).update(offsets)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int], done: Callable[[bool], None]) -> None:
        """Store offsets, then keep them; `done` is called with whether they are stored."""
        if not offsets:
            done(self.serves(group_id))
            return

        def appended(is_stored: bool) -> None:
            if is_stored:
                self.record(group_id, offsets)
            done(is_stored)

        records: dict[Hashable, int] = {(group_id, topic, index): offset for (topic, index), offset in offsets.items()}
        self._port.append(partition_for(group_id, self._count), records, appended)
