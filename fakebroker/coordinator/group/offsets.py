"""The committed offsets of one group, and when an offset expires. `Group.check_commit` has checked the commits."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(slots=True, kw_only=True, frozen=True)
class CommittedOffset:
    """The committed offset of a group for one partition (Kafka's `OffsetAndMetadata`).

    Attributes:
        offset: As committed; any number, including -1.
        leader_epoch: -1 if unknown.
        commit_timestamp_ms: When it was committed, by the coordinator's clock.
        expire_timestamp_ms: When the offset expires; `None` to apply the retention of the broker.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None

    def is_expired(self, now_ms: float, retention_ms: int, empty_since_ms: float | None) -> bool:
        """Whether the offset has expired (KIP-211).

        Args:
            now_ms: The time.
            retention_ms: How long an offset without `expire_timestamp_ms` is kept, from its commit or from
                `empty_since_ms`.
            empty_since_ms: When the group became Empty; None if it is not Empty, or never had members.
        """
        return now_ms >= self.expires_ms(retention_ms, empty_since_ms)

    def expires_ms(self, retention_ms: int, empty_since_ms: float | None) -> float:
        """Return when the offset expires, in milliseconds. For the arguments see `is_expired`."""
        if self.expire_timestamp_ms is not None:
            return self.expire_timestamp_ms
        return (self.commit_timestamp_ms if empty_since_ms is None else empty_since_ms) + retention_ms


_NO_OFFSETS: Mapping[int, CommittedOffset] = MappingProxyType({})


class OffsetStore:
    """Committed offsets by topic and partition, both in the order of their first commit."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Yield (topic, partition, committed offset); the partitions of one topic follow each other."""
        for topic, by_partition in self._by_topic.items():
            for partition, committed in by_partition.items():
                yield topic, partition, committed

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_topic.get(topic, {}).get(partition)

    def of_topic(self, topic: str) -> Mapping[int, CommittedOffset]:
        """Return the offsets of a topic by partition."""
        return self._by_topic.get(topic, _NO_OFFSETS)

    def partitions_of(self, topic: str) -> Iterable[int]:
        """Return the partitions of a topic that have a committed offset."""
        return self._by_topic.get(topic, {})

    def apply(self, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        """Apply an offset record: store the offset, or delete it if there is none."""
        if committed is not None:
            self._by_topic.setdefault(topic, {})[partition] = committed
            return
        by_partition = self._by_topic.get(topic, {})
        by_partition.pop(partition, None)
        if not by_partition:
            self._by_topic.pop(topic, None)
