"""All groups of a cluster by name, with counts by state and broker; cached until a group changes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.control.stats.meter import Meter
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.server.fake_cluster import FakeCluster


@dataclass(frozen=True, slots=True)
class Counted:
    """The groups at one point in time.

    Attributes:
        groups: Ordered by name, without those of zombie coordinators.
        by_state: Number of groups by state, under Kafka's names.
        members: Number of members in total.
        members_at: Number of members by node id of the broker, including those at zombie coordinators.
    """

    groups: Sequence[Group]
    by_state: Counter[str]
    members: int
    members_at: dict[int, int]


class Census:
    """Counts groups, in the cluster's thread.

    Args:
        cluster: The cluster.
        meter: Counts the changes of groups.
    """

    def __init__(self, cluster: FakeCluster, meter: Meter) -> None:
        self._cluster = cluster
        self._meter = meter
        self._counted: Counted | None = None
        self._when: object = None

    def now(self) -> Counted:
        """Return the current groups."""
        core = self._cluster.cluster
        # The meter notices removed and changed groups; added ones may go unnoticed, but then the sizes differ.
        sizes = [len(broker.coordinator.groups()) for broker in core.brokers.values()]
        leaders = self._leaders()  # The groups of a coordinator that becomes a zombie do not change.
        when = core.history, self._meter.changes, leaders, sizes
        if self._counted is None or not self._meter.hears or when != self._when:
            self._counted, self._when = self._count(leaders), when
        return self._counted

    def _leaders(self) -> list[int]:
        """Return the leader of each partition of __consumer_offsets, as a node id."""
        topic = self._cluster.cluster.topics.get(OFFSETS_TOPIC)
        return [partition.leader_id for partition in topic.partitions] if topic else []

    def _count(self, leaders: Sequence[int]) -> Counted:
        core = self._cluster.cluster
        groups = [
            group
            for broker in core.brokers.values()
            for group in broker.coordinator.groups()
            if leaders[group.partition] == broker.node_id
        ]
        groups.sort(key=attrgetter("group_id"))
        by_state = Counter([group.state for group in groups])
        members = sum([len(group.members) for group in groups])
        members_at = {
            broker.node_id: sum([len(group.members) for group in broker.coordinator.groups()])
            for broker in core.brokers.values()
        }
        return Counted(groups, Counter({state.value: count for state, count in by_state.items()}), members, members_at)
