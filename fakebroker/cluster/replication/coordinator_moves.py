"""The coordinators of one internal topic: moves with its leaders, loading, zombies and stale look-ups.

Depends on brokers and topics; not on what is coordinated.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Meta

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.topics import NO_LEADER, Partition
from fakebroker.coordinator.timers import Rank, TimedValue, TimerQueue, Timers
from fakebroker.validation import Count

MAX_OPTION_MS = 10**12
"""The largest value of an option in milliseconds: about 30 years, so that deadlines remain valid dates."""

Duration = Annotated[float, Meta(ge=0, le=MAX_OPTION_MS)]


class Failover(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a failover: how the new coordinator loads, what is lost, and whether the old one resigns.

    Attributes:
        load_ms: How long the new coordinator is loading and answers COORDINATOR_LOAD_IN_PROGRESS, in milliseconds of
            the brokers' time. None: until `finish_loading`. As in Kafka, heartbeats get no error meanwhile.
        load_fails: Whether the new coordinator fails to read the log. It then answers NOT_COORDINATOR until the next
            move.
        lose_tail: Number of the newest records of the log that are lost with the old leader. Other topics lose none;
            their partitions that get another leader by the same command have to be empty.
        lose_all: Whether the whole log is lost; otherwise like `lose_tail`.
        zombie: Whether the old coordinator continues to answer, as if partitioned from the other brokers, until
            `stop_zombies`, or until it stops or leads again. Its writes are lost; requests that would store anything of
            a transaction get COORDINATOR_NOT_AVAILABLE. No effect if the old coordinator is down or has not finished
            loading.
        stale_ms: How long FindCoordinator still returns the old coordinator, in milliseconds of the brokers' time.
    """

    load_ms: Duration | None = 0
    load_fails: bool = False
    lose_tail: Count = 0
    lose_all: bool = False
    zombie: bool = False
    stale_ms: Duration = 0


class LeadingCoordinator(Protocol):
    """A coordinator of one broker, for groups or transactions: it leads or loads partitions of its internal topic."""

    def leads(self, partition: int) -> bool: ...

    def led_indexes(self) -> Collection[int]: ...

    def resign(self, partition: int, now_ms: float) -> None: ...

    def start_loading(self, partition: int) -> None: ...

    def fail_loading(self, partition: int) -> None: ...


C = TypeVar("C", bound=LeadingCoordinator)


@dataclass(slots=True)
class CoordinatorMoves(Generic[C]):
    """Moves the coordinators of one internal topic: each of its partitions is coordinated by its leader.

    Coordinators that resign reject their parked requests; the caller sends these answers with `RequestPath.settle`.

    Attributes:
        brokers: The brokers of the cluster, by node id.
        partition: Returns a partition of the topic by its number.
        of_broker: Returns the coordinator of a broker.
        load: Makes a coordinator lead a partition that it loads, with the contents of its log.
        loading: Maps the number of each partition being loaded to (end of loading in ms, whether it will fail). The end
            is infinite if only `finish_loading` ends it.
        stale: Maps the number of a partition to (node id of its old leader, end in ms). Until the end, FindCoordinator
            returns the old leader.
        queue: The timers of the cluster.
        number: The place of this topic among those whose loading ends at the same time.
        is_started: Whether leaders coordinate their partitions. False until the topic is in use (`FirstUse`).
    """

    brokers: Mapping[int, BrokerNode]
    partition: Callable[[int], Partition]
    of_broker: Callable[[BrokerNode], C]
    load: Callable[[C, Partition, float], None]
    queue: TimerQueue[Any]
    number: int
    loading: dict[int, tuple[float, bool]] = field(default_factory=dict)
    stale: dict[int, tuple[int, float]] = field(default_factory=dict)
    is_started: bool = True
    _timer: TimedValue[str] = field(default_factory=lambda: TimedValue("loading of coordinators"))
    _timers: Timers[TimedValue[str]] = field(init=False)

    def __post_init__(self) -> None:
        self._timers = self.queue.service(Rank.CONTROLLER, self._end_loading, self.number)

    def _schedule(self) -> None:
        self._timers.set(self._timer, min((end_ms for end_ms, _ in self.loading.values()), default=inf))

    def clear(self) -> None:
        """Forget pending loads and stale leaders."""
        self.loading.clear()
        self.stale.clear()
        self._schedule()

    def move(self, partition: Partition, old_id: int, now_ms: float, how: Failover) -> None:
        """Move the coordinator of a partition from its old leader to its new leader. There may be no new leader."""
        if not self.is_started:
            return
        index = partition.index
        self.loading.pop(index, None)
        self._schedule()
        self.stale.pop(index, None)
        if old_id != NO_LEADER:
            old = self.of_broker(self.brokers[old_id])
            if not (how.zombie and old.leads(index)):
                old.resign(index, now_ms)
            if how.stale_ms:
                self.stale[index] = (old_id, now_ms + how.stale_ms)
        _lose_records(partition, how)
        if partition.leader_id == NO_LEADER:
            return
        # In case the new leader is a zombie of this partition.
        self.of_broker(self.brokers[partition.leader_id]).resign(index, now_ms)
        self.start_loading(partition, inf if how.load_ms is None else now_ms + how.load_ms, fails=how.load_fails)
        if how.load_ms == 0:
            self._finish_loading(index, now_ms)

    def start_loading(self, partition: Partition, end_ms: float, *, fails: bool = False) -> None:
        """Let the leader of a partition load it until a time."""
        self.of_broker(self.brokers[partition.leader_id]).start_loading(partition.index)
        self.loading[partition.index] = (end_ms, fails)
        self._timers.schedule(self._timer, end_ms)

    def finish_loading(self, now_ms: float) -> None:
        """Finish loading all partitions, regardless of their remaining time."""
        for index in list(self.loading):
            self._finish_loading(index, now_ms)

    def _finish_loading(self, index: int, now_ms: float) -> None:
        _, fails = self.loading.pop(index)
        self._schedule()
        partition = self.partition(index)
        coordinator = self.of_broker(self.brokers[partition.leader_id])
        if fails:
            coordinator.fail_loading(index)
        else:
            self.load(coordinator, partition, now_ms)

    def zombies(self, index: int) -> list[int]:
        """Return the node ids of the zombies of a partition: brokers that serve it without leading it."""
        leader_id = self.partition(index).leader_id
        return [
            node_id
            for node_id, broker in self.brokers.items()
            if node_id != leader_id and self.of_broker(broker).leads(index)
        ]

    def stop_zombies(self, now_ms: float) -> None:
        """Make all brokers resign the partitions that they serve without leading them."""
        for node_id, broker in self.brokers.items():
            coordinator = self.of_broker(broker)
            for index in list(coordinator.led_indexes()):
                if self.partition(index).leader_id != node_id:
                    coordinator.resign(index, now_ms)

    def resign_all(self, broker: BrokerNode, now_ms: float) -> None:
        """Make a broker resign all partitions that it leads."""
        coordinator = self.of_broker(broker)
        for index in list(coordinator.led_indexes()):
            coordinator.resign(index, now_ms)

    def _end_loading(self, timer: object, due_ms: float, now_ms: float) -> None:
        """Finish loading the partitions whose `load_ms` has passed."""
        for index in [index for index, (end_ms, _) in self.loading.items() if end_ms <= now_ms]:
            self._finish_loading(index, now_ms)

    @property
    def end_ms(self) -> float:
        """When the next partition finishes loading; infinite if none does by time."""
        return self._timer.scheduled_ms

    def stale_leader(self, index: int, now_ms: float) -> int | None:
        """Return the old leader that FindCoordinator still returns, or None if it returns the current one."""
        node_id, until_ms = self.stale.get(index, (NO_LEADER, 0.0))
        return node_id if now_ms < until_ms else None


def _lose_records(partition: Partition, how: Failover) -> None:
    """Truncate the log by the records that are lost with the old leader."""
    log = partition.log
    if how.lose_all:
        log.truncate_to(log.log_start_offset)
    elif how.lose_tail:
        log.truncate_to(max(log.log_start_offset, log.log_end_offset - how.lose_tail))
