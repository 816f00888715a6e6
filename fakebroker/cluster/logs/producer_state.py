"""What the log of a partition remembers of idempotent producers, and which batches it takes from them (KIP-98).

Follows Kafka's `ProducerStateManager` and `ProducerAppendInfo`. Knows no log, topic or request; and no transactions.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.records import RecordBatch
from fakebroker.protocol.releases import Release

RETAINED_BATCHES = 5
"""How many of the newest batches of each producer are known again: as many as it may have in flight."""

EXPIRATION_MS = 24 * 3600 * 1000
"""How old a producer's newest batch may get, by the batch's own timestamp: `producer.id.expiration.ms`."""

EXPIRATION_CHECK_INTERVAL_MS = 600_000
"""How often expired producers are looked for: `producer.id.expiration.check.interval.ms`."""

SEQUENCES = 2**31
"""Sequence numbers run from 0 to one less than this, and then from 0 again."""

_HAS_UNKNOWN_PRODUCER_ID = Release(1, 0)
_KEEPS_PRODUCERS_WITHOUT_RECORDS = Release(2, 4)  # KAFKA-7190
_TAKES_UNKNOWN_PRODUCERS = Release(2, 5)  # KIP-360


class RefusedBatchError(FakebrokerError):
    """A batch that its producer should not have sent, or not yet. A Produce is answered with `error_code`."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class AppendedBatch(NamedTuple):
    """A batch in the log: its first and last sequence numbers and offsets, and its largest timestamp."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


@dataclass(slots=True)
class Producer:
    """A producer in one of its epochs, and its newest batches, at least one."""

    producer_id: int
    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=RETAINED_BATCHES))

    @property
    def newest(self) -> AppendedBatch:
        return self.batches[-1]


class Producers:
    """The producers that have written to a log, in the order in which they came.

    What is remembered outlives the records: a log that loses its oldest batches still knows who wrote them (KIP-360).
    """

    __slots__ = ("_by_id", "_next_check_ms")

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        self._next_check_ms = 0.0

    def clone(self) -> "Producers":
        """The same producers, which go their own way from here."""
        twin = Producers()
        twin._by_id = {
            producer_id: replace(producer, batches=producer.batches.copy())
            for producer_id, producer in self._by_id.items()
        }
        twin._next_check_ms = self._next_check_ms
        return twin

    def active(self, now_ms: float) -> Iterable[Producer]:
        """All producers that are remembered."""
        self._expire(now_ms)
        return self._by_id.values()

    def remember(self, batch: RecordBatch) -> None:
        """Note a batch that has been appended; one without a producer id leaves no trace."""
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
            batch: As its producer has sent it.
            release: The release of Kafka whose rules hold.
            log_start_offset: Where the log starts: up to Kafka 2.3, producers of lost records are forgotten.
            now_ms: The brokers' time.

        Returns:
            The batch that it repeats, so that it must not be appended; None if it is new.

        Raises:
            RefusedBatchError: Its producer epoch is an old one, or it does not follow what was appended before.
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
    """The first batch of a producer, unless the log has forgotten others: that is why Kafka takes any, since 2.5."""
    if batch.base_sequence == 0 or release >= _TAKES_UNKNOWN_PRODUCERS:
        return
    is_named = release >= _HAS_UNKNOWN_PRODUCER_ID
    error = ErrorCode.UNKNOWN_PRODUCER_ID if is_named else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    raise RefusedBatchError(
        error, f"producer {batch.producer_id} is unknown: sequence number {batch.base_sequence}, expected 0"
    )


def _check_next(batch: RecordBatch, producer: Producer) -> None:
    """A new batch of a known producer. No version of Produce answers PRODUCER_FENCED (KAFKA-10687)."""
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
