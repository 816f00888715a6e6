"""The driver of clients: sends their requests to brokers, and tells them what has become of each.

A client gives a request and its broker: a node id, or any broker. The driver connects, holds requests until the
connection is open, divides them if the broker's version has no batches, and closes a connection whose response does not
come in time. It does not repeat a request: only the client knows whether the answer is still needed.

`Consumer`, `Admin`, and the look-ups, loads and producers of replays use it, over sockets and in virtual time.
Members of replays have a smaller driver (`MemberDriver`): a connection of their own, and one request at a time.

Does not depend on sockets or clocks.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec

from fakebroker.client.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedVersion,
)
from fakebroker.client.transport import Address, Transport, TransportConnection
from fakebroker.client.versions import FIRST_BATCHED_VERSION, NegotiatedVersions, convert_response, is_batched
from fakebroker.errors import FakebrokerError, ProtocolError
from fakebroker.host_port import format_host_port
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataResponse
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, Versions

REQUEST_TIMEOUT_MS = 30_000.0
"""Kafka's default of `request.timeout.ms`, after which a client closes the connection."""

MAX_IN_FLIGHT = 100
"""Requests on one connection without a response. Further ones wait here instead of at the broker."""

MAX_KEYS = 10_000
"""Keys in one request. A response with the offsets of so many groups has a few megabytes."""


class Exchange:
    """A request, and what has become of it. Times are in milliseconds.

    Attributes:
        request: The request, in the layout of its newest version.
        keys: The groups or other keys in the request; empty if it was sent by `Brokers.send`.
        node_id: The broker that it is for; None for any broker.
        lane: See `Brokers.send`.
        scheduled_ms: When it was due.
        sent_ms: When it was sent; infinite until then.
        address: The broker that it was sent to; None until then.
        version: Its version; -1 until it is sent.
        response: The response, in the layout of its newest version; None if there is none. It may be shared and must
            not be changed.
        failure: Why there will be no response; None unless this is known. BrokerUnreachable and AuthenticationFailed:
            it was not sent. UnsupportedVersion and ProtocolError: it could not be sent in the broker's version.
            ConnectionLost, with its subclasses RequestTimedOut and ClientClosed: it may have been processed.
        done, on_sent, is_parked: See `Brokers.send`.
        batch: How it is divided when the version is known; None if it is one request.
    """

    __slots__ = (
        "address",
        "batch",
        "done",
        "failure",
        "is_parked",
        "keys",
        "lane",
        "node_id",
        "on_sent",
        "request",
        "response",
        "scheduled_ms",
        "sent_ms",
        "version",
    )

    def __init__(
        self, request: Any, done: "Callable[[Exchange], None]", node_id: int | None, lane: str, scheduled_ms: float
    ) -> None:
        self.request, self.done, self.node_id, self.lane = request, done, node_id, lane
        self.scheduled_ms, self.sent_ms, self.version = scheduled_ms, inf, -1
        self.keys: Sequence[Any] = ()
        self.batch: _Batch | None = None
        self.is_parked = False
        self.on_sent: Callable[[Exchange], None] | None = None
        self.address: Address | None = None
        self.response: Any = None
        self.failure: FakebrokerError | None = None

    @property
    def broker(self) -> str:
        """The broker in messages: "broker HOST:PORT"; "the cluster" before one is chosen."""
        return "the cluster" if self.address is None else _broker(self.address)


class _Batch(msgspec.Struct, frozen=True):
    """How requests about several keys are made; see `Brokers.send_batches`."""

    kind: type[Message]
    build: Callable[[Sequence[Any]], Message]
    max_keys: int
    not_batched: type[UnsupportedVersion] | None


class Link:
    """A connection: the requests that were sent and have no response, and the requests that wait, both in order."""

    __slots__ = ("connection", "held", "lane", "sent")

    def __init__(self, connection: TransportConnection, lane: str) -> None:
        self.connection, self.lane = connection, lane
        self.sent: deque[Exchange] = deque()
        self.held: deque[Exchange] = deque()


class Brokers:
    """The brokers of a cluster, and one client's connections to them; a `ConnectionUser`.

    The client calls `tick` at `next_deadline`. `done` of a request is called once, and never within `send`.

    Args:
        transport: Makes connections.
        now_ms: Returns the time in milliseconds.
        client_id: `client.id` in requests.
        bootstrap: The brokers known initially.
        nodes: Addresses by node id, shared with a client that learns them. By default only this one learns them.
        request_timeout_ms: A connection whose oldest request has no response for this time is closed.
        max_in_flight: The largest number of requests without a response on a connection.
        serial_lanes: Lanes with one request at a time.
        version_of: Returns the version in which a request is sent.
        number: Orders connections in virtual time; see `VirtualTransport`.

    Attributes:
        nodes: Addresses by node id: those in the newest Metadata response, and coordinators found since.
        number: See the argument.
    """

    def __init__(
        self,
        transport: Transport,
        now_ms: Callable[[], float],
        client_id: str,
        bootstrap: Sequence[Address] = (),
        *,
        nodes: dict[int, Address] | None = None,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        max_in_flight: float = inf,
        serial_lanes: Sequence[str] = (),
        version_of: Callable[[NegotiatedVersions, Any], int] = NegotiatedVersions.version_of,
        number: int = 0,
    ) -> None:
        self._version_of = version_of
        self.nodes: dict[int, Address] = {} if nodes is None else nodes
        self.number = number
        self._transport, self._now_ms, self._client_id = transport, now_ms, client_id
        self._timeout_ms, self._max_in_flight, self._serial_lanes = request_timeout_ms, max_in_flight, serial_lanes
        self._bootstrap = tuple(bootstrap)
        self._candidates = deque(bootstrap)  # Any brokers, in the order in which they are tried.
        self._links: dict[TransportConnection, Link] = {}
        self._newest: dict[tuple[Address, str], Link] = {}  # By address and lane: the link for further requests.
        self._for_any: deque[Exchange] = deque()  # Sent to the first broker that can be reached.
        self._unreachable: dict[Address, BrokerUnreachable] = {}  # Tried in vain for the requests in `_for_any`.
        self._ended: deque[Exchange] = deque()  # `done` has not been called yet.
        self._is_sending = False

    # Requests

    def send(
        self,
        request: Message,
        done: Callable[[Exchange], None],
        *,
        node_id: int | None = None,
        lane: str = "",
        scheduled_ms: float | None = None,
        is_parked: bool = False,
        on_sent: Callable[[Exchange], None] | None = None,
    ) -> Exchange:
        """Send a request; call `done` when it is answered, or cannot be.

        Args:
            request: The request in the layout of its newest version.
            done: Receives the exchange.
            node_id: The broker. None for any broker: one with an open connection, else the next that can be reached.
            lane: Each lane has its own connection to a broker, so that requests of different lanes do not wait for each
                other.
            scheduled_ms: When it was due; by default now.
            is_parked: Whether the broker may answer as late as it likes (JoinGroup): there is no time-out.
            on_sent: Receives the exchange when it is sent.
        """
        exchange = Exchange(request, done, node_id, lane, self._now_ms() if scheduled_ms is None else scheduled_ms)
        exchange.is_parked, exchange.on_sent = is_parked, on_sent
        self._begin(exchange)
        return exchange

    def send_batches(
        self,
        kind: type[Message],
        keys: Sequence[Any],
        build: Callable[[Sequence[Any]], Message],
        done: Callable[[Exchange], None],
        *,
        node_id: int | None = None,
        max_keys: int = MAX_KEYS,
        not_batched: type[UnsupportedVersion] | None = None,
    ) -> None:
        """Send requests about several keys: as few as the broker's version allows (KIP-699, KIP-709).

        Args:
            kind: The class of the requests.
            keys: Groups or other keys.
            build: Returns the request about some keys.
            done: Receives each exchange, with its part of the keys.
            node_id: The broker; None for any broker.
            max_keys: The largest number of keys in a request.
            not_batched: The failure if the version allows only one key in a request. None: send a request for each key.
        """
        exchange = Exchange(None, done, node_id, "", self._now_ms())
        exchange.keys, exchange.batch = keys, _Batch(kind, build, max_keys, not_batched)
        self._begin(exchange)

    def _begin(self, exchange: Exchange) -> None:
        self._is_sending = True
        try:
            self._route(exchange)
        finally:
            self._is_sending = False

    def cancel(self, exchange: Exchange) -> None:
        """Do not call `done` of a request. If it was sent, close its connection: the response could delay others."""
        exchange.done = _ignore
        if exchange in self._for_any:
            self._for_any.remove(exchange)
        for link in self._links.values():
            if exchange in link.held:
                link.held.remove(exchange)
            elif exchange in link.sent:
                self._transport.fail(link.connection, "closed by this client")
                return

    def reach(self, done: Callable[[Exchange], None]) -> None:
        """Connect to any broker without a request, and call `done`; `Exchange.failure` is None if there is one."""
        self._begin(Exchange(None, done, None, "", self._now_ms()))

    @property
    def any_versions(self) -> NegotiatedVersions | None:
        """The versions of the broker that gets requests for any broker; None if there is no open connection."""
        link = self._open_link()
        return None if link is None else link.connection.versions

    def close(self) -> None:
        """Close all connections. `done` of pending requests is not called."""
        links, self._links = self._links, {}
        self._newest.clear()
        self._for_any.clear()
        self._unreachable.clear()
        self._ended.clear()
        for connection in links:
            self._transport.release(connection, self)

    def cut_off(self) -> None:
        """Close all connections. Requests without a response fail with ClientClosed."""
        self._report()
        pending = [each for link in self._links.values() for each in (*link.sent, *link.held)]
        pending.extend(self._for_any)
        self.close()
        for exchange in pending:
            self._fail(exchange, ClientClosed(f"{exchange.broker}: closed by this client"))
        self._report()

    # Addresses

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Set the address of a broker. Connections to its former address are closed, unless another broker has it."""
        before, now = self.nodes.get(node_id), (host, port)
        self.nodes[node_id] = now
        if now not in self._candidates:
            self._candidates.append(now)
        if before is not None and before != now and before not in self.nodes.values():
            self._forget(before)

    def _learn_all(self, response: MetadataResponse) -> None:
        """Use the brokers in a Metadata response. One that is not listed is down, or has left the cluster."""
        listed = {each.node_id for each in response.brokers}
        for node_id in [node_id for node_id in self.nodes if listed and node_id not in listed]:
            del self.nodes[node_id]
        for each in response.brokers:
            self.learn(each.node_id, each.host, each.port)

    def _forget(self, address: Address) -> None:
        if address in self._candidates and address not in self._bootstrap:
            self._candidates.remove(address)
        for connection in list(self._links):
            if connection.address == address:
                self._transport.fail(connection, "the broker has another address now")

    # The choice of a connection

    def _route(self, exchange: Exchange) -> None:
        """Send a request over the connection to its broker, or hold it until there is one."""
        if exchange.node_id is None:
            link = self._open_link()
            if link is None:
                if not self._for_any:
                    self._unreachable.clear()
                self._for_any.append(exchange)
                self._connect_to_any()
                return
        else:
            address = self.nodes.get(exchange.node_id)
            if address is None:
                self._fail(exchange, BrokerUnreachable(f"broker {exchange.node_id}", "its address is unknown"))
                return
            link = self._newest.get((address, exchange.lane)) or self._connect(address, exchange.lane)
        link.held.append(exchange)
        self._flush(link)

    def _open_link(self) -> Link | None:
        """Return the first open connection of the default lane."""
        for connection, link in self._links.items():
            if link.lane == "" and connection.versions is not None and not connection.is_closed:
                return link
        return None

    def _connect(self, address: Address, lane: str) -> Link:
        connection = self._transport.connect(address, self)
        link = self._links[connection] = self._newest[address, lane] = Link(connection, lane)
        return link

    def _connect_to_any(self) -> None:
        """Connect to the next broker that was not tried in vain; if there is none, the requests for any broker fail."""
        if any(link.lane == "" for link in self._links.values()):
            return  # The requests wait for this connection.
        for address in self._candidates:
            if address not in self._unreachable:
                self._connect(address, "")
                return
        reasons = list(self._unreachable.values())
        self._fail_for_any(reasons[0] if len(reasons) == 1 else BrokerUnreachable.of_all(reasons))

    # Sending

    def _flush(self, link: Link) -> None:
        """Send the requests that wait for a connection, as far as it is open and has room."""
        connection = link.connection
        versions = connection.versions
        if versions is None or connection.is_closed:
            return
        while link.held:
            exchange = link.held[0]
            if len(link.sent) >= (1 if exchange.lane in self._serial_lanes else self._max_in_flight):
                return
            link.held.popleft()
            if exchange.batch is not None:  # The version is known now.
                link.held.extendleft(reversed(self._divided(exchange, exchange.batch, connection, versions)))
                continue
            if exchange.request is None:
                self._ended.append(exchange)
                continue
            try:
                version = self._version_of(versions, exchange.request)
                link.sent.append(exchange)
                self._transport.send(connection, exchange.request, version, self._client_id, self)
            except (UnsupportedVersion, ProtocolError) as error:
                if exchange in link.sent:
                    link.sent.remove(exchange)
                self._fail(exchange, error)
                continue
            exchange.version, exchange.address, exchange.sent_ms = version, connection.address, self._now_ms()
            if exchange.on_sent is not None:
                exchange.on_sent(exchange)

    def _divided(
        self, whole: Exchange, batch: _Batch, connection: TransportConnection, versions: NegotiatedVersions
    ) -> list[Exchange]:
        """Divide requests about several keys by the broker's version."""
        api, keys = api_of(batch.kind), whole.keys
        theirs = versions.theirs.get(api.key)
        is_divided = not is_batched(batch.kind, api.versions.last if theirs is None else theirs.last)
        if is_divided and len(keys) > 1 and batch.not_batched is not None:
            ours = Versions(FIRST_BATCHED_VERSION[batch.kind], api.versions.last)
            self._fail(whole, batch.not_batched(api.name, theirs, ours, _broker(connection.address)))
            return []
        size = 1 if is_divided else batch.max_keys
        parts = []
        for start in range(0, len(keys), size):
            part = keys[start : start + size]
            exchange = Exchange(batch.build(part), whole.done, whole.node_id, whole.lane, whole.scheduled_ms)
            exchange.keys = part
            parts.append(exchange)
        return parts

    # Time

    def next_deadline(self) -> float:
        """Return when to call `tick`; infinite for never."""
        if self._ended:
            return self._now_ms()
        due_ms = inf
        for link in self._links.values():
            due_ms = min(due_ms, self._time_out_ms(link))
        return due_ms

    def _time_out_ms(self, link: Link) -> float:
        """Return when the oldest request of a connection times out."""
        if not link.sent or link.sent[0].is_parked or link.connection.is_closed:
            return inf
        return link.sent[0].sent_ms + self._timeout_ms

    def tick(self, now_ms: float) -> None:
        """Close connections whose requests have timed out, and report requests that have failed."""
        for link in list(self._links.values()):
            if self._time_out_ms(link) <= now_ms:
                self._transport.fail(link.connection, f"no response in {self._timeout_ms:g} ms")
        self._report()

    def _fail(self, exchange: Exchange, failure: FakebrokerError) -> None:
        exchange.failure = failure
        self._ended.append(exchange)

    def _report(self) -> None:
        while self._ended and not self._is_sending:
            exchange = self._ended.popleft()
            exchange.done(exchange)

    # ConnectionUser

    def opened(self, connection: TransportConnection) -> None:
        link = self._links[connection]
        if link.lane == "":
            self._unreachable.clear()
            link.held.extend(self._for_any)
            self._for_any.clear()
        self._flush(link)
        self._report()

    def answered(self, connection: TransportConnection, response: Any) -> None:
        link = self._links.get(connection)
        if link is None:  # The response before this one said that the broker has another address.
            return
        exchange = link.sent.popleft()
        exchange.response = convert_response(exchange.request, response)
        if isinstance(response, MetadataResponse):
            self._learn_all(response)
        elif isinstance(response, FindCoordinatorResponse):
            for found in exchange.response.coordinators:
                if not found.error_code:
                    self.learn(found.node_id, found.host, found.port)
        exchange.done(exchange)
        if link.held:
            self._flush(link)
        self._report()

    def lost(self, connection: TransportConnection, why: str) -> None:
        link, address = self._links.pop(connection), connection.address
        if self._newest.get((address, link.lane)) is link:
            del self._newest[address, link.lane]
        if address in self._candidates:  # It is tried last from now on.
            self._candidates.remove(address)
            self._candidates.append(address)
        unreachable = BrokerUnreachable(_broker(address), why)
        refusal = AuthenticationFailed(_broker(address), why) if connection.is_refused else None
        now_ms = self._now_ms()
        for exchange in link.sent:
            has_timed_out = not exchange.is_parked and now_ms >= exchange.sent_ms + self._timeout_ms
            kind = RequestTimedOut if has_timed_out else ConnectionLost
            self._fail(exchange, kind(f"{_broker(address)}: {why}"))
        held, link.held = link.held, deque()
        link.sent.clear()
        for exchange in held:
            if connection.versions is not None and refusal is None:
                self._route(exchange)  # It was not sent: it waited for others.
            else:
                self._fail(exchange, refusal or unreachable)
        if link.lane == "" and self._for_any:
            if refusal is not None:
                self._fail_for_any(refusal)
            else:
                if connection.versions is None:
                    self._unreachable[address] = unreachable
                self._connect_to_any()
        self._report()

    def _fail_for_any(self, failure: FakebrokerError) -> None:
        for exchange in self._for_any:
            self._fail(exchange, failure)
        self._for_any.clear()
        self._unreachable.clear()


def _broker(address: Address) -> str:
    return f"broker {format_host_port(*address)}"


def _ignore(exchange: Exchange) -> None:
    """Receives the end of a canceled exchange."""
