"""Look-ups of coordinators and partition counts for all members and loads of a task, over one connection.

Coordinators that are requested together, or while a FindCoordinator is pending, are looked up by one FindCoordinator if
the broker supports that (version 4, KIP-699).
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fakebroker.client.coordinators import batches, coordinators_in, find_coordinators
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.client.transport import Address, Transport, TransportConnection
from fakebroker.client.versions import is_batched
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.registry import api_of
from fakebroker.replay.members.bootstrap import CLIENT_ID
from fakebroker.replay.members.events import Event, Source
from fakebroker.replay.members.request_events import to_us
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST, REQUEST_TIMEOUT_MS, missing_after
from fakebroker.topic_partition import TopicPartition

_RETRY_MS = 100.0
_UNKNOWN_BROKER = -1


class CoordinatorListener(Protocol):
    """Receives the result of looking up a coordinator.

    Attributes:
        source: The source of the listener's requests.
    """

    source: Source

    def discovered(self, group: str, node_id: int, host: str, port: int) -> None:
        """Receive the group's coordinator."""

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        """Receive the error of a failed look-up; NETWORK_EXCEPTION if there was no response."""

    def is_rejoining(self) -> bool:
        """Return whether the coordinator may already know the listener's member (the event column `found.again`)."""


class MetadataListener(Protocol):
    """Receives partition counts and ids of topics."""

    def metadata(self, partition_counts: Mapping[str, int], topic_ids: Mapping[str, bytes]) -> None:
        """Receive the partition counts and ids of topics. Topics with an error are missing."""


Listeners = dict[str, list[tuple[CoordinatorListener, float]]]
"""The listeners that wait for the coordinator of each group, with the times of their requests in milliseconds."""


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """A request and the listeners that wait for its response. Times are in milliseconds since the Unix epoch.

    Attributes:
        request: A FindCoordinator or Metadata request.
        scheduled_ms: When the first listener requested it.
        listeners: The listeners of a FindCoordinator.
        metadata_listener: The listener of a Metadata request; None for the first request of a connection.
        sent_ms: When it was sent; infinite until then.
        version: Its version; -1 before it is sent.
    """

    request: Any
    scheduled_ms: float
    listeners: Listeners = field(default_factory=dict)
    metadata_listener: MetadataListener | None = None
    sent_ms: float = math.inf
    version: int = -1

    @property
    def source(self) -> Source:
        """The members if at least one of them waits for the response, else the loads."""
        waiting = [listener for listeners in self.listeners.values() for listener, _ in listeners]
        return "load" if waiting and all(each.source == "load" for each in waiting) else "members"


class CoordinatorLookup:
    """Looks up coordinators and metadata for all members of a task.

    The loop or simulation calls `process` after new look-ups and at `next_deadline`.

    Args:
        transport: Makes the connection.
        now_ms: Returns the time by the members' clock, in milliseconds since the Unix epoch.
        brokers: Bootstrap brokers, tried in this order. After a lost connection, the next broker is tried.
        record: Receives the event of each request.
        key_type: What the coordinators coordinate: groups, or transactional ids. Look-ups of the latter are recorded
            without ids.

    Attributes:
        nodes: Addresses of the brokers by node id in the newest Metadata response; empty until a broker has responded.
        leaders: Node ids of the leaders of partitions in all Metadata responses so far; -1 for none.
    """

    def __init__(
        self,
        transport: Transport,
        now_ms: Callable[[], float],
        brokers: Sequence[Address],
        record: Callable[[Event], None],
        key_type: Literal["group", "transaction"] = "group",
    ) -> None:
        self._transport, self._now_ms, self._record, self._key_type = transport, now_ms, record, key_type
        self._brokers = deque(brokers)
        self._connection: TransportConnection | None = None
        self._is_ready = False  # Whether the first Metadata response on the connection has arrived.
        self._node_id = _UNKNOWN_BROKER  # Of the connected broker.
        self._listeners: Listeners = {}  # Groups to look up.
        self._is_finding = False  # A FindCoordinator is pending; further look-ups are sent together after it.
        self._waiting: list[_PendingRequest] = []  # Metadata requests to send.
        self._pending: deque[_PendingRequest] = deque()  # Requests without a response, in the order of sending.
        self._unreachable = 0  # Brokers that could not be reached since the last success.
        self._retry_ms = -math.inf
        self.nodes: dict[int, Address] = {}
        self.leaders: dict[TopicPartition, int] = {}

    def discover(self, group: str, listener: CoordinatorListener, scheduled_ms: float) -> None:
        """Look up the coordinator of a group in the next `process`."""
        self._listeners.setdefault(group, []).append((listener, scheduled_ms))

    def fetch_metadata(self, topics: Iterable[str], listener: MetadataListener, scheduled_ms: float) -> None:
        """Look up partition counts in the next `process`. The request is repeated until there is a response."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
        self._waiting.append(_PendingRequest(request, scheduled_ms, metadata_listener=listener))

    def connect(self) -> None:
        """Start to connect, even if there is nothing to look up yet."""
        self._is_ready = False
        self._connection = self._transport.connect(self._brokers[0], self)

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether the connected cluster has the consumer protocol (KIP-848), by the level of `group.version`.

        Releases from 3.7 on have its APIs, but do not support it in production.
        """
        versions = None if self._connection is None else self._connection.versions
        return versions is not None and versions.features.get("group.version", 0) >= 1

    def next_deadline(self) -> float:
        """Return when to call `process`, in milliseconds since the Unix epoch; infinite for never."""
        if self._connection is None:
            return self._retry_ms if self._listeners or self._waiting else math.inf
        return self._pending[0].sent_ms + REQUEST_TIMEOUT_MS if self._pending else math.inf

    def process(self, now_ms: float) -> None:
        """Send the requests of new look-ups, reconnect, or close a connection whose request has timed out."""
        if self._connection is None:
            if (self._listeners or self._waiting) and self._retry_ms <= now_ms:
                self.connect()
        elif self._pending and self._pending[0].sent_ms + REQUEST_TIMEOUT_MS <= now_ms:
            self._transport.fail(self._connection, f"no response in {REQUEST_TIMEOUT_MS:g} ms")
        elif self._is_ready:
            self._send_all(self._connection)

    def stop(self) -> None:
        """Record pending requests as cut off."""
        for pending in self._pending:
            self._record_answer(pending, None, missing_after(self._now_ms() - pending.sent_ms, CUT_OFF))
        self._pending.clear()

    # ConnectionUser

    def opened(self, connection: TransportConnection) -> None:
        self._send(connection, _PendingRequest(MetadataRequest(topics=[]), self._now_ms()))

    def answered(self, connection: TransportConnection, response: FindCoordinatorResponse | MetadataResponse) -> None:
        pending = self._pending.popleft()
        if isinstance(response, MetadataResponse):
            self._store_nodes(connection.address, response)
        if not self._is_ready:
            self._is_ready = True
            return
        self._record_answer(pending, response)
        if isinstance(response, FindCoordinatorResponse):
            self._is_finding = False
            _notify(pending, response)
        elif pending.metadata_listener is not None:
            for topic in response.topics:
                self.leaders.update(
                    ((topic.name or "", each.partition_index), each.leader_id) for each in topic.partitions
                )
            found = [topic for topic in response.topics if topic.error_code == 0]
            counts = {topic.name or "": len(topic.partitions) for topic in found}
            pending.metadata_listener.metadata(counts, {topic.name or "": topic.topic_id for topic in found})

    def lost(self, connection: TransportConnection, why: str) -> None:
        """Try the next broker. If none can be reached, look-ups fail, and their listeners repeat them.

        Raises:
            BrokerUnreachable: No broker could be reached yet.
        """
        self._connection, self._is_finding = None, False
        self._unreachable = 0 if self._is_ready else self._unreachable + 1
        all_pending, self._pending = self._pending, deque()
        if self._is_ready:
            for pending in all_pending:
                self._record_answer(pending, None, missing_after(self._now_ms() - pending.sent_ms, LOST), ended=True)
                _notify_failure(pending.listeners)
                if pending.metadata_listener is not None:
                    self._waiting.append(pending)
        elif all_pending:
            why = f"no response after ApiVersions (a listener that requires SASL authentication?): {why}"
        self._brokers.rotate(-1)
        if self._unreachable < len(self._brokers):
            if not self.nodes:
                self.connect()
            return
        if not self.nodes:
            raise BrokerUnreachable("broker {}:{}".format(*connection.address), why)
        self._unreachable, self._node_id = 0, _UNKNOWN_BROKER
        self._retry_ms = self._now_ms() + _RETRY_MS
        listeners, self._listeners = self._listeners, {}
        if listeners:  # Record a request that could not be sent to any broker.
            self._record_answer(self._find_request(listeners, sent_ms=self._now_ms()), None, LOST, ended=True)
        _notify_failure(listeners)

    def _store_nodes(self, address: Address, response: MetadataResponse) -> None:
        """Store the cluster's brokers. The connected broker is the listed one with the connection's address, if any."""
        self.nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._node_id = next((node for node, known in self.nodes.items() if known == address), _UNKNOWN_BROKER)
        self._brokers.extend(known for known in self.nodes.values() if known not in self._brokers)

    def _send_all(self, connection: TransportConnection) -> None:
        if connection.versions is None:
            return
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            self._send(connection, pending)
        if not self._listeners:
            return
        version = connection.versions.version_for(FindCoordinatorRequest)
        if self._is_finding and is_batched(FindCoordinatorRequest, version):
            return
        listeners, self._listeners = self._listeners, {}
        self._is_finding = True
        for groups in batches(FindCoordinatorRequest, version, list(listeners), len(listeners)):
            self._send(connection, self._find_request({group: listeners[group] for group in groups}))

    def _find_request(self, listeners: Listeners, sent_ms: float = math.inf) -> _PendingRequest:
        scheduled_ms = min(scheduled_ms for waiting in listeners.values() for _, scheduled_ms in waiting)
        return _PendingRequest(find_coordinators(listeners, self._key_type), scheduled_ms, listeners, sent_ms=sent_ms)

    def _send(self, connection: TransportConnection, pending: _PendingRequest) -> None:
        assert connection.versions is not None
        pending.version, pending.sent_ms = connection.versions.version_of(pending.request), self._now_ms()
        self._pending.append(pending)
        self._transport.send(connection, pending.request, pending.version, CLIENT_ID, self)

    def _record_answer(
        self,
        pending: _PendingRequest,
        response: FindCoordinatorResponse | MetadataResponse | None,
        missing: str | None = None,
        *,
        ended: bool = False,
    ) -> None:
        is_of_groups = self._key_type == "group"
        groups = list(pending.listeners)
        latency_ms = None if response is None else self._now_ms() - pending.scheduled_ms
        event = Event(
            scheduled_us=to_us(pending.scheduled_ms),
            sent_us=to_us(pending.sent_ms),
            latency_us=None if latency_ms is None else to_us(latency_ms),
            api=api_of(pending.request).name,
            version=pending.version,
            broker=self._node_id,
            group=groups[0] if len(groups) == 1 and is_of_groups else None,
            error=None if response is None else next(filter(None, _errors(response)), 0),
            lookups=len(groups) or None,
            until_us=to_us(self._now_ms()) if ended else None,
            missing=missing,
            found=_found(pending, response) if isinstance(response, FindCoordinatorResponse) and is_of_groups else None,
            source=pending.source,
        )
        self._record(event)


def found_in(
    request: FindCoordinatorRequest, response: FindCoordinatorResponse, again: Collection[str] = ()
) -> list[tuple[str, int, int, bool]]:
    """Return the column `found` of an event.

    Args:
        request: The request.
        response: Its response.
        again: Groups whose look-up was requested by a rejoining member.
    """
    return [
        (each.key, _UNKNOWN_BROKER if each.error_code else each.node_id, each.error_code, each.key in again)
        for each in coordinators_in(request, response)
    ]


def _found(pending: _PendingRequest, response: FindCoordinatorResponse) -> list[tuple[str, int, int, bool]]:
    again = {group for group, waiting in pending.listeners.items() if any(each.is_rejoining() for each, _ in waiting)}
    return found_in(pending.request, response, again)


def _notify(pending: _PendingRequest, response: FindCoordinatorResponse) -> None:
    for found in coordinators_in(pending.request, response):
        for listener, _ in pending.listeners.pop(found.key, ()):
            if found.error_code:
                listener.discovery_failed(found.key, ErrorCode(found.error_code))
            else:
                listener.discovered(found.key, found.node_id, found.host, found.port)
    _notify_failure(pending.listeners)  # groups that are missing in the response


def _notify_failure(listeners: Listeners) -> None:
    for group, waiting in listeners.items():
        for listener, _ in waiting:
            listener.discovery_failed(group, ErrorCode.NETWORK_EXCEPTION)


def _errors(response: FindCoordinatorResponse | MetadataResponse) -> Iterable[int]:
    parts = response.coordinators if isinstance(response, FindCoordinatorResponse) else response.topics
    return [response.error_code, *(part.error_code for part in parts)]
