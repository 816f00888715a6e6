"""Consumer records, decoded from the record batches and message sets of Fetch responses.

A reader of committed records skips the records of aborted transactions (Kafka's `CompletedFetch`).
"""

import struct
from collections.abc import Iterable, Iterator

import msgspec

from fakebroker.errors import ProtocolError
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.message_sets import LegacyRecord, magic_of, split_messages, unwrap
from fakebroker.protocol.messages.fetch import AbortedTransaction
from fakebroker.protocol.records import (
    CorruptBatchError,
    Header,
    Record,
    RecordBatch,
    TimestampType,
    crc32c,
    iterate_records,
    split_batches,
)
from fakebroker.protocol.transaction_markers import AbortedBatches
from fakebroker.topic_partition import TopicPartition, format_partitions

_SIZE = struct.Struct(">i")
_SIZE_AT, _SIZE_END = 8, 12  # The size field of batches and messages. The size counts the bytes after the field.
_CHECKED_FROM = 21  # A batch's CRC covers the bytes from here on.
_MAGIC_OF_BATCHES = 2


class ConsumerRecord(msgspec.Struct, frozen=True):
    """One record of a topic.

    Attributes:
        timestamp_ms: Time of creation or appending, in milliseconds since the Unix epoch; -1 for none.
        value: None for a tombstone.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class RecordTooLarge(ProtocolError):  # noqa: N818  # named after Kafka's RecordTooLargeException
    """A broker from before KIP-74 returned the beginning of a message that is larger than the fetch size."""


def decode_fetched(
    data: bytes, place: TopicPartition, offset: int, aborted: Iterable[AbortedTransaction] = ()
) -> tuple[list[ConsumerRecord], int]:
    """Return the records from an offset on, and the offset after them.

    Records before the offset are skipped, because brokers return whole batches. Control batches (transaction markers),
    records of aborted transactions and an incomplete last batch are skipped, too.

    Args:
        data: The bytes of one partition in a Fetch response.
        place: The partition.
        offset: The fetch offset.
        aborted: The aborted transactions in the response, for a reader of committed records.

    Raises:
        RecordTooLarge: The data contains no complete batch or message.
        ProtocolError: The data is malformed.
    """
    found: list[ConsumerRecord] = []
    next_offset, size_bytes = offset, 0
    skipped = AbortedBatches(aborted)
    for entry in _entries(data):
        size_bytes += len(entry)
        records, last_offset = _read(entry, skipped)
        next_offset = max(next_offset, last_offset + 1)
        found += [
            ConsumerRecord(*place, record.offset, record.timestamp_ms, record.key, record.value, record.headers)
            for record in records
            if record.offset >= offset
        ]
    if data and not size_bytes:
        name = format_partitions([place])
        raise RecordTooLarge(f"partition {name} at offset {offset}: {len(data)} bytes fetched, expected a whole record")
    return found, next_offset


def _entries(data: bytes) -> Iterator[bytes]:
    """Yield the complete batches and messages; a log may contain both."""
    position = 0
    while len(data) - position >= _SIZE_END:
        size = _SIZE.unpack_from(data, position + _SIZE_AT)[0]
        end = position + _SIZE_END + max(size, 0)
        if end > len(data):
            return
        yield data[position:end]
        position = end


def _read(entry: bytes, aborted: AbortedBatches) -> tuple[list[Record], int]:
    """Return the visible records of a batch or message, and its last offset."""
    magic = magic_of(entry)
    if magic is not None and magic < _MAGIC_OF_BATCHES:
        records = [record for message in split_messages(entry) for record in _records_in(message)]
        return records, records[-1].offset
    (batch,) = split_batches(entry)
    _check_crc(batch)
    is_hidden = aborted.contain(batch) or batch.is_control
    return [] if is_hidden else list(iterate_records(batch)), batch.last_offset


def _check_crc(batch: RecordBatch) -> None:
    computed = crc32c(memoryview(batch.data)[_CHECKED_FROM:])
    if batch.crc != computed:
        raise CorruptBatchError(f"{batch.label}: CRC {batch.crc:#010x}, expected {computed:#010x}")


def _records_in(message: LegacyRecord) -> Iterator[Record]:
    """Yield the records of a message or wrapper. In magic 1 the offsets in a wrapper are relative (KIP-31)."""
    if message.compression is Compression.NONE:
        yield Record(message.offset, message.timestamp_ms, message.key, message.value)
        return
    inner = unwrap(message)
    base_offset = message.offset - inner[-1].offset if message.magic else 0
    append_time_ms = message.timestamp_ms if message.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    for each in inner:
        timestamp_ms = each.timestamp_ms if append_time_ms is None else append_time_ms
        yield Record(base_offset + each.offset, timestamp_ms, each.key, each.value)
