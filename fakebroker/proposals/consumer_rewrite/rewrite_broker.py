"""`RewriteBroker`: the coordinators of one broker that supports the proposal `rewrite`."""

from collections.abc import Collection, Iterable, Iterator

from fakebroker.cluster.broker import BrokerNode
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.records import Record
from fakebroker.proposals.consumer_rewrite.coordinator import RewriteCoordinator
from fakebroker.proposals.consumer_rewrite.explain_rewrite import explain_rewrite
from fakebroker.proposals.consumer_rewrite.group_store import GroupStore


class RewriteBroker:
    """The two coordinators of one broker, which move together: one for groups, and the classic one for offsets.

    Args:
        coordinator: Coordinates groups.
        offsets: Stores offsets.
        store: The broker's view of the registry.
    """

    def __init__(self, coordinator: RewriteCoordinator, offsets: Coordinator, store: GroupStore) -> None:
        self.coordinator = coordinator
        self._offsets = offsets
        self._store = store

    def leads(self, partition: int) -> bool:
        """Whether a partition of __consumer_offsets is led here."""
        return self._offsets.leads(partition)

    def led_indexes(self) -> Collection[int]:
        """Return the indexes of the partitions that are led here."""
        return self._offsets.led_indexes()

    def lead(self, partition: int, now_ms: float) -> None:
        """Lead a partition whose log is empty."""
        self._offsets.lead(partition, now_ms)
        self.coordinator.elect(partition)
        self._load(partition, now_ms)

    def start_loading(self, partition: int) -> None:
        """Mark a partition as being loaded."""
        self._offsets.start_loading(partition)
        self.coordinator.elect(partition)

    def fail_loading(self, partition: int, now_ms: float = 0.0) -> None:
        """Stop loading a partition: its requests get NotCoordinatorForGroup."""
        self._offsets.fail_loading(partition)
        self.coordinator.resign(partition, now_ms)

    def finish_loading(self, partition: int, records: Iterable[Record], now_ms: float) -> None:
        """Lead a partition that was being loaded. Its offsets are in the log, its groups in the registry."""
        self._offsets.finish_loading(partition, records, now_ms)
        self._load(partition, now_ms)

    def resign(self, partition: int, now_ms: float) -> None:
        """Stop leading or loading a partition. Waiting joins get NotCoordinatorForGroup."""
        self._offsets.resign(partition, now_ms)
        self.coordinator.resign(partition, now_ms)

    def explain(self, group_id: str, node_id: int, now_ms: float) -> Iterator[str] | None:
        """Return sentences on a group; None if there is none of this id."""
        group = self.coordinator.group(group_id)
        return None if group is None else explain_rewrite(group, node_id, now_ms)

    def _load(self, partition: int, now_ms: float) -> None:
        self.coordinator.load(partition, self._store.read(partition), now_ms)


def coordinator_at(broker: BrokerNode) -> RewriteCoordinator:
    """Return the coordinator of groups at a broker that supports the proposal."""
    assert isinstance(broker.proposed, RewriteBroker)
    return broker.proposed.coordinator
