"""Runs one scripted member over a transport: executes what it wants, and passes on responses and results of look-ups.

Chooses the connection of each request; what to send and when is up to the member.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from fakebroker.client.broker_connection import FrameCache
from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.client.transport import Transport
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.scripted_member import ScriptedMember
from fakebroker.replay.members.shared_connections import SharedConnections
from fakebroker.replay.members.sockets import SocketConnection

_HELD_BACK = (JoinGroupRequest, SyncGroupRequest)
"""Requests whose responses a broker may hold back."""


class DriverContext(Protocol):
    """What the drivers of a task or a simulation share."""

    @property
    def transport(self) -> Transport:
        """Makes connections."""

    @property
    def lookup(self) -> CoordinatorLookup:
        """Finds coordinators."""

    @property
    def shared(self) -> SharedConnections | None:
        """Connections that members share; None if each has its own."""

    def now_ms(self) -> float:
        """Return the time by the members' clock, in milliseconds since the Unix epoch."""

    def process_lookups(self) -> None:
        """Process look-ups soon."""

    def settled(self, driver: "MemberDriver") -> None:
        """Schedule the next call of `tick`: the driver has executed what its member wants."""


class MemberDriver:
    """The driver of one scripted member.

    Args:
        member: The member.
        number: Among the drivers of the task, from 0.
        context: What they share.

    Attributes:
        member: The member.
        number: Among the drivers of the task.
        connection: Its connection, or a shared one; None if it has none.
        scheduled_ms, timer_number: When `tick` is called next; see `TimerQueue`.
    """

    __slots__ = (
        "_context",
        "_heartbeats",
        "_held",
        "_rebalance_connection",
        "_waits",
        "connection",
        "group",
        "member",
        "number",
        "scheduled_ms",
        "timer_number",
    )

    def __init__(self, member: ScriptedMember, number: int, context: DriverContext) -> None:
        self.member = member
        self.group = member.script.group
        self.number = number
        self.scheduled_ms = math.inf
        self.timer_number = 0
        self._context = context
        self.connection: Any = None
        self._rebalance_connection: SocketConnection | None = None  # Beside a shared one, for JoinGroup and SyncGroup.
        self._held: GroupRequest | None = None  # Until its connection is open.
        self._waits = False  # Until connections for the group's rebalance are reserved.
        self._heartbeats = FrameCache()

    def tick(self, now_ms: float) -> None:
        """Let the member do what is due."""
        self.member.tick(now_ms)
        self.run(now_ms)

    def run(self, now_ms: float) -> None:
        """Execute what the member wants, and schedule its next deadline."""
        if self.member.has_work:
            self._execute(now_ms)
        self._context.settled(self)

    def _execute(self, now_ms: float) -> None:
        member = self.member
        if member.take_disconnect():
            self._disconnect()
        scheduled_ms = member.take_discovery()
        if scheduled_ms is not None:
            self._context.lookup.discover(self.group, self, scheduled_ms)
            self._context.process_lookups()
        wanted = member.take_metadata()
        if wanted is not None:
            self._context.lookup.fetch_metadata(wanted[0], self, wanted[1])
            self._context.process_lookups()
        request = member.take_request()
        if request is not None:
            self._send(request, now_ms)

    # As a listener of look-ups

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

    def metadata(self, partition_counts: Mapping[str, int]) -> None:
        now_ms = self._context.now_ms()
        self.member.metadata(partition_counts, now_ms)
        self.run(now_ms)

    # As a user of connections

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
        self._waits = False
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
        """Return the connection for a request, made if needed; None if the group waits for its rebalance."""
        shared, address = self._context.shared, self.member.address
        if shared is not None and isinstance(request, _HELD_BACK):
            if self._rebalance_connection is not None and self._rebalance_connection.address != address:
                self._end_rebalance()
            if self._rebalance_connection is None:
                self._rebalance_connection = shared.begin_rebalance(address, self)
                self._waits = self._rebalance_connection is None
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
        if self._waits and self._context.shared is not None:
            self._waits = False
            self._context.shared.stop_waiting(self)
        self._end_rebalance()
        if self.connection is not None:
            self._context.transport.release(self.connection, self)
            self.connection = None
