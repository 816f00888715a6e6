"""A transactional producer as a state machine: calls go in, effects come out (KIP-98, KIP-447, KIP-890).

Behaves as Kafka's Java producer does (`TransactionManager`), with one request in flight at a time. After each call the
driver carries out `effects`; it calls `tick` when `next_deadline` has passed. Does not depend on sockets or clocks.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from fakebroker.client.backoff import Backoff
from fakebroker.client.member.requests import Identity
from fakebroker.client.producer import requests
from fakebroker.client.producer.effects import (
    Coordinator,
    Destination,
    Discover,
    Effect,
    Failed,
    Fatal,
    Leader,
    ProducerRequest,
    ProducerResponse,
    Ready,
    Send,
)
from fakebroker.client.producer.reactions import Reaction, error_in, reaction_to
from fakebroker.client.producer.requests import ProducerIdentity
from fakebroker.client.producer.states import TRANSITIONS, ProducerState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from fakebroker.protocol.messages.end_txn import EndTxnResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdResponse
from fakebroker.protocol.messages.produce import ProduceResponse
from fakebroker.protocol.records import Record
from fakebroker.topic_partition import TopicPartition

KIP_890 = 2
"""The level of `transaction.version` at which brokers add partitions themselves, and EndTxn raises the epoch."""

FIRST_ADD_BACKOFF_MS = 20.0
"""The back-off while the previous transaction ends (Kafka's `ADD_PARTITIONS_RETRY_BACKOFF_MS`)."""


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a transactional producer.

    Attributes:
        transactional_id: `transactional.id`.
        transaction_timeout_ms: `transaction.timeout.ms`.
        retry_backoff_ms: The first back-off; later ones double up to one second.
    """

    transactional_id: str
    transaction_timeout_ms: int = 60_000
    retry_backoff_ms: float = 100.0


@dataclass(slots=True, eq=False)
class _Step:
    """A request that is sent when its turn comes.

    Attributes:
        destination: The broker that it is for.
        build: Builds the request from the identity of that moment.
        done: Called when it succeeded, with the response and the time.
        scheduled_ms: When it was due: at the earliest when the request before it was answered.
        begins: Whether the coordinator may have an open transaction from then on.
    """

    destination: Destination
    build: Callable[[], ProducerRequest]
    done: Callable[[ProducerResponse, float], None]
    scheduled_ms: float
    begins: bool = False


class Producer:
    """One transactional producer.

    `now_ms`, in most methods, is the current time in milliseconds since the Unix epoch.

    Attributes:
        settings: See `ProducerSettings`.
        state: See `ProducerState`.
        effects: Effects since the driver last took them.
        identity: Its producer id and epoch.
        transaction_version: The level of `transaction.version` that it uses; 2 for KIP-890.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self.settings = settings
        self.state = ProducerState.NEW
        self.effects: list[Effect] = []
        self.identity = ProducerIdentity(settings.transactional_id)
        self.transaction_version = 0
        self._offered_version = 0
        self._can_raise_epoch = True
        self._coordinator = Coordinator("transaction", settings.transactional_id)
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._is_started = False  # The coordinator may have an open transaction.
        self._has_failed_batch = False
        self._outcome: bool | None = None  # Of the transaction that has ended, while the epoch is raised.
        self._steps: deque[_Step] = deque()
        self._in_flight: ProducerRequest | None = None
        self._known: set[Destination] = set()
        self._discovering: Destination | None = None
        self._backoff = Backoff(settings.retry_backoff_ms)
        self._retry_ms: float | None = None

    @property
    def pending(self) -> int:
        """The number of requests of the transaction that have not succeeded yet."""
        return len(self._steps)

    # Application calls

    def initialize(self, now_ms: float) -> None:
        """Get a producer id and an epoch, which fences other producers with the same id. Emits `Ready`."""
        self._enter(ProducerState.INITIALIZING)
        self._initialize(now_ms)

    def begin(self, now_ms: float) -> None:
        """Begin a transaction. Nothing is sent yet."""
        self._enter(ProducerState.IN_TRANSACTION)
        self._added.clear()
        self._is_started = self._has_failed_batch = False

    def send(self, batches: Mapping[TopicPartition, Sequence[Record]], now_ms: float) -> None:
        """Send one batch to each partition.

        Args:
            batches: Records with offsets from 0 and timestamps, by partition.
            now_ms: The time.
        """
        new = [partition for partition in batches if partition not in self._added]
        self._added.update(new)
        if new and self.transaction_version < KIP_890:
            self._push(
                self._coordinator,
                lambda: requests.add_partitions(self.identity, new),
                self._started,
                now_ms,
                begins=True,
            )
        for partition, records in batches.items():
            self._produce(partition, records, now_ms)
        self._run(now_ms)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], consumer: Identity, now_ms: float) -> None:
        """Commit offsets of the group of a consumer with the transaction.

        Args:
            offsets: The next offset of each partition.
            consumer: The consumer's identity in its group.
            now_ms: The time.
        """
        if self.transaction_version < KIP_890:
            self._push(
                self._coordinator,
                lambda: requests.add_offsets(self.identity, consumer.group_id),
                self._started,
                now_ms,
                begins=True,
            )
        self._push(
            Coordinator("group", consumer.group_id),
            lambda: requests.commit_offsets(self.identity, consumer, offsets),
            self._started,
            now_ms,
            begins=True,
        )
        self._run(now_ms)

    def commit(self, now_ms: float) -> None:
        """Commit the transaction when the other requests are answered. Emits `Ready`, or `Failed`."""
        self._enter(ProducerState.COMMITTING)
        self._end(now_ms, is_commit=True)
        self._run(now_ms)

    def abort(self, now_ms: float) -> None:
        """Abort the transaction; requests that were not sent are dropped. Emits `Ready`."""
        if self.identity.producer_id < 0:  # The initialization has failed.
            self.initialize(now_ms)
            return
        self._enter(ProducerState.ABORTING)
        self._clear(keeps_first=self._in_flight is not None)
        self._end(now_ms, is_commit=False)
        self._run(now_ms)

    def offer_version(self, level: int, *, raises_epoch: bool = True) -> None:
        """Set what the brokers support. It is used from the next transaction on.

        Args:
            level: The finalized level of `transaction.version` in the cluster.
            raises_epoch: Whether InitProducerId can raise a known epoch (KIP-360; brokers of 2.5 and later).
        """
        self._offered_version, self._can_raise_epoch = level, raises_epoch

    # Look-ups, responses and time

    def discovered(self, destination: Destination, now_ms: float) -> None:
        """A broker was found."""
        if destination == self._discovering:
            self._discovering = None
            self._known.add(destination)
            self._run(now_ms)

    def discovery_failed(self, destination: Destination, error: ErrorCode, now_ms: float) -> None:
        """A broker was not found; without a response the error is NETWORK_EXCEPTION."""
        if destination != self._discovering:
            return
        self._discovering = None
        if error.retriable:
            self._back_off(now_ms)
        else:
            self._fail("FindCoordinator", error, Reaction.FATAL, now_ms)

    def connection_lost(self, destination: Destination, now_ms: float) -> None:
        """The connection to a broker was lost, or could not be established; a request in flight to it is repeated."""
        self._known.discard(destination)
        if self._in_flight is not None and self._steps[0].destination == destination:
            self._in_flight = None
            self._back_off(now_ms)

    def answered(self, request: ProducerRequest, response: ProducerResponse, now_ms: float) -> None:
        """A response arrived. Ignored unless the request is in flight."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        error = error_in(response)
        reaction = reaction_to(error, response) if error else Reaction.IGNORE
        match reaction:
            case Reaction.IGNORE:
                self._backoff.reset()
                self._steps.popleft().done(response, now_ms)
                if self._steps:  # The next request is due only now.
                    self._steps[0].scheduled_ms = now_ms
                self._run(now_ms)
            case Reaction.REDISCOVER:
                self._known.discard(self._steps[0].destination)
                self._back_off(now_ms)
            case Reaction.RETRY:
                is_first_add = isinstance(response, AddPartitionsToTxnResponse) and not self._is_started
                if is_first_add and error is ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._retry_ms = now_ms + FIRST_ADD_BACKOFF_MS
                else:
                    self._back_off(now_ms)
            case _:
                self._on_error(response, error, reaction, now_ms)

    def next_deadline(self) -> float | None:
        """Return when `tick` is due, in milliseconds since the Unix epoch."""
        return self._retry_ms

    def tick(self, now_ms: float) -> None:
        """Repeat a request after its back-off."""
        if self._retry_ms is not None and self._retry_ms <= now_ms:
            self._retry_ms = None
            self._run(now_ms)

    # Steps

    def _enter(self, state: ProducerState) -> None:
        """Change the state; the only method that does."""
        if state not in TRANSITIONS[self.state]:
            name = self.settings.transactional_id
            raise AssertionError(f"producer {name!r}: no transition from {self.state} to {state}")
        self.state = state

    def _push(
        self,
        destination: Destination,
        build: Callable[[], ProducerRequest],
        done: Callable[[ProducerResponse, float], None],
        now_ms: float,
        *,
        begins: bool = False,
    ) -> None:
        self._steps.append(_Step(destination, build, done, now_ms, begins))

    def _clear(self, *, keeps_first: bool = False) -> None:
        """Drop the steps, except one whose request is in flight."""
        first = self._steps[0] if keeps_first else None
        self._steps.clear()
        if first is not None:
            self._steps.append(first)

    def _run(self, now_ms: float) -> None:
        """Send the next request, or look up its broker, unless the producer waits for something."""
        if not self._steps or self._in_flight is not None or self._discovering is not None:
            return
        if self._retry_ms is not None:
            return
        step = self._steps[0]
        if step.destination not in self._known:
            self._discovering = step.destination
            self.effects.append(Discover(step.destination, now_ms))
            return
        self._in_flight = step.build()
        self.effects.append(Send(self._in_flight, step.destination, step.scheduled_ms))

    def _back_off(self, now_ms: float) -> None:
        self._retry_ms = now_ms + self._backoff.next_delay_ms()
        self._steps[0].scheduled_ms = self._retry_ms

    def _started(self, response: ProducerResponse, now_ms: float) -> None:
        self._is_started = True

    # Requests of each kind

    def _initialize(self, now_ms: float) -> None:
        timeout_ms = self.settings.transaction_timeout_ms
        self._push(
            self._coordinator, lambda: requests.init_producer_id(self.identity, timeout_ms), self._initialized, now_ms
        )
        self._run(now_ms)

    def _initialized(self, response: ProducerResponse, now_ms: float) -> None:
        assert isinstance(response, InitProducerIdResponse)
        self._set_identity(response.producer_id, response.producer_epoch)
        self.transaction_version = self._offered_version
        self._ready(now_ms)

    def _set_identity(self, producer_id: int, epoch: int) -> None:
        """Use a producer id and an epoch. Sequence numbers start at 0 in each epoch."""
        identity = self.identity._replace(producer_id=producer_id, epoch=epoch)
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()

    def _produce(self, partition: TopicPartition, records: Sequence[Record], now_ms: float) -> None:
        def build() -> ProducerRequest:
            self._is_started = True  # From KIP-890 on, the request may add the partition.
            return requests.produce(self.identity, partition, records, self._sequences.get(partition, 0))

        def produced(response: ProducerResponse, now_ms: float) -> None:
            self._sequences[partition] = (self._sequences.get(partition, 0) + len(records)) & 0x7FFFFFFF

        self._push(Leader(partition), build, produced, now_ms, begins=True)

    def _end(self, now_ms: float, *, is_commit: bool) -> None:
        def ended(response: ProducerResponse, now_ms: float) -> None:
            assert isinstance(response, EndTxnResponse)
            if response.producer_id >= 0:
                self._set_identity(response.producer_id, response.producer_epoch)
            self._ended(is_commit, now_ms)

        if self._is_started or any(step.begins for step in self._steps):
            self._push(self._coordinator, lambda: requests.end(self.identity, is_commit=is_commit), ended, now_ms)
        else:
            self._ended(is_commit, now_ms)

    def _ended(self, is_commit: bool, now_ms: float) -> None:
        """The transaction has ended. Raise the epoch if a batch has failed, or for KIP-890."""
        self._outcome = is_commit
        raises_epoch = self._offered_version >= KIP_890 > self.transaction_version
        if self.transaction_version < KIP_890 and self._has_failed_batch:
            raises_epoch = True
        if not (raises_epoch and self._can_raise_epoch):
            self._ready(now_ms)
            return
        self._enter(ProducerState.INITIALIZING)
        self._initialize(now_ms)

    def _ready(self, now_ms: float) -> None:
        outcome, self._outcome = self._outcome, None
        self._is_started = False
        self._enter(ProducerState.READY)
        self.effects.append(Ready(outcome, now_ms))

    # Errors

    def _on_error(self, response: ProducerResponse, error: ErrorCode, reaction: Reaction, now_ms: float) -> None:
        api = type(response).__name__.removesuffix("Response")
        if isinstance(response, ProduceResponse):
            self._has_failed_batch = True
        if reaction is Reaction.ABORTABLE and self.state is ProducerState.ABORTING:
            if isinstance(response, EndTxnResponse):
                reaction = Reaction.FATAL
            else:
                self._steps.popleft()  # EndTxn follows
                self._run(now_ms)
                return
        self._fail(api, error, reaction, now_ms)

    def _fail(self, api: str, error: ErrorCode, reaction: Reaction, now_ms: float) -> None:
        self._clear()
        message = f"{api} for transactional id {self.settings.transactional_id!r} failed with {error.name}"
        if reaction is Reaction.ABORTABLE:
            self._enter(ProducerState.ABORTABLE_ERROR)
            self.effects.append(Failed(error, message, now_ms))
        else:
            self._enter(ProducerState.FATAL)
            self.effects.append(Fatal(error, message, now_ms))
