"""Runs one scripted member in virtual time: executes what it wants, over its connection in the simulated network."""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Protocol

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.schema import Message
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.scripted_member import ScriptedMember
from fakebroker.replay.simulation.network import ClientEnd, Network
from fakebroker.replay.simulation.scheduler import ACTION, LATENCY_MS, Scheduler, VirtualClock


class MemberContext(Protocol):
    """What the members of a simulation share.

    Attributes:
        begin_idle: Lets a member be idle, if it can; returns whether it is.
    """

    clock: VirtualClock
    scheduler: Scheduler
    network: Network
    lookup: CoordinatorLookup
    begin_idle: Callable[["SimulatedMember"], bool]

    def process_soon(self) -> None:
        """Schedule the processing of look-ups."""

    def member_done(self) -> None:
        """Count a member whose script is played."""


class SimulatedMember(ClientEnd):
    """A scripted member and its connection.

    Attributes:
        scripted: The scripted member.
        planned_ms: When it acts next.
        is_idle: Whether it only sends heartbeats until then, which are not played one by one.
        is_done: Whether its script is played.
        answer: The response to its next request, if that is known beforehand.
    """

    __slots__ = ("_context", "_held", "answer", "is_done", "is_idle", "planned_ms", "scripted")

    def __init__(self, broker: BrokerNode, number: int, scripted: ScriptedMember, context: MemberContext) -> None:
        super().__init__(broker, number)
        self.scripted = scripted
        self.planned_ms = inf
        self.is_idle = self.is_done = False
        self._context = context
        self._held: Message | None = None  # Until the connection is open.
        self.answer: Any = None

    def tick(self, due_ms: float) -> None:
        """Act, unless the plan has changed since this was scheduled."""
        if due_ms == self.planned_ms and not self.is_idle:
            self.planned_ms = inf
            self.scripted.tick(due_ms)
            self.run(due_ms)

    def run(self, now_ms: float) -> None:
        """Execute what the scripted member wants, and schedule its next action unless it is idle."""
        scripted, context = self.scripted, self._context
        while True:
            if scripted.take_disconnect():
                self.disconnect()
                self._held = None
            scheduled_ms = scripted.take_discovery()
            if scheduled_ms is not None:
                context.lookup.discover(scripted.script.group, self, scheduled_ms)
                context.process_soon()
            wanted = scripted.take_metadata()
            if wanted is not None:
                context.lookup.fetch_metadata(wanted[0], self, wanted[1])
                context.process_soon()
            request = scripted.take_request()
            if request is None:
                break
            response = self._send(request, now_ms)
            if response is None:
                break
            now_ms += 2 * LATENCY_MS
            scripted.answered(response, now_ms)
        if scripted.is_done and not self.is_done:
            self.is_done = True
            context.member_done()
        if not context.begin_idle(self):
            self.plan()

    def plan(self) -> None:
        """Schedule the next action."""
        due_ms = self.scripted.next_deadline()
        if due_ms != self.planned_ms:
            self.planned_ms = due_ms
            if due_ms < inf:
                at_ms = max(due_ms, self._context.clock.moment_ms)
                self._context.scheduler.schedule(at_ms, ACTION, self.number, self.tick, due_ms)

    def _send(self, request: Message, now_ms: float) -> Any:
        """Send a request.

        Returns:
            The response, if it was handled at once; else None.
        """
        node_id, network = self.scripted.node_id, self._context.network
        if not self.is_open or self.broker.node_id != node_id:
            self._held = request
            network.connect(self, node_id, now_ms)
            return None
        version = self.versions.version_for(type(request))
        self.scripted.sent(version, now_ms)
        if self.answer is not None:
            answer, self.answer = self.answer, None
            return answer
        call = network.call(self, request, version, self.scripted.script.member)
        end_ms = now_ms + 2 * LATENCY_MS
        is_alone = type(request) is OffsetCommitRequest and network.is_alone_until(self, now_ms, end_ms)
        if is_alone and self.scripted.next_deadline() > end_ms:
            return network.handle_at_once(call, now_ms + LATENCY_MS)
        network.send(call, now_ms)
        return None

    # As a client of the network

    def opened(self) -> None:
        request, self._held = self._held, None
        if request is not None:
            now_ms = self._context.clock.moment_ms
            response = self._send(request, now_ms)
            if response is not None:
                self._answered_at(response, now_ms + 2 * LATENCY_MS)

    def answered(self, call: Call, response: Any) -> None:
        self._answered_at(response, self._context.clock.moment_ms)

    def _answered_at(self, response: Any, now_ms: float) -> None:
        self.scripted.answered(response, now_ms)
        self.run(now_ms)

    def lost(self) -> None:
        self._held = None
        self.scripted.connection_lost(self._context.clock.moment_ms)
        self.run(self._context.clock.moment_ms)

    # As a listener of look-ups

    def discovered(self, group: str, node_id: int, host: str, port: int) -> None:
        self.scripted.discovered(node_id, host, port, self._context.clock.moment_ms)
        self.run(self._context.clock.moment_ms)

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        self.scripted.discovery_failed(error, self._context.clock.moment_ms)
        self.run(self._context.clock.moment_ms)

    def is_rejoining(self) -> bool:
        return self.scripted.is_rejoining

    def metadata(self, partition_counts: Mapping[str, int]) -> None:
        self.scripted.metadata(partition_counts, self._context.clock.moment_ms)
        self.run(self._context.clock.moment_ms)
