"""The transactional producer of a scripted member: its requests, their times, and their events.

Does not depend on sockets or clocks: all `now_ms` are milliseconds since the Unix epoch. The `Producer` of
`fakebroker.client` decides how requests follow each other; the scripted producer begins transactions, ends them as its
script wants, and takes the part of the application after errors.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Any

from fakebroker.client.producer import requests
from fakebroker.client.producer.effects import (
    Coordinator,
    Destination,
    Discover,
    Failed,
    Fatal,
    ProducerRequest,
    ProducerResponse,
    Ready,
    Send,
)
from fakebroker.client.producer.producer import Producer, ProducerSettings
from fakebroker.client.producer.reactions import error_in
from fakebroker.client.producer.requests import ProducerIdentity
from fakebroker.client.producer.states import ProducerState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.produce import ProduceResponse
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from fakebroker.protocol.records import Record
from fakebroker.protocol.registry import api_of
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.request_events import NOT_SENT, to_us
from fakebroker.replay.members.request_outcomes import CUT_OFF
from fakebroker.replay.members.scripted_member import ScriptedMember
from fakebroker.replay.script.script import Transactions
from fakebroker.topic_partition import TopicPartition

_RESTART_MS = 100.0
"""Time from a fatal error until the application has another producer."""


class _Fate(Enum):
    """What the script wants for a transaction."""

    COMMIT = auto()
    ABORT = auto()
    CRASH = auto()


@dataclass(slots=True, eq=False)
class _Flight:
    """A request without a response.

    Attributes:
        send: The request, when it was due, and the broker that it is for.
        identity: The identity of the producer in the request.
        number: The number of its transaction.
        version: Its version; -1 before it is sent.
        node_id: Node id of the broker; -1 if it is unknown.
        sent_ms: When it was sent.
    """

    send: Send
    identity: ProducerIdentity
    number: int
    version: int = NOT_SENT
    node_id: int = -1
    sent_ms: float = 0.0


class ScriptedProducer:
    """The transactions of one scripted member.

    After each call the driver (`ProducerDriver`) takes `effects` and carries them out, calls `take_restart` and
    `take_seek`, and reads `next_deadline` again. While the member is suspended, calls are deferred until `update`.

    Args:
        member: The member, whose partitions it consumes; its script has transactions.
        record: Receives the events of requests.

    Attributes:
        member: The member.
        effects: Look-ups and requests since the driver last took them.
        partition_count: Number of partitions of the topic to produce to; set by the driver. 0 before it is known.
        number: Number of the last transaction, from 1.
        begun_ms: When the last transaction began; infinite if it has ended for the application.
    """

    def __init__(self, member: ScriptedMember, record: Callable[[Event], None]) -> None:
        assert member.script.transactions is not None
        self.member = member
        self.effects: list[Discover | Send] = []
        self.partition_count = 0
        self.number = 0
        self.begun_ms = math.inf
        self._script: Transactions = member.script.transactions
        self._record = record
        self._random = Random(self._script.seed)
        self._producer: Producer | None = None
        self._due_ms = math.inf  # Of the next transaction.
        self._start_ms = -math.inf  # When the next producer may start.
        self._crash_ms = math.inf  # When the producer stops after it has sent EndTxn.
        self._fate, self._cut = _Fate.COMMIT, 0
        self._next_offsets: dict[TopicPartition, int] = {}
        self._former: tuple[ProducerIdentity, int] | None = None  # Of a producer that crashed, with its transaction.
        self._level, self._raises_epoch = 0, True
        self._flights: dict[int, _Flight] = {}
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._restart_wanted = self._seek_wanted = False

    @property
    def transactional_id(self) -> str:
        """The `transactional.id`: the member's name."""
        return self.member.script.member

    @property
    def topic(self) -> str:
        """The topic that it produces to."""
        return self._script.topic

    # Time and the member

    def next_deadline(self) -> float:
        """Return when to call `update`, in milliseconds since the Unix epoch; infinite for never."""
        if self.member.is_suspended or not self._is_running:
            return math.inf
        if self._producer is None:
            return self._start_ms
        due_ms = min(self._due_ms, self._crash_ms)
        retry_ms = self._producer.next_deadline()
        return due_ms if retry_ms is None else min(due_ms, retry_ms)

    def update(self, now_ms: float) -> None:
        """Process what is due. Also called when the member has changed."""
        if self.member.is_suspended:
            return
        deferred, self._deferred = self._deferred, []
        for call, arguments in deferred:
            call(*arguments, now_ms)
        if not self._is_running:
            if self._producer is not None:
                self._stop(now_ms)
            return
        if self._producer is None:
            if self._start_ms <= now_ms:
                self._start(now_ms)
            return
        if self._crash_ms <= now_ms:
            self._crash(self._producer, now_ms)
            return
        self._producer.tick(now_ms)
        self._execute_effects(now_ms)
        if self._due_ms <= now_ms:
            self._begin_if_possible(self._producer, now_ms)

    @property
    def _is_running(self) -> bool:
        return not self.member.member.is_down

    def finish(self, now_ms: float) -> None:
        """Record requests in flight as cut off, at the end of the replay."""
        self._drop_flights(now_ms, ended=False)

    def pending(self, now_ms: float) -> list[Event]:
        """Return what `finish` would record now, without changing anything."""
        return [self._unanswered(flight, CUT_OFF, now_ms) for flight in self._flights.values()]

    # Producers

    def _start(self, now_ms: float) -> None:
        """Start a producer, as an application does before it polls."""
        settings = ProducerSettings(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._script.timeout_ms
        )
        self._producer = Producer(settings)
        self._producer.offer_version(self._level, raises_epoch=self._raises_epoch)
        self._producer.initialize(now_ms)
        self._execute_effects(now_ms)

    def _stop(self, now_ms: float, restart_ms: float = -math.inf) -> None:
        """Stop the producer without ending its transaction; another one may start later."""
        self._drop_flights(now_ms)
        self._producer, self._start_ms = None, restart_ms
        self._due_ms = self._crash_ms = math.inf
        self.effects.clear()
        self._restart_wanted = True

    def _drop_flights(self, now_ms: float, *, ended: bool = True) -> None:
        for flight in self._flights.values():
            self._record_unanswered(flight, CUT_OFF, now_ms, ended=ended)
        self._flights.clear()

    # Transactions

    def _begin_if_possible(self, producer: Producer, now_ms: float) -> None:
        self._due_ms += self._script.interval_ms * max(1, math.ceil((now_ms - self._due_ms) / self._script.interval_ms))
        if producer.state is ProducerState.READY and self.member.is_processing and self.partition_count:
            self._begin(producer, now_ms)

    def _begin(self, producer: Producer, now_ms: float) -> None:
        """Begin a transaction: consume records, produce one for each, and commit the offsets."""
        member = self.member.member
        self.number += 1
        self.begun_ms = now_ms
        partitions = [each for each in member.assigned if each in member.positions]
        share, more = divmod(self._script.records, len(partitions))
        counts = {each: share + (index < more) for index, each in enumerate(partitions)}
        self._next_offsets = {each: member.positions[each] + count for each, count in counts.items() if count}
        producer.begin(now_ms)
        producer.send(self._batches({each: count for each, count in counts.items() if count}, now_ms), now_ms)
        producer.send_offsets(self._next_offsets, member.identity, now_ms)
        self._choose_fate(producer.pending)
        if self._fate is _Fate.COMMIT or self._cut < 0:
            producer.commit(now_ms)
        self._execute_effects(now_ms)

    def _batches(self, counts: dict[TopicPartition, int], now_ms: float) -> dict[TopicPartition, list[Record]]:
        """Return the records that a transaction produces, by partition. Their values name the transaction."""
        value = json.dumps([self.member.script.group, self.transactional_id, self.number]).encode()
        batches: dict[TopicPartition, list[Record]] = {}
        for (topic, index), count in counts.items():
            first = self.member.member.positions[topic, index]
            batch = batches.setdefault((self._script.topic, index % self.partition_count), [])
            for offset in range(first, first + count):
                batch.append(Record(len(batch), int(now_ms), f"{topic}-{index}@{offset}".encode(), value))
        return batches

    def _choose_fate(self, steps: int) -> None:
        """Choose the outcome of a transaction, and how many of its requests are left when the producer aborts or stops.

        -1 means that the producer stops when it has sent EndTxn.
        """
        drawn = self._random.random()
        if drawn < self._script.crash:
            self._fate, self._cut = _Fate.CRASH, self._random.randint(-1, steps - 1)
        elif drawn < self._script.crash + self._script.abort:
            self._fate, self._cut = _Fate.ABORT, self._random.randint(0, steps - 1)
        else:
            self._fate, self._cut = _Fate.COMMIT, 0

    def _follow_fate(self, now_ms: float) -> None:
        """Abort the transaction, or stop, if enough of its requests have succeeded."""
        producer = self._producer
        if producer is None or producer.state is not ProducerState.IN_TRANSACTION or producer.pending > self._cut:
            return
        if self._fate is _Fate.ABORT:
            producer.abort(now_ms)
            self._execute_effects(now_ms)
        elif self._fate is _Fate.CRASH:
            self._crash(producer, now_ms)

    def _crash(self, producer: Producer, now_ms: float) -> None:
        self._former = producer.identity, self.number
        least_ms, most_ms = self._script.return_ms
        self._stop(now_ms, now_ms + least_ms + (most_ms - least_ms) * self._random.random())

    # Effects of the producer

    def _execute_effects(self, now_ms: float) -> None:
        producer = self._producer
        while producer is not None and producer.effects:
            effects, producer.effects = producer.effects, []
            for effect in effects:
                match effect:
                    case Send():
                        self._flights[id(effect.request)] = _Flight(effect, producer.identity, self.number)
                        self.effects.append(effect)
                    case Discover():
                        self.effects.append(effect)
                    case Ready():
                        self._ready(producer, effect.committed, now_ms)
                    case Failed():
                        producer.abort(now_ms)
                    case Fatal():
                        self._stop(now_ms, now_ms + _RESTART_MS)

    def _ready(self, producer: Producer, committed: bool | None, now_ms: float) -> None:
        self.begun_ms = math.inf
        if committed is None and self._due_ms == math.inf:
            self._due_ms = now_ms + self._script.interval_ms
        if committed:
            positions = self.member.member.positions
            positions.update((each, offset) for each, offset in self._next_offsets.items() if each in positions)
        elif self.number:
            self._seek_wanted = True
        if committed is None and self._former is not None:
            self._send_former(producer, now_ms)

    def _send_former(self, producer: Producer, now_ms: float) -> None:
        """Let the producer that crashed try to commit its transaction, as if it had only been slow."""
        assert self._former is not None
        (identity, number), self._former = self._former, None
        destination = Coordinator("transaction", self.transactional_id)
        send = Send(requests.end(identity, is_commit=True), destination, now_ms)
        self._flights[id(send.request)] = _Flight(send, identity, number)
        self.effects.append(send)

    # Called by the driver

    def take_restart(self) -> bool:
        """Return whether to close all connections and forget look-ups; the next call returns False."""
        wanted, self._restart_wanted = self._restart_wanted, False
        return wanted

    def take_seek(self) -> bool:
        """Return whether to call `ScriptedMember.seek_to_committed`; the next call returns False."""
        wanted, self._seek_wanted = self._seek_wanted, False
        return wanted

    def offer_version(self, level: int, *, raises_epoch: bool) -> None:
        """Set what a broker supports; see `Producer.offer_version`."""
        self._level, self._raises_epoch = level, raises_epoch
        if self._producer is not None:
            self._producer.offer_version(level, raises_epoch=raises_epoch)

    @property
    def transaction_version(self) -> int:
        """The level of `transaction.version` that requests are sent for."""
        return 0 if self._producer is None else self._producer.transaction_version

    def sent(self, request: ProducerRequest, version: int, node_id: int, now_ms: float) -> None:
        """Store when, to which broker and in which version a request was sent."""
        flight = self._flights.get(id(request))
        if flight is not None:
            flight.version, flight.node_id, flight.sent_ms = version, node_id, now_ms
            if self._fate is _Fate.CRASH and self._producer and self._producer.state is ProducerState.COMMITTING:
                self._crash_ms = now_ms if isinstance(request, EndTxnRequest) else math.inf

    def discovered(self, destination: Destination, now_ms: float) -> None:
        """Process a broker that was found."""
        self._call("discovered", destination, now_ms)

    def discovery_failed(self, destination: Destination, error: ErrorCode, now_ms: float) -> None:
        """Process the error of a failed look-up; NETWORK_EXCEPTION if there was no response."""
        self._call("discovery_failed", destination, error, now_ms)

    def unanswered(self, send: Send, missing: str, now_ms: float) -> None:
        """Record that a request has no response, for a reason as in `Event.missing`; `connection_lost` follows."""
        flight = self._flights.pop(id(send.request), None)
        if flight is not None:
            self._record_unanswered(flight, missing, now_ms)

    def connection_lost(self, destination: Destination, now_ms: float) -> None:
        """Process that a broker cannot be reached, or that its connection was lost."""
        self._call("connection_lost", destination, now_ms)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a method of the producer, or defer the call. The last argument is the time."""
        *others, now_ms = arguments
        if self.member.is_suspended:
            self._deferred.append((self._call, (name, *others)))
        elif self._producer is not None:
            getattr(self._producer, name)(*arguments)
            self._execute_effects(now_ms)

    def answered(self, request: ProducerRequest, response: ProducerResponse, now_ms: float) -> None:
        """Process a response."""
        if self.member.is_suspended:
            self._deferred.append((self.answered, (request, response)))
            return
        flight = self._flights.pop(id(request), None)
        if flight is None:
            return
        self._record_answered(flight, response, now_ms)
        if self._producer is not None:
            self._producer.answered(request, response, now_ms)
            self._execute_effects(now_ms)
            self._follow_fate(now_ms)

    # Events

    def _record_answered(self, flight: _Flight, response: ProducerResponse, now_ms: float) -> None:
        scheduled_us = to_us(flight.send.scheduled_ms)
        error = int(error_in(response))
        event = self._event(flight)._replace(latency_us=to_us(now_ms) - scheduled_us, error=error)
        if error:
            self._record(event)
            return
        request = flight.send.request
        if isinstance(response, InitProducerIdResponse):
            event = event._replace(transaction=(response.producer_id, response.producer_epoch, None, None))
        elif isinstance(response, ProduceResponse):
            event = event._replace(
                offsets=[
                    (f"{topic.name}-{each.index}", each.base_offset)
                    for topic in response.responses
                    for each in topic.partition_responses
                ]
            )
        elif isinstance(response, TxnOffsetCommitResponse):
            assert isinstance(request, TxnOffsetCommitRequest)
            event = event._replace(
                offsets=[
                    (f"{topic.name}-{each.partition_index}", each.committed_offset)
                    for topic in request.topics
                    for each in topic.partitions
                ]
            )
        self._record(event)

    def _record_unanswered(self, flight: _Flight, missing: str, now_ms: float, *, ended: bool = True) -> None:
        event = self._unanswered(flight, missing, now_ms)
        self._record(event._replace(until_us=to_us(now_ms)) if ended else event)

    def _unanswered(self, flight: _Flight, missing: str, now_ms: float) -> Event:
        if flight.version == NOT_SENT:
            flight.sent_ms = now_ms
        return self._event(flight)._replace(missing=missing)

    def _event(self, flight: _Flight) -> Event:
        """Return the event of a request, without what depends on its response."""
        request, script = flight.send.request, self.member.script
        event = Event(
            scheduled_us=to_us(flight.send.scheduled_ms),
            sent_us=to_us(flight.sent_ms),
            latency_us=None,
            api=api_of(request).name,
            version=flight.version,
            broker=flight.node_id,
            group=script.group,
            member=script.member,
            instance_id=script.instance_id,
            transaction=(
                None if flight.identity.producer_id < 0 else flight.identity.producer_id,
                None if flight.identity.epoch < 0 else flight.identity.epoch,
                None if isinstance(request, InitProducerIdRequest) else flight.number,
                request.committed if isinstance(request, EndTxnRequest) else None,
            ),
        )
        if isinstance(request, TxnOffsetCommitRequest):
            return event._replace(generation=request.generation_id_or_member_epoch, member_id=request.member_id or None)
        return event
