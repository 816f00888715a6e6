"""Runs one scripted producer over a transport: looks up brokers, sends requests, and passes on what comes back.

The producer decides what to send and when.
"""

import math
from collections.abc import Mapping
from typing import Protocol

from fakebroker.client.brokers import Brokers, Exchange
from fakebroker.client.errors import UnsupportedVersion
from fakebroker.client.producer.effects import Coordinator, Destination, Discover, ProducerRequest, Send
from fakebroker.client.producer.producer import KIP_890
from fakebroker.client.transport import Transport
from fakebroker.client.versions import NegotiatedVersions
from fakebroker.cluster.features import TRANSACTION_VERSION
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.events import Source
from fakebroker.replay.members.member_driver import MemberDriver
from fakebroker.replay.members.request_outcomes import missing_because
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
    """The driver of one scripted producer; a `CoordinatorListener` and a `MetadataListener`.

    Args:
        producer: The producer.
        member: The driver of its member.
        number: Orders its connections in virtual time; larger than the number of any member.
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
        self._nodes: dict[Destination, int] = {}
        self._brokers = Brokers(
            context.transport,
            context.now_ms,
            producer.transactional_id,
            nodes=context.lookup.nodes,
            version_of=self._version_of,
            number=number,
        )
        self._is_counting = False  # The number of partitions is being looked up.
        member.producer = self

    # Time

    def next_deadline(self) -> float:
        """Return when to call `update`, in milliseconds since the Unix epoch; infinite for never."""
        return min(self.producer.next_deadline(), self._brokers.next_deadline())

    def update(self, now_ms: float) -> None:
        """Process what is due, and that the member may have changed."""
        self._brokers.tick(now_ms)
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
            self._wanted = None
            self._nodes.clear()
            self._brokers.close()
        effects, producer.effects = producer.effects, []
        for effect in effects:
            if isinstance(effect, Discover):
                self._discover(effect)
            elif effect.destination in self._nodes:  # Not before it is looked up: the request of a crashed producer.
                self._send(effect)
        if producer.take_seek():
            self._seek(now_ms)
        self._context.schedule_producer(self)

    def _seek(self, now_ms: float) -> None:
        self._context.wake(self._member)
        self._member.member.seek_to_committed(now_ms)
        self._member.run(now_ms)

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
            self._brokers.learn(node_id, host, port)
            self._found(wanted, node_id)

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
        if node_id in lookup.nodes:
            self._found(wanted, node_id)
        else:
            self._not_found(wanted, ErrorCode.LEADER_NOT_AVAILABLE)

    def _found(self, destination: Destination, node_id: int) -> None:
        now_ms, self._wanted = self._context.now_ms(), None
        self._nodes[destination] = node_id
        self.producer.discovered(destination, now_ms)
        self._run(now_ms)

    def _not_found(self, destination: Destination, error: ErrorCode) -> None:
        now_ms, self._wanted = self._context.now_ms(), None
        self.producer.discovery_failed(destination, error, now_ms)
        self._run(now_ms)

    # Requests

    def _send(self, send: Send) -> None:
        node_id = self._nodes[send.destination]

        def sent(exchange: Exchange) -> None:
            self.producer.sent(send.request, exchange.version, node_id, exchange.sent_ms)

        def done(exchange: Exchange) -> None:
            now_ms, failure = self._context.now_ms(), exchange.failure
            if isinstance(failure, UnsupportedVersion):
                raise failure
            if failure is None:
                self.producer.answered(send.request, exchange.response, now_ms)
            else:
                self.producer.unanswered(send, missing_because(failure), now_ms)
                for destination in [place for place, node in self._nodes.items() if node == node_id]:
                    del self._nodes[destination]
                    self.producer.connection_lost(destination, now_ms)
            self._run(now_ms)

        self._brokers.send(send.request, done, node_id=node_id, scheduled_ms=send.scheduled_ms, on_sent=sent)

    def _version_of(self, versions: NegotiatedVersions, request: ProducerRequest) -> int:
        """Tell the producer what the broker supports, and return the version of its request."""
        self.producer.offer_version(
            versions.features.get(TRANSACTION_VERSION, 0),
            raises_epoch=versions.version_for(InitProducerIdRequest) >= FIRST_VERSION_THAT_RAISES_EPOCHS,
        )
        version = versions.version_of(request)
        if self.producer.transaction_version >= KIP_890:
            return version
        return min(version, LAST_VERSIONS_BEFORE_KIP_890.get(type(request), version))
