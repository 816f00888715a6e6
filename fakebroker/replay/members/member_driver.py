"""Runs one scripted member over TCP: executes what it wants, and passes on responses and results of look-ups.

Chooses the connection of each request; what to send and when is up to the member.
"""

import math
from collections.abc import Mapping
from typing import Protocol

from fakebroker.client.broker_connection import FrameCache
from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.scripted_member import ScriptedMember
from fakebroker.replay.members.shared_connections import SharedConnections
from fakebroker.replay.members.sockets import SocketConnection, SocketTransport

_HELD_BACK = (JoinGroupRequest, SyncGroupRequest)
"""Requests whose responses a broker may hold back."""


class DriverContext(Protocol):
    """What the drivers of a task share."""

    transport: SocketTransport
    lookup: CoordinatorLookup
    shared: SharedConnections | None

    def now_ms(self) -> float:
        """Return the time by the members' clock, in milliseconds since the Unix epoch."""

    def wake(self, driver: "MemberDriver", moment_ms: float) -> None:
        """Schedule a call of `tick`."""


class MemberDriver:
    """The driver of one scripted member.

    Args:
        member: The member.
        number: Among the drivers of the task, from 0.
        context: What they share.

    Attributes:
        wakes_ms: When `tick` is called next.
    """

    __slots__ = (
        "_connection",
        "_context",
        "_heartbeats",
        "_held",
        "_rebalance_connection",
        "_waits",
        "group",
        "member",
        "number",
        "wakes_ms",
    )

    def __init__(self, member: ScriptedMember, number: int, context: DriverContext) -> None:
        self.member = member
        self.group = member.script.group
        self.number = number
        self.wakes_ms = math.inf
        self._context = context
        self._connection: SocketConnection | None = None  # Its own, or a shared one.
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
        due_ms = self.member.next_deadline()
        if due_ms < self.wakes_ms:
            self._context.wake(self, due_ms)

    def _execute(self, now_ms: float) -> None:
        member = self.member
        if member.take_disconnect():
            self._disconnect()
        scheduled_ms = member.take_discovery()
        if scheduled_ms is not None:
            self._context.lookup.discover(self.group, self, scheduled_ms)
        wanted = member.take_metadata()
        if wanted is not None:
            self._context.lookup.fetch_metadata(wanted[0], self, wanted[1])
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

    def opened(self, connection: SocketConnection) -> None:
        request = self._held
        if request is not None and connection is self._connection_for(request):
            self._held = None
            self._send_over(connection, request, self._context.now_ms())

    def answered(self, connection: SocketConnection, response: GroupResponse) -> None:
        now_ms = self._context.now_ms()
        if connection is self._rebalance_connection and type(response) is SyncGroupResponse:
            self._end_rebalance()
        self.member.answered(response, now_ms)
        self.run(now_ms)

    def lost(self, connection: SocketConnection, why: str) -> None:
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

    def _send_over(self, connection: SocketConnection, request: GroupRequest, now_ms: float) -> None:
        version = connection.version_of(request)
        cache = self._heartbeats if type(request) is HeartbeatRequest else None
        self._context.transport.send(connection, request, version, self.member.script.member, self, cache)
        self.member.sent(version, now_ms)

    def _connection_for(self, request: GroupRequest) -> SocketConnection | None:
        """Return the connection for a request, made if needed; None if the group waits for its rebalance."""
        shared, address = self._context.shared, self.member.address
        if shared is not None and isinstance(request, _HELD_BACK):
            if self._rebalance_connection is not None and self._rebalance_connection.address != address:
                self._end_rebalance()
            if self._rebalance_connection is None:
                self._rebalance_connection = shared.begin_rebalance(address, self)
                self._waits = self._rebalance_connection is None
            return self._rebalance_connection
        if self._connection is not None and self._connection.address == address:
            return self._connection
        transport = self._context.transport
        if self._connection is not None:
            transport.release(self._connection, self)
        self._connection = shared.shared(address, self) if shared is not None else transport.connect(address, self)
        return self._connection

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
        if self._connection is not None:
            self._context.transport.release(self._connection, self)
            self._connection = None
