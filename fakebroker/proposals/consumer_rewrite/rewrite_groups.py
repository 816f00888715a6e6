"""The groups of the proposal `rewrite`: their coordinators, and the cluster as the registry of their metadata.

Group metadata is in a registry that survives brokers, as in ZooKeeper; offsets are in `__consumer_offsets`, which the
classic coordinators write. Both move with the leaders of `__consumer_offsets`.
"""

from collections.abc import Callable, Hashable, Mapping
from copy import deepcopy
from typing import Any

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.topics import Topics
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.timers import TimerQueue
from fakebroker.proposals.consumer_rewrite.api import GroupMetadata, RewriteConfig, Stored
from fakebroker.proposals.consumer_rewrite.coordinator import RewriteCoordinator
from fakebroker.proposals.consumer_rewrite.group_store import GroupStore
from fakebroker.proposals.consumer_rewrite.registry import Registry
from fakebroker.proposals.consumer_rewrite.rewrite_broker import RewriteBroker, coordinator_at

GroupRegistry = Registry[GroupMetadata | None]


class RewriteGroups:
    """The groups of all brokers that support the proposal.

    Args:
        brokers: The brokers of the cluster, by node id.
        topics: The topics, for partition counts and for the placement of groups.
        now_ms: Returns the brokers' time of the current request or tick.
        new_id: Returns a new UUID as text.
        disconnect: Closes a connection, by its peer.

    Attributes:
        registry: The metadata of all groups.
    """

    def __init__(
        self,
        brokers: Mapping[int, BrokerNode],
        topics: Topics,
        now_ms: Callable[[], float],
        new_id: Callable[[], str],
        disconnect: Callable[[Hashable], None],
    ) -> None:
        self.registry: GroupRegistry = Registry()
        self._brokers = brokers
        self._topics = topics
        self._now_ms = now_ms
        self._new_id = new_id
        self._disconnect = disconnect

    def new_broker(self, offsets: Coordinator, queue: TimerQueue[Any], node_id: int) -> RewriteBroker:
        """Create the coordinator of one broker, which has no groups yet.

        Args:
            offsets: The broker's classic coordinator. `max.session.timeout` is its `group.max.session.timeout.ms`.
            queue: The timers of the cluster.
            node_id: The node id of the broker.
        """
        config = RewriteConfig(max_session_timeout_ms=offsets.config.group_max_session_timeout_ms)
        store = GroupStore(self.registry)

        def write(group_id: str, metadata: GroupMetadata, done: Stored) -> None:
            done(store.prepared_write(self.partition_of(group_id), group_id, metadata)(), self._now_ms())

        coordinator = RewriteCoordinator(
            config,
            self._new_id,
            self._partition_count,
            write,
            self.partition_of,
            self._disconnect,
            queue=queue,
            node_id=node_id,
        )
        return RewriteBroker(coordinator, offsets, store)

    def partition_of(self, group_id: str) -> int:
        """Return the index of the partition of __consumer_offsets whose leader coordinates a group."""
        return partition_for(group_id, len(self._topics.offsets_topic.partitions))

    def _partition_count(self, topic: str) -> int:
        found = self._topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def clear(self) -> None:
        """Remove the metadata of all groups, because a new __consumer_offsets places them at other brokers."""
        for path in reversed(list(self.registry)):
            self.registry.delete(path)

    def saved(self) -> GroupRegistry:
        """Return a copy of the registry, for a snapshot."""
        return deepcopy(self.registry)

    def restore(self, registry: GroupRegistry | None) -> None:
        """Replace the registry; coordinators that are created afterwards read the new one."""
        self.registry = Registry() if registry is None else deepcopy(registry)

    def coordinators(self) -> list[RewriteCoordinator]:
        """Return the coordinators of all brokers that support the proposal."""
        return [coordinator_at(each) for each in self._brokers.values() if each.proposed is not None]

    def topic_changed(self, name: str) -> None:
        """Notify coordinators of a topic that was created, changed or deleted."""
        for coordinator in self.coordinators():
            coordinator.topic_changed(name, self._now_ms())

    def resign_all(self, now_ms: float) -> None:
        """Make all coordinators resign, which answers the joins that wait."""
        for coordinator in self.coordinators():
            for shard in list(coordinator.shards()):
                coordinator.resign(shard, now_ms)
