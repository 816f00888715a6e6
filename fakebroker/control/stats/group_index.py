"""The groups of a cluster, of both types, sorted by name, and counts by state and broker. Cached until groups change.

With many groups both take long, so they are computed in steps, between which groups may change.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter

import msgspec

from fakebroker.cluster.inspect.views import GroupType
from fakebroker.control.stats.meter import Meter
from fakebroker.control.steps import Steps
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.history import DEAD
from fakebroker.server.fake_cluster import FakeCluster, internals

GROUPS_PER_STEP = 1_000
"""Number of groups that are processed in one step."""

_BY_NAME = attrgetter("group_id")

AnyGroup = Group | ConsumerGroup
"""A group of either type."""

GROUP_STATES: Mapping[GroupType, Sequence[str]] = {
    "classic": [state.value for state in GroupState if state is not GroupState.DEAD],
    "consumer": [state.value for state in ConsumerGroupState],
}
"""The states of existing groups by type, by Kafka's names."""


def type_of(group: AnyGroup) -> GroupType:
    """Return the type of a group: "consumer" with the protocol of KIP-848, else "classic"."""
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


class Counts(msgspec.Struct, frozen=True):
    """Counts of groups and members.

    Attributes:
        groups: Number of groups by type and Kafka's name of the state, without groups at zombie coordinators.
        members: Number of members by type of the group.
        members_at: Number of members by node id of the broker, including those at zombie coordinators.
    """

    groups: Counter[tuple[GroupType, str]]
    members: Counter[GroupType]
    members_at: Counter[int]

    @property
    def by_state(self) -> Counter[str]:
        """Number of groups by Kafka's name of the state; groups of both types can be Stable and Empty."""
        by_state = Counter[str]()
        for (_, state), count in self.groups.items():
            by_state[state] += count
        return by_state

    def count_of(self, group_type: GroupType) -> int:
        """Return the number of groups of a type."""
        return sum(self.groups[group_type, state] for state in GROUP_STATES[group_type])


class GroupIndex:
    """Lists and counts groups, in the cluster's thread.

    Args:
        cluster: The cluster.
        meter: Counts the changes of groups.
    """

    def __init__(self, cluster: FakeCluster, meter: Meter) -> None:
        self._core = internals(cluster).cluster
        self._meter = meter
        self._groups: Sequence[AnyGroup] = ()
        self._groups_version: object = None
        self._counts = Counts(Counter(), Counter(), Counter())
        self._counts_version: object = None

    def groups(self) -> Steps[Sequence[AnyGroup]]:
        """Return the groups sorted by name, without groups at zombie coordinators."""
        version = self._version(self._meter.removals)
        if version is None or version != self._groups_version:
            leaders = self._leaders()
            sorted_parts = []
            for node_id, part in self._parts():
                served = [group for group in part if leaders[group.partition] == node_id]
                sorted_parts.append(sorted(served, key=_BY_NAME))
                yield
            merged, sorted_groups = merge(*sorted_parts, key=_BY_NAME), list[AnyGroup]()
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
            counts = Counts(Counter(), Counter(), Counter())
            for node_id, part in self._parts():
                counts.members_at[node_id] += sum([len(group.members) for group in part])
                served = [group for group in part if leaders[group.partition] == node_id]
                group_type = type_of(part[0])
                for state, count in Counter([group.state for group in served]).items():
                    counts.groups[group_type, state.value] += count
                counts.members[group_type] += sum([len(group.members) for group in served])
                yield
            del counts.groups["classic", DEAD]  # Groups that were removed between steps.
            self._counts, self._counts_version = counts, version
        return self._counts

    def _version(self, changes: int) -> object:
        """Return a value that changes whenever groups may have changed; None if the meter is not subscribed.

        The meter counts removed and changed groups, but not every added one; those change the sizes. A coordinator that
        becomes a zombie changes only the leaders.
        """
        core = self._core
        coordinators = [broker.coordinator for broker in core.brokers.values()]
        sizes = [(len(each.groups.classic), len(each.groups.consumer)) for each in coordinators]
        return (core.history, changes, self._leaders(), sizes) if self._meter.is_subscribed else None

    def _leaders(self) -> list[int]:
        """Return the leader of each partition of __consumer_offsets, as a node id."""
        return [partition.leader_id for partition in self._core.topics.offsets_topic.partitions]

    def _parts(self) -> Iterator[tuple[int, Sequence[AnyGroup]]]:
        """Yield node ids with groups at these brokers. The groups of a part have one type."""
        coordinators = [(node_id, broker.coordinator) for node_id, broker in self._core.brokers.items()]
        at: list[tuple[int, Sequence[AnyGroup]]] = []
        for node_id, coordinator in coordinators:
            at += [(node_id, [*coordinator.groups.classic.values()]), (node_id, [*coordinator.groups.consumer])]
        for node_id, groups in at:
            for start in range(0, len(groups), GROUPS_PER_STEP):
                yield node_id, groups[start : start + GROUPS_PER_STEP]
