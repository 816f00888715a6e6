"""Whole consumers and a whole cluster in virtual time, with a network in between that delays, reorders and loses.

Each consumer has a connection for each broker and lane. Within one connection nothing overtakes anything, and a broker
takes its requests one at a time; what is sent on different connections arrives in any order. Of the requests on their
way when a connection is cut some still arrive, perhaps after those of the next one; nothing comes back.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from fakebroker.client.consumer.consumer_core import ConsumerCore
from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.consumer.group_offsets import OffsetOperation
from fakebroker.client.consumer.outbound import Lane, OutboundRequest, RebalanceEvent
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.client.errors import CommitFailed, ConsumerError
from fakebroker.client.versions import in_shape_of, versions_of
from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.controller import Failover
from fakebroker.coordinator.group.invariants import check
from fakebroker.protocol.registry import api_of
from fakebroker.topic_partition import TopicPartition
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness, batch, carried
from tests.support.virtual_time import VirtualTime

MAX_POLL_INTERVAL_MS = 8_000
POLL_MS = 400.0


@dataclass(eq=False)
class Link:
    """One connection: what is on its way, what waits at the broker, when what was sent last arrives."""

    app: "App"
    node_id: int
    lane: Lane
    peer: Peer
    in_flight: dict[int, OutboundRequest] = field(default_factory=dict)
    queue: deque[Call] = field(default_factory=deque)
    serving: Call | None = None
    is_cut: bool = False
    arrival_ms: dict[str, float] = field(default_factory=dict)


@dataclass(eq=False)
class App:
    """An application: it polls, and is done with what a poll gave when it polls again."""

    core: ConsumerCore
    batch: list[ConsumerRecord] = field(default_factory=list)
    ticket: OffsetOperation | None = None  # of the commit that its callback waits for
    group_asks: deque[OutboundRequest] = field(default_factory=deque)
    group_current: OutboundRequest | None = None
    links: dict[tuple[int, Lane], Link] = field(default_factory=dict)
    stalled_until_ms: float = 0.0
    is_running: bool = True


class ConsumerSimulation(VirtualTime):
    """A cluster of three brokers with the group "g" of up to `size` consumers.

    Attributes:
        processed: The offsets of each partition that an application was done with.
    """

    def __init__(self, seed: int, assignor: str, size: int, topics: dict[str, int]) -> None:
        super().__init__(START_MS)
        self.random = Random(seed)
        self.assignor = assignor
        self.harness = ClusterHarness(topics, brokers=3, config={"group.initial.rebalance.delay.ms": 0})
        self.cluster = self.harness.cluster
        self.processed: dict[TopicPartition, set[int]] = {}
        self.apps: list[App | None] = [None] * size
        self._connection_ids = count(1)
        self._correlation_ids = count(1)
        self._owed: dict[int, Link] = {}
        self._reaches: dict[tuple[int, int], bool] = {}

    # What may happen

    def start(self, index: int) -> None:
        if self.apps[index] is None:
            settings = ConsumerSettings(
                group_id="g",
                client_id=f"c{index}",
                instance_id="static" if index == 2 else None,
                assignor=self.assignor,
                session_timeout_ms=6_000,
                heartbeat_interval_ms=1_500,
                max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
                commit_interval_ms=2_000 if index % 2 else 0,
                auto_offset_reset="earliest",
                max_poll_records=3,
                fetch_max_wait_ms=2_000,
                metadata_max_age_ms=3_000,
            )
            app = self.apps[index] = App(ConsumerCore(settings))
            app.core.subscribe(list(self.topics()), self.now_ms)
            self._poll_on(app)

    def topics(self) -> dict[str, int]:
        visible = [topic for topic in self.cluster.topics if not topic.name.startswith("__")]
        return {topic.name: len(topic.partitions) for topic in visible}

    def leave(self, index: int) -> None:
        if (app := self.apps[index]) is not None:
            self._process(app)
            app.core.unsubscribe(self.now_ms)
            self._carry_out(app)
            self._end(index, app, lost=False)

    def crash(self, index: int) -> None:
        if (app := self.apps[index]) is not None:
            self._end(index, app, lost=True)

    def _end(self, index: int, app: App, *, lost: bool) -> None:
        app.is_running = False
        for link in list(app.links.values()):
            if lost or link.lane is not Lane.GROUP:
                self._cut(link)
        self.apps[index] = None

    def stall(self, index: int) -> None:
        """The application does not poll for so long that it is out of the group."""
        if (app := self.apps[index]) is not None:
            app.stalled_until_ms = self.now_ms + MAX_POLL_INTERVAL_MS + 3_000

    def cut(self, index: int) -> None:
        if (app := self.apps[index]) is not None and app.links:
            self._lose(self.random.choice(list(app.links.values())))

    def move_coordinator(self, load_ms: float) -> None:
        partition = self.cluster.offsets_partition_of("g")
        self._lead_elsewhere(partition, Failover(load_ms=load_ms))

    def move_leader(self) -> None:
        partitions = [each for name in self.topics() for each in self._topic(name).partitions]
        self._lead_elsewhere(self.random.choice(partitions), Failover())

    def _lead_elsewhere(self, partition: Any, how: Failover) -> None:
        node_id = self.random.choice([each for each in (1, 2, 3) if each != partition.leader_id])
        self.cluster.controller.set_leader(partition, node_id, self.now_ms, how)

    def grow(self) -> None:
        self.cluster.create_partitions("t", len(self._topic("t").partitions) + 1)

    def produce(self, most: int = 4) -> None:
        """Some records for each partition."""
        for name in self.topics():
            for partition in self._topic(name).partitions:
                if size := self.random.randint(0, most):
                    values = [b"%d" % (partition.log.log_end_offset + index) for index in range(size)]
                    partition.log.append(batch(*values), partition.leader_epoch)

    def _topic(self, name: str) -> Any:
        return self.cluster.topics.get(name)

    # Time. What must always hold is checked after everything that happens.

    def _settle(self) -> None:
        self.cluster.tick(self.now_ms)
        self._hand_out()
        for app in self._running():
            due_ms = app.core.next_deadline()
            if due_ms is not None and due_ms <= self.now_ms:
                app.core.tick(self.now_ms)
            self._carry_out(app)
        for broker in self.cluster.brokers.values():
            for group in broker.coordinator.groups():
                check(group)
        self._check_commits()

    def _running(self) -> list[App]:
        return [app for app in self.apps if app is not None]

    def _next_deadline(self) -> float:
        deadlines = [app.core.next_deadline() for app in self._running()]
        deadlines += [self.cluster.next_deadline(), self.cluster.purgatory.next_deadline()]
        return min((deadline for deadline in deadlines if deadline is not None), default=float("inf"))

    def committed(self) -> dict[TopicPartition, int]:
        broker = self.cluster.coordinator_of("g")
        if broker is None:
            return {}
        places = [(name, index) for name, size in self.topics().items() for index in range(size)]
        _, found = broker.coordinator.fetch_offsets("g", places, self.now_ms)
        return {(topic, index): offset.offset for topic, index, offset in found if offset is not None}

    def _check_commits(self) -> None:
        """Nothing is committed that no application was done with."""
        for place, offset in self.committed().items():
            assert offset <= self._prefix(place), (place, offset, self.processed.get(place))

    def _prefix(self, place: TopicPartition) -> int:
        """The first offset that nobody was done with."""
        done = self.processed.get(place, ())
        return next(offset for offset in count() if offset not in done)

    # The applications

    def _poll_on(self, app: App) -> None:
        """Poll now, and again and again."""
        if app.is_running:
            if self.now_ms >= app.stalled_until_ms:
                self._poll(app)
            self.at(self.random.choice([0.1, 1.0, 2.0]) * POLL_MS, lambda: self._poll_on(app))

    def _poll(self, app: App) -> None:
        if app.ticket is None:
            self._process(app)
            app.core.begin_poll(self.now_ms)
        if self._call_back(app):
            try:
                app.batch = app.core.take_records(self.now_ms)
            except ConsumerError as error:
                raise AssertionError(f"{app.core.settings.client_id}: {error}") from error

    def _process(self, app: App) -> None:
        for record in app.batch:
            self.processed.setdefault((record.topic, record.partition), set()).add(record.offset)
        app.batch = []

    def _call_back(self, app: App) -> bool:
        """Run the callbacks; before partitions go their offsets are committed. Whether all is done."""
        if app.ticket is not None:
            if app.ticket.error is None:
                return False
            app.ticket = None
        while app.core.callbacks:
            event, _ = app.core.callbacks.popleft()
            if event is RebalanceEvent.REVOKED:
                try:
                    app.ticket = app.core.commit(None, self.now_ms)
                except CommitFailed:
                    continue
                if app.ticket is not None:
                    return False
        app.core.callbacks_done(self.now_ms)
        return True

    # The consumers' side of the network

    def _carry_out(self, app: App) -> None:
        outbounds, app.core.outbound = app.core.outbound, []
        for outbound in outbounds:
            if outbound.lane is Lane.GROUP:
                app.group_asks.append(outbound)
            else:
                self._send(app, outbound)
        current = app.group_current
        if current is not None and not app.core.needs(current):
            app.group_current = None
            assert current.node_id is not None
            self._cut(self._link(app, current.node_id, Lane.GROUP))
        while app.group_asks and app.group_current is None:
            outbound = app.group_asks.popleft()
            if app.core.needs(outbound):
                app.group_current = outbound
                self._send(app, outbound)

    def _link(self, app: App, node_id: int, lane: Lane) -> Link:
        if (node_id, lane) not in app.links:
            peer = Peer(self.cluster.brokers[node_id], "127.0.0.1", next(self._connection_ids))
            app.links[node_id, lane] = Link(app, node_id, lane, peer)
        return app.links[node_id, lane]

    def _send(self, app: App, outbound: OutboundRequest) -> None:
        node_id = self.random.choice([1, 2, 3]) if outbound.node_id is None else outbound.node_id
        link = self._link(app, node_id, outbound.lane)
        version = versions_of(type(outbound.request)).last
        request = carried(in_shape_of(version, outbound.request), version)
        call = Call(
            link.peer, api_of(request), version, next(self._correlation_ids), app.core.settings.client_id, request, 0
        )
        link.in_flight[id(call)] = outbound
        self._travel(link, "out", lambda: self._arrive(link, call))

    def _travel(self, link: Link, direction: str, arrive: Callable[[], None]) -> None:
        """Later things never overtake earlier ones of the same connection and direction."""
        delay_ms = self.random.choice([0.0, 1.0, 5.0, 200.0])
        arrival_ms = max(self.now_ms + delay_ms, link.arrival_ms.get(direction, 0.0))
        link.arrival_ms[direction] = arrival_ms
        self.at(arrival_ms - self.now_ms, arrive)

    def _lose(self, link: Link) -> None:
        """The connection breaks, and the consumer notices at once."""
        outbounds = list(link.in_flight.values())
        self._cut(link)
        app = link.app
        if link.lane is Lane.GROUP:
            app.group_current = None
        for outbound in outbounds:
            app.core.unanswered(outbound, self.now_ms)
        self._carry_out(app)

    def _cut(self, link: Link) -> None:
        """Nothing comes back; of what is on its way some arrives still, some does not."""
        link.is_cut = True
        link.in_flight.clear()
        link.app.links.pop((link.node_id, link.lane), None)

    # The brokers' side of it

    def _arrive(self, link: Link, call: Call) -> None:
        if link.is_cut and self.random.random() < 0.5:
            return
        link.queue.append(call)
        self._serve(link)

    def _serve(self, link: Link) -> None:
        while link.queue and link.serving is None:
            link.serving = link.queue.popleft()
            self._owed[id(link.serving)] = link
            if self.cluster.handle(link.serving, self.now_ms):
                self._answer(link.serving)
            self._hand_out()

    def _hand_out(self) -> None:
        while self.cluster.answered:
            answered, self.cluster.answered = self.cluster.answered, []
            for call in answered:
                link = self._answer(call)
                self._serve(link)

    def _answer(self, call: Call) -> Link:
        link = self._owed.pop(id(call))
        link.serving = None
        self._travel(link, "back", lambda: self._deliver(link, call))
        return link

    def _deliver(self, link: Link, call: Call) -> None:
        outbound = link.in_flight.pop(id(call), None)
        if outbound is None:
            return
        app = link.app
        if link.lane is Lane.GROUP:
            app.group_current = None
        assert call.response is not None
        app.core.answered(outbound, carried(call.response, call.api_version), self.now_ms)
        self._carry_out(app)
