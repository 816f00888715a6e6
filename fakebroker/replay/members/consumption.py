"""Simulated consumption of a member's partitions at a constant rate. Does not depend on members or clocks."""

from collections.abc import Iterable
from typing import NamedTuple

from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.topic_partition import TopicPartition

Positions = dict[TopicPartition, int]
"""The next offset to consume, by partition. The dict is `Member.positions` of `fakebroker.client`, updated in place."""


class Growth(NamedTuple):
    """How the position of a partition grows: at `now_ms` it is `position + int((now_ms - since_ms) * per_ms)`.

    Attributes:
        partition: Name of the partition, such as "orders-0".
        position: The first position.
        since_ms: When it was known, in milliseconds since the Unix epoch.
        per_ms: Records consumed per millisecond; 0 if the partition is not consumed.
    """

    partition: str
    position: int
    since_ms: float = 0.0
    per_ms: float = 0.0


class Consumption:
    """Advances positions with time. No records are fetched; positions are computed when a commit needs them.

    `ScriptedMember` calls `advance` before each use of the member's positions, because nothing updates them in between.
    All `now_ms` are milliseconds since the Unix epoch.

    Args:
        per_s: Records consumed per second and partition.
    """

    __slots__ = ("_is_stopped", "_per_ms", "_starts")

    def __init__(self, per_s: float) -> None:
        self._per_ms = per_s / 1000
        self._starts: dict[TopicPartition, tuple[int, float]] = {}  # First position, and when it was known.
        self._is_stopped = False

    def begin(self, positions: Positions, now_ms: float) -> None:
        """Start consuming the partitions that have a position, unless consumption is stopped."""
        if not self._is_stopped:
            for partition, position in positions.items():
                self._starts.setdefault(partition, (position, now_ms))

    def advance(self, positions: Positions, now_ms: float) -> None:
        """Update the positions of consumed partitions to the present time."""
        for partition, (position, since_ms) in self._starts.items():
            if partition in positions:
                positions[partition] = position + int((now_ms - since_ms) * self._per_ms)

    def growth_of(self, partition: TopicPartition) -> Growth | None:
        """Return how the position of a partition grows; None if it is not consumed."""
        start = self._starts.get(partition)
        return None if start is None else Growth(f"{partition[0]}-{partition[1]}", *start, self._per_ms)

    def advance_commit(self, commit: OffsetCommitRequest, positions: Positions, now_ms: float) -> None:
        """Update the positions and the offsets in a commit. Call it before `revoke` of the same partitions.

        The commit of a leaving member contains partitions whose positions the member has already removed.
        """
        self.advance(positions, now_ms)
        for topic in commit.topics:
            for partition in topic.partitions:
                start = self._starts.get((topic.name, partition.partition_index))
                if start is not None:
                    partition.committed_offset = start[0] + int((now_ms - start[1]) * self._per_ms)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop consuming some partitions."""
        for partition in partitions:
            self._starts.pop(partition, None)

    def stop(self, positions: Positions, now_ms: float) -> None:
        """Stop consuming all partitions, until `resume`."""
        self.advance(positions, now_ms)
        self._starts.clear()
        self._is_stopped = True

    def resume(self, positions: Positions, now_ms: float) -> None:
        """Continue from the given positions after `stop`; no effect otherwise."""
        if self._is_stopped:
            self._is_stopped = False
            self.begin(positions, now_ms)
