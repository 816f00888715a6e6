"""Look-ups of coordinators and partition counts for all members and loads of a task, over one connection.

Coordinators that are requested together, or while a FindCoordinator is pending, are looked up by one FindCoordinator if
the broker supports that (version 4, KIP-699).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, Protocol

from fakebroker.client.backoff import Backoff
from fakebroker.client.brokers import Brokers, Exchange
from fakebroker.client.coordinators import find_coordinators
from fakebroker.client.errors import BrokerUnreachable, ClientClosed, ConnectionLost, UnsupportedVersion, error_code
from fakebroker.client.transport import Address, Transport
from fakebroker.client.versions import is_batched
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.replay.members.bootstrap import CLIENT_ID
from fakebroker.replay.members.events import Event, Source
from fakebroker.replay.members.request_events import exchange_event
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


class CoordinatorLookup:
    """Looks up coordinators and metadata for all members of a task.

    The loop or simulation calls `process` after new look-ups and at `next_deadline`. After each connection the first
    request is for the cluster's brokers, and is not recorded.

    Args:
        transport: Makes the connection.
        now_ms: Returns the time by the members' clock, in milliseconds since the Unix epoch.
        bootstrap: Bootstrap brokers, tried in this order. After a lost connection, the next broker is tried.
        record: Receives the event of each request.
        key_type: What the coordinators coordinate: groups, or transactional ids. Look-ups of the latter are recorded
            without ids.

    Attributes:
        nodes: Addresses by node id; see `Brokers`. Empty until a broker has responded.
        leaders: Node ids of the leaders of partitions in all Metadata responses so far; -1 for none.
    """

    def __init__(
        self,
        transport: Transport,
        now_ms: Callable[[], float],
        bootstrap: Sequence[Address],
        record: Callable[[Event], None],
        key_type: Literal["group", "transaction"] = "group",
    ) -> None:
        self._now_ms, self._record, self._key_type = now_ms, record, key_type
        self._brokers = Brokers(transport, now_ms, CLIENT_ID, bootstrap)
        self._attempts = len(bootstrap)  # How often the first connection may still be lost before its first response.
        self._is_connecting = False  # The first request of a connection has no response yet.
        self._listeners: Listeners = {}  # Groups to look up.
        self._asked: Listeners = {}  # Groups in requests without a response.
        self._topics: list[tuple[MetadataRequest, MetadataListener, float]] = []  # Metadata to request.
        self._backoff, self._retry_ms = Backoff(_RETRY_MS), -math.inf
        self.nodes = self._brokers.nodes
        self.leaders: dict[TopicPartition, int] = {}

    def discover(self, group: str, listener: CoordinatorListener, scheduled_ms: float) -> None:
        """Look up the coordinator of a group in the next `process`."""
        self._listeners.setdefault(group, []).append((listener, scheduled_ms))

    def fetch_metadata(self, topics: Iterable[str], listener: MetadataListener, scheduled_ms: float) -> None:
        """Look up partition counts in the next `process`. The request is repeated until there is a response."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
        self._topics.append((request, listener, scheduled_ms))

    def connect(self) -> None:
        """Start to connect, even if there is nothing to look up yet."""
        self._is_connecting = True
        self._brokers.send(MetadataRequest(topics=[]), self._connected)

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether the connected cluster has the consumer protocol (KIP-848), by the level of `group.version`.

        Releases from 3.7 on have its APIs, but do not support it in production.
        """
        versions = self._brokers.any_versions
        return versions is not None and versions.features.get("group.version", 0) >= 1

    def next_deadline(self) -> float:
        """Return when to call `process`, in milliseconds since the Unix epoch; infinite for never."""
        due_ms = self._brokers.next_deadline()
        if (self._listeners or self._topics) and not self._is_connecting and self._brokers.any_versions is None:
            due_ms = min(due_ms, self._retry_ms)
        return due_ms

    def process(self, now_ms: float) -> None:
        """Send the requests of new look-ups, reconnect, or close a connection whose request has timed out."""
        self._brokers.tick(now_ms)
        if self._is_connecting or not (self._listeners or self._topics):
            return
        versions = self._brokers.any_versions
        if versions is None:
            if self._retry_ms <= now_ms:
                self.connect()
            return
        topics, self._topics = self._topics, []
        for request, topic_listener, scheduled_ms in topics:
            done = partial(self._answered, (request, topic_listener, scheduled_ms))
            self._brokers.send(request, done, scheduled_ms=scheduled_ms)
        # Groups that are requested while a batch has no response are looked up together after it.
        if self._asked and is_batched(FindCoordinatorRequest, versions.version_for(FindCoordinatorRequest)):
            return
        groups, self._listeners = self._listeners, {}
        for group, waiting in groups.items():
            self._asked.setdefault(group, []).extend(waiting)
        if groups:
            self._brokers.send_batches(FindCoordinatorRequest, list(groups), self._request, self._found)

    def _request(self, groups: Sequence[str]) -> FindCoordinatorRequest:
        return find_coordinators(groups, self._key_type)

    def stop(self) -> None:
        """Record pending requests as cut off."""
        self._brokers.cut_off()

    # What has become of requests

    def _connected(self, exchange: Exchange) -> None:
        """Look up what is waiting. If no broker can be reached, look-ups fail, and their listeners repeat them.

        Raises:
            BrokerUnreachable: No broker could be reached yet.
        """
        self._is_connecting = False
        match exchange.failure:
            case None:
                self._backoff.reset()
                self.process(self._now_ms())
            case ClientClosed():
                pass
            case ConnectionLost() if self.nodes:  # The next broker is asked then.
                self._retry_ms = self._now_ms() + self._backoff.next_delay_ms()
            case ConnectionLost() as lost:
                self._attempts -= 1
                if not self._attempts:
                    why = str(lost).removeprefix(f"{exchange.broker}: ")
                    hint = "no response after ApiVersions (a listener that requires SASL authentication?)"
                    raise BrokerUnreachable(exchange.broker, f"{hint}: {why}")
                self.connect()
            case failure if self.nodes:
                self._retry_ms = self._now_ms() + self._backoff.next_delay_ms()
                groups, self._listeners = self._listeners, {}
                if groups:  # Record a request that could not be sent.
                    self._asked |= groups
                    unsent = Exchange(self._request(list(groups)), self._found, None, "", self._now_ms())
                    unsent.keys, unsent.failure = list(groups), failure
                    self._found(unsent)
            case failure:
                raise failure

    def _found(self, exchange: Exchange) -> None:
        """Notify the listeners of some groups."""
        if isinstance(exchange.failure, UnsupportedVersion):
            raise exchange.failure
        listeners = {group: self._asked.pop(group) for group in exchange.keys if group in self._asked}
        self._record_look_up(exchange, listeners)
        if isinstance(exchange.failure, ClientClosed):
            return
        if exchange.failure is None:
            for found in exchange.response.coordinators:
                for listener, _ in listeners.pop(found.key, ()):
                    if found.error_code:
                        listener.discovery_failed(found.key, error_code(found.error_code))
                    else:
                        listener.discovered(found.key, found.node_id, found.host, found.port)
        for group, waiting in listeners.items():  # All of them without a response, else those that it lacks.
            for listener, _ in waiting:
                listener.discovery_failed(group, ErrorCode.NETWORK_EXCEPTION)

    def _answered(self, asked: tuple[MetadataRequest, MetadataListener, float], exchange: Exchange) -> None:
        """Notify the listener of topics, or ask again."""
        response = exchange.response
        errors = [] if response is None else [topic.error_code for topic in response.topics]
        self._record(self._event(exchange, errors))
        if response is None:
            if not isinstance(exchange.failure, ClientClosed):
                self._topics.append(asked)
            return
        found = [topic for topic in response.topics if topic.error_code == 0]
        for topic in response.topics:
            self.leaders.update(((topic.name or "", each.partition_index), each.leader_id) for each in topic.partitions)
        counts = {topic.name or "": len(topic.partitions) for topic in found}
        asked[1].metadata(counts, {topic.name or "": topic.topic_id for topic in found})

    def _record_look_up(self, exchange: Exchange, listeners: Listeners) -> None:
        if exchange.request is None:  # It has failed before it was divided into requests.
            exchange.request = self._request(exchange.keys)
        waiting = [each for group in listeners.values() for each in group]
        exchange.scheduled_ms = min((scheduled_ms for _, scheduled_ms in waiting), default=exchange.scheduled_ms)
        response, groups = exchange.response, exchange.keys
        errors = [] if response is None else [response.error_code, *(each.error_code for each in response.coordinators)]
        event = self._event(exchange, errors)._replace(lookups=len(groups))
        if waiting and all(listener.source == "load" for listener, _ in waiting):
            event = event._replace(source="load")
        if self._key_type == "group":
            again = {group for group, each in listeners.items() if any(member.is_rejoining() for member, _ in each)}
            found = None if response is None else found_in(response, again)
            event = event._replace(group=groups[0] if len(groups) == 1 else None, found=found)
        self._record(event)

    def _event(self, exchange: Exchange, errors: Sequence[int]) -> Event:
        """Return the event of a request; `errors` are those in its response."""
        node_ids = (node for node, address in self.nodes.items() if address == exchange.address)
        event = exchange_event(exchange, next(node_ids, _UNKNOWN_BROKER), self._now_ms())
        return event if exchange.failure is not None else event._replace(error=next(filter(None, errors), 0))


def found_in(response: FindCoordinatorResponse, again: Collection[str] = ()) -> list[tuple[str, int, int, bool]]:
    """Return the column `found` of an event.

    Args:
        response: The response.
        again: Groups whose look-up was requested by a rejoining member.
    """
    return [
        (each.key, _UNKNOWN_BROKER if each.error_code else each.node_id, each.error_code, each.key in again)
        for each in response.coordinators
    ]
