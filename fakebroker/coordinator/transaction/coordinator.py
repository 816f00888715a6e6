"""The transaction coordinator of one broker: the ids in the partitions of `__transaction_state` that it leads.

`TransactionCoordinator` decides requests, appends a record before each transition, sends markers, and aborts
transactions that time out. Does not depend on API versions, sockets, clocks or random numbers.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from fakebroker.coordinator.history import LOADED
from fakebroker.coordinator.partitions import Append, Partitions
from fakebroker.coordinator.timers import Rank, TimerQueue
from fakebroker.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    EXHAUSTED_EPOCH,
    KIP_890,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    Markers,
    ProducerResult,
    SendMarkers,
    Transaction,
    TransactionConfig,
    TransactionRecord,
    TransactionState,
    TransactionValue,
    Transition,
    transaction_record,
)
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import TopicPartition

# The answers to requests, by the state of the transactional id


CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The errors that clients get if an append to `__transaction_state` fails (`TransactionStateManager`)."""


def error_of_producer(transaction: Transaction, producer_id: int, epoch: int) -> ErrorCode:
    """Return the error of an InitProducerId.

    Args:
        transaction: The transactional id.
        producer_id: The producer id from an earlier InitProducerId, or NO_PRODUCER_ID.
        epoch: The epoch from the earlier InitProducerId, or NO_EPOCH.
    """
    value = transaction.value
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_previous = producer_id == value.previous_producer_id and epoch >= EXHAUSTED_EPOCH
    if producer_id not in (NO_PRODUCER_ID, value.producer_id) and value.epoch != NO_EPOCH and not is_previous:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if value.state in PREPARED else ErrorCode.NONE


def error_of_epoch(value: TransactionValue, producer_id: int, epoch: int) -> ErrorCode:
    """Return the error of a request with another producer id or epoch than the current one, else NONE."""
    if producer_id != value.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if epoch == value.epoch else ErrorCode.PRODUCER_FENCED


def is_retry_of_end(value: TransactionValue, producer_id: int, epoch: int) -> bool:
    """Return whether an EndTxn is a retry: it has the epoch before the last EndTxn, which raised it (KIP-890)."""
    if producer_id == value.producer_id:
        return epoch == value.epoch - 1
    return producer_id == value.previous_producer_id and epoch == EXHAUSTED_EPOCH and value.epoch == 0


def answer_of_end(state: TransactionState, *, is_commit: bool, raises_epoch: bool, is_retry: bool) -> ErrorCode | None:
    """Return the answer to EndTxn in a state without a pending transition; None to end the transaction.

    Args:
        state: The state.
        is_commit: Whether the request commits.
        raises_epoch: Whether the request raises the epoch (KIP-890).
        is_retry: Whether the request has the epoch before the last end; see `is_retry_of_end`.
    """
    ended = {PREPARE_COMMIT: True, COMPLETE_COMMIT: True, PREPARE_ABORT: False, COMPLETE_ABORT: False}
    if state in ended and (is_retry or not raises_epoch):
        if ended[state] is not is_commit:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.CONCURRENT_TRANSACTIONS if state in PREPARED else ErrorCode.NONE
    if is_retry or state in PREPARED:
        return ErrorCode.PRODUCER_FENCED
    if state is ONGOING or (raises_epoch and not is_commit):
        return None
    return ErrorCode.INVALID_TXN_STATE


# The coordinator


_NONE = ErrorCode.NONE

_PASSING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
"""The errors after which the end of a transaction is stored again."""

RETRY_MS = 100
"""Delay before the end of a transaction is stored again, in milliseconds; Kafka retries when it next sends requests."""


def append_nowhere(partition: int, records: tuple[TransactionRecord, ...]) -> ErrorCode:
    """Drop the records, for a coordinator whose ids need not survive a failover."""
    return _NONE


def _no_change(transaction: Transaction, state_from: str, state_to: str, cause: str, now_ms: float) -> None: ...


NO_HOLDS: Mapping[str, Container[TransactionState]] = MappingProxyType({})
"""An empty mapping: no transition is held."""


class TransactionCoordinator:
    """All transactional ids of the partitions that one broker leads. It starts without any partition.

    A method returns the result of its request, or None if a hold applies to its transition (`holds`). Then the request
    is parked: other requests for the same id get CONCURRENT_TRANSACTIONS, and its result is added to `answers` when the
    transition is released. `now_ms` is the only source of the time. Timers expire when the queue runs.

    Args:
        config: The settings; see `configure`.
        new_producer_id: Returns an unused producer id.
        send_markers: Writes markers to partitions.
        append: Appends a record to a partition of `__transaction_state`.
        started_ms: When the broker started; timeouts are checked at full intervals from then on.
        on_change: Called after each transition, and after one that could not be stored, with the transactional id, the
            names of the states before and afterwards, the cause and the time.
        holds: The states whose records are not appended until `release`, by transactional id.
        queue: The queue of its timers, if it shares one with other services.
        node_id: The node id of its broker.

    Attributes:
        queue: The queue of its timers.
        answers: The results of requests that were parked, as pairs of token and result, which the caller takes.
            Requests whose token is None are not answered.
    """

    def __init__(
        self,
        config: TransactionConfig,
        new_producer_id: Callable[[], int],
        send_markers: SendMarkers,
        append: Append[TransactionRecord] = append_nowhere,
        started_ms: float = 0.0,
        on_change: Callable[[Transaction, str, str, str, float], None] = _no_change,
        holds: Mapping[str, Container[TransactionState]] = NO_HOLDS,
        queue: TimerQueue[Any] | None = None,
        node_id: int = 0,
    ) -> None:
        self.config = config
        self._new_producer_id = new_producer_id
        self._send_markers = send_markers
        self._append = append
        self._started_ms = started_ms
        self._on_change = on_change
        self._holds = holds
        self.answers: list[tuple[object, ProducerResult | ErrorCode]] = []
        self._partitions = Partitions(config.partition_count)
        self._epochs: dict[int, int] = {}
        self._transactions: dict[str, Transaction] = {}
        self.queue: TimerQueue[Any] = TimerQueue() if queue is None else queue
        self._timers = self.queue.service(Rank.TRANSACTIONS, self._expire, node_id)

    def configure(self, config: TransactionConfig) -> None:
        """Replace the settings. The number of partitions changes only while none is led or loaded."""
        self.config = config
        self._partitions.count = config.partition_count

    # Partitions

    def partition_for(self, transactional_id: str) -> int:
        """Return the index of the partition of `__transaction_state` that an id belongs to."""
        return self._partitions.partition_for(transactional_id)

    def lead(self, partition: int, leader_epoch: int, now_ms: float) -> None:
        """Lead a partition without ids."""
        self._partitions.lead(partition, now_ms)
        self._epochs[partition] = leader_epoch

    def start_loading(self, partition: int) -> None:
        """Mark a partition as being loaded: its requests get COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            RuntimeError: The partition is led.
        """
        self._partitions.start_loading(partition)

    def fail_loading(self, partition: int) -> None:
        """Stop loading a partition: its requests get NOT_COORDINATOR until it is loaded again or led.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        self._partitions.end_loading(partition)

    def finish_loading(
        self, partition: int, records: Iterable[TransactionRecord], leader_epoch: int, now_ms: float
    ) -> None:
        """Lead a partition that was being loaded, with the ids in its log, and end the transactions that are prepared.

        Args:
            partition: The partition.
            records: The log, oldest record first. If iterating over it raises an error, the coordinator is unchanged.
            leader_epoch: The leader epoch of the partition.
            now_ms: The time.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        values: dict[str, TransactionValue] = {}
        for record in records:
            transactional_id = record.key.transactional_id
            values.pop(transactional_id, None)
            if record.value is not None:
                values[transactional_id] = TransactionValue.of(record.value)
        self._partitions.end_loading(partition)
        self.lead(partition, leader_epoch, now_ms)
        self.restore(values, LOADED, now_ms)

    def restore(self, values: Mapping[str, TransactionValue], cause: str, now_ms: float) -> None:
        """Add transactional ids whose records are in the log, and end the transactions that are prepared."""
        restored = [Transaction(name, self.partition_for(name), value) for name, value in values.items()]
        for transaction in restored:
            self._transactions[transaction.transactional_id] = transaction
            self._changed(transaction, DEAD.value, cause, now_ms)
        for transaction in restored:
            if transaction.state in PREPARED:
                self._write_markers(transaction, now_ms)

    def resign(self, partition: int, now_ms: float) -> None:
        """Stop leading or loading a partition, and drop its ids. Pending requests get NOT_COORDINATOR."""
        self._partitions.resign(partition)
        self._epochs.pop(partition, None)
        for transaction in [each for each in self._transactions.values() if each.partition == partition]:
            del self._transactions[transaction.transactional_id]
            transaction.scheduled_ms = inf
            if transaction.held is not None:
                self._answer_held(transaction.held, ErrorCode.NOT_COORDINATOR)

    def error_for(self, transactional_id: str) -> ErrorCode:
        """Return NONE if the partition of an id is led here, else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._partitions.error_for(transactional_id)

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded, so that not all ids are known."""
        return self._partitions.is_loading

    def leads(self, partition: int) -> bool:
        """Whether a partition is led here."""
        return partition in self._partitions.led

    def led_indexes(self) -> Collection[int]:
        """Return the indexes of the partitions that are led here."""
        return self._partitions.led

    def transaction(self, transactional_id: str) -> Transaction | None:
        """Return an id, or None if it does not exist here."""
        return self._transactions.get(transactional_id)

    def transactions(self) -> Collection[Transaction]:
        """Return all ids, in the order of their creation."""
        return self._transactions.values()

    # Requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        epoch: int,
        now_ms: float,
        token: object = None,
    ) -> ProducerResult | None:
        """Give a producer its producer id and the next epoch, which fences other producers with the same id.

        Args:
            transactional_id: The id.
            timeout_ms: The timeout of its transactions.
            producer_id: The producer id that the producer has; -1 if none.
            epoch: The epoch that the producer has; -1 if none.
            now_ms: The time.
            token: For the result of a parked request.

        Returns:
            The result; None if the request is parked. The error is CONCURRENT_TRANSACTIONS while a transaction ends,
            also one that this request aborts.
        """
        if error := self._error_of_init(transactional_id, timeout_ms):
            return ProducerResult(error)
        transaction = self._transactions.get(transactional_id) or self._create(transactional_id, timeout_ms, now_ms)
        if error := error_of_producer(transaction, producer_id, epoch):
            return ProducerResult(error)
        if transaction.state is ONGOING:
            return self.fence(transaction, "InitProducerId of another producer", now_ms, token, is_init=True)
        return self._initialize(transaction, timeout_ms, epoch, now_ms, token)

    def _error_of_init(self, transactional_id: str, timeout_ms: int) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return self.error_for(transactional_id)

    def _create(self, transactional_id: str, timeout_ms: int, now_ms: float) -> Transaction:
        value = TransactionValue(
            producer_id=self._new_producer_id(),
            epoch=NO_EPOCH,
            timeout_ms=timeout_ms,
            state=EMPTY,
            last_update_ms=int(now_ms),
        )
        transaction = Transaction(transactional_id, self.partition_for(transactional_id), value)
        self._transactions[transactional_id] = transaction
        return transaction

    def _initialize(
        self,
        transaction: Transaction,
        timeout_ms: int,
        sent_epoch: int,
        now_ms: float,
        token: object,
    ) -> ProducerResult | None:
        """Raise the epoch of an id without a transaction, or take a new producer id if there is no higher epoch."""
        old = transaction.value
        has_epoch = sent_epoch != NO_EPOCH
        producer_id, epoch = old.producer_id, old.epoch + 1
        last_epoch = old.epoch if has_epoch else NO_EPOCH
        if transaction.is_exhausted:
            if has_epoch and sent_epoch != old.epoch:
                return ProducerResult(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, which fails here
            producer_id, epoch = self._new_producer_id(), 0
        elif has_epoch and old.epoch not in (NO_EPOCH, sent_epoch):
            if sent_epoch != transaction.last_epoch:
                return ProducerResult(ErrorCode.PRODUCER_FENCED)
            epoch, last_epoch = old.epoch, transaction.last_epoch  # repeated, because the response was lost
        value = transaction.initialized(timeout_ms, epoch, now_ms, producer_id)
        transaction.begin(EMPTY)
        result = ProducerResult(_NONE, producer_id, epoch)
        transition = Transition(value, last_epoch, "InitProducerId", token, result)
        return self._producer_result(transition, self._store_or_hold(transaction, transition, now_ms))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        now_ms: float,
        token: object = None,
        *,
        version: int = 0,
        cause: str = "AddPartitionsToTxn",
    ) -> ErrorCode | None:
        """Add partitions to the transaction of an id, which begins with the first ones.

        Also AddOffsetsToTxn, with the group's partition of `__consumer_offsets`.

        Args:
            transactional_id: The id.
            producer_id: The producer id.
            epoch: The producer epoch.
            partitions: The partitions.
            now_ms: The time.
            token: For the result of a parked request.
            version: The transaction version of the request: 2 if a broker adds partitions (KIP-890), else 0.
            cause: The request, for the history.

        Returns:
            NONE or the error for all partitions; None if the request is parked.
        """
        transaction, error = self._found(transactional_id)
        if transaction is None or error:
            return error
        value = transaction.value
        is_pending = transaction.pending is not None
        if self.config.checks_pending_first and is_pending:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif error := error_of_epoch(value, producer_id, epoch):
            pass
        elif is_pending or value.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error or (value.state is ONGOING and set(partitions) <= set(value.partitions)):
            return error
        transaction.begin(ONGOING)
        new = transaction.with_partitions(partitions, version, now_ms)
        return self._store_or_hold(transaction, Transition(new, transaction.last_epoch, cause, token), now_ms)

    def verify_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Return whether partitions are in the transaction of an id, without adding them (KIP-890).

        Returns:
            NONE, and NONE or TRANSACTION_ABORTABLE for each partition; or an error of the whole request.
        """
        transaction, error = self._found(transactional_id)
        if transaction is None or error:
            return error, []
        value = transaction.value
        error = error_of_epoch(value, producer_id, epoch)
        if not error and value.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error:
            return error, []
        added = set(value.partitions)
        return _NONE, [_NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE for each in partitions]

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        raises_epoch: bool,
        now_ms: float,
        token: object = None,
    ) -> ProducerResult | None:
        """Commit or abort the transaction of an id. The markers are written after the result.

        Args:
            transactional_id: The id.
            producer_id: The producer id.
            epoch: The producer epoch.
            is_commit: Whether to commit, else to abort.
            raises_epoch: Whether the request raises the epoch (KIP-890; versions 5 and up).
            now_ms: The time.
            token: For the result of a parked request.

        Returns:
            The result; None if the request is parked.
        """
        transaction, error = self._found(transactional_id)
        if transaction is None or error:
            return ProducerResult(error)
        version = KIP_890 if raises_epoch else 0
        value = transaction.value
        is_retry = raises_epoch and is_retry_of_end(value, producer_id, epoch)
        if raises_epoch and transaction.pending is not None:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif producer_id != value.producer_id and not is_retry:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif epoch != value.epoch and not is_retry:
            error = ErrorCode.PRODUCER_FENCED
        elif transaction.pending is not None:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            answer = answer_of_end(value.state, is_commit=is_commit, raises_epoch=raises_epoch, is_retry=is_retry)
            if answer is None:
                next_producer_id = NO_PRODUCER_ID
                if raises_epoch and transaction.is_exhausted:
                    next_producer_id = self._new_producer_id()
                    if value.epoch == MAX_EPOCH:
                        return ProducerResult(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, which has no higher epoch
                state = PREPARE_COMMIT if is_commit else PREPARE_ABORT
                return self._prepare(transaction, state, version, next_producer_id, "EndTxn", now_ms, token)
            error = answer
        return ProducerResult(error) if error else ProducerResult(_NONE, value.producer_id, value.epoch)

    def _prepare(
        self,
        transaction: Transaction,
        state: TransactionState,
        version: int,
        next_producer_id: int,
        cause: str,
        now_ms: float,
        token: object,
        *,
        is_fence: bool = False,
        is_init: bool = False,
    ) -> ProducerResult | None:
        """Store the outcome of a transaction; then its markers are written."""
        last_epoch = transaction.value.epoch if version >= KIP_890 else transaction.last_epoch
        transaction.begin(state)
        value = transaction.prepared(state, version, next_producer_id, now_ms)
        if is_init:
            result = ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif next_producer_id != NO_PRODUCER_ID:
            result = ProducerResult(_NONE, next_producer_id, 0)
        else:
            result = ProducerResult(_NONE, value.producer_id, value.epoch)
        transition = Transition(value, last_epoch, cause, token, result, is_fence=is_fence)
        return self._producer_result(transition, self._store_or_hold(transaction, transition, now_ms))

    @property
    def rotates_when_fenced(self) -> bool:
        """Whether an aborted producer without an epoch left gets a new producer id: with KIP-890, since Kafka 4.3."""
        return self.config.rotates_when_fenced and self.config.version >= KIP_890

    def fence(
        self, transaction: Transaction, cause: str, now_ms: float, token: object = None, *, is_init: bool = False
    ) -> ProducerResult | None:
        """Abort an ongoing transaction in a higher epoch, which fences its producer.

        Since Kafka 4.3, a producer id without an epoch left is replaced (KAFKA-20090). Before 4.3, it stays. After such
        an abort, it is in the highest epoch. A transaction in the highest epoch cannot be aborted: the result is
        UNKNOWN_SERVER_ERROR.

        Args:
            transaction: The transactional id, in state Ongoing and without a pending transition.
            cause: The cause, for the history.
            now_ms: The time.
            token: For the result of a parked request.
            is_init: Whether an InitProducerId causes the abort. Its result is CONCURRENT_TRANSACTIONS.

        Returns:
            The result when the outcome is stored; None if the request is parked.
        """
        version = self.config.version if self.config.version >= KIP_890 else 0
        rotates = self.rotates_when_fenced and transaction.is_exhausted
        if transaction.value.epoch == MAX_EPOCH and not rotates:
            return ProducerResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        transaction.begin(PREPARE_EPOCH_FENCE)
        transaction.pending = None
        if version < KIP_890:
            raised = transaction.value.epoch + (not transaction.has_failed_fence)
            transaction.value = replace(transaction.value, epoch=raised)
            transaction.last_epoch = NO_EPOCH
        next_producer_id = self._new_producer_id() if rotates else NO_PRODUCER_ID
        return self._prepare(
            transaction,
            PREPARE_ABORT,
            version,
            next_producer_id,
            cause,
            now_ms,
            token,
            is_fence=True,
            is_init=is_init,
        )

    def _found(self, transactional_id: str) -> tuple[Transaction | None, ErrorCode]:
        """Return an id, or the error of a request that does not create it."""
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return None, self.error_for(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return transaction, _NONE

    # Storing and ending

    def _store_or_hold(self, transaction: Transaction, transition: Transition, now_ms: float) -> ErrorCode | None:
        """Store a transition that was begun, or let it wait for `release` if a hold applies; None if it waits."""
        if transaction.pending in self._holds.get(transaction.transactional_id, ()):
            transaction.held = transition
            return None
        return self._store(transaction, transition, now_ms)

    def _store(self, transaction: Transaction, transition: Transition, now_ms: float) -> ErrorCode:
        """Append the record of a transition; then complete the transition, or undo it after an error.

        If this is the outcome of a transaction, its markers are written next.

        Returns:
            NONE or the error for clients.
        """
        if transition.value is None:
            return self._remove(transaction, now_ms)
        state_from, state = transaction.state.value, transition.value.state
        record = transaction_record(transaction.transactional_id, transition.value)
        if error := self._append(transaction.partition, (record,)):
            transaction.pending = None
            if not transition.is_repeated:
                what = f"{transition.cause}: {state.value} could not be stored, {error.name}"
                self._on_change(transaction, state_from, state_from, what, now_ms)
            error = CLIENT_ERRORS.get(error, error)
            if state in (COMPLETE_COMMIT, COMPLETE_ABORT) and error in _PASSING:
                transaction.begin(state)
                self._timers.schedule(transaction, now_ms + RETRY_MS)
        else:
            transaction.complete(transition.value, transition.last_epoch)
            self._changed(transaction, state_from, transition.cause, now_ms)
        if transition.is_fence:
            transaction.has_failed_fence = transition.value.version < KIP_890 and bool(error)
        if state in PREPARED and not error:
            self._write_markers(transaction, now_ms)
        return error

    @staticmethod
    def _producer_result(transition: Transition, error: ErrorCode | None) -> ProducerResult | None:
        """Return the result of a transition by the error of storing it; None if it is held."""
        return None if error is None else ProducerResult(error) if error else transition.result

    def release(self, transactional_id: str, now_ms: float) -> None:
        """Store the transition that was held, unless a hold still applies. The caller first changes the holds."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.held is None:
            return
        if transaction.pending not in self._holds.get(transactional_id, ()):
            transition, transaction.held = transaction.held, None
            self._answer_held(transition, self._store(transaction, transition, now_ms))

    def _answer_held(self, transition: Transition, error: ErrorCode) -> None:
        """Answer the request whose transition was held."""
        if transition.token is not None:
            result = transition.result
            self.answers.append(
                (transition.token, error if result is None else ProducerResult(error) if error else result)
            )

    def _write_markers(self, transaction: Transaction, now_ms: float) -> None:
        """Write the markers of a prepared transaction, and complete it when all are written."""
        value = transaction.value
        transaction.begin(COMPLETE_COMMIT if value.state is PREPARE_COMMIT else COMPLETE_ABORT)
        transaction.awaits_markers = dict.fromkeys(value.partitions)
        transaction.refused_markers = ()
        if not value.partitions:
            self._complete(transaction, now_ms)
            return
        transaction.markers = Markers(
            transactional_id=transaction.transactional_id,
            producer_id=value.producer_id,
            epoch=value.epoch,
            is_commit=value.state is PREPARE_COMMIT,
            coordinator_epoch=self._epochs[transaction.partition],
            version=value.version,
            partitions=value.partitions,
        )
        self._send_markers(transaction.markers)

    def awaits(self, markers: Markers) -> bool:
        """Whether markers that were sent are still to be written; not if their coordinator has resigned since."""
        transaction = self._transactions.get(markers.transactional_id)
        return transaction is not None and transaction.awaits_markers is not None and transaction.markers is markers

    def marker_written(self, markers: Markers, partition: TopicPartition, error: ErrorCode, now_ms: float) -> None:
        """Handle the result of a marker. If the coordinator has resigned in the meantime, the result has no effect.

        Args:
            markers: The markers, as they were passed to `send_markers`.
            partition: The partition.
            error: NONE if the marker is written, UNKNOWN_TOPIC_OR_PARTITION if the partition was deleted, or
                INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the partition refuses the marker.
            now_ms: The time.
        """
        transaction = self._transactions.get(markers.transactional_id)
        if transaction is None or transaction.markers is not markers:
            return
        awaited = transaction.awaits_markers
        if error not in (_NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            transaction.refused_markers = (*transaction.refused_markers, partition)
        elif awaited is not None and partition in awaited:
            del awaited[partition]
            if not awaited:
                self._complete(transaction, now_ms)

    def _complete(self, transaction: Transaction, now_ms: float, *, is_repeated: bool = False) -> None:
        """Store that a transaction has ended. After an error that may pass, this is retried."""
        transaction.awaits_markers = transaction.markers = None
        transaction.has_failed_fence = False
        value = transaction.completed(now_ms)
        transition = Transition(value, transaction.last_epoch, "all markers written", is_repeated=is_repeated)
        self._store_or_hold(transaction, transition, now_ms)

    def _changed(self, transaction: Transaction, state_from: str, cause: str, now_ms: float) -> None:
        self._on_change(transaction, state_from, transaction.state.value, cause, now_ms)
        self._schedule(transaction)

    # Time

    def timers(self) -> Iterator[tuple[Transaction, float]]:
        """Return the ids that have a timer, with its deadline, earliest first."""
        return iter(self._timers)

    def _schedule(self, transaction: Transaction) -> None:
        """Schedule the first check at which a transaction has timed out, or its id has expired."""
        self._timers.cancel(transaction)
        due_ms = transaction.next_check_ms(self.config, self._started_ms)
        if due_ms is not None:
            self._timers.schedule(transaction, due_ms)

    def _expire(self, transaction: Transaction, deadline_ms: float, now_ms: float) -> None:
        """Abort a transaction that has timed out, remove an expired id, or repeat a failed append."""
        if transaction.state in PREPARED:
            if transaction.awaits_markers is None:
                self._complete(transaction, now_ms, is_repeated=True)
        elif transaction.pending is not None:
            interval_ms = self.config.abort_check_interval_ms
            if transaction.state is not ONGOING:
                interval_ms = self.config.expiration_check_interval_ms
            self._timers.schedule(transaction, now_ms + interval_ms)
        elif transaction.state is ONGOING:
            self.fence(transaction, "the transaction has timed out", now_ms)
            if transaction.state is ONGOING and transaction.pending is None:  # it could not be stored
                self._timers.schedule(transaction, now_ms + self.config.abort_check_interval_ms)
        else:
            transaction.begin(DEAD)
            self._store_or_hold(transaction, Transition(None, transaction.last_epoch, "the id has expired"), now_ms)

    def _remove(self, transaction: Transaction, now_ms: float) -> ErrorCode:
        """Store the tombstone of an expired id, and remove the id."""
        error = self._append(transaction.partition, (transaction_record(transaction.transactional_id, None),))
        transaction.pending = None
        if error:
            self._timers.schedule(transaction, now_ms + self.config.expiration_check_interval_ms)
        else:
            del self._transactions[transaction.transactional_id]
            self._on_change(transaction, transaction.state.value, DEAD.value, "the id has expired", now_ms)
        return error
