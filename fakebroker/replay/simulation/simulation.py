"""One offsets partition of a replay in virtual time: its groups' actors against a cluster of their own.

Groups are independent of those of other offsets partitions, given the coordinator map, so this is exact. Knows no Spark
and no real time.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from math import inf
from typing import Any, cast

import pyarrow as pa

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.schema import Message
from fakebroker.replay.members.actor import Actor
from fakebroker.replay.members.coordinator_lookup import Lookups
from fakebroker.replay.members.load_player import LoadPlayer, groups_of
from fakebroker.replay.members.messenger import FAREWELL_MS
from fakebroker.replay.members.wire import Wire
from fakebroker.replay.script.script import Script
from fakebroker.replay.simulation.resting import Resting
from fakebroker.replay.simulation.rows import Rows
from fakebroker.replay.simulation.terminal import Network, Terminal
from fakebroker.replay.simulation.virtual_cluster import HOST, VirtualClock, VirtualCluster
from fakebroker.replay.simulation.virtual_time import ASK, CONNECT_MS, DEED, DELAY_MS, EVENT, START_MS, Agenda
from fakebroker.replay.simulation.virtual_wire import VirtualWire
from fakebroker.replay.spark.progress import Tally
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.timeline import OVER, Outcome, without_time
from fakebroker.replay.workload.workload import Cluster as ClusterSettings

_HEAD_START_MS = 10 * CONNECT_MS
"""How long before the start whoever looks coordinators up makes its connection."""

_LATEST_END_MS = 2 * FAREWELL_MS
"""How long after the duration it ends for those that have not done so by themselves."""

_STEPS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What all simulations of a replay are told.

    Attributes:
        seed: Of all ids and chances.
        cluster: The cluster's settings.
        topics: Names and partition counts.
        events: What happens to the cluster, with `at_s`.
        loads: What is asked beside the members; a rate is shared out evenly among all offsets partitions.
        duration_s: From the start until the last member has left.
        folds: Whether heartbeats without any event become one row.
        closed_loop: Whether each heartbeat follows the answer to the last one.
    """

    seed: int
    cluster: ClusterSettings
    topics: Mapping[str, int]
    events: Sequence[Mapping[str, Any]] = ()
    loads: Sequence[Load] = ()
    duration_s: float
    folds: bool = False
    closed_loop: bool = False


class Line(Terminal):
    """An actor and its connection.

    Attributes:
        actor: Who has it.
        planned_ms: When it does something next.
        rests: Whether it does nothing but send heartbeats until then, which are not played one by one.
        is_done: Whether all of its script is played.
        answer: What its next request is answered, if that is known before.
    """

    __slots__ = ("_held", "_house", "actor", "answer", "is_done", "planned_ms", "rests")

    def __init__(self, broker: BrokerNode, number: int, actor: Actor, house: "Simulation") -> None:
        super().__init__(broker, number)
        self.actor = actor
        self.planned_ms = inf
        self.rests = self.is_done = False
        self._house = house
        self._held: Message | None = None
        self.answer: Any = None

    def ring(self, due_ms: float) -> None:
        """It is time, unless that has changed."""
        if due_ms == self.planned_ms and not self.rests:
            self.planned_ms = inf
            self.actor.tick(due_ms)
            self.follow(due_ms)

    def follow(self, now_ms: float) -> None:
        """Carry out what the actor wants."""
        actor, house = self.actor, self._house
        while True:
            if actor.take_hang_up():
                self.hang_up()
                self._held = None
            scheduled_ms = actor.take_discovery()
            if scheduled_ms is not None:
                house.lookups.discover(actor.script.group, self, scheduled_ms)
                house.turn_soon()
            wanted = actor.take_metadata()
            if wanted is not None:
                house.lookups.fetch_metadata(wanted[0], self, wanted[1])
                house.turn_soon()
            request = actor.take_request()
            if request is None:
                break
            response = self._send(request, now_ms)
            if response is None:
                break
            now_ms += 2 * DELAY_MS
            actor.answered(response, now_ms)
        if actor.is_done and not self.is_done:
            self.is_done = True
            house.done += 1
        if house.resting is None or not house.resting.begin(self):
            self.plan()

    def plan(self) -> None:
        """Have it called when it has something to do."""
        due_ms = self.actor.next_deadline()
        if due_ms != self.planned_ms:
            self.planned_ms = due_ms
            if due_ms < inf:
                at_ms = max(due_ms, self._house.clock.moment_ms)
                self._house.agenda.note(at_ms, DEED, self.number, self.ring, due_ms)

    def _send(self, request: Message, now_ms: float) -> Any:
        """Send a request.

        Returns:
            The answer, if it is one that concerns nobody else and nothing comes between; else None.
        """
        node_id, network = self.actor.node_id, self._house.network
        if not self.is_open or self.broker.node_id != node_id:
            self._held = request
            network.connect(self, node_id, now_ms)
            return None
        version = self.spoken.version_for(type(request))
        self.actor.sent(version, now_ms)
        if self.answer is not None:
            answer, self.answer = self.answer, None
            return answer
        call = network.call(self, request, version, self.actor.script.member)
        end_ms = now_ms + 2 * DELAY_MS
        is_alone = type(request) is OffsetCommitRequest and self._house.is_alone_until(self, now_ms, end_ms)
        if is_alone and self.actor.next_deadline() > end_ms:
            return network.handle_alone(call, now_ms + DELAY_MS)
        network.send(call, now_ms)
        return None

    # From the network

    def opened(self) -> None:
        request, self._held = self._held, None
        if request is not None:
            now_ms = self._house.clock.moment_ms
            response = self._send(request, now_ms)
            if response is not None:
                self.reached_at(response, now_ms + 2 * DELAY_MS)

    def reached(self, call: Call, response: Any) -> None:
        self.reached_at(response, self._house.clock.moment_ms)

    def reached_at(self, response: Any, now_ms: float) -> None:
        """An answer comes at a time."""
        self.actor.answered(response, now_ms)
        self.follow(now_ms)

    def cut(self) -> None:
        self._held = None
        self.actor.connection_lost(self._house.clock.moment_ms)
        self.follow(self._house.clock.moment_ms)

    # From the look-ups

    def discovered(self, group: str, node_id: int, host: str, port: int) -> None:
        self.actor.discovered(node_id, host, port, self._house.clock.moment_ms)
        self.follow(self._house.clock.moment_ms)

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        self.actor.discovery_failed(error, self._house.clock.moment_ms)
        self.follow(self._house.clock.moment_ms)

    def seeks_again(self) -> bool:
        return self.actor.seeks_again

    def metadata(self, partition_counts: Mapping[str, int]) -> None:
        self.actor.metadata(partition_counts, self._house.clock.moment_ms)
        self.follow(self._house.clock.moment_ms)


class Simulation:
    """The replay of one offsets partition.

    Args:
        scripts: Of all its groups' members.
        partition: Its number.
        world: What all simulations are told.
        is_fast: Whether heartbeats that nothing comes of are counted; else they are played one by one.

    Attributes:
        done: How many actors are done.
        resting: The fast way with heartbeats, if that is taken.
        outcomes: What came of the events that are about groups of the partition, by their places among all.
    """

    def __init__(self, scripts: Sequence[Script], partition: int, world: World, *, is_fast: bool = True) -> None:
        self._world, self._partition = world, partition
        self._end_ms = START_MS + world.duration_s * 1000 + _LATEST_END_MS
        self.done = 0
        self.outcomes: dict[int, Outcome] = {}
        self.clock = VirtualClock(START_MS - _HEAD_START_MS)
        self.agenda = Agenda(self.clock)
        self.rows = Rows(folds=world.folds)
        seed = int.from_bytes(blake2b(f"{world.seed} {partition}".encode(), digest_size=8).digest(), "big")
        self.fake = VirtualCluster(world.cluster, world.topics, seed, self.clock, self._cut)
        keeps_order = any(event.get("lose_tail") for event in world.events)
        self.network = Network(self.fake.cluster, self.agenda, self._disturb, keeps_order=keeps_order)
        anybody = next(iter(self.fake.cluster.brokers.values()))
        record = self.rows.add
        actors = [Actor(script, START_MS, record, closed_loop=world.closed_loop) for script in scripts]
        self.lines = [Line(anybody, number, actor, self) for number, actor in enumerate(actors)]
        self.network.terminals.extend(self.lines)
        self.resting = Resting(self) if is_fast else None
        self._wire = VirtualWire(self.network, self.agenda, anybody, count(len(self.lines)))
        self._wire.turn = self.turn_soon  # type: ignore[method-assign]  # that is what it is for
        self._is_turning = False
        self._set_up_asking(scripts)
        self._set_up_time()

    def _set_up_asking(self, scripts: Sequence[Script]) -> None:
        world = self._world
        brokers = [(HOST, node_id) for node_id in self.fake.cluster.brokers]
        first = self._partition % len(brokers)  # so that not all ask the same one
        wire, clock = cast(Wire, self._wire), cast(Any, self.clock)  # they do what is used of them here
        self.lookups = Lookups(wire, clock, brokers[first:] + brokers[:first], self.rows.add)
        self._loads: list[LoadPlayer] = []
        for load in world.loads:
            groups = groups_of(load, scripts)
            if groups:
                share = self._share_of(load)
                self._loads.append(LoadPlayer(share, groups, START_MS, wire, clock, self.lookups, self.rows.add))
        self.lookups.connect()

    def _share_of(self, load: Load) -> Load:
        if load.rate_per_s is None:
            return load
        partitions = self.fake.cluster.config.number("offsets.topic.num.partitions")
        fields = {name: getattr(load, name) for name in load.__struct_fields__}
        return Load(**{**fields, "rate_per_s": load.rate_per_s / partitions})

    def _set_up_time(self) -> None:
        for number, event in enumerate(self._world.events):
            self.agenda.note_grave(START_MS + event["at_s"] * 1000, EVENT, number, self._happen, number)
        for line in self.lines:
            line.follow(self.clock.moment_ms)
        for load in self._loads:
            self.agenda.note(max(load.next_deadline(), START_MS), ASK, 0, self._turn)

    def run(self) -> Iterator[list[pa.RecordBatch]]:
        """Let time go by until all is played; hands out the events as they come."""
        rows = self.rows
        with _no_garbage():
            while self._play_on():
                yield rows.take() if rows.is_batch else []
            self._finish()
            yield rows.take(all_of_it=True)

    def _play_on(self) -> bool:
        """Let the next things happen; whether there may be more."""
        step, end_ms = self.agenda.step, self._end_ms
        return all(not self._is_done and step(end_ms) for _ in range(_STEPS_AT_ONCE))

    @property
    def _is_done(self) -> bool:
        return self.done == len(self.lines) and all(load.is_done for load in self._loads)

    def tally(self) -> Tally:
        """What has happened so far."""
        elapsed_ms = max(0, round(self.clock.moment_ms - START_MS))
        return Tally(
            requests=self.rows.requests,
            joined=sum(line.actor.is_joined for line in self.lines),
            errors=self.rows.errors,
            elapsed_ms=elapsed_ms,
            lived_ms=elapsed_ms * len(self.lines),
        )

    def _finish(self) -> None:
        for number, event in enumerate(self._world.events):
            if self.fake.is_about(event, self._partition):
                self.outcomes.setdefault(number, OVER)
        if self.resting is not None:
            self.resting.wake_all((self._end_ms, ASK, -1))
        for line in self.lines:
            line.actor.finish(self._end_ms)
        self.lookups.stop()
        for load in self._loads:
            load.stop()

    def is_alone_until(self, line: Line, now_ms: float, end_ms: float) -> bool:
        """Whether what a member does by itself now is its own business, and nothing comes between until then."""
        if self.resting is None or self.fake.cluster.faults.active or self.agenda.place != (now_ms, DEED, line.number):
            return False
        return end_ms <= self._end_ms and self.agenda.is_quiet_until(end_ms)

    # The cluster

    def _happen(self, number: int) -> None:
        if self.resting is not None:
            self.resting.wake_all(self.agenda.place)
        event = without_time(self._world.events[number])
        if self.fake.is_about(event, self._partition):
            self.outcomes[number] = self.fake.happen(event)
        self.fake.cluster.tick(self.clock.moment_ms)  # as the reactor does behind everything that is done to it
        self.network.settle(self.clock.moment_ms)

    def _cut(self, broker: BrokerNode) -> None:
        self.network.cut(broker)

    def _disturb(self, groups: Iterable[str]) -> None:
        if self.resting is not None:
            for group in groups:
                self.resting.wake(group, self.agenda.place)

    # Look-ups and loads

    def turn_soon(self) -> None:
        """Have what is to be asked looked at, behind all that happens now."""
        if not self._is_turning:
            self._is_turning = True
            self.agenda.note(self.clock.moment_ms, ASK, 0, self._turn)

    def _turn(self) -> None:
        now_ms = self.clock.moment_ms
        self._is_turning = False
        for load in self._loads:
            load.turn(now_ms)
        self.lookups.turn(now_ms)
        due_ms = min([self.lookups.next_deadline(), *(load.next_deadline() for load in self._loads)])
        if due_ms < inf:
            self.agenda.note(max(due_ms, now_ms + DELAY_MS), ASK, 0, self._turn)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Actors and groups stay until the end: looking through them for garbage again and again finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
