"""The groups of a cluster sorted by name, and counts by state and broker. Both are cached until groups change.

With many groups both take long, so they are computed in steps, between which groups may change.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter

from fakebroker.control.stats.meter import Meter
from fakebroker.control.steps import Steps
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.runtime.history import DEAD
from fakebroker.server.fake_cluster import FakeCluster

GROUPS_PER_STEP = 1_000
"""Number of groups that are processed in one step."""

_BY_NAME = attrgetter("group_id")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of groups and members.

    Attributes:
        by_state: Number of groups by Kafka's name of the state, without those of zombie coordinators.
        members: Number of members in total.
        members_at: Number of members by node id of the broker, including those at zombie coordinators.
    """

    by_state: Counter[str]
    members: int
    members_at: Counter[int]


class GroupIndex:
    """Lists and counts groups, in the cluster's thread.

    Args:
        cluster: The cluster.
        meter: Counts the changes of groups.
    """

    def __init__(self, cluster: FakeCluster, meter: Meter) -> None:
        self._cluster = cluster
        self._meter = meter
        self._groups: Sequence[Group] = ()
        self._groups_version: object = None
        self._counts = Counts(Counter(), 0, Counter())
        self._counts_version: object = None

    def groups(self) -> Steps[Sequence[Group]]:
        """Return the groups sorted by name, without those of zombie coordinators."""
        version = self._version(self._meter.removals)
        if version is None or version != self._groups_version:
            leaders = self._leaders()
            sorted_parts = []
            for node_id, groups in self._by_broker().items():
                for part in _parts(groups):
                    served = [group for group in part if leaders[group.partition] == node_id]
                    sorted_parts.append(sorted(served, key=_BY_NAME))
                    yield
            merged, sorted_groups = merge(*sorted_parts, key=_BY_NAME), list[Group]()
            while part := list(islice(merged, GROUPS_PER_STEP)):
                sorted_groups += part
                yield
            self._groups, self._groups_version = sorted_groups, version
        return self._groups

    def counts(self) -> Steps[Counts]:
        """Return the counts of groups and members."""
        version = self._version(self._meter.changes)
        if version is None or version != self._counts_version:
            leaders = self._leaders()
            by_state, members, members_at = Counter[str](), 0, Counter[int]()
            for node_id, groups in self._by_broker().items():
                for part in _parts(groups):
                    members_at[node_id] += sum([len(group.members) for group in part])
                    served = [group for group in part if leaders[group.partition] == node_id]
                    by_state.update({state.value: count for state, count in Counter([g.state for g in served]).items()})
                    members += sum([len(group.members) for group in served])
                    yield
            del by_state[DEAD]  # Groups that were removed between steps.
            self._counts, self._counts_version = Counts(by_state, members, members_at), version
        return self._counts

    def _version(self, changes: int) -> object:
        """Return a value that changes whenever groups may have changed; None if the meter is not subscribed.

        The meter counts removed and changed groups, but not every added one; those change the sizes. A coordinator that
        becomes a zombie changes only the leaders.
        """
        core = self._cluster.cluster
        sizes = [len(broker.coordinator.groups()) for broker in core.brokers.values()]
        return (core.history, changes, self._leaders(), sizes) if self._meter.is_subscribed else None

    def _leaders(self) -> list[int]:
        """Return the leader of each partition of __consumer_offsets, as a node id."""
        return [partition.leader_id for partition in self._cluster.cluster.topics.offsets_topic.partitions]

    def _by_broker(self) -> dict[int, list[Group]]:
        return {node_id: [*broker.coordinator.groups()] for node_id, broker in self._cluster.cluster.brokers.items()}


def _parts(groups: Sequence[Group]) -> list[Sequence[Group]]:
    return [groups[start : start + GROUPS_PER_STEP] for start in range(0, len(groups), GROUPS_PER_STEP)]
