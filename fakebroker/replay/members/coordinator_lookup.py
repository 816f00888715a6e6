"""What the members of a task ask over one connection: who coordinates their groups, how many partitions topics have.

Look-ups that are wanted in one turn of the loop, or while others are on their way, go out as one FindCoordinator where
the broker takes that (version 4, KIP-699). Knows nothing of what is done with the answers.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fakebroker.client.errors import BrokerUnreachable
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message
from fakebroker.replay.members.bootstrap import CLIENT_ID, Address
from fakebroker.replay.members.clock import Clock
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.exchange import to_us
from fakebroker.replay.members.link import Link
from fakebroker.replay.members.wire import Wire

_FIRST_VERSION_WITH_MANY_KEYS = 4
_RETRY_MS = 100.0
_REQUEST_TIMEOUT_MS = 30_000.0
"""Kafka's default of `request.timeout.ms`, after which a client gives the connection up."""

_UNKNOWN_BROKER = -1


class Seeker(Protocol):
    """Who looks for the coordinator of a group."""

    def discovered(self, group: str, node_id: int, host: str, port: int) -> None: ...

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        """Nobody could say; without an answer at all the error is NETWORK_EXCEPTION."""

    def seeks_again(self) -> bool:
        """Whether the coordinator may know it already, so that the look-up may mean that this one is lost."""


class Planner(Protocol):
    """Who needs partition counts."""

    def metadata(self, partition_counts: Mapping[str, int]) -> None: ...


Wanted = dict[str, list[tuple[Seeker, float]]]
"""By group: who wants to know its coordinator, and since when."""


@dataclass(slots=True, eq=False)
class _Inquiry:
    """A request and those who wait for its answer."""

    request: Message
    scheduled_ms: float
    wanted: Wanted = field(default_factory=dict)
    planner: Planner | None = None
    sent_ms: float = math.inf
    version: int = -1


class Lookups:
    """Looks things up for all of one task.

    Args:
        wire: Makes the connection.
        clock: What events are timed by.
        brokers: Whom to ask: the first that answers, and after a loss the next one.
        record: Takes each event.

    Attributes:
        nodes: The address of each broker by its node id; empty until one has told.
    """

    def __init__(self, wire: Wire, clock: Clock, brokers: Sequence[Address], record: Callable[[Event], None]) -> None:
        self._wire, self._clock, self._record = wire, clock, record
        self._brokers = deque(brokers)
        self._link: Link | None = None
        self._is_greeted = False  # the broker at the other end has told all brokers
        self._node_id = _UNKNOWN_BROKER
        self._wanted: Wanted = {}
        self._is_finding = False  # a FindCoordinator is on its way; later look-ups go out together after it
        self._waiting: list[_Inquiry] = []  # Metadata requests that wait for a connection
        self._in_flight: deque[_Inquiry] = deque()  # in their order, which is that of the answers
        self._unreachable = 0  # brokers in a row
        self._retry_ms = -math.inf
        self.nodes: dict[int, Address] = {}

    def discover(self, group: str, seeker: Seeker, scheduled_ms: float) -> None:
        """Have a group's coordinator looked up."""
        self._wanted.setdefault(group, []).append((seeker, scheduled_ms))

    def fetch_metadata(self, topics: Iterable[str], planner: Planner, scheduled_ms: float) -> None:
        """Ask for partition counts, again and again until there is an answer."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
        self._waiting.append(_Inquiry(request, scheduled_ms, planner=planner))

    def connect(self) -> None:
        """Make the connection, also before anything is asked."""
        self._is_greeted = False
        self._link = self._wire.connect(self._brokers[0], self)

    def next_deadline(self) -> float:
        """When `turn` has something to do."""
        if self._link is None:
            return self._retry_ms if self._wanted or self._waiting else math.inf
        return self._in_flight[0].sent_ms + _REQUEST_TIMEOUT_MS if self._in_flight else math.inf

    def turn(self, now_ms: float) -> None:
        """Ask what is to be asked now."""
        if self._link is None:
            if (self._wanted or self._waiting) and self._retry_ms <= now_ms:
                self.connect()
        elif self._in_flight and self._in_flight[0].sent_ms + _REQUEST_TIMEOUT_MS <= now_ms:
            self._wire.lose(self._link, f"no answer after {_REQUEST_TIMEOUT_MS:g} ms")
        elif self._is_greeted:
            self._ask(self._link)

    def stop(self) -> None:
        """Answers are not waited for any longer; they are owed."""
        for inquiry in self._in_flight:
            self._record_answer(inquiry, None, lost=False)
        self._in_flight.clear()

    def opened(self, link: Link) -> None:
        self._send(link, _Inquiry(MetadataRequest(topics=[]), self._clock.now_ms()))

    def answered(self, link: Link, response: FindCoordinatorResponse | MetadataResponse) -> None:
        inquiry = self._in_flight.popleft()
        if not self._is_greeted:
            assert isinstance(response, MetadataResponse)
            self._greet(link.address, response)
            return
        self._record_answer(inquiry, response)
        if isinstance(response, FindCoordinatorResponse):
            self._is_finding = False
            _tell(inquiry.wanted, response)
        elif inquiry.planner is not None:
            counts = {topic.name or "": len(topic.partitions) for topic in response.topics if topic.error_code == 0}
            inquiry.planner.metadata(counts)

    def lost(self, link: Link, why: str) -> None:
        """The next broker is asked; after the last one those who wait are told that nobody could say.

        Raises:
            BrokerUnreachable: No broker could be reached yet.
        """
        self._link, self._is_finding = None, False
        self._unreachable = 0 if self._is_greeted else self._unreachable + 1
        in_flight, self._in_flight = self._in_flight, deque()
        if self._is_greeted:
            for inquiry in in_flight:
                self._record_answer(inquiry, None, lost=True)
                _fail(inquiry.wanted)
                if inquiry.planner is not None:
                    self._waiting.append(inquiry)
        elif in_flight:
            why = f"it answers no request, as a listener does that wants authentication (SASL): {why}"
        self._brokers.rotate(-1)
        if self._unreachable < len(self._brokers):
            if not self.nodes:
                self.connect()
            return
        if not self.nodes:
            raise BrokerUnreachable("broker {}:{}".format(*link.address), why)
        self._unreachable, self._node_id = 0, _UNKNOWN_BROKER
        self._retry_ms = self._clock.now_ms() + _RETRY_MS
        wanted, self._wanted = self._wanted, {}
        if wanted:  # a request that nobody could be sent
            self._record_answer(_inquiry(wanted, sent_ms=self._clock.now_ms()), None, lost=True)
        _fail(wanted)

    def _greet(self, address: Address, response: MetadataResponse) -> None:
        """Which broker an address is, is only to be learned by looking for it among all brokers."""
        self._is_greeted = True
        self.nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._node_id = next((node for node, known in self.nodes.items() if known == address), _UNKNOWN_BROKER)
        self._brokers.extend(known for known in self.nodes.values() if known not in self._brokers)

    def _ask(self, link: Link) -> None:
        if link.spoken is None:
            return
        waiting, self._waiting = self._waiting, []
        for inquiry in waiting:
            self._send(link, inquiry)
        if not self._wanted:
            return
        if link.spoken.version_for(FindCoordinatorRequest) < _FIRST_VERSION_WITH_MANY_KEYS:
            wanted, self._wanted = self._wanted, {}
            for group, seekers in wanted.items():
                self._find(link, {group: seekers})
        elif not self._is_finding:
            wanted, self._wanted = self._wanted, {}
            self._find(link, wanted)

    def _find(self, link: Link, wanted: Wanted) -> None:
        self._is_finding = True
        self._send(link, _inquiry(wanted))

    def _send(self, link: Link, inquiry: _Inquiry) -> None:
        inquiry.version, inquiry.sent_ms = link.version_for(inquiry.request), self._clock.now_ms()
        self._in_flight.append(inquiry)
        self._wire.send(link, inquiry.request, inquiry.version, CLIENT_ID, self)

    def _record_answer(
        self, inquiry: _Inquiry, response: FindCoordinatorResponse | MetadataResponse | None, *, lost: bool = False
    ) -> None:
        groups = list(inquiry.wanted)
        latency_ms = None if response is None else self._clock.now_ms() - inquiry.scheduled_ms
        event = Event(
            scheduled_us=to_us(inquiry.scheduled_ms),
            sent_us=to_us(inquiry.sent_ms),
            latency_us=None if latency_ms is None else to_us(latency_ms),
            api=api_of(inquiry.request).name,
            version=inquiry.version,
            broker=self._node_id,
            group=groups[0] if len(groups) == 1 else None,
            error=None if response is None else next(filter(None, _errors(response)), 0),
            lookups=len(groups) or None,
            until_us=to_us(self._clock.now_ms()) if lost else None,
            lost=lost,
            found=_found(inquiry.wanted, response) if isinstance(response, FindCoordinatorResponse) else None,
        )
        self._record(event)


def coordinators_in(groups: Iterable[str], response: FindCoordinatorResponse) -> Iterator[tuple[str, Coordinator]]:
    """The answer for each group, from a response of any version."""
    if response.coordinators:
        yield from ((coordinator.key, coordinator) for coordinator in response.coordinators)
        return
    for group in list(groups):
        coordinator = Coordinator(
            key=group,
            node_id=response.node_id,
            host=response.host,
            port=response.port,
            error_code=response.error_code,
            error_message=response.error_message,
        )
        yield group, coordinator


def found_in(
    groups: Iterable[str], response: FindCoordinatorResponse, again: Collection[str] = ()
) -> list[tuple[str, int, int, bool]]:
    """What an event tells of an answer.

    Args:
        again: The groups whose coordinator may know who asked.
    """
    return [
        (group, _UNKNOWN_BROKER if each.error_code else each.node_id, each.error_code, group in again)
        for group, each in coordinators_in(groups, response)
    ]


def _found(wanted: Wanted, response: FindCoordinatorResponse) -> list[tuple[str, int, int, bool]]:
    again = {group for group, seekers in wanted.items() if any(seeker.seeks_again() for seeker, _ in seekers)}
    return found_in(wanted, response, again)


def _inquiry(wanted: Wanted, sent_ms: float = math.inf) -> _Inquiry:
    scheduled_ms = min(scheduled_ms for seekers in wanted.values() for _, scheduled_ms in seekers)
    return _Inquiry(FindCoordinatorRequest(coordinator_keys=list(wanted)), scheduled_ms, wanted, sent_ms=sent_ms)


def _tell(wanted: Wanted, response: FindCoordinatorResponse) -> None:
    for group, coordinator in coordinators_in(wanted, response):
        for seeker, _ in wanted.pop(group, ()):
            if coordinator.error_code:
                seeker.discovery_failed(group, ErrorCode(coordinator.error_code))
            else:
                seeker.discovered(group, coordinator.node_id, coordinator.host, coordinator.port)
    _fail(wanted)  # whom a broker left out, as none should


def _fail(wanted: Wanted) -> None:
    for group, seekers in wanted.items():
        for seeker, _ in seekers:
            seeker.discovery_failed(group, ErrorCode.NETWORK_EXCEPTION)


def _errors(response: FindCoordinatorResponse | MetadataResponse) -> Iterable[int]:
    parts = response.coordinators if isinstance(response, FindCoordinatorResponse) else response.topics
    return [response.error_code, *(part.error_code for part in parts)]
