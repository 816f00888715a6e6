"""Runs one scripted member over a transport: sends its requests, and passes on responses and results of look-ups.

The member decides what to send and when; the driver chooses the connection.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from fakebroker.client.broker_connection import FrameCache
from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.client.transport import Transport
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.events import Source
from fakebroker.replay.members.request_events import REBALANCE_REQUESTS
from fakebroker.replay.members.scripted_member import ScriptedMember
from fakebroker.replay.members.shared_connections import SharedConnections
from fakebroker.replay.members.sockets import SocketConnection


class ProducerUpdate(Protocol):
    """What a member's driver calls of the driver of its transactional producer."""

    def update(self, now_ms: float) -> None:
        """Process that the member may have changed."""


class DriverContext(Protocol):
    """What the drivers of a task or a simulation share. `MemberLoop` and `Simulation` implement it."""

    @property
    def transport(self) -> Transport:
        """Makes connections."""

    @property
    def lookup(self) -> CoordinatorLookup:
        """Looks up coordinators and partition counts."""

    @property
    def shared(self) -> SharedConnections | None:
        """Connections that members share; None if each member has its own."""

    def now_ms(self) -> float:
        """Return the time by the members' clock, in milliseconds since the Unix epoch."""

    def process_lookups(self) -> None:
        """Call `CoordinatorLookup.process` soon: there are new look-ups."""

    def schedule_tick(self, driver: "MemberDriver") -> None:
        """Schedule the next call of `tick`, at the member's next deadline. Called at the end of each `run`."""


class MemberDriver:
    """The driver of one scripted member.

    A `CoordinatorListener`, a `MetadataListener`, a `ConnectionUser` and a `SharingMember`.

    Args:
        member: The member.
        number: Index among the drivers of the task, from 0.
        context: What the drivers share.

    Attributes:
        member: The member.
        group: Group id.
        number: Index among the drivers of the task.
        producer: The driver of the member's transactional producer; None if it has none.
        connection: The member's own or shared connection; None if it has none.
        scheduled_ms, timer_number: The next call of `tick`; written by `TimerQueue` or the simulation.
        source: The source of the member's requests.
    """

    source: Source = "members"

    __slots__ = (
        "_context",
        "_heartbeats",
        "_held",
        "_rebalance_connection",
        "_waits_for_admission",
        "connection",
        "group",
        "member",
        "number",
        "producer",
        "scheduled_ms",
        "timer_number",
    )

    def __init__(self, member: ScriptedMember, number: int, context: DriverContext) -> None:
        self.member = member
        self.group = member.script.group
        self.number = number
        self.producer: ProducerUpdate | None = None
        self.scheduled_ms = math.inf
        self.timer_number = 0
        self._context = context
        self.connection: Any = None
        self._rebalance_connection: SocketConnection | None = None  # For JoinGroup and SyncGroup, if members share.
        self._held: GroupRequest | None = None  # Sent when its connection is open.
        self._waits_for_admission = False  # `_held` is sent when `admitted` is called.
        self._heartbeats = FrameCache()

    def tick(self, now_ms: float) -> None:
        """Call the member at a deadline, and carry out its requests."""
        self.member.tick(now_ms)
        self.run(now_ms)

    def run(self, now_ms: float) -> None:
        """Do what the member requests, and schedule its next deadline."""
        member = self.member
        if member.has_other_work:
            self._execute_other()
        if member.has_request and (request := member.take_request()) is not None:
            self._send(request, now_ms)
        self._context.schedule_tick(self)
        if self.producer is not None:
            self.producer.update(now_ms)

    def _execute_other(self) -> None:
        """Do what the member requests except sending."""
        member = self.member
        if member.take_disconnect():
            self._disconnect()
        scheduled_ms = member.take_discovery()
        if scheduled_ms is not None:
            self._context.lookup.discover(self.group, self, scheduled_ms)
            self._context.process_lookups()
        metadata = member.take_metadata()
        if metadata is not None:
            topics, scheduled_ms = metadata
            self._context.lookup.fetch_metadata(topics, self, scheduled_ms)
            self._context.process_lookups()

    # CoordinatorListener and MetadataListener

    def discovered(self, group: str, node_id: int, host: str, port: int) -> None:
        now_ms = self._context.now_ms()
        self.member.discovered(node_id, host, port, now_ms)
        self.run(now_ms)

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        now_ms = self._context.now_ms()
        self.member.discovery_failed(error, now_ms)
        self.run(now_ms)

    def is_rejoining(self) -> bool:
        return self.member.is_rejoining

    def metadata(self, partition_counts: Mapping[str, int], topic_ids: Mapping[str, bytes]) -> None:
        now_ms = self._context.now_ms()
        self.member.metadata(partition_counts, topic_ids, now_ms)
        self.run(now_ms)

    # ConnectionUser and SharingMember

    def opened(self, connection: Any) -> None:
        request = self._held
        if request is not None and connection is self._connection_for(request):
            self._held = None
            self._send_over(connection, request, self._context.now_ms())

    def answered(self, connection: Any, response: GroupResponse) -> None:
        now_ms = self._context.now_ms()
        if connection is self._rebalance_connection and type(response) is SyncGroupResponse:
            self._end_rebalance()
        self.member.answered(response, now_ms)
        self.run(now_ms)

    def lost(self, connection: Any, why: str) -> None:
        now_ms = self._context.now_ms()
        self._disconnect()
        self.member.connection_lost(now_ms)
        self.run(now_ms)

    def admitted(self) -> None:
        self._waits_for_admission = False
        request, self._held = self._held, None
        assert request is not None
        self._send(request, self._context.now_ms())

    # Requests

    def _send(self, request: GroupRequest, now_ms: float) -> None:
        connection = self._connection_for(request)
        if connection is None or connection.versions is None:
            self._held = request
        else:
            self._send_over(connection, request, now_ms)

    def _send_over(self, connection: Any, request: GroupRequest, now_ms: float) -> None:
        version = connection.versions.version_of(request)
        cache = self._heartbeats if type(request) is HeartbeatRequest else None
        self._context.transport.send(connection, request, version, self.member.script.member, self, cache)
        self.member.sent(version, now_ms)

    def _connection_for(self, request: GroupRequest) -> Any:
        """Return the connection for a request, a new one if needed; None if the member waits for admission."""
        shared, address = self._context.shared, self.member.address
        if shared is not None and isinstance(request, REBALANCE_REQUESTS):
            if self._rebalance_connection is not None and self._rebalance_connection.address != address:
                self._end_rebalance()
            if self._rebalance_connection is None:
                self._rebalance_connection = shared.begin_rebalance(address, self)
                self._waits_for_admission = self._rebalance_connection is None
            return self._rebalance_connection
        connection, transport = self.connection, self._context.transport
        if connection is not None:
            if connection.address == address and not connection.is_closed:
                return connection
            transport.release(connection, self)
        self.connection = shared.shared(address, self) if shared is not None else transport.connect(address, self)
        return self.connection

    def _end_rebalance(self) -> None:
        connection, self._rebalance_connection = self._rebalance_connection, None
        if connection is not None and self._context.shared is not None:
            self._context.shared.end_rebalance(connection, self)

    def _disconnect(self) -> None:
        self._held = None
        if self._waits_for_admission and self._context.shared is not None:
            self._waits_for_admission = False
            self._context.shared.stop_waiting(self)
        self._end_rebalance()
        if self.connection is not None:
            self._context.transport.release(self.connection, self)
            self.connection = None
