"""The transaction coordinator of one broker: the ids in the partitions of `__transaction_state` that it leads.

`TransactionCoordinator` decides requests, appends a record before each transition, sends markers, and aborts
transactions that time out. Does not depend on wire formats, API versions, sockets, clocks or random numbers.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from types import MappingProxyType

from msgspec.structs import replace

from fakebroker.coordinator.runtime.history import LOADED
from fakebroker.coordinator.runtime.partitions import Partitions
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.coordinator.runtime.runtime import Append
from fakebroker.coordinator.runtime.timer_queue import TimerQueue
from fakebroker.coordinator.transaction.answers import (
    CLIENT_ERRORS,
    answer_of_end,
    error_of_epoch,
    error_of_producer,
    is_retry_of_end,
)
from fakebroker.coordinator.transaction.api import Markers, ProducerResult, SendMarkers
from fakebroker.coordinator.transaction.config import KIP_890, TransactionConfig
from fakebroker.coordinator.transaction.records import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionRecord,
    TransactionValue,
)
from fakebroker.coordinator.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    TransactionState,
)
from fakebroker.coordinator.transaction.transaction import HeldAppend, Transaction
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import TopicPartition

_NONE = ErrorCode.NONE

RETRY_MS = 100
"""Delay before the end of a transaction is stored again, in milliseconds; Kafka retries when it next sends requests."""


def append_nowhere(partition: int, records: tuple[TransactionRecord, ...], done: Callable[[ErrorCode], None]) -> None:
    """Drop the records, for a coordinator whose ids need not survive a failover."""
    done(_NONE)


def _no_change(transaction: Transaction, state_from: str, state_to: str, cause: str, now_ms: float) -> None: ...


NO_HOLDS: Mapping[str, Container[TransactionState]] = MappingProxyType({})
"""An empty mapping: no transition is held."""


class TransactionCoordinator:
    """All transactional ids of the partitions that one broker leads. It starts without any partition.

    Methods that may append call `done` with the result: before they return, or later if the append is pending.
    Meanwhile other requests for the same id are answered with CONCURRENT_TRANSACTIONS. `now_ms` is the only source of
    the time. Timers expire only in `tick`.

    Args:
        config: The settings; can be replaced later.
        new_producer_id: Returns an unused producer id.
        send_markers: Writes markers to partitions.
        append: Appends a record to a partition of `__transaction_state`.
        started_ms: When the broker started; timeouts are checked at full intervals from then on.
        on_change: Called after each transition, and after one that could not be stored, with the transactional id, the
            names of the states before and afterwards, the cause and the time.
        holds: The states whose records are not appended until `release`, by transactional id.
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
    ) -> None:
        self.config = config
        self._new_producer_id = new_producer_id
        self._send_markers = send_markers
        self._append = append
        self._started_ms = started_ms
        self._on_change = on_change
        self._holds = holds
        self._partitions = Partitions()
        self._epochs: dict[int, int] = {}
        self._transactions: dict[str, Transaction] = {}
        self._timers: TimerQueue[Transaction] = TimerQueue()

    # Partitions

    def partition_for(self, transactional_id: str) -> int:
        """Return the index of the partition of `__transaction_state` that an id belongs to."""
        return partition_for(transactional_id, self.config.partition_count)

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
            values.pop(record.transactional_id, None)
            if record.value is not None:
                values[record.transactional_id] = record.value
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
            if transaction.held_append is not None:
                transaction.held_append.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)

    def error_for(self, transactional_id: str) -> ErrorCode:
        """Return NONE if the partition of an id is led here, else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._partitions.error(self.partition_for(transactional_id))

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
        done: Callable[[ProducerResult], None],
    ) -> None:
        """Give a producer its producer id and the next epoch, which fences other producers with the same id.

        Args:
            transactional_id: The id.
            timeout_ms: The timeout of its transactions.
            producer_id: The producer id that the producer has; -1 if none.
            epoch: The epoch that the producer has; -1 if none.
            now_ms: The time.
            done: Called with the result. An error is CONCURRENT_TRANSACTIONS while a transaction ends, also one that
                this request aborts.
        """
        if error := self._error_of_init(transactional_id, timeout_ms):
            done(ProducerResult(error))
            return
        transaction = self._transactions.get(transactional_id) or self._create(transactional_id, timeout_ms, now_ms)
        if error := error_of_producer(transaction, producer_id, epoch):
            done(ProducerResult(error))
        elif transaction.state is ONGOING:
            self.fence(
                transaction,
                "InitProducerId of another producer",
                now_ms,
                lambda result: done(ProducerResult(result.error or ErrorCode.CONCURRENT_TRANSACTIONS)),
            )
        else:
            self._initialize(transaction, timeout_ms, epoch, now_ms, done)

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
        done: Callable[[ProducerResult], None],
    ) -> None:
        """Raise the epoch of an id without a transaction, or take a new producer id if there is no higher epoch."""
        old = transaction.value
        has_epoch = sent_epoch != NO_EPOCH
        producer_id, epoch = old.producer_id, old.epoch + 1
        last_epoch = old.epoch if has_epoch else NO_EPOCH
        if transaction.is_exhausted:
            if has_epoch and sent_epoch != old.epoch:
                done(ProducerResult(ErrorCode.UNKNOWN_SERVER_ERROR))  # as in Kafka, which fails here
                return
            producer_id, epoch = self._new_producer_id(), 0
        elif has_epoch and old.epoch not in (NO_EPOCH, sent_epoch):
            if sent_epoch != transaction.last_epoch:
                done(ProducerResult(ErrorCode.PRODUCER_FENCED))
                return
            epoch, last_epoch = old.epoch, transaction.last_epoch  # repeated, because the response was lost
        value = transaction.initialized(timeout_ms, epoch, now_ms, producer_id)

        def complete(error: ErrorCode) -> None:
            done(ProducerResult(error) if error else ProducerResult(_NONE, producer_id, epoch))

        transaction.begin(EMPTY)
        self._store(transaction, value, last_epoch, "InitProducerId", now_ms, complete)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        now_ms: float,
        done: Callable[[ErrorCode], None],
        *,
        version: int = 0,
        cause: str = "AddPartitionsToTxn",
    ) -> None:
        """Add partitions to the transaction of an id, which begins with the first ones.

        Also AddOffsetsToTxn, with the group's partition of `__consumer_offsets`.

        Args:
            transactional_id: The id.
            producer_id: The producer id.
            epoch: The producer epoch.
            partitions: The partitions.
            now_ms: The time.
            done: Called with NONE or the error for all partitions.
            version: The transaction version of the request: 2 if a broker adds partitions (KIP-890), else 0.
            cause: The request, for the history.
        """
        transaction, error = self._found(transactional_id)
        if transaction is None or error:
            done(error)
            return
        value = transaction.value
        is_pending = transaction.pending is not None
        if self.config.checks_pending_first and is_pending:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif error := error_of_epoch(value, producer_id, epoch):
            pass
        elif is_pending or value.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error or (value.state is ONGOING and set(partitions) <= set(value.partitions)):
            done(error)
            return
        transaction.begin(ONGOING)
        new = transaction.with_partitions(partitions, version, now_ms)
        self._store(transaction, new, transaction.last_epoch, cause, now_ms, done)

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
        done: Callable[[ProducerResult], None],
    ) -> None:
        """Commit or abort the transaction of an id. The markers are written after the result.

        Args:
            transactional_id: The id.
            producer_id: The producer id.
            epoch: The producer epoch.
            is_commit: Whether to commit, else to abort.
            raises_epoch: Whether the request raises the epoch (KIP-890; versions 5 and up).
            now_ms: The time.
            done: Called with the result.
        """
        transaction, error = self._found(transactional_id)
        if transaction is None or error:
            done(ProducerResult(error))
            return
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
                self._end_open(transaction, PREPARE_COMMIT if is_commit else PREPARE_ABORT, version, now_ms, done)
                return
            error = answer
        done(ProducerResult(error) if error else ProducerResult(_NONE, value.producer_id, value.epoch))

    def _end_open(
        self,
        transaction: Transaction,
        state: TransactionState,
        version: int,
        now_ms: float,
        done: Callable[[ProducerResult], None],
    ) -> None:
        next_producer_id = NO_PRODUCER_ID
        if version >= KIP_890 and transaction.is_exhausted:
            next_producer_id = self._new_producer_id()
            if transaction.value.epoch == MAX_EPOCH:
                done(ProducerResult(ErrorCode.UNKNOWN_SERVER_ERROR))  # as in Kafka, which has no higher epoch
                return
        self._prepare(transaction, state, version, next_producer_id, "EndTxn", now_ms, done)

    def _prepare(
        self,
        transaction: Transaction,
        state: TransactionState,
        version: int,
        next_producer_id: int,
        cause: str,
        now_ms: float,
        done: Callable[[ProducerResult], None],
    ) -> None:
        """Store the outcome of a transaction; then its markers are written."""
        last_epoch = transaction.value.epoch if version >= KIP_890 else transaction.last_epoch
        transaction.begin(state)
        value = transaction.prepared(state, version, next_producer_id, now_ms)

        def complete(error: ErrorCode) -> None:
            if error:
                done(ProducerResult(error))
                return
            rotates = next_producer_id != NO_PRODUCER_ID
            done(ProducerResult(_NONE, *((next_producer_id, 0) if rotates else (value.producer_id, value.epoch))))

        self._store(transaction, value, last_epoch, cause, now_ms, complete)

    @property
    def rotates_when_fenced(self) -> bool:
        """Whether an aborted producer without an epoch left gets a new producer id: with KIP-890, since Kafka 4.3."""
        return self.config.rotates_when_fenced and self.config.version >= KIP_890

    def fence(
        self, transaction: Transaction, cause: str, now_ms: float, done: Callable[[ProducerResult], None]
    ) -> None:
        """Abort an ongoing transaction in a higher epoch, which its producer does not have.

        Since Kafka 4.3, a producer id without an epoch left is replaced (KAFKA-20090). Before, it stays. If it is in
        the highest epoch, which it was given after such an abort, the transaction cannot be aborted: the result is
        UNKNOWN_SERVER_ERROR.

        Args:
            transaction: The transactional id, in state Ongoing and without a pending transition.
            cause: The cause, for the history.
            now_ms: The time.
            done: Called with the result when the outcome is stored.
        """
        version = self.config.version if self.config.version >= KIP_890 else 0
        rotates = self.rotates_when_fenced and transaction.is_exhausted
        if transaction.value.epoch == MAX_EPOCH and not rotates:
            done(ProducerResult(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        transaction.begin(PREPARE_EPOCH_FENCE)
        transaction.pending = None
        if version < KIP_890:
            raised = transaction.value.epoch + (not transaction.has_failed_fence)
            transaction.value = replace(transaction.value, epoch=raised)
            transaction.last_epoch = NO_EPOCH

        def complete(result: ProducerResult) -> None:
            transaction.has_failed_fence = version < KIP_890 and bool(result.error)
            done(result)

        next_producer_id = self._new_producer_id() if rotates else NO_PRODUCER_ID
        self._prepare(transaction, PREPARE_ABORT, version, next_producer_id, cause, now_ms, complete)

    def _found(self, transactional_id: str) -> tuple[Transaction | None, ErrorCode]:
        """Return an id, or the error of a request that does not create it."""
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return None, self.error_for(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return transaction, _NONE

    # Storing and ending

    def _store(
        self,
        transaction: Transaction,
        value: TransactionValue,
        last_epoch: int,
        cause: str,
        now_ms: float,
        done: Callable[[ErrorCode], None],
        *,
        is_repeated: bool = False,
    ) -> None:
        """Append a record for a transition that was begun; then complete the transition, or undo it after an error.

        If the outcome of a transaction is stored, its markers are written after `done` was called. The history does not
        have the errors of repeated appends.
        """

        def complete(error: ErrorCode, at_ms: float) -> None:
            if self._transactions.get(transaction.transactional_id) is not transaction:
                done(ErrorCode.NOT_COORDINATOR)  # resigned meanwhile
                return
            state_from = transaction.state.value
            if error:
                what = f"{cause}: {value.state.value} could not be stored, {error.name}"
                transaction.pending = None
                if not is_repeated:
                    self._on_change(transaction, state_from, state_from, what, at_ms)
                done(CLIENT_ERRORS.get(error, error))
                return
            transaction.complete(value, last_epoch)
            self._changed(transaction, state_from, cause, at_ms)
            done(_NONE)
            if value.state in PREPARED and transaction.value is value:
                self._write_markers(transaction, at_ms)

        self._write(transaction, value, now_ms, complete)

    def _write(
        self,
        transaction: Transaction,
        value: TransactionValue | None,
        now_ms: float,
        complete: Callable[[ErrorCode, float], None],
    ) -> None:
        """Append a record, unless a hold applies to the pending transition. `complete` gets the result and the time."""
        records = (TransactionRecord(transaction.transactional_id, value),)

        def ended(error: ErrorCode, at_ms: float) -> None:
            transaction.is_appending = False
            complete(error, at_ms)

        def append(at_ms: float) -> None:
            self._append(transaction.partition, records, lambda error: ended(error, at_ms))

        transaction.is_appending = True
        if transaction.pending in self._holds.get(transaction.transactional_id, ()):
            transaction.held_append = HeldAppend(append, ended)
        else:
            append(now_ms)

    def release(self, transactional_id: str, now_ms: float) -> None:
        """Append the record that was held, unless a hold still applies. The caller first changes the holds."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.held_append is None:
            return
        if transaction.pending not in self._holds.get(transactional_id, ()):
            held, transaction.held_append = transaction.held_append, None
            held.append(now_ms)

    def _write_markers(self, transaction: Transaction, now_ms: float) -> None:
        """Write the markers of a prepared transaction, and complete it when all are written."""
        value = transaction.value
        transaction.begin(COMPLETE_COMMIT if value.state is PREPARE_COMMIT else COMPLETE_ABORT)
        transaction.awaits_markers = dict.fromkeys(value.partitions)
        transaction.refused_markers = ()
        markers = Markers(
            transactional_id=transaction.transactional_id,
            producer_id=value.producer_id,
            epoch=value.epoch,
            is_commit=value.state is PREPARE_COMMIT,
            coordinator_epoch=self._epochs[transaction.partition],
            version=value.version,
            partitions=value.partitions,
        )
        if value.partitions:
            self._send_markers(markers, partial(self._marker_done, transaction, value))
        else:
            self._complete(transaction, now_ms)

    def awaits(self, markers: Markers) -> bool:
        """Whether markers that were sent are still to be written; not if their coordinator has resigned since."""
        transaction = self._transactions.get(markers.transactional_id)
        if transaction is None or transaction.awaits_markers is None:
            return False
        return self._epochs.get(transaction.partition) == markers.coordinator_epoch

    def _marker_done(
        self,
        transaction: Transaction,
        value: TransactionValue,
        partition: TopicPartition,
        error: ErrorCode,
        now_ms: float,
    ) -> None:
        """Handle the result of a marker; those of a coordinator that has resigned have no effect."""
        awaited = transaction.awaits_markers
        if self._transactions.get(transaction.transactional_id) is not transaction or transaction.value is not value:
            return
        if error not in (_NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            transaction.refused_markers = (*transaction.refused_markers, partition)
        elif awaited is not None and partition in awaited:
            del awaited[partition]
            if not awaited:
                self._complete(transaction, now_ms)

    def _complete(self, transaction: Transaction, now_ms: float, *, is_repeated: bool = False) -> None:
        """Store that a transaction has ended. After an error that may pass, this is retried."""
        transaction.awaits_markers = None
        value = transaction.completed(now_ms)
        pending = transaction.pending

        def complete(error: ErrorCode) -> None:
            if error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR):
                transaction.pending = pending
                self._timers.schedule(transaction, now_ms + RETRY_MS)

        self._store(
            transaction, value, transaction.last_epoch, "all markers written", now_ms, complete, is_repeated=is_repeated
        )
        transaction.has_failed_fence = False

    def _changed(self, transaction: Transaction, state_from: str, cause: str, now_ms: float) -> None:
        self._on_change(transaction, state_from, transaction.state.value, cause, now_ms)
        self._schedule(transaction)

    # Time

    def tick(self, now_ms: float) -> None:
        """Abort transactions that have timed out, remove expired ids, and repeat failed appends, if a check is due."""
        for transaction, _ in self._timers.expired(now_ms):
            self._expire(transaction, now_ms)

    def next_deadline(self) -> float | None:
        """Return when to call `tick` next, or None without timers. Never late."""
        return self._timers.next_deadline()

    def timers(self) -> Iterator[tuple[Transaction, float]]:
        """Return the ids that have a timer, with its deadline, earliest first."""
        return iter(self._timers)

    def _schedule(self, transaction: Transaction) -> None:
        """Schedule the first check at which a transaction has timed out, or its id has expired."""
        self._timers.cancel(transaction)
        due_ms = transaction.next_check_ms(self.config, self._started_ms)
        if due_ms is not None:
            self._timers.schedule(transaction, due_ms)

    def _expire(self, transaction: Transaction, now_ms: float) -> None:
        if transaction.state in PREPARED:
            if transaction.awaits_markers is None:
                self._complete(transaction, now_ms, is_repeated=True)
        elif transaction.pending is not None:
            interval_ms = self.config.abort_check_interval_ms
            if transaction.state is not ONGOING:
                interval_ms = self.config.expiration_check_interval_ms
            self._timers.schedule(transaction, now_ms + interval_ms)
        elif transaction.state is ONGOING:
            self.fence(transaction, "the transaction has timed out", now_ms, lambda result: None)
            if transaction.state is ONGOING and transaction.pending is None:  # it could not be stored
                self._timers.schedule(transaction, now_ms + self.config.abort_check_interval_ms)
        else:
            self._remove(transaction, now_ms)

    def _remove(self, transaction: Transaction, now_ms: float) -> None:
        """Store the tombstone of an expired id, and remove the id."""

        def complete(error: ErrorCode, at_ms: float) -> None:
            if self._transactions.get(transaction.transactional_id) is not transaction:
                return
            transaction.pending = None
            if error:
                self._timers.schedule(transaction, at_ms + self.config.expiration_check_interval_ms)
                return
            del self._transactions[transaction.transactional_id]
            self._on_change(transaction, transaction.state.value, DEAD.value, "the id has expired", at_ms)

        transaction.begin(DEAD)
        self._write(transaction, None, now_ms, complete)
