"""Transaction markers: control batches that end the transaction of a producer in one partition (KIP-98).

Follows Kafka's `EndTransactionMarker` and `ControlRecordType`. `AbortedBatches` tells which batches were aborted.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from fakebroker.protocol.records import Record, RecordBatch, encode_batch, iterate_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """The content of a marker: the outcome, and the leader epoch of the transaction coordinator's partition."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(producer_id: int, epoch: int, *, is_commit: bool, coordinator_epoch: int, now_ms: float) -> bytes:
    """Return a control batch that ends the transaction of a producer.

    Args:
        producer_id: The producer id.
        epoch: The producer epoch, which the producer has from then on.
        is_commit: Whether the transaction is committed, else aborted.
        coordinator_epoch: The leader epoch of the partition of `__transaction_state`.
        now_ms: The timestamp, truncated to whole milliseconds.
    """
    key, value = _KEY.pack(_VERSION, _COMMIT if is_commit else _ABORT), _VALUE.pack(_VERSION, coordinator_epoch)
    return encode_batch(
        [Record(0, int(now_ms), key, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def marker_in(batch: RecordBatch) -> Marker | None:
    """Return the marker in a batch.

    Returns:
        The marker; None if the batch has other records, a malformed control record, or no record after compaction.
    """
    record = next(iterate_records(batch), None) if batch.is_control else None
    if record is None:
        return None
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error:
        return None
    return Marker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None


class AbortedTransaction(Protocol):
    """A transaction that was aborted: its producer, and the offset of its first record."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class AbortedBatches:
    """Tells batches of aborted transactions from others, as clients do; used for consecutive batches, in order.

    Args:
        transactions: The aborted transactions that may have records in these batches.
    """

    __slots__ = ("_later", "_producers")

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._later = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        self._producers: set[int] = set()

    def contain(self, batch: RecordBatch) -> bool:
        """Return whether the records of the next batch belong to an aborted transaction."""
        while self._later and self._later[-1].first_offset <= batch.last_offset:
            self._producers.add(self._later.pop().producer_id)
        if (marker := marker_in(batch)) is not None and not marker.is_commit:
            self._producers.discard(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._producers
