"""The replay of one offsets partition in virtual time: the members of its groups, and a cluster only for them.

This is exact, because groups of different offsets partitions do not affect each other. Does not depend on Spark or real
time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from math import ceil, inf
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.faults.injection import ActiveFault
from fakebroker.garbage_collection import no_garbage_collection
from fakebroker.replay.members.admin_load import AdminLoad, Turns, groups_of, groups_per_request
from fakebroker.replay.members.committed_reader import CommittedReader, reader_of
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.member_driver import MemberDriver
from fakebroker.replay.members.producer_driver import ProducerDriver
from fakebroker.replay.members.scripted_member import LEAVE_TIMEOUT_MS, ScriptedMember
from fakebroker.replay.members.scripted_producer import ScriptedProducer
from fakebroker.replay.script.script import Script
from fakebroker.replay.simulation.idle_members import IdleMembers
from fakebroker.replay.simulation.network import Network
from fakebroker.replay.simulation.scheduler import (
    ACTION,
    CONNECT_MS,
    EVENT,
    LATENCY_MS,
    LOOKUP,
    START_MS,
    Scheduler,
    VirtualClock,
)
from fakebroker.replay.simulation.virtual_cluster import HOST, VirtualCluster, VirtualEnvironment
from fakebroker.replay.simulation.virtual_transport import VirtualTransport
from fakebroker.replay.spark.progress import Tally
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.timeline import OVER, Outcome, actions_of, failed_action, without_time
from fakebroker.replay.workload.workload import Cluster as ClusterSettings

_HEAD_START_MS = 10 * CONNECT_MS
"""Time before the start at which the connection for look-ups is opened."""

_LATEST_END_MS = 2 * LEAVE_TIMEOUT_MS
"""Time after the duration at which the simulation ends even if members are not done."""

_STEPS_AT_ONCE = 1_000
"""Scheduled calls between two yields of `Simulation.run`."""


class SimulationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all simulations of a replay share.

    Attributes:
        seed: Seed of all ids and random choices.
        cluster: The cluster's settings.
        topics: Partition counts by name.
        events: The `[[event]]` tables; `at_s` is the time from the start.
        loads: The loads. Partitions share a load's rate: each sends the requests about its groups, at their times.
        groups_by_partition: Number of groups in each offsets partition by population; needed for loads with a rate.
        duration_s: Time from the start until the last members leave.
        folds: Whether to fold heartbeats; see `EventRecorder`.
        closed_loop: Whether each heartbeat is sent as soon as the previous one is answered.
    """

    seed: int
    cluster: ClusterSettings
    topics: Mapping[str, int]
    events: Sequence[Mapping[str, Any]] = ()
    loads: Sequence[Load] = ()
    groups_by_partition: Mapping[str, Sequence[int]] = msgspec.field(default_factory=dict)
    duration_s: float
    folds: bool = False
    closed_loop: bool = False


class Simulation:
    """The replay of one offsets partition.

    Implements `DriverContext` and `ProducerContext` for its drivers, and `NetworkObserver` for its network.

    Args:
        scripts: The scripts of all members whose groups are in the partition.
        partition: The number of the offsets partition.
        settings: The settings.
        is_fast: Whether to compute the requests of idle members instead of simulating each. The result is the same.

    Attributes:
        outcomes: Outcomes of the events that affect the partition, by their index in `settings.events`.
        clock, scheduler, network, virtual_cluster: The virtual time, network and cluster.
        drivers: The members' drivers, ordered by number.
        recorder: Records events.
        transport, lookup, shared: See `DriverContext`; `shared` is None.
        transaction_lookup: See `ProducerContext`.
    """

    def __init__(
        self, scripts: Sequence[Script], partition: int, settings: SimulationSettings, *, is_fast: bool = True
    ) -> None:
        self._settings, self._partition = settings, partition
        self._end_ms = START_MS + settings.duration_s * 1000 + _LATEST_END_MS
        self._done: set[int] = set()
        self.outcomes: dict[int, Outcome] = {}
        self.clock = VirtualClock(START_MS - _HEAD_START_MS)
        self.scheduler = Scheduler(self.clock)
        self.recorder = EventRecorder(folds=settings.folds)
        seed = int.from_bytes(blake2b(f"{settings.seed} {partition}".encode(), digest_size=8).digest(), "big")
        environment = VirtualEnvironment(self.clock, self._disconnect_clients)
        self.virtual_cluster = VirtualCluster(settings.cluster, settings.topics, seed, environment)
        loses_tail = any(event.get("lose_tail") for event in _with_actions(settings.events))
        self.virtual_cluster.postpone_appends(is_truncated=loses_tail)
        self._cluster = self.virtual_cluster.cluster
        self.network = Network(
            self._cluster,
            self.scheduler,
            self,
            keeps_order=loses_tail,
            shortcuts_until_ms=self._end_ms if is_fast else -inf,
        )
        self.transport = VirtualTransport(self.network, self.scheduler, attrgetter("number"))
        self.shared = None
        with no_garbage_collection():
            self.drivers = [
                MemberDriver(
                    ScriptedMember(script, START_MS, self.recorder.add, closed_loop=settings.closed_loop), number, self
                )
                for number, script in enumerate(scripts)
            ]
        # A fault that handles requests late, or acts on the cluster, may affect members that are idle.
        self._is_fast = is_fast and not any(
            event.get(name) for event in settings.events for name in ("before", "delay_before_s", "then")
        )
        self._faults: dict[int, ActiveFault] = {}
        # Conditions are evaluated at their times, even if all members have left before.
        self._expected = {
            number
            for number, event in enumerate(settings.events)
            if event["do"] == "expect" and self.virtual_cluster.affects(event, partition)
        }
        self._idle = IdleMembers(self.drivers, self._cluster, self.scheduler, self.network, self.recorder, self._plan)
        self._is_processing = False
        self._process_ms = inf  # When `_process` was scheduled last.
        self._set_up_clients(scripts)
        self._schedule_all()

    def _set_up_clients(self, scripts: Sequence[Script]) -> None:
        """Create the look-ups, the producers and the loads."""
        transactional = [driver for driver in self.drivers if driver.member.script.transactions]
        numbers = count(len(self.drivers) + len(transactional))  # after the numbers of the members' connections
        transport = VirtualTransport(
            self.network, self.scheduler, lambda user: next(numbers), after_call=self.process_lookups
        )
        brokers = [(HOST, node_id) for node_id in self._cluster.brokers]
        first = self._partition % len(brokers)  # spreads the look-ups of all partitions among the brokers
        brokers = brokers[first:] + brokers[:first]
        now_ms, record = self.clock.now_ms, self.recorder.add
        self.lookup = self.transaction_lookup = CoordinatorLookup(transport, now_ms, brokers, record)
        self._producers: list[ProducerDriver] = []
        self._loads: list[AdminLoad | CommittedReader] = []
        if transactional:
            self.transaction_lookup = CoordinatorLookup(transport, now_ms, brokers, record, "transaction")
            self.transaction_lookup.connect()
            for number, driver in enumerate(transactional, len(self.drivers)):
                self._producers.append(ProducerDriver(ScriptedProducer(driver.member, record), driver, number, self))
            producers = [each.producer for each in self._producers]
            end_ms = START_MS + self._settings.duration_s * 1000
            name = f"reader-{self._partition}"
            self._loads.append(reader_of(producers, name, START_MS, end_ms, transport, now_ms, self.lookup, record))
        for load in self._settings.loads:
            groups = groups_of(load, scripts)
            if groups:
                turns = None if load.rate_per_s is None else self._turns_of(load)
                self._loads.append(AdminLoad(load, groups, START_MS, transport, now_ms, self.lookup, record, turns))
        self.lookup.connect()

    def _turns_of(self, load: Load) -> Turns:
        """Return which requests of a load are about groups of this partition."""
        by_population = self._settings.groups_by_partition
        counts = [sum(each) for each in zip(*by_population.values(), strict=True)]
        if load.groups is not None:
            counts = list(by_population[load.groups])
        brokers = self._cluster.brokers.values()
        batch = groups_per_request(load, [each.versions for each in brokers])
        if load.kind == "list-groups":
            sizes = [len(brokers) if count else 0 for count in counts]
        else:
            sizes = [ceil(count / batch) for count in counts]
        return Turns(sum(sizes[: self._partition]), sum(sizes), batch)

    def _schedule_all(self) -> None:
        for number, event in enumerate(self._settings.events):
            self.scheduler.schedule_shared(START_MS + event["at_s"] * 1000, EVENT, number, self._perform, number)
        for driver in self.drivers:
            driver.run(self.clock.moment_ms)
        for load in self._loads:
            self.scheduler.schedule(max(load.next_deadline(), START_MS), LOOKUP, 0, self._process)

    def run(self) -> Iterator[list[pa.RecordBatch]]:
        """Run the simulation to its end; yield events, or empty lists so that the caller can report progress."""
        recorder = self.recorder
        with no_garbage_collection():
            while self._run_steps():
                yield recorder.take() if recorder.is_batch else []
            self._finish()
            yield recorder.take(flush=True)

    def _run_steps(self) -> bool:
        """Make up to `_STEPS_AT_ONCE` scheduled calls; return whether there may be more."""
        step, end_ms, done, count = self.scheduler.step, self._end_ms, self._done, len(self.drivers)
        for _ in range(_STEPS_AT_ONCE):
            if len(done) == count and not self._expected and all(load.is_done for load in self._loads):
                return False
            if not step(end_ms):
                return False
        return True

    def tally(self) -> Tally:
        """Return the numbers so far."""
        elapsed_ms = max(0, round(self.clock.moment_ms - START_MS))
        return Tally(
            requests=self.recorder.requests,
            joined=sum(driver.member.is_joined for driver in self.drivers),
            errors=self.recorder.errors,
            elapsed_ms=elapsed_ms,
            lived_ms=elapsed_ms * len(self.drivers),
        )

    def _finish(self) -> None:
        for number, event in enumerate(self._settings.events):
            if self.virtual_cluster.affects(event, self._partition):
                self.outcomes.setdefault(number, OVER)
        for number, fault in self._faults.items():
            if fault.errors:
                self.outcomes[number] = failed_action(fault.errors[0])
        self._idle.wake_all((self._end_ms, LOOKUP, -1))
        for driver in self.drivers:
            driver.member.finish(self._end_ms)
        for producer in self._producers:
            producer.finish(self._end_ms)
        self.lookup.stop()
        if self.transaction_lookup is not self.lookup:
            self.transaction_lookup.stop()
        for load in self._loads:
            load.stop()

    # The cluster

    def _perform(self, number: int) -> None:
        """Perform an event of the timeline."""
        event = without_time(self._settings.events[number])
        self._expected.discard(number)
        affects_idle = self.virtual_cluster.affects_idle(event, self._partition)
        woken = self._idle.wake_all(self.scheduler.position) if affects_idle else []
        if self.virtual_cluster.affects(event, self._partition):
            outcome = self.outcomes[number] = self.virtual_cluster.perform(event)
            if event["do"] == "inject_fault" and outcome is None:
                self._faults[number] = self._cluster.faults.active[-1]
        self.network.tick()  # as the server's reactor does after each command
        for driver in woken:
            self.schedule_tick(driver)

    def _disconnect_clients(self, broker: BrokerNode) -> None:
        self.network.disconnect_clients(broker)

    # NetworkObserver

    def before_change(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._idle.wake(group, self.scheduler.position)

    def before_read(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._idle.settle_commits(group, self.scheduler.position)

    def before_election(self) -> None:
        if self.virtual_cluster.may_change_leader(self._partition):
            self._wake_all()

    def topics_changed(self) -> None:
        self._wake_all()

    def _wake_all(self) -> None:
        for driver in self._idle.wake_all(self.scheduler.position):
            self._plan(driver)

    # Members

    def now_ms(self) -> float:
        """Return the virtual time."""
        return self.clock.moment_ms

    def schedule_tick(self, driver: MemberDriver) -> None:
        """Schedule the next deadline of a member, unless it is idle until then."""
        if driver.member.is_done:
            self._done.add(driver.number)
        if not (self._is_fast and self._idle.begin(driver)):
            self._plan(driver)

    def _plan(self, driver: MemberDriver) -> None:
        """Schedule a call of a member at its next deadline, unless a call is already scheduled by then.

        Most deadlines move to later times before they are due. The call at the old time then plans the next call.
        """
        due_ms = driver.member.next_deadline()
        if due_ms < driver.scheduled_ms:
            driver.scheduled_ms = due_ms
            at_ms = max(due_ms, self.clock.moment_ms)
            self.scheduler.schedule(at_ms, ACTION, driver.number, self._tick, driver, due_ms)

    def _tick(self, driver: MemberDriver, scheduled_ms: float) -> None:
        """Call a member at its deadline, unless it is idle or the deadline has moved since this was scheduled."""
        if scheduled_ms == driver.scheduled_ms and driver.number not in self._idle.numbers:
            driver.scheduled_ms = inf
            if driver.member.next_deadline() <= scheduled_ms:
                driver.tick(scheduled_ms)
            else:
                self._plan(driver)

    # Producers

    def schedule_producer(self, driver: ProducerDriver) -> None:
        """Schedule the next deadline of a producer."""
        due_ms = driver.next_deadline()
        if due_ms != driver.scheduled_ms:
            driver.scheduled_ms = due_ms
            if due_ms < inf:
                at_ms = max(due_ms, self.clock.moment_ms)
                self.scheduler.schedule(at_ms, ACTION, driver.number, self._update, driver, due_ms)

    def _update(self, driver: ProducerDriver, due_ms: float) -> None:
        """Call a producer at its deadline, unless the deadline has moved since this was scheduled."""
        if due_ms == driver.scheduled_ms:
            driver.scheduled_ms = inf
            driver.update(self.clock.moment_ms)

    def wake(self, driver: MemberDriver) -> None:
        """Stop fast-forwarding the members of a group."""
        self._idle.wake(driver.group, self.scheduler.position)

    # Look-ups and loads

    def process_lookups(self) -> None:
        """Schedule the processing of look-ups and loads, after all other calls of this time."""
        if not self._is_processing:
            self._is_processing = True
            self.scheduler.schedule(self.clock.moment_ms, LOOKUP, 0, self._process)

    def _process(self) -> None:
        now_ms = self.clock.moment_ms
        self._is_processing = False
        for load in self._loads:
            load.process(now_ms)
        lookups = {self.lookup: None, self.transaction_lookup: None}
        for lookup in lookups:
            lookup.process(now_ms)
        due_ms = max(min(each.next_deadline() for each in (*lookups, *self._loads)), now_ms + LATENCY_MS)
        if due_ms < inf and due_ms != self._process_ms:
            self._process_ms = due_ms
            self.scheduler.schedule(due_ms, LOOKUP, 0, self._process)


def _with_actions(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield each event, followed by the events that its fault performs."""
    for event in events:
        yield event
        yield from actions_of(event)
