"""The owners of the partitions of each group over time: gaps, double owners, rebalances, lost and repeated records.

A member owns a partition from the report of its assignment until it reports that it has stopped, or its process ends. A
member that was removed from its group owns its partitions until it learns that. Does not depend on designs or messages.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import floor

from fakebroker.topic_partition import TopicPartition


@dataclass(slots=True)
class Rebalance:
    """The time from a change until the group is complete again.

    Attributes:
        group_id: The group.
        cause: What changed, such as "crash"; the first of several changes.
        from_ms: When it changed.
        changes: How many changes there were until the group was complete.
        until_ms: When all partitions had one owner and all live members had their assignment. None: not until the end.
        failover_ms: When the group lost its coordinator, if it did before it was complete; the first time.
        messages, bytes: Messages from the first one that is not a beat until the group was complete.
    """

    group_id: str
    cause: str
    from_ms: float
    changes: int = 1
    until_ms: float | None = None
    failover_ms: float | None = None
    messages: int = 0
    bytes: int = 0
    has_begun: bool = False


@dataclass(slots=True)
class GroupOwnership:
    """The partitions of one group and their owners.

    Attributes:
        group_id: The group.
        partitions: All partitions of its topics.
        owned: The partitions that each live member owns, with the offset at which it started; None if it is not known
            yet.
        settled: Live members that have an assignment, possibly an empty one.
        live: Members whose process runs.
        rebalance: The present one, if the group is not complete.
        unowned_ms, double_ms: Partition-milliseconds without an owner, and with more than one.
        spans: Consumed offsets of each partition: from and until.
        must_hear: Members that must hear from the present coordinator before a failover is over.
    """

    group_id: str
    partitions: set[TopicPartition]
    owned: dict[int, dict[TopicPartition, int | None]] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)
    must_hear: set[int] = field(default_factory=set)
    rebalance: Rebalance | None = None
    unowned_ms: float = 0.0
    double_ms: float = 0.0
    spans: defaultdict[TopicPartition, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    _owners: dict[TopicPartition, int] = field(default_factory=dict)
    _doubles: int = 0
    _since_ms: float = 0.0

    def integrate(self, now_ms: float) -> None:
        """Add the time since the last change to the times without an owner and with two."""
        elapsed_ms = now_ms - self._since_ms
        self._since_ms = now_ms
        if self.live or self.rebalance is not None:
            self.unowned_ms += elapsed_ms * (len(self.partitions) - len(self._owners))
        self.double_ms += elapsed_ms * self._doubles

    def own(self, partition: TopicPartition) -> None:
        owners = self._owners[partition] = self._owners.get(partition, 0) + 1
        self._doubles += owners == 2

    def disown(self, partition: TopicPartition) -> None:
        owners = self._owners[partition] - 1
        self._doubles -= owners == 1
        if owners:
            self._owners[partition] = owners
        else:
            del self._owners[partition]

    @property
    def doubles(self) -> int:
        """The number of partitions with more than one owner."""
        return self._doubles

    @property
    def is_complete(self) -> bool:
        """Whether each partition has one owner, and all live members have an assignment and a coordinator."""
        if self.must_hear or self._doubles or len(self.settled) < len(self.live):
            return False
        return not self.live or len(self._owners) == len(self.partitions)


class Ownership:
    """The ownership of all groups of a run.

    Args:
        start_ms: When the run starts.
        records_per_s: Records that are produced to each partition.

    Attributes:
        groups: By group id.
        rebalances: All that are over, in that order.
    """

    def __init__(self, start_ms: float, records_per_s: float) -> None:
        self.groups: dict[str, GroupOwnership] = {}
        self.rebalances: list[Rebalance] = []
        self._start_ms, self._records_per_ms = start_ms, records_per_s / 1000

    def end_offset(self, at_ms: float) -> int:
        """Return the offset after the last record of each partition at a time."""
        return floor((at_ms - self._start_ms) * self._records_per_ms)

    def add(self, group_id: str, partitions: Iterable[TopicPartition], now_ms: float) -> None:
        """Add a group without members."""
        group = self.groups[group_id] = GroupOwnership(group_id, set(partitions))
        group.integrate(now_ms)

    def changed(self, group_id: str, cause: str, now_ms: float) -> None:
        """The members, the partitions or the coordinator of a group have changed."""
        group = self.groups[group_id]
        if group.rebalance is None:
            group.integrate(now_ms)
            group.rebalance = Rebalance(group_id, cause, now_ms)
        else:
            group.rebalance.changes += 1

    def add_partitions(self, group_id: str, partitions: Iterable[TopicPartition], now_ms: float) -> None:
        group = self.groups[group_id]
        group.integrate(now_ms)
        group.partitions.update(partitions)
        if group.live:
            self.changed(group_id, "topics", now_ms)

    def started(self, group_id: str, member: int, now_ms: float) -> None:
        self.changed(group_id, "start", now_ms)
        self.groups[group_id].live.add(member)

    def ended(self, group_id: str, member: int, running_ms: float, now_ms: float) -> None:
        """The process of a member has ended, after `changed`; see `stopped`."""
        self._release(group_id, member, running_ms, now_ms)
        group = self.groups[group_id]
        group.live.discard(member)
        group.must_hear.discard(member)
        self._complete(group, now_ms)

    def stopped(
        self, group_id: str, member: int, keep: Collection[TopicPartition], running_ms: float, now_ms: float
    ) -> None:
        """A member has stopped consuming, except the partitions in `keep`.

        Args:
            group_id: The group.
            member: The member.
            keep: Partitions that it still owns.
            running_ms: Until when it has consumed: the present time, or when its process was paused.
            now_ms: The present time.
        """
        group = self.groups[group_id]
        if group.rebalance is None:
            self.changed(group_id, "rejoin", now_ms)
        self._release(group_id, member, running_ms, now_ms, keep)

    def _release(
        self, group_id: str, member: int, running_ms: float, now_ms: float, keep: Collection[TopicPartition] = ()
    ) -> None:
        group = self.groups[group_id]
        group.settled.discard(member)
        owned = group.owned.pop(member, None)
        if not owned:
            return
        group.integrate(now_ms)
        kept = {}
        for partition, start in owned.items():
            if partition in keep:
                kept[partition] = start
            else:
                group.disown(partition)
                self._end_span(group, partition, start, running_ms)
        if kept:
            group.owned[member] = kept

    def assigned(
        self, group_id: str, member: int, partitions: Mapping[TopicPartition, int | None], now_ms: float
    ) -> None:
        """A member owns exactly these partitions now; see `MemberPort.assigned`."""
        group = self.groups[group_id]
        group.integrate(now_ms)
        before = group.owned.get(member, {})
        owned: dict[TopicPartition, int | None] = {}
        for partition, offset in partitions.items():
            if partition not in before:
                group.own(partition)
                owned[partition] = offset
            elif offset is None:
                owned[partition] = before[partition]
            else:
                self._end_span(group, partition, before[partition], now_ms)
                owned[partition] = offset
        for partition in before.keys() - partitions.keys():
            group.disown(partition)
            self._end_span(group, partition, before[partition], now_ms)
        group.owned[member] = owned
        group.settled.add(member)
        if group.rebalance is None and not group.is_complete:
            self.changed(group_id, "rejoin", now_ms)
        self._complete(group, now_ms)

    def _end_span(self, group: GroupOwnership, partition: TopicPartition, start: int | None, until_ms: float) -> None:
        if start is not None:
            group.spans[partition].append((start, max(start, self.end_offset(until_ms))))

    def positions(self, group_id: str, member: int, running_ms: float) -> dict[TopicPartition, int]:
        """Return the offsets after the last records that a member has consumed until a time."""
        owned = self.groups[group_id].owned.get(member, {})
        end = self.end_offset(running_ms)
        return {partition: max(start, end) for partition, start in owned.items() if start is not None}

    def must_hear(self, group_id: str, now_ms: float) -> None:
        """The coordinator of a group is gone: a failover is over when all members have heard from another one."""
        group = self.groups[group_id]
        if not group.live:
            return
        self.changed(group_id, "failover", now_ms)
        group.must_hear = set(group.live)
        if group.rebalance is not None and group.rebalance.failover_ms is None:
            group.rebalance.failover_ms = now_ms

    def heard(self, group_id: str, member: int, now_ms: float) -> None:
        """A member has received a message from the present coordinator of its group."""
        group = self.groups[group_id]
        if group.must_hear and member in group.must_hear:
            group.must_hear.discard(member)
            self._complete(group, now_ms)

    def sent(self, group_id: str, size: int, *, is_beat: bool) -> None:
        """Count a message of a group for its rebalance. No effect without a rebalance."""
        rebalance = self.groups[group_id].rebalance
        if rebalance is not None:
            rebalance.has_begun = rebalance.has_begun or not is_beat
            if rebalance.has_begun:
                rebalance.messages += 1
                rebalance.bytes += size

    def _complete(self, group: GroupOwnership, now_ms: float) -> None:
        if group.rebalance is not None and group.is_complete:
            group.integrate(now_ms)
            group.rebalance.until_ms = now_ms
            self.rebalances.append(group.rebalance)
            group.rebalance = None

    def finish(self, running_ms: Mapping[int, float], now_ms: float) -> None:
        """End the run: all members stop, and rebalances that are not over stay without an end.

        Args:
            running_ms: For members whose process is paused: since when.
            now_ms: The end of the run.
        """
        for group in self.groups.values():
            group.integrate(now_ms)
            for member, owned in group.owned.items():
                for partition, start in owned.items():
                    self._end_span(group, partition, start, running_ms.get(member, now_ms))
            if group.rebalance is not None:
                self.rebalances.append(group.rebalance)

    def repeated_and_lost(self) -> tuple[int, int]:
        """Return how many records were consumed again, and how many were skipped. Call it after `finish`."""
        repeated = lost = 0
        for group in self.groups.values():
            for spans in group.spans.values():
                covered = 0
                for start, end in sorted(spans):
                    lost += max(0, start - covered)
                    repeated += max(0, min(end, covered) - start)
                    covered = max(covered, end)
        return repeated, lost
