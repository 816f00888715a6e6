"""What a cluster asks of groups of a proposal (`fakebroker.proposals`) that has coordinators of its own."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.records import Record
from fakebroker.coordinator.timers import TimerQueue


class ProposedCoordinator(Protocol):
    """The coordinator of one broker. It moves with the partitions of __consumer_offsets, like the classic one."""

    def leads(self, partition: int) -> bool: ...

    def led_indexes(self) -> Collection[int]: ...

    def lead(self, partition: int, now_ms: float) -> None: ...

    def start_loading(self, partition: int) -> None: ...

    def fail_loading(self, partition: int) -> None: ...

    def finish_loading(self, partition: int, records: Iterable[Record], now_ms: float) -> None: ...

    def resign(self, partition: int, now_ms: float) -> None: ...

    def explain(self, group_id: str, node_id: int, now_ms: float) -> Iterator[str] | None:
        """Return sentences that explain the state of a group, as `inspect.explain`; None if it is not one of these."""
        ...


class ProposedGroups(Protocol):
    """The groups of all brokers of a cluster that support the proposal."""

    def new_broker(self, offsets: Coordinator, queue: TimerQueue[Any], node_id: int) -> ProposedCoordinator:
        """Create the coordinator of one broker, which has no groups yet.

        Args:
            offsets: The broker's classic coordinator.
            queue: The timers of the cluster.
            node_id: The node id of the broker.
        """
        ...

    def topic_changed(self, name: str) -> None:
        """React to a topic that was created, changed or deleted."""
        ...

    def clear(self) -> None:
        """Forget all groups, because a new __consumer_offsets places them at other brokers."""
        ...

    def saved(self) -> object:
        """Return a copy of what survives brokers, for a snapshot."""
        ...

    def restore(self, saved: Any) -> None:
        """Restore what `saved` has returned, or None; coordinators that are created afterwards use it."""
        ...

    def resign_all(self, now_ms: float) -> None:
        """Make all coordinators resign, which answers the requests that wait."""
        ...
