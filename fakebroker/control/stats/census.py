"""All groups of a cluster by name, and their numbers by state and broker; each is cached until it changes.

With many groups both take long, so they are computed in steps. Groups may change meanwhile.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter

from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.control.stats.meter import Meter
from fakebroker.control.steps import Steps
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.history import DEAD
from fakebroker.server.fake_cluster import FakeCluster

IN_A_STEP = 1_000
"""Number of groups that are looked at in one step."""

_BY_NAME = attrgetter("group_id")


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of groups and members.

    Attributes:
        by_state: Number of groups by state, under Kafka's names, without those of zombie coordinators.
        members: Number of members in total.
        members_at: Number of members by node id of the broker, including those at zombie coordinators.
    """

    by_state: Counter[str]
    members: int
    members_at: Counter[int]


class Census:
    """Lists and counts groups, in the cluster's thread.

    Args:
        cluster: The cluster.
        meter: Counts the changes of groups.
    """

    def __init__(self, cluster: FakeCluster, meter: Meter) -> None:
        self._cluster = cluster
        self._meter = meter
        self._groups: Sequence[Group] = ()
        self._groups_when: object = None
        self._counts = Counts(Counter(), 0, Counter())
        self._counts_when: object = None

    def groups(self) -> Steps[Sequence[Group]]:
        """Return the groups by name, without those of zombie coordinators."""
        when = self._now(self._meter.removals)
        if when is None or when != self._groups_when:
            leaders = self._leaders()
            found = []
            for node_id, groups in self._by_broker().items():
                for part in _parts(groups):
                    found.append(sorted([each for each in part if leaders[each.partition] == node_id], key=_BY_NAME))
                    yield
            merged, sorted_groups = merge(*found, key=_BY_NAME), list[Group]()
            while part := list(islice(merged, IN_A_STEP)):
                sorted_groups += part
                yield
            self._groups, self._groups_when = sorted_groups, when
        return self._groups

    def counts(self) -> Steps[Counts]:
        """Return the numbers of groups and members."""
        when = self._now(self._meter.changes)
        if when is None or when != self._counts_when:
            leaders = self._leaders()
            by_state, members, members_at = Counter[str](), 0, Counter[int]()
            for node_id, groups in self._by_broker().items():
                for part in _parts(groups):
                    members_at[node_id] += sum([len(group.members) for group in part])
                    served = [group for group in part if leaders[group.partition] == node_id]
                    by_state.update({state.value: count for state, count in Counter([g.state for g in served]).items()})
                    members += sum([len(group.members) for group in served])
                    yield
            del by_state[DEAD]  # They were removed meanwhile.
            self._counts, self._counts_when = Counts(by_state, members, members_at), when
        return self._counts

    def _now(self, changes: int) -> object:
        """Return a value that differs from an earlier one if groups may have changed; None if that is not known."""
        core = self._cluster.cluster
        # The meter notices removed and changed groups; added ones may go unnoticed, but then the sizes differ.
        sizes = [len(broker.coordinator.groups()) for broker in core.brokers.values()]
        # The groups of a coordinator that becomes a zombie do not change.
        return (core.history, changes, self._leaders(), sizes) if self._meter.hears else None

    def _leaders(self) -> list[int]:
        """Return the leader of each partition of __consumer_offsets, as a node id."""
        topic = self._cluster.cluster.topics.get(OFFSETS_TOPIC)
        return [partition.leader_id for partition in topic.partitions] if topic else []

    def _by_broker(self) -> dict[int, list[Group]]:
        return {node_id: [*broker.coordinator.groups()] for node_id, broker in self._cluster.cluster.brokers.items()}


def _parts(groups: Sequence[Group]) -> list[Sequence[Group]]:
    return [groups[start : start + IN_A_STEP] for start in range(0, len(groups), IN_A_STEP)]
