"""All groups of a cluster by name, and how many there are of which kind; counted anew only when one has changed."""

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
    """The groups at one moment.

    Attributes:
        groups: By name. An old coordinator that still answers has some as well, which do not count.
        by_state: How many are in each state, by Kafka's name.
        members: How many members they have.
        members_at: How many members each broker's groups have, by node id, those of old coordinators among them.
    """

    groups: Sequence[Group]
    by_state: Counter[str]
    members: int
    members_at: dict[int, int]


class Census:
    """Counts groups, in the cluster's thread.

    Args:
        cluster: Whose.
        meter: Hears of each change of a group.
    """

    def __init__(self, cluster: FakeCluster, meter: Meter) -> None:
        self._cluster = cluster
        self._meter = meter
        self._counted: Counted | None = None
        self._when: object = None

    def now(self) -> Counted:
        """The groups as they are."""
        core = self._cluster.cluster
        # A group that goes or changes is heard of; one that comes need not be, but then there are more of them.
        sizes = [len(broker.coordinator.groups()) for broker in core.brokers.values()]
        leaders = self._leaders()  # The groups of a coordinator that becomes a zombie stay as they are.
        when = core.history, self._meter.changes, leaders, sizes
        if self._counted is None or not self._meter.hears or when != self._when:
            self._counted, self._when = self._count(leaders), when
        return self._counted

    def _leaders(self) -> list[int]:
        """The leader of each partition of __consumer_offsets, as a node id."""
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
