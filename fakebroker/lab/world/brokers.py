"""The brokers of a run: their coordinators, the offsets topic and its leaders, and look-ups."""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.design import Coordinator, Records
from fakebroker.lab.script import BrokerDo
from fakebroker.lab.world.context import BrokerState, Run
from fakebroker.lab.world.links import MemberLink
from fakebroker.proposals.consumer_rewrite.registry import Registry
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.scheduler import EVENT, TIMER

T = TypeVar("T")


class BrokerProcess:
    """A broker; the `CoordinatorPort` of its coordinator.

    Args:
        world: The run.
        node_id: Its node id.

    Attributes:
        state: See `BrokerState`.
        coordinator: Its coordinator, a new one for each start.
        links: The connections that it has open.
    """

    def __init__(self, world: Run, node_id: int) -> None:
        self.node_id = node_id
        self.state = BrokerState.UP
        self.links: dict[MemberLink, None] = {}
        self._world = world
        self._starts = 0
        # By partition, in order: None for an append that is not stored, and the replies that wait for those before.
        self._held: dict[int, deque[tuple[MemberLink, Message] | None]] = {}
        self._scheduled_ms = float("inf")
        self.coordinator: Coordinator = self._new_coordinator()

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self.state is BrokerState.UP

    def _new_coordinator(self) -> Coordinator:
        return self._world.design.coordinator(self._world.script.cluster.coordinator, self)

    # Events

    def start(self) -> None:
        """Start the process again, without partitions."""
        self.state = BrokerState.UP
        self.coordinator = self._new_coordinator()

    def end(self, do: BrokerDo) -> None:
        """End the process ("stop"), or cut off the host ("vanish")."""
        self.state = BrokerState.STOPPED if do == "stop" else BrokerState.VANISHED
        self._starts += 1
        self._held.clear()
        self._scheduled_ms = float("inf")
        for link in list(self.links):
            link.is_open_at_broker = False
            if do == "stop":
                self._world.links.to_client(link, link.member.on_disconnected)
        self.links.clear()

    def _if_running(self, call: Callable[..., None]) -> Callable[..., None]:
        """Return a callback that does nothing after the present process has ended."""
        starts = self._starts

        def run(*args: Any) -> None:
            if self._starts == starts:
                call(*args)
                self.plan()

        return run

    # Connections

    def accept(self, link: MemberLink) -> None:
        """Open a connection at this side."""
        link.is_open_at_broker = True
        self.links[link] = None

    def receive(self, link: MemberLink, message: Message) -> None:
        """A message has arrived; it waits if an earlier request of the connection has no answer yet."""
        self._world.requested(self.node_id)
        if self._world.design.has_replies and link.is_in_progress:
            link.waiting.append(message)
        else:
            self._handle(link, message)

    def _handle(self, link: MemberLink, message: Message) -> None:
        link.is_in_progress = True
        self.coordinator.received(link, message, self._world.now_ms())
        self.plan()
        design = self._world.design
        if not design.has_replies and design.is_beat(message):
            link.member.plan()  # The response to a beat of the coordinator ends it: the group may rest now.

    def on_closed(self, link: MemberLink) -> None:
        """The client has closed a connection, or its process has ended. Messages that it sent before are handled."""
        if self.links.pop(link, link) is None:
            link.is_open_at_broker = False
            link.is_ending = bool(link.waiting)
            if not link.is_ending:
                self.coordinator.disconnected(link, self._world.now_ms())
                self.plan()

    # CoordinatorPort

    def reply(self, link: Any, message: Message) -> None:
        held = self._held.get(self._world.offsets_topic.partition_of(link.member.group_id)) if self._held else None
        if held is None:
            self._reply(link, message)
        else:
            held.append((link, message))

    def _reply(self, link: Any, message: Message) -> None:
        link.is_in_progress = False
        self.send(link, message)
        if link.waiting:
            self._world.scheduler.schedule(self._world.now_ms(), TIMER, link.number, self._next_request, link)

    def _next_request(self, link: MemberLink) -> None:
        is_read = link.is_open_at_broker or (link.is_ending and self.is_up)
        if is_read and link.waiting and not link.is_in_progress:
            self._handle(link, link.waiting.popleft())
            if link.is_ending and not link.waiting:
                link.is_ending = False
                self.coordinator.disconnected(link, self._world.now_ms())
                self.plan()

    def send(self, link: Any, message: Message) -> None:
        world = self._world
        world.sent(link.member, message, self.node_id, to_member=True)
        if link.member.loses_response:
            link.member.loses_response = False
            link.is_breaking = True
            world.links.to_client(link, link.member.on_disconnected)
            world.scheduler.schedule(world.now_ms() + link.latency_ms, EVENT, link.number, self.on_closed, link)
        elif link.is_open_at_broker:
            world.links.to_client(link, link.member.on_received, message)

    def close(self, link: Any) -> None:
        if self.links.pop(link, link) is None:
            link.is_open_at_broker = False
            self._world.links.to_client(link, link.member.on_disconnected)

    def append(self, partition: int, records: Records, done: Callable[[bool], None]) -> None:
        self._world.offsets_topic.append(self.node_id, partition, records, self._if_running(done))

    def store(self, partition: int, records: Records) -> None:
        self._held.setdefault(partition, deque()).append(None)
        self.append(partition, records, partial(self._stored, partition))

    def _stored(self, partition: int, is_stored: bool) -> None:
        """Send the replies that have waited only for the oldest append to a partition, or drop them."""
        held = self._held[partition]
        held.popleft()
        while held and (reply := held[0]) is not None:
            held.popleft()
            if is_stored:
                self._reply(*reply)
        if not held:
            del self._held[partition]

    def access(self, operation: Callable[[Registry[Any]], T], done: Callable[[T], None]) -> None:
        self._world.access_registry(operation, self._if_running(done))

    def partition_counts(self) -> Mapping[str, int]:
        return self._world.partition_counts

    def group_config(self, group_id: str, name: str) -> int | None:
        return self._world.group_configs[group_id].get(name)

    def now_ms(self) -> float:
        return self._world.now_ms()

    def new_id(self) -> str:
        return self._world.new_id()

    def expelled(self, group_id: str, member_id: str) -> None:
        self._world.expelled(group_id, member_id)

    # Timers

    def plan(self) -> None:
        """Schedule the next deadline of the coordinator."""
        due_ms = self.coordinator.next_deadline()
        if due_ms < self._scheduled_ms:
            self._scheduled_ms = due_ms
            self._world.scheduler.schedule(
                max(due_ms, self._world.now_ms()), TIMER, self.node_id, self._tick, due_ms, self._starts
            )

    def _tick(self, due_ms: float, starts: int) -> None:
        if starts == self._starts and due_ms == self._scheduled_ms:
            self._scheduled_ms = float("inf")
            self.coordinator.tick(self._world.now_ms())
            self.plan()


class OffsetsTopic:
    """The partitions of the offsets topic: their records, their leaders, and elections.

    At first, leaders are the brokers in turn. A broker that starts again gets no partitions.

    Args:
        world: The run.
        brokers: The brokers of the run, by node id.

    Attributes:
        leaders: The node id of each partition's leader; None while there is none.
        visible: The leaders that look-ups return.
        is_loaded: Whether the leader has loaded the partition.
    """

    def __init__(self, world: Run, brokers: Mapping[int, BrokerProcess]) -> None:
        self._world, self._brokers = world, brokers
        plan = world.script.cluster
        self._count = plan.coordinator.offsets_partitions
        self._records: list[dict[Hashable, Any]] = [{} for _ in range(self._count)]
        self.leaders: list[int | None] = [1 + index % plan.brokers for index in range(self._count)]
        self.visible = list(self.leaders)
        self.is_loaded = [True] * self._count
        self._groups: list[list[str]] = [[] for _ in range(self._count)]
        for group in world.script.groups:
            self._groups[partition_for(group.group_id, self._count)].append(group.group_id)

    def start(self) -> None:
        """Make the first leaders lead their empty partitions."""
        now_ms = self._world.now_ms()
        for partition, leader in enumerate(self.leaders):
            assert leader is not None
            coordinator = self._brokers[leader].coordinator
            coordinator.elected(partition, now_ms)
            coordinator.loaded(partition, {}, now_ms)

    def partition_of(self, group_id: str) -> int:
        """Return the partition that has the records of a group."""
        return partition_for(group_id, self._count)

    def groups_of(self, node_id: int) -> list[str]:
        """Return the groups that a broker coordinates."""
        led = (groups for leader, groups in zip(self.leaders, self._groups, strict=True) if leader == node_id)
        return [group_id for groups in led for group_id in groups]

    def coordinator_of(self, group_id: str) -> int | None:
        """Return the broker that coordinates a group and has loaded it."""
        partition = partition_for(group_id, self._count)
        return self.leaders[partition] if self.is_loaded[partition] else None

    def visible_coordinator_of(self, group_id: str) -> int | None:
        """Return the coordinator of a group as look-ups return it."""
        return self.visible[partition_for(group_id, self._count)]

    def append(self, node_id: int, partition: int, records: Records, done: Callable[[bool], None]) -> None:
        """Store records after the time of an append, if the broker leads the partition then."""
        at_ms = self._world.now_ms() + self._world.script.cluster.append_ms
        self._world.scheduler.schedule(at_ms, TIMER, node_id, self._store, node_id, partition, records, done)

    def _store(self, node_id: int, partition: int, records: Records, done: Callable[[bool], None]) -> None:
        is_leader = self.leaders[partition] == node_id and self._brokers[node_id].is_up
        if is_leader:
            stored = self._records[partition]
            for key, value in records.items():
                if value is None:
                    stored.pop(key, None)
                else:
                    stored[key] = value
        done(is_leader)

    def elect(self, gone: int | None) -> None:
        """Elect new leaders for the partitions of a broker that is gone, or, for None, for those without a leader."""
        world = self._world
        if gone not in self.leaders:
            return
        alive = [node_id for node_id, broker in self._brokers.items() if broker.is_up]
        for partition in [index for index, leader in enumerate(self.leaders) if leader == gone]:
            self.is_loaded[partition] = False
            leader = self.leaders[partition] = alive[partition % len(alive)] if alive else None
            if leader is not None:
                self._brokers[leader].coordinator.elected(partition, world.now_ms())
                plan = world.script.cluster
                load_ms = plan.load_ms + plan.load_ms_per_group * len(self._groups[partition])
                world.scheduler.schedule(world.now_ms() + load_ms, TIMER, leader, self._load, leader, partition)
                self._brokers[leader].plan()
        at_ms = world.now_ms() + world.script.cluster.propagate_ms
        world.scheduler.schedule(at_ms, EVENT, -1, self._propagate, list(self.leaders))

    def _propagate(self, leaders: list[int | None]) -> None:
        self.visible = leaders

    def _load(self, node_id: int, partition: int) -> None:
        broker = self._brokers[node_id]
        if self.leaders[partition] == node_id and broker.is_up:
            self.is_loaded[partition] = True
            broker.coordinator.loaded(partition, dict(self._records[partition]), self._world.now_ms())
            broker.plan()
