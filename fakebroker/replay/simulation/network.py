"""The simulated network: clients' ends of connections, and the way of requests to their brokers and back.

A broker processes one request of a connection at a time. Does not depend on what is asked, or why.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fakebroker.client.versions import LAST_VERSION_WITH_TOPIC_NAMES, NegotiatedVersions, in_shape_of
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.cluster import Cluster
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.registry import APIS, api_of
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.scheduler import (
    ACTION,
    ARRIVAL,
    CONNECT_MS,
    LATENCY_MS,
    RESPONSE,
    TIMER,
    Scheduler,
)

M = TypeVar("M", bound=Message)

_CLIENT_HOST = "/127.0.0.1"
_HARMLESS = ("Heartbeat", "OffsetCommit", "OffsetFetch", "FindCoordinator", "Metadata", "DescribeGroups", "ListGroups")
"""Requests that change nothing for other members of a group."""

_NEWEST: dict[type[Message], int] = {
    kind: min(api.versions.last, LAST_VERSION_WITH_TOPIC_NAMES.get(api.request, api.versions.last))
    for api in APIS
    for kind in (api.request, api.response)
}
"""The version of each message with all fields that the clients here use."""


class ClientEnd(Peer):
    """The client's end of its connections, one after the other.

    Args:
        broker: Any one, until there is a connection.
        number: Among all clients of the simulation.

    Attributes:
        number: Among all clients of the simulation.
        serial: Of the present connection, or the one that is being made.
        is_open: Whether there is one.
        versions: As negotiated with the broker.
    """

    __slots__ = ("_busy_until_ms", "_in_progress", "_waiting", "is_open", "number", "serial", "versions")
    broker: BrokerNode
    versions: NegotiatedVersions

    def __init__(self, broker: BrokerNode, number: int) -> None:
        super().__init__(broker, _CLIENT_HOST, number)
        self.number = number
        self.serial = 0
        self.is_open = False
        self._in_progress: Call | None = None
        self._waiting: deque[Call] | None = None
        self._busy_until_ms = 0.0

    def opened(self) -> None:
        """Process that the connection is open."""
        raise NotImplementedError

    def answered(self, call: Call, response: Any) -> None:
        """Process a response."""
        raise NotImplementedError

    def lost(self) -> None:
        """Process that the connection is lost, or could not be made."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Close the connection: responses that are under way do not arrive."""
        self.serial += 1
        self.is_open = False
        self._in_progress = self._waiting = None
        self._busy_until_ms = 0.0


class Network:
    """The way to the brokers and back.

    Args:
        cluster: The brokers.
        scheduler: The time.
        before_change: Called with the groups of a request that may change more than what its own sender knows.
        keeps_order: Whether even requests that concern no other member are handled in their exact order, as the end
            of the log is to be lost.
        shortcuts_until_ms: Until when the requests of a member that concern no other member may be handled at once
            (see `is_alone_until`); -inf for never.
    """

    def __init__(
        self,
        cluster: Cluster,
        scheduler: Scheduler,
        before_change: Callable[[Iterable[str]], None],
        *,
        keeps_order: bool,
        shortcuts_until_ms: float,
    ) -> None:
        self._keeps_order, self._shortcuts_until_ms = keeps_order, shortcuts_until_ms
        self._cluster, self._scheduler, self._before_change = cluster, scheduler, before_change
        self._disconnects: dict[int, int] = {}  # By node id: how often its connections were closed.
        self._versions: dict[int, NegotiatedVersions] = {}
        self._timer_ms = float("inf")
        self.clients: list[ClientEnd] = []

    # Connections

    def connect(self, client: ClientEnd, node_id: int, now_ms: float) -> None:
        """Begin to make a connection; the client is notified when it is open, or lost."""
        client.disconnect()
        self._scheduler.schedule(
            now_ms + CONNECT_MS, RESPONSE, client.number, self._open, client, client.serial, node_id
        )

    def _open(self, client: ClientEnd, serial: int, node_id: int) -> None:
        if client.serial != serial:
            return
        broker = self._cluster.brokers.get(node_id)
        if broker is None or not broker.up:
            client.disconnect()
            client.lost()
            return
        client.broker, client.is_open = broker, True
        if node_id not in self._versions:
            self._versions[node_id] = NegotiatedVersions(broker.versions)
        client.versions = self._versions[node_id]
        client.opened()

    def disconnect_clients(self, broker: BrokerNode) -> None:
        """Close all connections of a broker; requests that are under way are lost."""
        self._disconnects[broker.node_id] = self._disconnects.get(broker.node_id, 0) + 1
        self._versions.pop(broker.node_id, None)
        for client in self.clients:
            if client.is_open and client.broker is broker:
                self._lose(client, self._scheduler.clock.moment_ms)

    def _lose(self, client: ClientEnd, now_ms: float) -> None:
        client.is_open = False
        self._scheduler.schedule(now_ms + LATENCY_MS, RESPONSE, client.number, self._notify_lost, client, client.serial)

    def _notify_lost(self, client: ClientEnd, serial: int) -> None:
        if client.serial == serial:
            client.disconnect()
            client.lost()

    # Requests

    def call(self, client: ClientEnd, request: Message, version: int, client_id: str) -> Call:
        """Return a request as the broker receives it over the present connection."""
        return Call(client, api_of(request), version, client.serial, client_id, received(request, version), 0)

    def send(self, call: Call, now_ms: float) -> None:
        """Send a request over the present connection of its client."""
        client = call.peer
        assert isinstance(client, ClientEnd)
        disconnects = self._disconnects.get(call.broker.node_id, 0)
        is_private = call.api.name in _HARMLESS and not self._keeps_order
        schedule = self._scheduler.schedule if is_private else self._scheduler.schedule_shared
        schedule(now_ms + LATENCY_MS, ARRIVAL, client.number, self._arrive, client, call, disconnects)

    def _arrive(self, client: ClientEnd, call: Call, disconnects: int) -> None:
        """A broker reads a request even if the client has disconnected, but not if it has closed the connection."""
        if self._disconnects.get(call.broker.node_id, 0) != disconnects:
            return
        is_current = client.serial == call.correlation_id
        now_ms = self._scheduler.clock.moment_ms
        if is_current and client._busy_until_ms > now_ms:
            self._scheduler.schedule_shared(
                client._busy_until_ms, ARRIVAL, client.number, self._arrive, client, call, disconnects
            )
        elif is_current and client._in_progress is not None:
            client._waiting = client._waiting or deque()
            client._waiting.append(call)
        else:
            if is_current:
                client._in_progress = call
            self._handle(call, now_ms)

    def _handle(self, call: Call, now_ms: float) -> None:
        if call.api.name not in _HARMLESS:
            self._before_change(call.group_ids)
        if self._cluster.handle(call, now_ms):
            self._respond(call, now_ms)
        self.send_responses(now_ms)

    def is_alone_until(self, client: ClientEnd, now_ms: float, end_ms: float) -> bool:
        """Return whether a request of the member that acts now may be handled at once, and answered at `end_ms`.

        That is so if it concerns no other member, and no call in between may concern this one.
        """
        if self._cluster.faults.active or self._scheduler.position != (now_ms, ACTION, client.number):
            return False
        return end_ms <= self._shortcuts_until_ms and self._scheduler.is_quiet_until(end_ms)

    def handle_at_once(self, call: Call, now_ms: float) -> Any:
        """Handle a request that concerns no other member.

        Returns:
            Its response, as the client receives it.
        """
        self._cluster.handle(call, now_ms)
        self.schedule_timer(call.broker.coordinator.next_deadline())
        return received(call.response, call.api_version)

    # Responses

    def send_responses(self, now_ms: float) -> None:
        """Send the responses that are complete."""
        answered, self._cluster.answered = self._cluster.answered, []
        for call in answered:
            self._respond(call, now_ms)
        self.schedule_timer(self._cluster.next_deadline())

    def _respond(self, call: Call, now_ms: float) -> None:
        client = call.peer
        assert isinstance(client, ClientEnd)
        if client.serial != call.correlation_id or not client.is_open:
            return
        client._in_progress = None
        if call.fault is not None:
            if call.fault.drop:
                self._lose(client, now_ms)
                return
            client._busy_until_ms = now_ms + (call.fault.throttle_time_ms or 0)
        if call.response is not None:
            self.send_response(call, received(call.response, call.response_version), now_ms)
        if client._waiting:
            disconnects = self._disconnects.get(call.broker.node_id, 0)
            self._scheduler.schedule_shared(
                now_ms, ARRIVAL, client.number, self._arrive, client, client._waiting.popleft(), disconnects
            )

    def send_response(self, call: Call, response: Message, now_ms: float) -> None:
        """Send a response to a request, at a time that may be over already."""
        client = call.peer
        assert isinstance(client, ClientEnd)
        self._scheduler.schedule(
            now_ms + LATENCY_MS, RESPONSE, client.number, self._deliver, client, call, response, client.serial
        )

    def _deliver(self, client: ClientEnd, call: Call, response: Any, serial: int) -> None:
        if client.serial == serial:
            client.answered(call, response)

    # The brokers' timers

    def schedule_timer(self, due_ms: float | None) -> None:
        """Schedule the timers of brokers, if one is due earlier than known."""
        if due_ms is not None and due_ms < self._timer_ms:
            self._timer_ms = due_ms
            self._scheduler.schedule_shared(due_ms, TIMER, -1, self._tick, due_ms)

    def _tick(self, due_ms: float) -> None:
        if due_ms != self._timer_ms:
            return
        self._timer_ms = float("inf")
        self._cluster.tick(self._scheduler.clock.moment_ms)
        self.send_responses(self._scheduler.clock.moment_ms)


def received(message: M, version: int) -> M:
    """Return a message as it is received in a version: without the fields that the version lacks."""
    kind = type(message)
    if version >= _NEWEST[kind]:
        return message
    shaped = in_shape_of(version, message)
    return decode(kind, encode(shaped, version), version)
