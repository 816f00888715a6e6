"""The committed offsets of one group.

A store and nothing else: who may commit is the group's business, when offsets expire the coordinator's.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True, frozen=True)
class CommittedOffset:
    """What Kafka keeps for one partition of a group (`OffsetAndMetadata`).

    Attributes:
        offset: As committed; any number, -1 included.
        leader_epoch: -1 if none was given.
        commit_timestamp_ms: When it was committed, on the coordinator's clock.
        expire_timestamp_ms: When it expires whatever the retention of the broker, or `None`.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None


class OffsetStore:
    """Committed offsets by topic and partition, both in the order of their first commit."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        """All offsets, those of one topic together."""
        for topic, by_partition in self._by_topic.items():
            for partition, committed in by_partition.items():
                yield topic, partition, committed

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_topic.get(topic, {}).get(partition)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Persisted: an offset record."""
        self._by_topic.setdefault(topic, {})[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        """Persisted: a tombstone, if there was an offset."""
        by_partition = self._by_topic.get(topic, {})
        by_partition.pop(partition, None)
        if not by_partition:
            self._by_topic.pop(topic, None)

    def remove_topic(self, topic: str) -> None:
        """Persisted: a tombstone for each of the topic's partitions that has an offset."""
        self._by_topic.pop(topic, None)
