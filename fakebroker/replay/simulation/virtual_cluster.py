"""A fake cluster without sockets, in a time that somebody else sets. The same events happen to it as to a served one.

Knows no members; of connections only that those to a broker are cut.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.topics import Partition
from fakebroker.coordinator.group.history import ChangedGroup, History
from fakebroker.coordinator.group.records import Record
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ConfigError
from fakebroker.replay.simulation.late_log import PostponedAppends
from fakebroker.replay.workload.timeline import Outcome
from fakebroker.replay.workload.workload import Cluster as ClusterSettings
from fakebroker.server.clock import RealClock
from fakebroker.server.events import perform
from fakebroker.server.fake_cluster import FakeCluster

HOST = "memory"
"""In place of the name of a machine; a broker's port is its node id."""


class _NoHistory(History):
    """Keeps nothing: nobody looks at the timelines of a million groups."""

    def record(self, group: ChangedGroup, now_ms: float, coordinator_id: int) -> None:
        group.change.clear()


class VirtualClock:
    """A time that is set.

    Attributes:
        moment_ms: The time.
    """

    def __init__(self, start_ms: float) -> None:
        self.moment_ms = start_ms

    @property
    def wire(self) -> RealClock:
        """Nobody waits on a wire here."""
        return RealClock()

    def now_ms(self) -> float:
        return self.moment_ms

    def seconds_until(self, deadline_ms: float | None) -> float:
        """Nobody waits here, so nobody asks."""
        return 0.0

    def advance(self, seconds: float) -> None:
        raise ConfigError("advance: the time of a cluster in memory runs by itself")


class VirtualCluster(FakeCluster):
    """A cluster in virtual time.

    Args:
        settings: What the workload says of it.
        topics: Names and partition counts.
        seed: Makes its ids repeat.
        clock: Its time.
        cut: Is told of each broker whose connections are cut.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        topics: Mapping[str, int],
        seed: int,
        clock: VirtualClock,
        cut: Callable[[BrokerNode], None],
    ) -> None:
        proposals: dict[str, Any] = {"proposals": settings.proposals} if settings.proposals else {}
        super().__init__(
            settings.brokers,
            topics,
            settings.config,
            seed,
            as_version=settings.as_version,
            clock="manual",
            journal="off",
            **proposals,
        )
        self.clock = clock
        self.cluster = self._new_cluster()
        self.cluster.history = _NoHistory()
        self._cut = cut
        for broker in self.cluster.brokers.values():
            self._open(broker)
        self._keep_records()

    def _keep_records(self) -> None:
        """Postpone the appends to all offsets partitions until their logs are read."""
        cluster = self.cluster
        count = cluster.config.number("offsets.topic.num.partitions")
        postponed = [PostponedAppends(cluster.offsets_partition(index).log) for index in range(count)]

        def append(partition: Partition, records: Sequence[Record]) -> None:
            appends = postponed[partition.index]
            assert appends.log is partition.log
            appends.add(records, partition.leader_epoch, cluster.now_ms)

        cluster.append_records = append  # type: ignore[method-assign]  # nobody fetches these records

    def _open(self, broker: BrokerNode, port: int = 0) -> None:
        broker.host, broker.port = HOST, broker.node_id

    def _shut(self, broker: BrokerNode, *, keep_port: bool) -> None:
        self._cut(broker)

    def is_about(self, event: Mapping[str, Any], partition: int) -> bool:
        """Whether an event is about groups of an offsets partition, if not about them alone."""
        group_id = event.get("group_id")
        if group_id is not None:
            count = self.cluster.config.number("offsets.topic.num.partitions")
            return partition_for(group_id, count) == partition
        return bool(event["do"] != "move_offsets_partition" or event["partition"] == partition)

    def happen(self, event: Mapping[str, Any]) -> Outcome:
        """Let an event happen; see `fakebroker.server.events.perform`."""
        try:
            perform(self, event)
        except ConfigError as error:
            return str(error)
        return None
