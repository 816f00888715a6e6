"""The processes of members: their connections, pauses, look-ups and deadlines."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Any

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.lab.design import Member
from fakebroker.lab.script import GroupPlan
from fakebroker.lab.world.context import BrokerState, Run
from fakebroker.lab.world.links import MemberLink
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.scheduler import ACTION, LOOKUP, RESPONSE
from fakebroker.topic_partition import TopicPartition

_CONNECT_TRIPS = 2
"""One-way latencies until a connection is open at the client."""


class MemberProcess:
    """The process of a member; the `MemberPort` of the design's member.

    Args:
        world: The run.
        number: Its number in the run.
        plan: Its group.

    Attributes:
        number, group_id: See the arguments.
        metadata_max_age_ms: See `MemberPort`.
        member: The design's member; None while the process does not run.
        is_resting: Whether its beats are skipped; see `IdleGroups`.
        loses_request, loses_response: Whether the next message to or from the broker breaks the connection.
        paused_ms: Since when the process is paused; None if it is not.
    """

    __slots__ = (
        *(
            "number",
            "group_id",
            "metadata_max_age_ms",
            "member",
            "is_resting",
            "loses_request",
            "loses_response",
            "paused_ms",
        ),
        *("_world", "_plan", "_links", "_inbox", "_scheduled_ms", "_starts", "_extra_latency_ms", "_lookups"),
    )

    def __init__(self, world: Run, number: int, plan: GroupPlan) -> None:
        self.number, self.group_id = number, plan.group_id
        self.member: Member | None = None
        self.is_resting = self.loses_request = self.loses_response = False
        self.paused_ms: float | None = None
        self.metadata_max_age_ms = world.script.cluster.metadata_max_age_ms
        self._world, self._plan = world, plan
        self._links: dict[MemberLink, None] = {}
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._scheduled_ms = inf
        self._starts = self._lookups = 0
        self._extra_latency_ms = 0.0

    @property
    def incarnation(self) -> int:
        """A number that changes when the process starts, and when it ends."""
        return self._starts

    # Events

    def start(self) -> None:
        """Start the process."""
        self._starts += 1
        self._lookups = self.number
        plan = self._plan
        settings = MemberSettings(
            group_id=plan.group_id,
            client_id=f"member-{self.number}",
            topics=plan.topics,
            assignor=plan.assignor,
            session_timeout_ms=plan.session_timeout_ms,
            rebalance_timeout_ms=plan.rebalance_timeout_ms,
            heartbeat_interval_ms=plan.heartbeat_interval_ms,
            commit_interval_ms=plan.commit_interval_ms,
            retry_backoff_ms=plan.retry_backoff_ms,
        )
        self.member = self._world.design.member(settings, self)
        self.member.start(self._world.now_ms())
        self.plan()

    def leave(self) -> None:
        """Leave the group, then end the process. What was sent before still arrives."""
        if self.member is not None:
            self.member.leave(self._world.now_ms())
            self.end(closes=True)

    def end(self, *, closes: bool) -> None:
        """End the process.

        Args:
            closes: Whether its connections are closed; not if its host is gone.
        """
        self.member = None
        self._starts += 1
        self._scheduled_ms = inf
        self.paused_ms = None
        self._inbox.clear()
        for link in list(self._links):
            link.is_open_at_client = False
            if closes:
                self._world.links.to_broker(link, self._world.brokers[link.node_id].on_closed)
        self._links.clear()

    def pause(self, for_ms: float) -> None:
        """Do nothing for a time; what arrives meanwhile is processed afterwards."""
        now_ms = self._world.now_ms()
        if self.member is not None and self.paused_ms is None:
            self.paused_ms = now_ms
            self._world.scheduler.schedule(now_ms + for_ms, ACTION, self.number, self._resume, self._starts)

    def _resume(self, starts: int) -> None:
        if starts != self._starts:
            return
        self.paused_ms = None
        while self._inbox and self.member is not None and self.paused_ms is None:
            call, args = self._inbox.popleft()
            call(*args)
        self.plan()

    def slow(self, extra_ms: float, for_ms: float) -> None:
        """Increase the latency for a time."""
        self._add_latency(extra_ms)
        now_ms = self._world.now_ms()
        self._world.scheduler.schedule(now_ms + for_ms, ACTION, self.number, self._add_latency, -extra_ms)

    def _add_latency(self, extra_ms: float) -> None:
        self._extra_latency_ms += extra_ms
        for link in self._links:
            link.latency_ms += extra_ms

    def cut(self) -> None:
        """Break all connections; both sides notice."""
        for link in list(self._links):
            self._break(link)

    def _break(self, link: MemberLink) -> None:
        world = self._world
        link.is_breaking = True
        world.links.to_broker(link, world.brokers[link.node_id].on_closed)
        world.links.to_client(link, self.on_disconnected)

    # Calls of the design's member, postponed while the process is paused

    def _call(self, call: Callable[..., None], *args: Any) -> None:
        if self.paused_ms is not None:
            self._inbox.append((self._call, (call, *args)))
        elif self.member is not None:
            call(*args, self._world.now_ms())
            self.plan()

    def on_received(self, link: MemberLink, message: Message) -> None:
        """A message has arrived."""
        if self.member is not None:
            self._world.heard(self, link)
            self._call(self.member.received, link, message)

    def on_disconnected(self, link: MemberLink) -> None:
        """A broker has closed a connection, or it could not be opened."""
        link.is_open_at_client = False
        if self._links.pop(link, link) is None and self.member is not None:
            self._call(self.member.disconnected, link)

    def _on_connected(self, link: MemberLink) -> None:
        if self.member is not None and link in self._links:
            self._call(self.member.connected, link)

    def plan(self) -> None:
        """Schedule the next deadline, or let the group rest."""
        if self.member is None or self.paused_ms is not None:
            return
        if self._world.idle_groups.update(self):
            return
        due_ms = self.member.next_deadline()
        if due_ms != self._scheduled_ms:
            self._scheduled_ms = due_ms
            if due_ms < inf:
                at_ms = max(due_ms, self._world.now_ms())
                self._world.scheduler.schedule(at_ms, ACTION, self.number, self._tick, due_ms, self._starts)

    def unplan(self) -> None:
        """Cancel the next deadline."""
        self._scheduled_ms = inf

    @property
    def loses_message(self) -> bool:
        """Whether a message will be lost, or a lost one has broken the connection."""
        return self.loses_request or self.loses_response or any(link.is_breaking for link in self._links)

    @property
    def link(self) -> MemberLink | None:
        """Its only connection; None with no connection or several."""
        return next(iter(self._links)) if len(self._links) == 1 else None

    def _tick(self, due_ms: float, starts: int) -> None:
        if starts != self._starts or due_ms != self._scheduled_ms:
            return
        self._scheduled_ms = inf
        if self.paused_ms is None and self.member is not None:
            self.member.tick(self._world.now_ms())
            self.plan()

    # MemberPort: connections

    def connect(self, node_id: int) -> MemberLink:
        world = self._world
        plan = world.script.cluster
        link = MemberLink(self, world.next_link_number(), node_id, plan.latency_ms + self._extra_latency_ms)
        self._links[link] = None
        now_ms, schedule = world.now_ms(), world.scheduler.schedule
        schedule(now_ms + link.latency_ms, RESPONSE, link.number, self._arrive_at_broker, link)
        return link

    def _arrive_at_broker(self, link: MemberLink) -> None:
        if link not in self._links:
            return
        broker, now_ms = self._world.brokers[link.node_id], self._world.now_ms()
        schedule = self._world.scheduler.schedule
        if broker.is_up:
            broker.accept(link)
            schedule(now_ms + link.latency_ms, RESPONSE, link.number, self._on_connected, link)
        else:
            stopped = broker.state is BrokerState.STOPPED
            wait_ms = link.latency_ms if stopped else self._world.script.cluster.connect_timeout_ms
            schedule(now_ms + wait_ms, RESPONSE, link.number, self.on_disconnected, link)

    def send(self, link: Any, message: Message) -> None:
        if not link.is_open_at_client:
            return
        world = self._world
        world.sent(self, message, link.node_id, to_member=False)
        if self.loses_request:
            self.loses_request = False
            self._break(link)
        else:
            world.links.to_broker(link, world.brokers[link.node_id].receive, message)

    def close(self, link: Any) -> None:
        if self._links.pop(link, link) is None:
            link.is_open_at_client = False
            self._world.links.to_broker(link, self._world.brokers[link.node_id].on_closed)

    # MemberPort: look-ups, over a connection of their own, at the broker that has answered last

    def find_coordinator(self) -> None:
        self._look_up(
            FindCoordinatorRequest(coordinator_keys=[self.group_id]),
            lambda: self._world.coordinator_found(self.group_id),
            lambda member, found, now_ms: member.found(found, now_ms),
        )

    def fetch_metadata(self) -> None:
        self._look_up(
            MetadataRequest(topics=[]),
            self._world.metadata_found,
            lambda member, found, now_ms: member.metadata(found, now_ms),
        )

    def _look_up(
        self,
        request: FindCoordinatorRequest | MetadataRequest,
        answer: Callable[[], tuple[FindCoordinatorResponse | MetadataResponse, Any]],
        done: Callable[[Member, Any, float], None],
    ) -> None:
        world, plan = self._world, self._world.script.cluster
        node_ids = list(world.brokers)
        asked = self._lookups
        broker = world.brokers[node_ids[asked % len(node_ids)]]
        latency_ms = plan.latency_ms + self._extra_latency_ms
        starts = self._starts

        def retry() -> None:
            if starts == self._starts:
                self._lookups = max(self._lookups, asked + 1)  # Another look-up may have noticed it, too.
                self._look_up(request, answer, done)

        def ask() -> None:
            if starts != self._starts:
                return
            world.sent(self, request, broker.node_id, to_member=False)
            if not broker.is_up:  # It has ended since the member connected.
                wait_ms = latency_ms if broker.state is BrokerState.STOPPED else plan.request_timeout_ms
                world.scheduler.schedule(world.now_ms() + wait_ms, LOOKUP, self.number, retry)
                return
            world.requested(broker.node_id)
            response, found = answer()
            world.sent(self, response, broker.node_id, to_member=True)
            world.scheduler.schedule(world.now_ms() + latency_ms, LOOKUP, self.number, finish, found)

        def finish(found: Any) -> None:
            if starts == self._starts and self.member is not None:
                self._call(lambda now_ms: done(self.member, found, now_ms) if self.member is not None else None)

        if broker.is_up:
            at_ms = world.now_ms() + (_CONNECT_TRIPS + 1) * latency_ms
            world.scheduler.schedule(at_ms, LOOKUP, self.number, ask)
        else:
            wait_ms = 2 * latency_ms if broker.state is BrokerState.STOPPED else plan.connect_timeout_ms
            at_ms = world.now_ms() + wait_ms + self._plan.retry_backoff_ms
            world.scheduler.schedule(at_ms, LOOKUP, self.number, retry)

    # MemberPort: partitions

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions that it owns, in order."""
        return tuple(sorted(self._world.ownership.groups[self.group_id].owned.get(self.number, ())))

    @property
    def _running_ms(self) -> float:
        return self._world.now_ms() if self.paused_ms is None else self.paused_ms

    def assigned(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self._world.ownership.assigned(self.group_id, self.number, partitions, self._world.now_ms())
        self._world.assignment_changed(self)

    def stopped(self, keep: Collection[TopicPartition] = ()) -> None:
        self._world.ownership.stopped(self.group_id, self.number, keep, self._running_ms, self._world.now_ms())
        self._world.assignment_changed(self)

    def positions(self) -> dict[TopicPartition, int]:
        return self._world.ownership.positions(self.group_id, self.number, self._running_ms)

    def identified(self, member_id: str) -> None:
        self._world.identified(self, member_id)

    def new_id(self) -> str:
        return self._world.new_id()

    def failed(self, why: str) -> None:
        self._world.failed(self, why)
