"""The simulated network: connections, requests to brokers, and their responses.

A broker processes one request of a connection at a time. Does not depend on members or scripts.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

from fakebroker.client.member.requests import Identity
from fakebroker.client.transport import Address, ConnectionUser
from fakebroker.client.versions import NegotiatedVersions, convert_request, versions_of
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.handlers import offset_commit
from fakebroker.coordinator.consumer.heartbeat import is_bare
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
from fakebroker.protocol.registry import api_of
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
from fakebroker.topic_partition import TopicPartition

M = TypeVar("M", bound=Message)

_CLIENT_HOST = "/127.0.0.1"
_PRIVATE_APIS = frozenset(
    ("Heartbeat", "OffsetCommit", "OffsetFetch", "FindCoordinator", "DescribeGroups", "ListGroups")
)
"""Requests that have no effect on other members of the group, called private here."""


class VirtualConnection(Peer):
    """A connection in virtual time: a `TransportConnection` for clients, and the `Peer` of calls for brokers.

    Args:
        broker: Any broker; replaced when the connection opens.
        address: Host and port of the broker; the port is its node id.
        user: The user.
        number: Number in the `Position` of its scheduled calls; orders calls of the same time and kind.
        after_call: Called after each call of the user.

    Attributes:
        address: Host and port of the broker.
        users: The user, until it releases the connection.
        versions: The broker's versions; None until the connection is open.
        is_closed: Whether either side has closed it.
        is_abandoned: Whether the client has closed it, or was notified of its loss: responses no longer arrive.
        number: Number in the `Position` of its scheduled calls.
        pending: Users of pending requests, oldest first.
        in_progress: The request that the broker processes.
        waiting: Requests that have arrived while one was in progress.
        busy_until_ms: When the broker reads from it again after throttling (KIP-219).
    """

    __slots__ = (
        "_after_call",
        "address",
        "busy_until_ms",
        "in_progress",
        "is_abandoned",
        "is_closed",
        "number",
        "pending",
        "users",
        "versions",
        "waiting",
    )
    broker: BrokerNode
    is_refused = False  # No simulated broker asks clients to authenticate.

    def __init__(
        self,
        broker: BrokerNode,
        address: Address,
        user: ConnectionUser,
        number: int,
        after_call: Callable[[], None] | None,
    ) -> None:
        super().__init__(broker, _CLIENT_HOST, number)
        self.address = address
        self.users: dict[ConnectionUser, None] = {user: None}
        self.versions: NegotiatedVersions | None = None
        self.is_closed = self.is_abandoned = False
        self.number = number
        self.pending: list[ConnectionUser] = []
        self.in_progress: Call | None = None
        self.waiting: deque[Call] | None = None
        self.busy_until_ms = 0.0
        self._after_call = after_call

    @property
    def is_open(self) -> bool:
        """Whether both sides have it open."""
        return self.versions is not None and not self.is_closed

    def opened(self) -> None:
        """Notify the user that the connection is open."""
        for user in list(self.users):
            user.opened(self)
        if self._after_call is not None:
            self._after_call()

    def answered(self, response: Any) -> None:
        """Notify the user of the oldest pending request of its response, unless the client has disconnected."""
        if not self.is_abandoned:
            self.pending.pop(0).answered(self, response)
            if self._after_call is not None:
                self._after_call()

    def lost(self, why: str) -> None:
        """Notify the user that the connection is lost, or could not be opened."""
        for user in list(self.users):
            user.lost(self, why)
        if self._after_call is not None:
            self._after_call()


class NetworkObserver(Protocol):
    """Is called before requests and timers change or read the state of idle members. `Simulation` implements it."""

    def before_change(self, groups: Iterable[str]) -> None:
        """A request may affect other members of its groups."""

    def before_read(self, groups: Iterable[str]) -> None:
        """A request reads the committed offsets of its groups."""

    def before_election(self) -> None:
        """The controller may move coordinators."""

    def topics_changed(self) -> None:
        """A request has created topics: consumer groups that subscribe to them get new targets."""


class Network:
    """Schedules the arrival of requests, has the cluster handle them, and schedules their responses.

    Args:
        cluster: The cluster.
        scheduler: The scheduler of the simulation.
        observer: Called before idle members are affected.
        keeps_order: Whether all requests are handled in their exact order. Needed if a failover drops the end of the
            log, which holds the records in the order of handling.
        shortcuts_until_ms: Until when `can_commit_at_once` may return True; -inf for never.

    Attributes:
        any_broker: The broker of connections that are not open yet.
        keeps_order: See the argument.
    """

    def __init__(
        self,
        cluster: Cluster,
        scheduler: Scheduler,
        observer: NetworkObserver,
        *,
        keeps_order: bool,
        shortcuts_until_ms: float,
    ) -> None:
        self.keeps_order, self._shortcuts_until_ms = keeps_order, shortcuts_until_ms
        self._cluster, self._scheduler, self._observer = cluster, scheduler, observer
        self._disconnects: dict[int, int] = {}  # By node id: how often the broker closed all its connections.
        self._versions: dict[int, NegotiatedVersions] = {}
        self._timer_ms = float("inf")
        self._open_connections: dict[VirtualConnection, None] = {}
        self.any_broker = next(iter(cluster.brokers.values()))

    # Connections

    def connect(self, connection: VirtualConnection, now_ms: float) -> None:
        """Start to connect; the user is notified when the connection is open, or lost."""
        self._scheduler.schedule(now_ms + CONNECT_MS, RESPONSE, connection.number, self._open, connection)

    def _open(self, connection: VirtualConnection) -> None:
        if connection.is_abandoned:
            return
        node_id = connection.address[1]
        broker = self._cluster.brokers.get(node_id)
        if broker is None or not broker.up:
            self._notify_lost(connection)
            return
        connection.broker = broker
        if node_id not in self._versions:
            self._versions[node_id] = NegotiatedVersions(broker.versions, features=self._cluster.features.finalized)
        connection.versions = self._versions[node_id]
        self._open_connections[connection] = None
        connection.opened()

    def abandon(self, connection: VirtualConnection) -> None:
        """Close a connection at the client: responses in flight do not arrive."""
        connection.is_closed = connection.is_abandoned = True
        self._open_connections.pop(connection, None)

    def disconnect_clients(self, broker: BrokerNode) -> None:
        """Close all connections of a broker; requests in flight are lost."""
        self._disconnects[broker.node_id] = self._disconnects.get(broker.node_id, 0) + 1
        self._versions.pop(broker.node_id, None)
        for connection in list(self._open_connections):
            if connection.broker is broker:
                self._lose(connection, self._scheduler.clock.moment_ms)

    def _lose(self, connection: VirtualConnection, now_ms: float) -> None:
        connection.is_closed = True
        self._open_connections.pop(connection, None)
        self._scheduler.schedule(now_ms + LATENCY_MS, RESPONSE, connection.number, self._notify_lost, connection)

    def _notify_lost(self, connection: VirtualConnection) -> None:
        if not connection.is_abandoned:
            self.abandon(connection)
            connection.lost("the broker has closed the connection")

    # Requests

    @staticmethod
    def call(connection: VirtualConnection, request: Message, version: int, client_id: str) -> Call:
        """Return the call of a request, as the broker receives it."""
        return Call(connection, api_of(request), version, 0, client_id, received(request, version), 0)

    def send(self, call: Call, now_ms: float) -> None:
        """Schedule the arrival of a request at its broker."""
        connection = call.peer
        assert isinstance(connection, VirtualConnection)
        disconnects = self._disconnects.get(call.broker.node_id, 0)
        is_private = call.api.name in _PRIVATE_APIS and not self.keeps_order
        schedule = self._scheduler.schedule if is_private else self._scheduler.schedule_shared
        schedule(now_ms + LATENCY_MS, ARRIVAL, connection.number, self._arrive, connection, call, disconnects)

    def _arrive(self, connection: VirtualConnection, call: Call, disconnects: int) -> None:
        """Handle a request at the broker, unless the broker has disconnected; the client may have disconnected."""
        if self._disconnects.get(call.broker.node_id, 0) != disconnects:
            return
        is_current = not connection.is_abandoned
        now_ms = self._scheduler.clock.moment_ms
        if is_current and connection.busy_until_ms > now_ms:
            self._scheduler.schedule_shared(
                connection.busy_until_ms, ARRIVAL, connection.number, self._arrive, connection, call, disconnects
            )
        elif is_current and connection.in_progress is not None:
            connection.waiting = connection.waiting or deque()
            connection.waiting.append(call)
        else:
            if is_current:
                connection.in_progress = call
            self._handle(call, now_ms)

    def _handle(self, call: Call, now_ms: float) -> None:
        name = call.api.name
        if name not in _PRIVATE_APIS and not _only_extends_session(call):
            self._observer.before_change(call.group_ids)
        elif name == "OffsetFetch":
            self._observer.before_read(call.group_ids)
        cluster = self._cluster
        topics_version = cluster.topics.version
        if cluster.requests.handle(call, now_ms):
            self._respond(call, now_ms)
        elif cluster.faults.actions:
            cluster.faults.actions.run()
            cluster.tick(now_ms)  # as the server's reactor does after each command
        if cluster.topics.version != topics_version:
            self._observer.topics_changed()
        self.send_responses(now_ms)
        self.schedule_timer(cluster.next_deadline())

    def can_commit_at_once(self, connection: VirtualConnection, now_ms: float, end_ms: float) -> bool:
        """Return whether an OffsetCommit of the member that acts now can be handled at once.

        True if no scheduled call until the response may affect this member.

        Args:
            connection: The member's connection.
            now_ms: When the request is sent.
            end_ms: When its response arrives.
        """
        if self._cluster.faults.active or self._scheduler.position != (now_ms, ACTION, connection.number):
            return False
        return end_ms <= self._shortcuts_until_ms and self._scheduler.is_quiet_until(end_ms)

    def commit_at_once(self, call: Call, now_ms: float) -> Any:
        """Handle an OffsetCommit without scheduling its arrival.

        Args:
            call: The request.
            now_ms: When it arrives at the broker; may be in the past, also while a timer is processed.

        Returns:
            The response, as the client receives it.
        """
        cluster = self._cluster
        before_ms, cluster.now_ms = cluster.now_ms, now_ms
        response = offset_commit.handle(cluster, call, now_ms)
        cluster.now_ms = before_ms
        assert response is not None
        self.schedule_timer(cluster.next_deadline())
        return received(response, call.api_version)

    def commit(
        self, broker: BrokerNode, identity: Identity, offsets: Mapping[TopicPartition, int], now_ms: float
    ) -> None:
        """Commit offsets of a member, like an OffsetCommit that will succeed.

        Args:
            broker: The coordinator.
            identity: The member.
            offsets: The offsets by partition.
            now_ms: When the request arrives at the broker; may be in the past, also while a timer is processed.
        """
        request = OffsetCommitRequest(
            group_id=identity.group_id,
            generation_id_or_member_epoch=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=[],
        )
        requested = [
            (topic, OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=""))
            for (topic, index), offset in offsets.items()
        ]
        cluster = self._cluster
        before_ms, cluster.now_ms = cluster.now_ms, now_ms
        errors = broker.coordinator.offsets.commit(request, requested, now_ms)
        cluster.now_ms = before_ms
        assert not any(errors), f"{identity}: {errors}"
        self.schedule_timer(cluster.next_deadline())

    # Responses

    def send_responses(self, now_ms: float) -> None:
        """Send late responses that are complete, such as JoinGroup responses at the end of a rebalance."""
        cluster = self._cluster
        if cluster.requests.answered:
            answered, cluster.requests.answered = cluster.requests.answered, []
            for call in answered:
                self._respond(call, now_ms)

    def _respond(self, call: Call, now_ms: float) -> None:
        connection = call.peer
        assert isinstance(connection, VirtualConnection)
        if connection.is_closed:
            return
        connection.in_progress = None
        if call.fault is not None:
            if call.fault.drop:
                self._lose(connection, now_ms)
                return
            connection.busy_until_ms = now_ms + (call.fault.throttle_time_ms or 0)
        if call.response is not None:
            self.send_response(call, received(call.response, call.response_version), now_ms)
        if connection.waiting:
            disconnects = self._disconnects.get(call.broker.node_id, 0)
            self._scheduler.schedule_shared(
                now_ms, ARRIVAL, connection.number, self._arrive, connection, connection.waiting.popleft(), disconnects
            )

    def send_response(self, call: Call, response: Message, now_ms: float) -> None:
        """Schedule the arrival of a response at the client, one latency after `now_ms`, which may be in the past."""
        connection = call.peer
        assert isinstance(connection, VirtualConnection)
        self._scheduler.schedule(now_ms + LATENCY_MS, RESPONSE, connection.number, connection.answered, response)

    # The brokers' timers

    def schedule_timer(self, due_ms: float | None) -> None:
        """Schedule the processing of the brokers' timers, unless it is scheduled earlier."""
        if due_ms is not None and due_ms < self._timer_ms:
            self._timer_ms = due_ms
            self._scheduler.schedule_shared(due_ms, TIMER, -1, self._tick, due_ms)

    def _tick(self, due_ms: float) -> None:
        if due_ms == self._timer_ms:
            self._timer_ms = float("inf")
            self.tick()

    def tick(self) -> None:
        """Process the brokers' timers that are due."""
        if self._cluster.controller.is_due(self._scheduler.clock.moment_ms):
            self._observer.before_election()
        self._cluster.tick(self._scheduler.clock.moment_ms)
        self.send_responses(self._scheduler.clock.moment_ms)
        self.schedule_timer(self._cluster.next_deadline())


def _only_extends_session(call: Call) -> bool:
    """Return whether a request is a heartbeat of the consumer protocol that affects only the session of its member."""
    request = call.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest) or not is_bare(request):
        return False
    groups = call.broker.coordinator.groups.consumer
    group = groups.get(request.group_id)
    return group is not None and groups.settled_member(group, request.member_id, request.member_epoch) is not None


@cache
def _newest_version(kind: type[Message]) -> int:
    """Return the newest version in which clients use a message. No field that they read or write is missing there."""
    return versions_of(api_of(kind).request).last


def received(message: M, version: int) -> M:
    """Return a message as the other side receives it: without the fields that the version lacks."""
    kind = type(message)
    if version >= _newest_version(kind):
        return message
    converted = convert_request(message, version)
    return decode(kind, encode(converted, version), version)
