"""Plays the members and loads of one task over TCP, in an event loop of one thread.

A timer queue has the members' deadlines; one poller reports the sockets that are ready. Does not depend on Spark.
"""

import gc
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.client.transport import Address
from fakebroker.coordinator.timers import TimerQueue
from fakebroker.errors import FakebrokerError
from fakebroker.open_files import allow_connections
from fakebroker.replay.members.admin_load import AdminLoad
from fakebroker.replay.members.committed_reader import CommittedReader, reader_of
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.member_driver import MemberDriver
from fakebroker.replay.members.producer_driver import ProducerDriver
from fakebroker.replay.members.request_outcomes import is_failure
from fakebroker.replay.members.scripted_member import LEAVE_TIMEOUT_MS, ScriptedMember
from fakebroker.replay.members.scripted_producer import ScriptedProducer
from fakebroker.replay.members.shared_connections import SharedConnections
from fakebroker.replay.members.sockets import SocketTransport
from fakebroker.replay.script.script import Script
from fakebroker.replay.spark.progress import Tally
from fakebroker.replay.workload.loads import Load
from fakebroker.server.clock import ScaledClock

MAX_REBALANCE_CONNECTIONS = 8_000
"""With shared connections: the number of members of one task that can rebalance at the same time."""

CONNECTIONS_PER_PRODUCER = 3
"""Connections of a transactional producer: to its coordinator, and to leaders of partitions."""

_REPORT_EVERY_MS = 100.0
"""Shortest interval of reports, in real time."""

_REPORT_EVERY_MS_PER_MEMBER = 0.25
"""Shortest interval of reports per active member, in real time: the cost of a report grows with their number."""

_MAX_REPORT_INTERVAL_MS = 1_000.0
"""Longest interval of reports, in real time: the reply of Spark's driver to a report may be a request to stop."""

_MEMBERS_PER_TURN = 256
"""Members whose deadlines are processed between two polls of the sockets."""

_COLLECTED_OBJECTS = 100_000
"""Number of new objects between garbage collections. Members create no cyclic garbage while they stay, so that with
Python's default, 700, a sixth of the CPU time would be for collections that find nothing."""

_LATEST_END_MS = 2 * LEAVE_TIMEOUT_MS
"""Time after the duration at which the loop ends even if members are not done."""


class LoopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a member loop.

    Attributes:
        lanes: Number of connections to each broker that the members share; None for one connection per member.
        speed: Speed of the members' clock, as a multiple of real time.
        closed_loop: Whether each heartbeat is sent as soon as the previous one is answered.
        duration_s: Duration of the replay by the members' clock. The loop also waits for members that leave at its end.
        security: How connections are encrypted and authenticated.
    """

    lanes: int | None = None
    speed: float = 1.0
    closed_loop: bool = False
    duration_s: float = math.inf
    security: ClientSecurity = PLAINTEXT


_DEFAULTS = LoopSettings()


class MemberLoop:
    """The members and loads of one task; the `DriverContext` and `ProducerContext` of its drivers.

    `play` makes all calls of `record` and `report` in its own thread.

    Args:
        scripts: One per member. Groups must be complete: with lanes, a group reserves connections for all its members.
        brokers: Bootstrap brokers, tried in this order.
        record: Receives each event.
        report: Receives the tally, one to ten times per second of real time.
        settings: Options.
        loads: The loads of this task, with their groups as `groups_of` returns them.

    Attributes:
        transport, lookup, shared, now_ms: See `DriverContext`.
        transaction_lookup: See `ProducerContext`.

    Raises:
        FakebrokerError: The limit of open files is too low for the connections.
        ConfigError: A file of certificates cannot be read.
    """

    def __init__(
        self,
        scripts: Sequence[Script],
        brokers: Sequence[Address],
        record: Callable[[Event], None],
        report: Callable[[Tally], None],
        settings: LoopSettings = _DEFAULTS,
        loads: Sequence[tuple[Load, Mapping[str, Sequence[str]]]] = (),
    ) -> None:
        self._scripts, self._loads, self._settings = scripts, loads, settings
        self._record, self._report = record, report
        self._tally = Tally()
        self._start_ms = self._end_ms = self._report_ms = math.inf
        self._timers: TimerQueue[MemberDriver] = TimerQueue()
        self._producer_timers: TimerQueue[ProducerDriver] = TimerQueue()
        self._active: list[MemberDriver] = []
        self._producers: list[ProducerDriver] = []
        self._active_loads: list[AdminLoad | CommittedReader] = []
        self._is_stopped = False
        self._collected_objects = gc.get_threshold()
        connections = max_concurrent(scripts) if settings.lanes is None else MAX_REBALANCE_CONNECTIONS
        transactional = sum(script.transactions is not None for script in scripts)
        allow_connections(connections + CONNECTIONS_PER_PRODUCER * transactional)
        self.transport, self._clock = SocketTransport(security=settings.security), ScaledClock()
        self.now_ms = self._clock.now_ms
        self.lookup = CoordinatorLookup(self.transport, self.now_ms, brokers, self._record_event)
        self.transaction_lookup = self.lookup
        if transactional:
            self.transaction_lookup = CoordinatorLookup(
                self.transport, self.now_ms, brokers, self._record_event, "transaction"
            )
        self.shared: SharedConnections | None = None
        if settings.lanes is not None:
            sizes = Counter(script.group for script in scripts)
            self.shared = SharedConnections(self.transport, settings.lanes, MAX_REBALANCE_CONNECTIONS, sizes)

    def connect(self) -> None:
        """Connect to the first bootstrap broker that responds. Records no events.

        Raises:
            BrokerUnreachable: No broker responds.
        """
        try:
            for lookup in {self.lookup: None, self.transaction_lookup: None}:
                lookup.connect()
                while not lookup.nodes:
                    self.transport.poll(self._clock.seconds_until(lookup.next_deadline()))
                    lookup.process(self.now_ms())
        except FakebrokerError:
            self.transport.close()
            raise

    def play(self, start_s: float) -> None:
        """Play all scripts and loads to their end; block until then. Members retry if brokers become unreachable.

        Args:
            start_s: When the replay starts, in seconds since the Unix epoch.

        Raises:
            FakebrokerError: This machine has no more files or ports for connections.
            UnsupportedVersion: A broker does not support an API or version that members need.
        """
        try:
            self._begin(start_s)
            while (self._active or self._active_loads) and not self._is_stopped:
                self._turn()
        finally:
            self._finish()

    def stop(self) -> None:
        """End `play` soon. May be called from another thread."""
        self._is_stopped = True

    def pending(self) -> list[Event]:
        """Return the requests in flight of members and producers, as rows of requests that the end has cut off."""
        now_ms = self.now_ms()
        rows = [row for driver in self._active if (row := driver.member.pending(now_ms)) is not None]
        rows += [row for producer in self._producers for row in producer.producer.pending(now_ms)]
        return rows

    def process_lookups(self) -> None:
        """No effect: each turn of the loop processes look-ups."""

    def schedule_tick(self, driver: MemberDriver) -> None:
        """Schedule the next call of a driver's `tick`, unless one is scheduled earlier."""
        self._timers.schedule(driver, driver.member.next_deadline())

    def schedule_producer(self, driver: ProducerDriver) -> None:
        """Schedule the next call of a producer's `update`, unless one is scheduled earlier."""
        self._producer_timers.schedule(driver, driver.next_deadline())

    def wake(self, driver: MemberDriver) -> None:
        """No effect: members are never fast-forwarded over TCP."""

    def _begin(self, start_s: float) -> None:
        settings, self._start_ms = self._settings, start_s * 1000
        self._end_ms = self._start_ms + settings.duration_s * 1000 + _LATEST_END_MS
        self._clock.run_from(self._start_ms, settings.speed)
        self._report_ms = self.now_ms()
        gc.set_threshold(_COLLECTED_OBJECTS)
        for number, script in enumerate(self._scripts):
            member = ScriptedMember(script, self._start_ms, self._record_event, closed_loop=settings.closed_loop)
            driver = MemberDriver(member, number, self)
            self._active.append(driver)
            if script.transactions is not None:
                producer = ProducerDriver(ScriptedProducer(member, self._record_event), driver, number, self)
                self._producers.append(producer)
            self.schedule_tick(driver)
        gc.freeze()  # members live until the end: garbage collections can skip them
        for load, groups in self._loads:
            active = AdminLoad(
                load, groups, self._start_ms, self.transport, self.now_ms, self.lookup, self._record_event
            )
            self._active_loads.append(active)
        if self._producers:
            end_ms = self._start_ms + settings.duration_s * 1000
            producers, name = [each.producer for each in self._producers], f"reader-of-{self._scripts[0].member}"
            reader = reader_of(
                producers, name, self._start_ms, end_ms, self.transport, self.now_ms, self.lookup, self._record_event
            )
            self._active_loads.append(reader)

    def _turn(self) -> None:
        """Wait for sockets or the next deadline, then process what is due."""
        due_ms = min(self._report_ms, self.lookup.next_deadline())
        next_ms = self._timers.next_deadline()
        if next_ms is not None:
            due_ms = min(due_ms, next_ms)
        if self._producers:
            due_ms = min(due_ms, self._next_of_producers())
        for load in self._active_loads:
            due_ms = min(due_ms, load.next_deadline())
        self.transport.poll(self._clock.seconds_until(due_ms))
        now_ms = self.now_ms()
        self._tick_members(now_ms)
        for load in self._active_loads:
            load.process(now_ms)
        self.lookup.process(now_ms)
        if self._producers:
            self._update_producers(now_ms)
        if self._report_ms <= now_ms:
            self._check_progress(now_ms)

    def _tick_members(self, now_ms: float) -> None:
        """Call members whose deadlines have passed; a limited number, so that responses are not delayed."""
        for driver, _ in itertools.islice(self._timers.expired(now_ms), _MEMBERS_PER_TURN):
            if driver.member.next_deadline() <= now_ms:
                driver.tick(now_ms)
            else:  # The deadline has moved since it was scheduled.
                self.schedule_tick(driver)

    def _next_of_producers(self) -> float:
        """Return when the next producer, or the look-up of its coordinator, is due."""
        next_ms = self._producer_timers.next_deadline()
        due_ms = self.transaction_lookup.next_deadline()
        return due_ms if next_ms is None else min(due_ms, next_ms)

    def _update_producers(self, now_ms: float) -> None:
        for driver, _ in itertools.islice(self._producer_timers.expired(now_ms), _MEMBERS_PER_TURN):
            if driver.next_deadline() <= now_ms:
                driver.update(now_ms)
            else:
                self.schedule_producer(driver)
        self.transaction_lookup.process(now_ms)

    def _check_progress(self, now_ms: float) -> None:
        """Remove members and loads that are done, and report the tally."""
        every_ms = max(_REPORT_EVERY_MS, _REPORT_EVERY_MS_PER_MEMBER * len(self._active))
        self._report_ms = now_ms + min(every_ms, _MAX_REPORT_INTERVAL_MS) * self._settings.speed
        self._active = [driver for driver in self._active if not driver.member.is_done]
        self._active_loads = [load for load in self._active_loads if not load.is_done]
        self._report_now(now_ms)
        if now_ms > self._end_ms:
            self._is_stopped = True

    def _report_now(self, now_ms: float) -> None:
        self._tally.joined = sum(driver.member.is_joined for driver in self._active)
        self._tally.elapsed_ms = max(0, round(now_ms - self._start_ms))
        self._report(self._tally)

    def _record_event(self, event: Event) -> None:
        self._record(event)
        if event.kind == "request":
            self._tally.requests += 1
            if event.error != 0 and is_failure(event.error, event.missing):
                self._tally.errors += 1

    def _finish(self) -> None:
        """Close all connections, and record pending requests as cut off."""
        self.transport.close()
        gc.set_threshold(*self._collected_objects)
        gc.unfreeze()
        now_ms = self.now_ms()
        for driver in self._active:
            driver.member.finish(now_ms)
        for producer in self._producers:
            producer.finish(now_ms)
        for load in self._active_loads:
            load.stop()
        self.lookup.stop()
        if self._producers:
            self.transaction_lookup.stop()
        self._report_now(now_ms)


def max_concurrent(scripts: Sequence[Script]) -> int:
    """Return the maximum number of members that are connected at the same time.

    A member that stops counts as connected until its leave timeout.
    """
    changes: list[tuple[float, int]] = []
    for script in scripts:
        is_started = False
        for act in script.acts:
            if act.action == "start" and not is_started:
                changes.append((act.at_ms, 1))
                is_started = True
            elif act.action in ("leave", "crash") and is_started:
                changes.append((act.at_ms + LEAVE_TIMEOUT_MS, -1))
                is_started = False
    return max(itertools.accumulate(step for _, step in sorted(changes)), default=0)
