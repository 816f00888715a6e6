"""State of the idempotent producers of one log, and the checks of their batches (KIP-98), without transactions.

Follows Kafka's `ProducerStateManager` and `ProducerAppendInfo`.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.records import RecordBatch
from fakebroker.protocol.releases import Release

RETAINED_BATCHES = 5
"""How many batches per producer are kept to detect duplicates: as many as a client may have in flight."""

EXPIRATION_MS = 24 * 3600 * 1000
"""A producer expires when its newest batch has this age, by its maximum timestamp (`producer.id.expiration.ms`)."""

EXPIRATION_CHECK_INTERVAL_MS = 600_000
"""Interval at which expired producers are removed (`producer.id.expiration.check.interval.ms`)."""

SEQUENCES = 2**31
"""Sequence numbers wrap around from `SEQUENCES - 1` to 0."""

_HAS_UNKNOWN_PRODUCER_ID = Release(1, 0)
_KEEPS_PRODUCERS_WITHOUT_RECORDS = Release(2, 4)  # KAFKA-7190
_TAKES_UNKNOWN_PRODUCERS = Release(2, 5)  # KIP-360


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


@dataclass(slots=True)
class Producer:
    """A producer: its latest epoch and the newest batches of that epoch, at least one."""

    producer_id: int
    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=RETAINED_BATCHES))

    @property
    def newest(self) -> AppendedBatch:
        return self.batches[-1]


class Producers:
    """The producers that have written to a log, in the order of their first batches.

    Producers are kept when their records are deleted (KIP-360).
    """

    __slots__ = ("_by_id", "_next_check_ms")

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        self._next_check_ms = 0.0

    def clone(self) -> "Producers":
        """Return an independent copy."""
        twin = Producers()
        twin._by_id = {
            producer_id: replace(producer, batches=producer.batches.copy())
            for producer_id, producer in self._by_id.items()
        }
        twin._next_check_ms = self._next_check_ms
        return twin

    def active(self, now_ms: float) -> Iterable[Producer]:
        """Return the producers that have not expired."""
        self._expire(now_ms)
        return self._by_id.values()

    def remember(self, batch: RecordBatch) -> None:
        """Store a batch that was appended. Batches without a producer id are ignored."""
        if batch.producer_id < 0:
            return
        producer = self._by_id.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = self._by_id[batch.producer_id] = Producer(batch.producer_id, batch.producer_epoch)
        producer.batches.append(
            AppendedBatch(
                batch.base_sequence,
                _last_sequence(batch),
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp_ms,
            )
        )

    def check(self, batch: RecordBatch, release: Release, log_start_offset: int, now_ms: float) -> AppendedBatch | None:
        """Check a batch before it is appended.

        Args:
            batch: The batch as it was sent by its producer.
            release: The release that the broker emulates.
            log_start_offset: Releases up to 2.3 remove producers all of whose records are before it.
            now_ms: The time by the brokers' clock.

        Returns:
            The appended batch of which it is a duplicate; None if it is new and may be appended.

        Raises:
            RefusedBatchError: The producer epoch is old, or the sequence number is not the next one.
        """
        if batch.producer_id < 0:
            return None
        self._expire(now_ms)
        producer = self._by_id.get(batch.producer_id)
        keeps_all = release >= _KEEPS_PRODUCERS_WITHOUT_RECORDS
        if producer is not None and not keeps_all and producer.newest.last_offset < log_start_offset:
            del self._by_id[batch.producer_id]
            producer = None
        if producer is None:
            _check_unknown(batch, release)
            return None
        repeated = _repeated(batch, producer)
        if repeated is None:
            _check_next(batch, producer)
        return repeated

    def _expire(self, now_ms: float) -> None:
        if now_ms < self._next_check_ms:
            return
        self._next_check_ms = now_ms + EXPIRATION_CHECK_INTERVAL_MS
        self._by_id = {
            producer_id: producer
            for producer_id, producer in self._by_id.items()
            if now_ms - producer.newest.max_timestamp_ms < EXPIRATION_MS
        }


def _last_sequence(batch: RecordBatch) -> int:
    return (batch.base_sequence + batch.last_offset_delta) % SEQUENCES


def _repeated(batch: RecordBatch, producer: Producer) -> AppendedBatch | None:
    if batch.producer_epoch != producer.epoch:
        return None
    sequences = (batch.base_sequence, _last_sequence(batch))
    return next((each for each in producer.batches if (each.base_sequence, each.last_sequence) == sequences), None)


def _check_unknown(batch: RecordBatch, release: Release) -> None:
    """Check a batch of an unknown producer. Kafka 2.5 and later accept any, since the producer may have expired."""
    if batch.base_sequence == 0 or release >= _TAKES_UNKNOWN_PRODUCERS:
        return
    is_named = release >= _HAS_UNKNOWN_PRODUCER_ID
    error = ErrorCode.UNKNOWN_PRODUCER_ID if is_named else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    raise RefusedBatchError(
        error, f"producer {batch.producer_id} is unknown: sequence number {batch.base_sequence}, expected 0"
    )


def _check_next(batch: RecordBatch, producer: Producer) -> None:
    """Check a new batch of a known producer. Produce never returns PRODUCER_FENCED (KAFKA-10687)."""
    label = f"producer {batch.producer_id} in epoch {batch.producer_epoch}"
    if batch.producer_epoch < producer.epoch:
        raise RefusedBatchError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{label}: expected epoch {producer.epoch} or later")
    is_same_epoch = batch.producer_epoch == producer.epoch
    expected = (producer.newest.last_sequence + 1) % SEQUENCES if is_same_epoch else 0
    if batch.base_sequence != expected:
        raise RefusedBatchError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{label}: sequence number {batch.base_sequence}, expected {expected}",
        )
