"""The assigned and the owned partitions of a member of a consumer group, by topic id. Translates topic ids to names."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fakebroker.protocol.messages.consumer_group_heartbeat import HeartbeatTopicPartitions
from fakebroker.topic_partition import TopicPartition

PartitionsById = Mapping[bytes, tuple[int, ...]]
"""Sorted partitions by topic id."""


class LocalAssignment(NamedTuple):
    """Partitions, with a number that grows with each changed assignment (Kafka's `LocalAssignment`).

    Example: a member that has acknowledged partition 0 gets partition 1 as well, and loses it again before it has taken
    it over. The number has grown meanwhile, so the member acknowledges partition 0 once more.
    """

    epoch: int
    partitions: PartitionsById

    def updated(self, partitions: PartitionsById) -> "LocalAssignment":
        """Return the next assignment; the same one if the partitions are equal, unless there was none."""
        if self != NO_ASSIGNMENT and partitions == self.partitions:
            return self
        return LocalAssignment(self.epoch + 1, partitions)


NO_ASSIGNMENT = LocalAssignment(-1, {})


def by_topic_id(topics: Iterable[HeartbeatTopicPartitions]) -> PartitionsById:
    """Return the partitions of an assignment in a response."""
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics}


def as_topics(partitions: PartitionsById) -> list[HeartbeatTopicPartitions]:
    """Return partitions as a heartbeat contains them."""
    return [HeartbeatTopicPartitions(topic_id=each, partitions=list(indexes)) for each, indexes in partitions.items()]


def with_known_names(
    partitions: PartitionsById, names: Mapping[bytes, str]
) -> tuple[PartitionsById, tuple[TopicPartition, ...]]:
    """Return the partitions of topics whose names are known, by topic id and sorted by name."""
    known = {topic_id: indexes for topic_id, indexes in partitions.items() if topic_id in names}
    named = sorted((names[topic_id], index) for topic_id, indexes in known.items() for index in indexes)
    return known, tuple(dict.fromkeys(named))
