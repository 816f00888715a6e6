"""A fake cluster without sockets, in a time that somebody else sets. The same events happen to it as to a served one.

Knows no members; of connections only that those to a broker are cut.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fakebroker.cluster.cluster import Broker
from fakebroker.cluster.topics import Partition
from fakebroker.coordinator.group import Group
from fakebroker.coordinator.history import History
from fakebroker.coordinator.log import Record
from fakebroker.coordinator.placement import partition_for
from fakebroker.errors import ConfigError
from fakebroker.replay.late_log import LateLog
from fakebroker.replay.workload import Cluster as ClusterSettings
from fakebroker.server.clock import RealClock
from fakebroker.server.events import checked, perform
from fakebroker.server.fake_cluster import FakeCluster

logger = logging.getLogger("fakebroker")

HOST = "memory"
"""In place of the name of a machine; a broker's port is its node id."""

WITHOUT_MEMORY = ("advance", "advance_to_next_deadline", "reset", "set_broker")
"""Events that need a clock or sockets of their own."""

_WIRE_FAULTS = ("twice", "cut_bytes", "garble_bytes")
"""Faults that are done to the bytes of an answer."""


class _NoHistory(History):
    """Keeps nothing: nobody looks at the timelines of a million groups."""

    def note(self, group: Group, now_ms: float, coordinator_id: int) -> None:
        group.step.clear()


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
        cut: Callable[[Broker], None],
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
        """Let all logs of offsets partitions be such as make bytes when they must."""
        cluster = self.cluster

        def append(partition: Partition, records: Sequence[Record]) -> None:
            assert isinstance(partition.log, LateLog)
            partition.log.keep(records, partition.leader_epoch, cluster.now_ms)

        for index in range(cluster.config.number("offsets.topic.num.partitions")):
            cluster.offsets_partition(index).log = LateLog()
        cluster.append_records = append  # type: ignore[method-assign]  # nobody fetches these records

    def _open(self, broker: Broker, port: int = 0) -> None:
        broker.host, broker.port = HOST, broker.node_id

    def _shut(self, broker: Broker, *, keep_port: bool) -> None:
        self._cut(broker)

    def happen(self, event: Mapping[str, Any], partition: int) -> None:
        """Let an event happen, unless it is about groups of other offsets partitions; one that cannot be, is not.

        Args:
            event: As for `fakebroker.server.events.perform`.
            partition: Whose groups this cluster has.
        """
        group_id = event.get("group_id")
        count = self.cluster.config.number("offsets.topic.num.partitions")
        if group_id is not None and partition_for(group_id, count) != partition:
            return
        if event.get("partition", partition) != partition and event["do"] == "move_offsets_partition":
            return
        try:
            perform(self, event)
        except ConfigError as error:
            logger.warning("event %s in offsets partition %d: %s", event, partition, error)


def check_in_memory(settings: ClusterSettings, topics: Mapping[str, int], events: Sequence[Mapping[str, Any]]) -> None:
    """Look whether a replay in memory can be, before it starts: its cluster, and all events but those about groups.

    Args:
        settings: The cluster.
        topics: Names and partition counts.
        events: With `at_s`, in their order.

    Raises:
        ConfigError: It cannot.
    """
    cluster = VirtualCluster(settings, topics, 0, VirtualClock(0.0), lambda broker: None)
    for event in events:
        bare = {key: value for key, value in event.items() if key != "at_s"}
        name, arguments = checked(bare)
        if name in WITHOUT_MEMORY:
            raise ConfigError(f"event {name}: expected one that can be done in memory, without sockets and real time")
        for option in _WIRE_FAULTS:
            if name == "fail" and arguments.get(option):
                raise ConfigError(
                    f"event fail: {option}={arguments[option]!r} is done to bytes, which memory has none of"
                )
        if "group_id" not in arguments:
            perform(cluster, bare)
