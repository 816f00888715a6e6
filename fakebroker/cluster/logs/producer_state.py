"""State of the idempotent and transactional producers of one log, and the checks of their batches (KIP-98, KIP-890).

Follows Kafka's `ProducerStateManager` and `ProducerAppendInfo`.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.records import RecordBatch
from fakebroker.protocol.releases import Release
from fakebroker.protocol.transaction_markers import Marker, marker_in

RETAINED_BATCHES = 5
"""How many batches per producer are kept to detect duplicates: as many as a client may have in flight."""

EXPIRATION_CHECK_INTERVAL_MS = 600_000
"""Interval at which expired producers are removed (`producer.id.expiration.check.interval.ms`)."""

SEQUENCES = 2**31
"""Sequence numbers wrap around from `SEQUENCES - 1` to 0."""

NO_SEQUENCE = -1
NO_EPOCH = -1
NO_COORDINATOR_EPOCH = -1

_HAS_UNKNOWN_PRODUCER_ID = Release(1, 0)
_KEEPS_PRODUCERS_WITHOUT_RECORDS = Release(2, 4)  # KAFKA-7190
_TAKES_UNKNOWN_PRODUCERS = Release(2, 5)  # KIP-360
_REQUIRES_FIRST_SEQUENCE = Release(4, 1)  # KAFKA-18654, if the broker adds the partition
_CHECKS_EPOCH_FIRST = Release(4, 2)


class RefusedBatchError(FakebrokerError):
    """A batch has an old producer epoch or a wrong sequence number. `error_code` is the error to return."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class AppendedBatch(NamedTuple):
    """The sequence numbers, offsets and largest timestamp of a batch in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its producer, and the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


@dataclass(slots=True, eq=False)
class PendingVerification:
    """The check that the transaction coordinator knows the partition, from the request to its first batch in the log.

    Follows Kafka's `VerificationStateEntry`. A later batch must not be appended before an earlier one whose
    verification has failed, because the producer sends the earlier batch again.

    Attributes:
        epoch: The highest producer epoch of the batches.
        lowest_sequence: The lowest sequence number of the batches in that epoch.
        begun_ms: When it began, by the brokers' clock.
        adds: Whether the broker adds the partition to the transaction (KIP-890), so that all records go through it.
    """

    epoch: int
    lowest_sequence: int
    begun_ms: float
    adds: bool

    def add(self, batch: RecordBatch) -> None:
        """Take another batch into account."""
        if batch.producer_epoch > self.epoch:
            self.epoch, self.lowest_sequence = batch.producer_epoch, batch.base_sequence
        elif batch.producer_epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, batch.base_sequence)


OPEN_TRANSACTION = PendingVerification(NO_EPOCH, NO_SEQUENCE, 0.0, adds=False)
"""The verification of a batch whose transaction is open in the log already. It must still be open at the append."""


@dataclass(slots=True)
class Producer:
    """A producer of a log.

    Attributes:
        producer_id: Its id.
        epoch: Its latest epoch.
        last_timestamp_ms: The largest timestamp of its newest batch or marker.
        last_offset: The last offset of that batch or marker.
        batches: Its newest batches in that epoch; none after a marker that has raised the epoch.
        coordinator_epoch: The epoch of the coordinator that wrote its newest marker; -1 if there is none.
        transaction_offset: The offset of the first record of its open transaction; None if none is open.
    """

    producer_id: int
    epoch: int
    last_timestamp_ms: int
    last_offset: int = -1
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=RETAINED_BATCHES))
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record in this epoch; -1 if there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Producers:
    """The producers that have written to a log, in the order of their first batches.

    Producers are kept when their records are deleted (KIP-360).

    Attributes:
        next_check_ms: When expired producers are removed next.
    """

    __slots__ = ("_aborted", "_by_id", "_open", "_verifications", "next_check_ms")

    def __init__(self) -> None:
        self.next_check_ms = 0.0
        self._by_id: dict[int, Producer] = {}
        self._verifications: dict[int, PendingVerification] = {}
        # Open transactions begin in the order of their first offsets, and aborted ones end in that of their markers.
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTransaction] = []

    @classmethod
    def restored(cls, producers: Iterable[Producer], aborted: Iterable[AbortedTransaction]) -> "Producers":
        """Return stored producers.

        Args:
            producers: The producers, in the order of their first batches.
            aborted: The aborted transactions, in the order of their markers.
        """
        found = cls()
        found._by_id = {producer.producer_id: producer for producer in producers}
        found._aborted = list(aborted)
        found._open = _open_transactions(found._by_id.values())
        return found

    def clone(self) -> "Producers":
        """Return an independent copy, without the verifications that have begun."""
        twin = Producers()
        twin._by_id = {
            producer_id: replace(producer, batches=producer.batches.copy())
            for producer_id, producer in self._by_id.items()
        }
        twin.next_check_ms = self.next_check_ms
        twin._open, twin._aborted = self._open.copy(), self._aborted.copy()
        return twin

    def all(self) -> Collection[Producer]:
        """Return all producers."""
        return self._by_id.values()

    def get(self, producer_id: int) -> Producer | None:
        """Return a producer; None if it is unknown."""
        return self._by_id.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if no transaction is open."""
        return next(iter(self._open.values()), None)

    def open_transactions(self) -> Iterator[tuple[Producer, int]]:
        """Yield the producers whose transactions are open, with the first offsets, in the order of the offsets."""
        for producer_id, offset in self._open.items():
            yield self._by_id[producer_id], offset

    def needs(self, batch: RecordBatch) -> bool:
        """Return whether a batch has the last sequence number of its producer, or else its epoch."""
        producer = self._by_id.get(batch.producer_id)
        if producer is None:
            return False
        if producer.batches:
            return bool(batch.last_offset == producer.batches[-1].last_offset)
        return batch.is_control and bool(batch.producer_epoch == producer.epoch)

    @property
    def has_aborted(self) -> bool:
        """Whether any transaction was aborted."""
        return bool(self._aborted)

    def aborted_in(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records from an offset to before another one.

        Those whose markers are before the first offset have none; the others are in the order of their markers.
        """
        first = bisect_left(self._aborted, offset, key=attrgetter("marker_offset"))
        return [each for each in self._aborted[first:] if each.first_offset < end_offset]

    def remember(self, batch: RecordBatch) -> None:
        """Store a batch that was appended. A marker ends a transaction.

        Batches without a producer id, and control batches that are not markers, are ignored.
        """
        if batch.producer_id < 0:
            return
        if batch.is_control:
            if (marker := marker_in(batch)) is not None:
                self._end(batch, marker)
            return
        producer = self._of_epoch(batch)
        producer.batches.append(
            AppendedBatch(
                batch.base_sequence,
                _last_sequence(batch),
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp_ms,
            )
        )
        if batch.is_transactional:
            self._verifications.pop(batch.producer_id, None)
            if producer.transaction_offset is None:
                producer.transaction_offset = self._open[batch.producer_id] = batch.base_offset

    def _of_epoch(self, batch: RecordBatch) -> Producer:
        """Return the producer of a batch, without its earlier batches if the epoch is another."""
        producer = self._by_id.get(batch.producer_id)
        if producer is None:
            producer = Producer(batch.producer_id, batch.producer_epoch, batch.max_timestamp_ms)
            self._by_id[batch.producer_id] = producer
        elif producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches.clear()
        producer.last_timestamp_ms, producer.last_offset = batch.max_timestamp_ms, batch.last_offset
        return producer

    def _end(self, batch: RecordBatch, marker: Marker) -> None:
        """Apply the marker in a batch: the producer has no open transaction afterwards."""
        pending = self._verifications.get(batch.producer_id)
        # With KIP-890, a marker in the epoch of a pending verification has ended the transaction before that one.
        if pending is not None and not (pending.adds and pending.epoch == batch.producer_epoch):
            del self._verifications[batch.producer_id]
        producer = self._of_epoch(batch)
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset, producer.transaction_offset = producer.transaction_offset, None
        self._open.pop(batch.producer_id, None)
        if first_offset is not None and not marker.is_commit:
            self._aborted.append(AbortedTransaction(batch.producer_id, first_offset, batch.base_offset))

    def truncated(self, batches: Iterable[RecordBatch], end_offset: int) -> None:
        """Restore the state at an earlier end of the log, from the remaining batches.

        A producer that wrote later is restored from its remaining batches, or removed if it has none. Other producers
        do not change, even if their records were deleted.
        """
        self._verifications.clear()
        if all(producer.last_offset < end_offset for producer in self._by_id.values()):
            return
        kept = Producers()
        for batch in batches:
            kept.remember(batch)
        self._by_id = {
            producer_id: producer if producer.last_offset < end_offset else kept._by_id[producer_id]
            for producer_id, producer in self._by_id.items()
            if producer.last_offset < end_offset or producer_id in kept._by_id
        }
        self._open = _open_transactions(self._by_id.values())
        self._aborted = [each for each in self._aborted if each.marker_offset < end_offset]

    def forget_verifications(self) -> None:
        """Forget the verifications that have begun: a new leader of the partition does not know them."""
        self._verifications.clear()

    def begin_verification(self, batch: RecordBatch, now_ms: float, *, adds: bool) -> PendingVerification:
        """Begin the verification of a transactional batch, or continue an earlier one.

        Returns:
            The verification, or `OPEN_TRANSACTION` if the transaction of the producer in this epoch is open.
        """
        if self.has_open(batch.producer_id, batch.producer_epoch):
            return OPEN_TRANSACTION
        found = self._verifications.get(batch.producer_id)
        if found is None:
            found = PendingVerification(batch.producer_epoch, batch.base_sequence, now_ms, adds)
            self._verifications[batch.producer_id] = found
        else:
            found.add(batch)
        return found

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether the transaction of a producer is open in this epoch."""
        producer = self._by_id.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.transaction_offset is not None

    def forget_aborted(self, start_offset: int) -> None:
        """Forget the aborted transactions that ended before the log start offset."""
        first = bisect_left(self._aborted, start_offset, key=attrgetter("marker_offset"))
        del self._aborted[:first]

    def forget_aborted_at(self, marker_offset: int) -> None:
        """Forget the transaction that a marker has aborted, because no record of it is left."""
        index = bisect_left(self._aborted, marker_offset, key=attrgetter("marker_offset"))
        if index < len(self._aborted) and self._aborted[index].marker_offset == marker_offset:
            del self._aborted[index]

    def marker_error(self, producer_id: int, epoch: int, coordinator_epoch: int, *, raises_epoch: bool) -> ErrorCode:
        """Return why a marker cannot be written, else NONE.

        Args:
            producer_id: The producer id.
            epoch: The producer epoch of the marker.
            coordinator_epoch: The epoch of the coordinator.
            raises_epoch: Whether the marker must have a higher epoch than the records (KIP-890, since 4.2). An equal
                epoch is accepted only if no transaction is open: the marker may have been sent again.
        """
        producer = self._by_id.get(producer_id) or Producer(producer_id, NO_EPOCH, last_timestamp_ms=-1)
        is_same = raises_epoch and epoch == producer.epoch and producer.transaction_offset is not None
        if epoch < producer.epoch or is_same:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < producer.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def check(
        self,
        batch: RecordBatch,
        release: Release,
        log_start_offset: int,
        verification: PendingVerification | None = None,
    ) -> AppendedBatch | None:
        """Check a batch before it is appended.

        Args:
            batch: The batch as it was sent by its producer.
            release: The release that the broker emulates.
            log_start_offset: Releases up to 2.3 remove a producer if all its records are before this offset.
            verification: The verification of the batch. None if the batch is not transactional, or is not verified.

        Returns:
            The batch in the log that this batch repeats; None if the batch is new and may be appended.

        Raises:
            RefusedBatchError: The producer epoch is old, the sequence number is not the next one, or the state of the
                transaction is wrong.
        """
        if batch.producer_id < 0:
            return None
        producer = self._by_id.get(batch.producer_id)
        keeps_all = release >= _KEEPS_PRODUCERS_WITHOUT_RECORDS
        is_gone = producer is not None and producer.batches and producer.batches[-1].last_offset < log_start_offset
        if not keeps_all and is_gone:
            del self._by_id[batch.producer_id]
            producer = None
        repeated = None if producer is None else _repeated(batch, producer)
        if repeated is not None:
            return repeated
        if verification is not None:
            self._check_verified(batch, producer, release, verification)
        if producer is not None:
            _check_epoch(batch, producer)
        self._check_first(batch, producer, release)
        if producer is None:
            _check_unknown(batch, release)
        else:
            _check_next(batch, producer)
            if producer.transaction_offset is not None and not batch.is_transactional:
                message = f"producer {batch.producer_id} has an open transaction: expected a transactional batch"
                raise RefusedBatchError(ErrorCode.INVALID_TXN_STATE, message)
        return None

    def _check_verified(
        self, batch: RecordBatch, producer: Producer | None, release: Release, verification: PendingVerification
    ) -> None:
        """Check that the transaction was not ended since a batch was verified."""
        if self.has_open(batch.producer_id, batch.producer_epoch):
            return
        if self._verifications.get(batch.producer_id) is not verification:
            if producer is not None and release >= _CHECKS_EPOCH_FIRST:
                _check_epoch(batch, producer)
            message = (
                f"producer {batch.producer_id} in epoch {batch.producer_epoch}: the transaction has ended meanwhile"
            )
            raise RefusedBatchError(ErrorCode.INVALID_TXN_STATE, message)

    def _check_first(self, batch: RecordBatch, producer: Producer | None, release: Release) -> None:
        """Check that a batch does not skip the first batch of a transaction whose verification is pending.

        A batch outside a transaction is checked, too.
        """
        pending = self._verifications.get(batch.producer_id)
        if pending is None:
            return
        highest = pending.lowest_sequence
        if producer is None and pending.adds and release >= _REQUIRES_FIRST_SEQUENCE:
            highest = min(highest, 0)
        if batch.base_sequence > highest:
            raise RefusedBatchError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} in epoch {batch.producer_epoch}: sequence number "
                f"{batch.base_sequence}, expected at most {highest} until its transaction begins",
            )

    def expire(self, now_ms: float, expiration_ms: float) -> None:
        """Remove the producers, and the verifications, that had expired at the last check before the time.

        A producer without an open transaction expires when its newest batch has an age, by its maximum timestamp. The
        first check is one interval after the first call.

        Args:
            now_ms: The time by the brokers' clock.
            expiration_ms: The age (`producer.id.expiration.ms`).
        """
        if not self.next_check_ms:
            self.next_check_ms = now_ms + EXPIRATION_CHECK_INTERVAL_MS
        if now_ms < self.next_check_ms:
            return
        checked_ms = now_ms - (now_ms - self.next_check_ms) % EXPIRATION_CHECK_INTERVAL_MS
        self.next_check_ms = checked_ms + EXPIRATION_CHECK_INTERVAL_MS
        limit_ms = checked_ms - expiration_ms
        self._by_id = {
            producer_id: producer
            for producer_id, producer in self._by_id.items()
            if producer.transaction_offset is not None or producer.last_timestamp_ms > limit_ms
        }
        self._verifications = {
            producer_id: each for producer_id, each in self._verifications.items() if each.begun_ms > limit_ms
        }


def _last_sequence(batch: RecordBatch) -> int:
    return (batch.base_sequence + batch.last_offset_delta) % SEQUENCES


def _repeated(batch: RecordBatch, producer: Producer) -> AppendedBatch | None:
    if batch.producer_epoch != producer.epoch:
        return None
    sequences = (batch.base_sequence, _last_sequence(batch))
    return next((each for each in producer.batches if (each.base_sequence, each.last_sequence) == sequences), None)


def _open_transactions(producers: Iterable[Producer]) -> dict[int, int]:
    """Return the first offsets of open transactions by producer id, in the order of the offsets."""
    opened = [
        (producer.transaction_offset, producer.producer_id)
        for producer in producers
        if producer.transaction_offset is not None
    ]
    return {producer_id: offset for offset, producer_id in sorted(opened)}


def _check_unknown(batch: RecordBatch, release: Release) -> None:
    """Check a batch of an unknown producer. Kafka 2.5 and later accept any, since the producer may have expired."""
    if batch.base_sequence == 0 or release >= _TAKES_UNKNOWN_PRODUCERS:
        return
    is_named = release >= _HAS_UNKNOWN_PRODUCER_ID
    error = ErrorCode.UNKNOWN_PRODUCER_ID if is_named else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    raise RefusedBatchError(
        error, f"producer {batch.producer_id} is unknown: sequence number {batch.base_sequence}, expected 0"
    )


def _check_epoch(batch: RecordBatch, producer: Producer) -> None:
    """Check the epoch of a batch. Produce never returns PRODUCER_FENCED (KAFKA-10687)."""
    if batch.producer_epoch < producer.epoch:
        label = f"producer {batch.producer_id} in epoch {batch.producer_epoch}"
        raise RefusedBatchError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{label}: expected epoch {producer.epoch} or later")


def _check_next(batch: RecordBatch, producer: Producer) -> None:
    """Check the sequence number of a new batch of a known producer."""
    if producer.epoch < 0 <= batch.producer_epoch:
        return  # as in Kafka, where a producer without epoch counts as one without batches
    is_same_epoch = batch.producer_epoch == producer.epoch
    expected = (producer.last_sequence + 1) % SEQUENCES if is_same_epoch else 0
    if batch.base_sequence != expected:
        raise RefusedBatchError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} in epoch {batch.producer_epoch}: sequence number {batch.base_sequence}, "
            f"expected {expected}",
        )
