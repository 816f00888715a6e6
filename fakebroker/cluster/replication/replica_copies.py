"""Copies of partitions to the replicas that reassignments add: when a copy waits, and how long a throttled copy takes.

Records are not copied, because all replicas of a partition share one log. A copy only decides when its replica is in
sync. Does not depend on requests or configs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.topics import Partition
from fakebroker.coordinator.timers import TimedValue, Timers

CopyRate = Callable[[Partition, int], float]
"""Returns how many bytes per second may be copied from the leader of a partition to a broker; infinite if unlimited."""


@dataclass(slots=True, eq=False)
class Copy:
    """One copy in progress.

    Attributes:
        partition: The partition.
        node_id: The broker that gets a replica.
        remaining_bytes: What was still to be copied at `begin_ms`.
        begin_ms: When the copy begins or continues; infinite while it waits for something other than time.
        bytes_per_ms: Its speed from then on.
    """

    partition: Partition
    node_id: int
    remaining_bytes: float
    begin_ms: float = inf
    bytes_per_ms: float = inf

    @property
    def end_ms(self) -> float:
        """When the copy ends; infinite if time alone does not end it."""
        if self.begin_ms == inf or not self.remaining_bytes:
            return self.begin_ms
        return self.begin_ms + self.remaining_bytes / self.bytes_per_ms if self.bytes_per_ms else inf

    def stop(self, now_ms: float) -> None:
        """Stop at a time, at which part of the rest has been copied."""
        if self.begin_ms < now_ms:
            copied_bytes = self.bytes_per_ms * (now_ms - self.begin_ms)
            self.remaining_bytes = max(0.0, self.remaining_bytes - copied_bytes)
        self.begin_ms = inf


class ReplicaCopies:
    """All copies in progress, in the order of their start.

    A copy waits while its broker is down, its partition has no leader, or its topic is held. Otherwise it ends at once,
    unless it is throttled: throttled copies from or to one broker run one after the other, each at its own rate.

    Args:
        brokers: The brokers of the cluster, by node id.
        rate: The limit of each copy.

    Attributes:
        held_topics: Names of topics whose copies wait until they are released.
        timers: The timer of the next copy that ends.
    """

    def __init__(self, brokers: Mapping[int, BrokerNode], rate: CopyRate) -> None:
        self.held_topics: set[str] = set()
        self.timers: Timers[TimedValue[str]] | None = None
        self._timer = TimedValue("copies of replicas")
        self._brokers = brokers
        self._rate = rate
        self._copies: list[Copy] = []

    def __iter__(self) -> Iterator[Copy]:
        return iter(self._copies)

    def keep(self, partition: Partition) -> None:
        """Start the copies to `partition.copying` that are missing, and drop others. Call `reschedule` afterwards."""
        if not self._copies and not partition.copying:
            return
        self._copies = [
            copy for copy in self._copies if copy.partition is not partition or copy.node_id in partition.copying
        ]
        known = [copy.node_id for copy in self._copies if copy.partition is partition]
        self._copies += [
            Copy(partition, node_id, partition.log.size_bytes) for node_id in partition.copying if node_id not in known
        ]
        self._find_next_end()

    def _find_next_end(self) -> None:
        if self.timers is not None:
            self.timers.set(self._timer, min((copy.end_ms for copy in self._copies), default=inf))

    def clear(self) -> None:
        """Drop all copies, and release all topics."""
        self._copies.clear()
        self.held_topics.clear()
        self._find_next_end()

    @property
    def end_ms(self) -> float:
        """When the next copy ends; infinite if there is none, or if all of them wait."""
        return self._timer.scheduled_ms

    def reschedule(self, now_ms: float) -> None:
        """Compute all ends again: something that copies wait for, or a limit, may have changed."""
        if self._copies:
            self._schedule(now_ms)
            self._find_next_end()

    def _schedule(self, now_ms: float) -> None:
        busy_until_ms: dict[tuple[str, int], float] = {}
        for copy in self._copies:
            copy.stop(now_ms)
            if self._is_waiting(copy):
                continue
            rate = self._rate(copy.partition, copy.node_id)
            copy.bytes_per_ms = rate / 1000
            copy.begin_ms = now_ms
            if rate != inf:
                ends = ("leader", copy.partition.leader_id), ("follower", copy.node_id)
                copy.begin_ms = max(now_ms, *(busy_until_ms.get(end, now_ms) for end in ends))
                busy_until_ms |= dict.fromkeys(ends, copy.end_ms)

    def _is_waiting(self, copy: Copy) -> bool:
        is_held = copy.partition.topic.name in self.held_topics
        return is_held or not self.can_run(copy)

    def can_run(self, copy: Copy) -> bool:
        """Whether both the broker of a copy and the leader are up."""
        leader = self._brokers.get(copy.partition.leader_id)
        return self._brokers[copy.node_id].up and leader is not None and leader.up

    def due(self, now_ms: float) -> list[Copy]:
        """Return the copies that have ended."""
        return [copy for copy in self._copies if copy.end_ms <= now_ms]
