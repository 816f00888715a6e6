"""How clients find coordinators with options 2.a and 2.b, in virtual time on a registry.

Option 2.a as in Kafka with ZooKeeper: one broker, the controller, is elected in the registry. It watches the brokers'
nodes; when one is deleted, it writes new leaders of partitions to the registry, and sends them to the brokers. So every
broker can answer every look-up. Option 2.b: a broker that does not know the coordinator of a group tries to create the
group's node in the registry. If the node exists, it reads it and watches it; all brokers that do, try again when the
node is deleted. A broker that is asked several times meanwhile answers all when it knows the coordinator.

Brokers crash: their connections are refused, and their sessions at the registry expire.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Protocol

import msgspec

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.placement.offsets_leaders import Replicas, striped_replicas
from fakebroker.lab.placement.placement_plan import LookupPlan
from fakebroker.lab.placement.registry_service import Done, Operation, Outage, RegistryService, drawn_latency_ms
from fakebroker.lab.placement.result import PlacementName
from fakebroker.proposals.consumer_rewrite.registry import EventKind, RegistryErrorCode, RegistryEvent
from fakebroker.replay.simulation.scheduler import ACTION, ARRIVAL, EVENT, RESPONSE, START_MS, Scheduler, VirtualClock

Reply = Callable[[int | None], None]
"""Answers a look-up with the coordinator's node id."""

_CONTROLLER, _BROKERS, _PARTITIONS, _COORDINATORS = "/controller", "/brokers", "/partitions", "/coordinators"


def _create(path: str, data: object) -> Operation:
    """Return an operation that creates a node that is deleted when the broker's session expires."""
    return lambda registry, session_id: registry.create(path, data, session_id)


class _Broker(Protocol):
    def look_up(self, group_id: str, reply: Reply) -> None: ...

    def on_event(self, event: RegistryEvent) -> None: ...


class _HashBroker:
    """A broker with option 2.a.

    Args:
        run: The simulation.
        node_id: The broker.
        replicas: The replicas of the partitions of the offsets topic.
    """

    def __init__(self, run: "LookupRun", node_id: int, replicas: Replicas) -> None:
        self._run, self._node_id, self._replicas = run, node_id, replicas
        self.leaders: list[int | None] = [each[0] for each in replicas]
        self._alive: set[int] = {node for each in replicas for node in each}
        self._missing = 0

    def look_up(self, group_id: str, reply: Reply) -> None:
        reply(self.leaders[partition_for(group_id, len(self.leaders))])

    def on_event(self, event: RegistryEvent) -> None:
        if event.path == _BROKERS:
            self._read_brokers()
            return
        if event.kind is EventKind.SESSION_EXPIRED:
            self._call(_create(f"{_BROKERS}/{self._node_id}", self._node_id), _ignore)
        self._call(_create(_CONTROLLER, self._node_id), self._elected)

    def _call(self, operation: Operation, done: Done, *, is_write: bool = True) -> None:
        self._run.service.call(self._node_id, operation, done, is_write=is_write)

    def _elected(self, result: object) -> None:
        if result is RegistryErrorCode.NODE_EXISTS:
            self._call(lambda registry, session_id: registry.find(_CONTROLLER, session_id), _ignore, is_write=False)
            return
        self._alive, self._missing = set(), len(self.leaders)
        for index in range(len(self.leaders)):  # a new controller reads the state of all partitions
            self._read(index)

    def _read(self, index: int) -> None:
        path = f"{_PARTITIONS}/{index}"

        def read(state: tuple[int | None, int]) -> None:
            self.leaders[index] = state[0]
            self._missing -= 1
            if not self._missing:
                self._read_brokers()

        self._call(lambda registry, _: registry.get(path), read, is_write=False)

    def _read_brokers(self) -> None:
        self._call(lambda registry, session_id: registry.children(_BROKERS, session_id), self._elect, is_write=False)

    def _elect(self, children: Sequence[str]) -> None:
        alive = {int(path.rpartition("/")[2]) for path in children}
        started, self._alive = sorted(alive - self._alive), alive
        moving = [index for index, leader in enumerate(self.leaders) if leader not in alive]
        self._missing += len(moving)
        for index in moving:
            self._write(index, next((node for node in self._replicas[index] if node in alive), None))
        if not moving:
            self._send_metadata(started)

    def _write(self, index: int, leader: int | None) -> None:
        path = f"{_PARTITIONS}/{index}"

        def written(_: object) -> None:
            self.leaders[index] = leader
            self._missing -= 1
            if not self._missing:
                self._send_metadata(sorted(self._alive))

        self._call(lambda registry, _: registry.set(path, leader), written)

    def _send_metadata(self, nodes: Iterable[int]) -> None:
        for node_id in nodes:
            self._run.update_metadata(node_id, list(self.leaders))


def _ignore(_: object) -> None:
    pass


class _ElectingBroker:
    """A broker with option 2.b.

    Args:
        run: The simulation.
        node_id: The broker.
    """

    def __init__(self, run: "LookupRun", node_id: int) -> None:
        self._run, self._node_id = run, node_id
        self._coordinators: dict[str, int] = {}
        self._waiting: dict[str, list[Reply]] = {}

    def look_up(self, group_id: str, reply: Reply) -> None:
        if (node_id := self._coordinators.get(group_id)) is not None:
            reply(node_id)
        elif (waiting := self._waiting.get(group_id)) is not None:
            waiting.append(reply)
        else:
            self._waiting[group_id] = [reply]
            self._elect(group_id)

    def on_event(self, event: RegistryEvent) -> None:
        if event.kind is EventKind.SESSION_EXPIRED:
            self._coordinators.clear()  # it no longer coordinates groups, and its watches are gone
            for group_id in self._waiting:
                self._elect(group_id)
        elif event.kind is EventKind.NODE_DELETED:
            group_id = event.path.removeprefix(f"{_COORDINATORS}/")
            self._coordinators.pop(group_id, None)
            if group_id not in self._waiting:
                self._waiting[group_id] = []
                self._elect(group_id)

    def _elect(self, group_id: str) -> None:
        path = f"{_COORDINATORS}/{group_id}"

        def created(result: object) -> None:
            if result is RegistryErrorCode.NODE_EXISTS:
                read = self._run.service.call
                read(self._node_id, lambda registry, session_id: registry.get(path, session_id), found, is_write=False)
            else:
                self._answer(group_id, self._node_id)

        def found(result: RegistryErrorCode | tuple[int, int]) -> None:
            if isinstance(result, RegistryErrorCode):  # deleted meanwhile
                self._elect(group_id)
            else:
                self._answer(group_id, result[0])

        self._run.service.call(self._node_id, _create(path, self._node_id), created, is_write=True)

    def _answer(self, group_id: str, coordinator_id: int) -> None:
        self._coordinators[group_id] = coordinator_id
        for reply in self._waiting.pop(group_id, ()):
            reply(coordinator_id)


class LookupCosts(msgspec.Struct, frozen=True):
    """What look-ups have cost; see `LookupFigures`."""

    found_ms: float
    after_expiry_ms: float
    client_messages: int
    registry_messages: int
    controller_messages: int
    registry_busy: float


class LookupRun:
    """One simulation: all clients start, then possibly a broker dies.

    Args:
        placement: "option-2a" or "option-2b".
        plan: Latencies and times.
        groups: The names of the groups.
        seed: Seed of all random choices.
        outages: Outages of the registry.
    """

    def __init__(
        self,
        placement: PlacementName,
        plan: LookupPlan,
        groups: Sequence[str],
        seed: int,
        outages: Sequence[Outage] = (),
    ) -> None:
        self._plan, self._groups = plan, groups
        self._random = Random(f"look-ups {placement} {seed}")
        self._clock = VirtualClock(START_MS)
        self.scheduler = Scheduler(self._clock)
        self.service = RegistryService(self.scheduler, plan, self._random, outages)
        self.coordinators: list[int | None] = [None] * (len(groups) * plan.members)
        self._found_ms = START_MS
        self._searching = 0
        self._client_messages = self._controller_messages = 0
        nodes, is_hashed = range(1, plan.brokers + 1), placement == "option-2a"
        replicas = striped_replicas(plan.partitions, 3, nodes, self._random)
        self._brokers: dict[int, _Broker] = {
            node_id: _HashBroker(self, node_id, replicas) if is_hashed else _ElectingBroker(self, node_id)
            for node_id in nodes
        }
        self._set_up(replicas if is_hashed else [])

    def _set_up(self, replicas: Replicas) -> None:
        """Create the nodes of a running cluster. The first broker is the controller."""
        registry = self.service.registry
        for path in (_BROKERS, _PARTITIONS, _COORDINATORS):
            registry.create(path, None)
        sessions = {node_id: self.service.open(node_id, each.on_event) for node_id, each in self._brokers.items()}
        for index, (leader, *_) in enumerate(replicas):
            registry.create(f"{_PARTITIONS}/{index}", leader)
        for node_id, session_id in sessions.items():
            registry.create(f"{_BROKERS}/{node_id}", node_id, session_id)
        if replicas:
            controller, *others = sessions.items()
            registry.create(_CONTROLLER, *controller)
            registry.children(_BROKERS, controller[1])
            for _, session_id in others:
                registry.find(_CONTROLLER, session_id)

    def _latency_ms(self) -> float:
        return drawn_latency_ms(self._plan, self._random)

    # Phases

    def start_up(self) -> LookupCosts:
        """Start all clients, and return the costs until they have found their coordinators."""
        started_ms = self._clock.moment_ms
        for client in range(len(self.coordinators)):
            at_ms = started_ms + self._random.uniform(0, self._plan.spread_ms)
            self._searching += 1
            self.scheduler.schedule(at_ms, ACTION, client, self._look_up, client)
        return self._costs(started_ms)

    def stop(self, node_id: int) -> LookupCosts:
        """Let a broker crash, and return the costs until its clients have found other coordinators."""
        stopped_ms = self._clock.moment_ms
        self.service.stop(node_id)
        del self._brokers[node_id]
        for client, coordinator in enumerate(self.coordinators):
            if coordinator == node_id:  # its connection is closed
                self._searching += 1
                self.scheduler.schedule(stopped_ms + self._latency_ms(), ACTION, client, self._look_up, client)
        return self._costs(stopped_ms)

    def _costs(self, started_ms: float) -> LookupCosts:
        before = self._client_messages, self.service.messages, self._controller_messages
        busy_ms, self._found_ms = self.service.busy_ms, started_ms
        while (self._searching or self.service.pending) and self.scheduler.step(float("inf")):
            pass
        spent_ms = self._clock.moment_ms - started_ms
        expired_ms = self.service.expired_ms
        return LookupCosts(
            self._found_ms - started_ms,
            max(0.0, self._found_ms - expired_ms) if expired_ms > started_ms else 0.0,
            self._client_messages - before[0],
            self.service.messages - before[1],
            self._controller_messages - before[2],
            (self.service.busy_ms - busy_ms) / spent_ms if spent_ms else 0.0,
        )

    # Clients

    def _look_up(self, client: int) -> None:
        node_id = self._random.randrange(self._plan.brokers) + 1
        self._client_messages += 1
        at_ms = self._clock.moment_ms + self._latency_ms()
        self.scheduler.schedule(at_ms, ARRIVAL, client, self._requested, client, node_id)

    def _requested(self, client: int, node_id: int) -> None:
        broker = self._brokers.get(node_id)
        if broker is None:  # the connection is refused
            self._retry(client)
        else:
            broker.look_up(self._groups[client // self._plan.members], partial(self._reply, client))

    def _reply(self, client: int, coordinator: int | None) -> None:
        self._client_messages += 1
        at_ms = self._clock.moment_ms + self._latency_ms()
        self.scheduler.schedule(at_ms, RESPONSE, client, self._replied, client, coordinator)

    def _replied(self, client: int, coordinator: int | None) -> None:
        if coordinator not in self._brokers:
            self._retry(client)
            return
        self.coordinators[client] = coordinator
        self._searching -= 1
        self._found_ms = self._clock.moment_ms

    def _retry(self, client: int) -> None:
        at_ms = self._clock.moment_ms + self._latency_ms() + self._plan.backoff_ms
        self.scheduler.schedule(at_ms, ACTION, client, self._look_up, client)

    # The controller

    def update_metadata(self, node_id: int, leaders: list[int | None]) -> None:
        """Send the leaders from the controller to a broker, which responds."""
        self._controller_messages += 1
        at_ms = self._clock.moment_ms + self._latency_ms() + self._plan.propagate_ms
        self.service.pending += 1
        self.scheduler.schedule(at_ms, EVENT, node_id, self._update, node_id, leaders)

    def _update(self, node_id: int, leaders: list[int | None]) -> None:
        self.service.pending -= 1
        broker = self._brokers.get(node_id)
        if isinstance(broker, _HashBroker):
            self._controller_messages += 1
            broker.leaders = leaders
