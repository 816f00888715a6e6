"""How far a member has consumed its partitions, at a steady rate. Does not depend on members or clocks."""

from collections.abc import Iterable

from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.topic_partition import TopicPartition

Positions = dict[TopicPartition, int]
"""The next offset of each partition, as a member keeps them."""


class Consumption:
    """Simulated consumption: nothing happens record by record, positions are computed when they are needed.

    Args:
        per_s: By how many records the position of each partition advances in a second.
    """

    __slots__ = ("_began", "_is_stopped", "_per_ms")

    def __init__(self, per_s: float) -> None:
        self._per_ms = per_s / 1000
        self._began: dict[TopicPartition, tuple[int, float]] = {}
        self._is_stopped = False

    def begin(self, positions: Positions, now_ms: float) -> None:
        """Consume, from now on, the partitions whose positions have become known."""
        if not self._is_stopped:
            for partition, position in positions.items():
                self._began.setdefault(partition, (position, now_ms))

    def advance(self, positions: Positions, now_ms: float) -> None:
        """Update positions to the present."""
        for partition, (position, since_ms) in self._began.items():
            if partition in positions:
                positions[partition] = position + int((now_ms - since_ms) * self._per_ms)

    def advance_commit(self, commit: OffsetCommitRequest, positions: Positions, now_ms: float) -> None:
        """Update positions and the offsets of a commit; the member may have given up the partitions with it."""
        self.advance(positions, now_ms)
        for topic in commit.topics:
            for asked in topic.partitions:
                began = self._began.get((topic.name, asked.partition_index))
                if began is not None:
                    asked.committed_offset = began[0] + int((now_ms - began[1]) * self._per_ms)

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop consuming some partitions."""
        for partition in partitions:
            self._began.pop(partition, None)

    def stop(self, positions: Positions, now_ms: float) -> None:
        """Stop consuming all partitions."""
        self.advance(positions, now_ms)
        self._began.clear()
        self._is_stopped = True

    def resume(self, positions: Positions, now_ms: float) -> None:
        """Continue after `stop`."""
        if self._is_stopped:
            self._is_stopped = False
            self.begin(positions, now_ms)
