"""Runs one scripted producer over a transport: looks up brokers, sends requests, and passes on what comes back.

The producer decides what to send and when; the driver has one connection to each broker that the producer needs.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from fakebroker.client.producer.effects import Coordinator, Destination, Discover, ProducerRequest, Send
from fakebroker.client.producer.producer import KIP_890
from fakebroker.client.transport import Address, Transport
from fakebroker.cluster.features import TRANSACTION_VERSION
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.events import Source
from fakebroker.replay.members.member_driver import MemberDriver
from fakebroker.replay.members.request_outcomes import REQUEST_TIMEOUT_MS
from fakebroker.replay.members.scripted_producer import ScriptedProducer

LAST_VERSIONS_BEFORE_KIP_890 = {ProduceRequest: 11, TxnOffsetCommitRequest: 4, EndTxnRequest: 4}
"""The latest versions in which brokers do not add partitions to transactions, and EndTxn does not raise the epoch."""

FIRST_VERSION_THAT_RAISES_EPOCHS = 3
"""The first version of InitProducerId with a producer id and an epoch (KIP-360)."""


class ProducerContext(Protocol):
    """What the producers' drivers of a task or a simulation share. `MemberLoop` and `Simulation` implement it."""

    @property
    def transport(self) -> Transport:
        """Makes connections."""

    @property
    def lookup(self) -> CoordinatorLookup:
        """Looks up coordinators of groups, and leaders of partitions."""

    @property
    def transaction_lookup(self) -> CoordinatorLookup:
        """Looks up coordinators of transactional ids."""

    def now_ms(self) -> float:
        """Return the time by the members' clock, in milliseconds since the Unix epoch."""

    def process_lookups(self) -> None:
        """Call `CoordinatorLookup.process` soon: there are new look-ups."""

    def schedule_producer(self, driver: "ProducerDriver") -> None:
        """Schedule the next call of `update`, at `next_deadline`."""

    def wake(self, driver: MemberDriver) -> None:
        """Stop fast-forwarding the members of a group, because one of them will send a request."""


class ProducerDriver:
    """The driver of one scripted producer; a `CoordinatorListener`, a `MetadataListener` and a `ConnectionUser`.

    Args:
        producer: The producer.
        member: The driver of its member.
        number: Number of its connections, as for `MemberDriver`.
        context: What the drivers share.

    Attributes:
        producer, number: See the arguments.
        scheduled_ms, timer_number: The next call of `update`; written by `TimerQueue` or the simulation.
        source: The source of the producer's requests.
    """

    source: Source = "members"

    def __init__(self, producer: ScriptedProducer, member: MemberDriver, number: int, context: ProducerContext) -> None:
        self.number = number
        self.scheduled_ms = math.inf
        self.timer_number = 0
        self.producer = producer
        self._member, self._context = member, context
        self._wanted: Destination | None = None  # It is being looked up.
        self._nodes: dict[Destination, tuple[int, Address]] = {}
        self._connections: dict[Address, Any] = {}
        self._held: dict[Any, list[Send]] = {}  # By connection: sent when it is open.
        self._pending: dict[Any, list[tuple[Send, float]]] = {}  # By connection: requests, and when they were sent.
        self._is_counting = False  # The number of partitions is being looked up.
        member.producer = self

    # Time

    def next_deadline(self) -> float:
        """Return when to call `update`, in milliseconds since the Unix epoch; infinite for never."""
        timeouts = (pending[0][1] + REQUEST_TIMEOUT_MS for pending in self._pending.values() if pending)
        return min(self.producer.next_deadline(), min(timeouts, default=math.inf))

    def update(self, now_ms: float) -> None:
        """Process what is due, and that the member may have changed."""
        for connection, pending in list(self._pending.items()):
            if pending and pending[0][1] + REQUEST_TIMEOUT_MS <= now_ms:
                self._context.transport.fail(connection, f"no response in {REQUEST_TIMEOUT_MS:g} ms")
                self._pending[connection] = []  # `lost` follows
        if not self.producer.partition_count and not self._is_counting:
            self._is_counting = True
            self._context.lookup.fetch_metadata((self.producer.topic,), self, now_ms)
            self._context.process_lookups()
        self.producer.update(now_ms)
        self._run(now_ms)

    def finish(self, now_ms: float) -> None:
        """Record pending requests, at the end of the replay."""
        self.producer.finish(now_ms)

    def _run(self, now_ms: float) -> None:
        """Do what the producer requests, and schedule its next deadline."""
        producer = self.producer
        if producer.take_restart():
            self._disconnect()
        effects, producer.effects = producer.effects, []
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect, now_ms)
            else:
                self._discover(effect)
        if producer.take_seek():
            self._seek(now_ms)
        self._context.schedule_producer(self)

    def _seek(self, now_ms: float) -> None:
        self._context.wake(self._member)
        self._member.member.seek_to_committed(now_ms)
        self._member.run(now_ms)

    def _disconnect(self) -> None:
        self._wanted = None
        self._nodes.clear()
        connections, self._connections = self._connections, {}
        self._held.clear()
        self._pending.clear()
        for connection in connections.values():
            self._context.transport.release(connection, self)

    # Look-ups

    def _discover(self, effect: Discover) -> None:
        destination, context = effect.destination, self._context
        self._wanted = destination
        if not isinstance(destination, Coordinator):
            context.lookup.fetch_metadata((destination.partition[0],), self, effect.scheduled_ms)
        elif destination.key_type == "group":
            context.lookup.discover(destination.key, self, effect.scheduled_ms)
        else:
            context.transaction_lookup.discover(destination.key, self, effect.scheduled_ms)
        context.process_lookups()

    def discovered(self, key: str, node_id: int, host: str, port: int) -> None:
        wanted = self._wanted
        if isinstance(wanted, Coordinator) and wanted.key == key:
            self._found(wanted, node_id, (host, port))

    def discovery_failed(self, key: str, error: ErrorCode) -> None:
        wanted = self._wanted
        if isinstance(wanted, Coordinator) and wanted.key == key:
            self._not_found(wanted, error)

    def is_rejoining(self) -> bool:
        return False

    def metadata(self, partition_counts: Mapping[str, int], topic_ids: Mapping[str, bytes]) -> None:
        wanted, lookup = self._wanted, self._context.lookup
        self._is_counting = False
        self.producer.partition_count = partition_counts.get(self.producer.topic, 0)
        if wanted is None or isinstance(wanted, Coordinator):
            return
        node_id = lookup.leaders.get(wanted.partition, -1)
        address = lookup.nodes.get(node_id)
        if address is None:
            self._not_found(wanted, ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            self._found(wanted, node_id, address)

    def _found(self, destination: Destination, node_id: int, address: Address) -> None:
        now_ms, self._wanted = self._context.now_ms(), None
        self._nodes[destination] = node_id, address
        self.producer.discovered(destination, now_ms)
        self._run(now_ms)

    def _not_found(self, destination: Destination, error: ErrorCode) -> None:
        now_ms, self._wanted = self._context.now_ms(), None
        self.producer.discovery_failed(destination, error, now_ms)
        self._run(now_ms)

    # Requests

    def _send(self, send: Send, now_ms: float) -> None:
        found = self._nodes.get(send.destination)
        if found is None:  # The request of a former producer, before the present one has looked the broker up.
            return
        connection = self._connections.get(found[1])
        if connection is None:
            connection = self._connections[found[1]] = self._context.transport.connect(found[1], self)
            self._held[connection], self._pending[connection] = [], []
        if connection.versions is None:
            self._held[connection].append(send)
        else:
            self._send_over(connection, send, now_ms)

    def _send_over(self, connection: Any, send: Send, now_ms: float) -> None:
        request = send.request
        version = self._version(connection, request)
        self._pending[connection].append((send, now_ms))
        self._context.transport.send(connection, request, version, self.producer.transactional_id, self)
        self.producer.sent(request, version, self._nodes[send.destination][0], now_ms)

    def _version(self, connection: Any, request: ProducerRequest) -> int:
        version: int = connection.versions.version_of(request)
        if self.producer.transaction_version >= KIP_890:
            return version
        return min(version, LAST_VERSIONS_BEFORE_KIP_890.get(type(request), version))

    def opened(self, connection: Any) -> None:
        now_ms = self._context.now_ms()
        versions = connection.versions
        self.producer.offer_version(
            versions.features.get(TRANSACTION_VERSION, 0),
            raises_epoch=versions.version_for(InitProducerIdRequest) >= FIRST_VERSION_THAT_RAISES_EPOCHS,
        )
        for send in self._held.pop(connection, ()):
            self._send_over(connection, send, now_ms)
        self._context.schedule_producer(self)

    def answered(self, connection: Any, response: Any) -> None:
        now_ms = self._context.now_ms()
        send, _ = self._pending[connection].pop(0)
        self.producer.answered(send.request, response, now_ms)
        self._run(now_ms)

    def lost(self, connection: Any, why: str) -> None:
        now_ms, address = self._context.now_ms(), connection.address
        if self._connections.get(address) is connection:
            del self._connections[address]
            self._held.pop(connection, None)
            self._pending.pop(connection, None)
            lost = [each for each, (_, place) in self._nodes.items() if place == address]
            for destination in lost:
                del self._nodes[destination]
                self.producer.connection_lost(destination, now_ms)
        self._run(now_ms)
