"""Validation of the record batches of producers, as a broker validates them before it appends them.

Work on records is done in parts: a batch of 1 MiB can have ten million records.
"""

from collections.abc import Generator, Sequence
from itertools import islice
from math import inf
from typing import ClassVar, TypeVar

import msgspec

from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.plain_records import check_plain
from fakebroker.protocol.records import (
    DEFAULT_DECOMPRESSED_LIMIT_BYTES,
    INT64_MAX,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    CorruptBatchError,
    InvalidBatchError,
    RecordBatch,
    UnencodableBatchError,
    decode_buffer,
    decompressed_records,
    encode_records,
    iterate_records,
    record_sizes,
    split_batches,
    with_encoded_records,
    with_timestamps,
)

T = TypeVar("T")

RECORD_BYTES = 1024
"""What each record counts in addition to its bytes: checking a record takes as long as reading this many bytes."""
_PART_RECORDS = 512
"""The meter is checked after this many records."""


Parts = Generator[None, None, T]
"""Work in parts: it pauses when the meter is full."""


def at_once(parts: Parts[T]) -> T:
    """Do all parts of some work, and return its result."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: T = end.value
            return result


class ReadMeter:
    """Counts the bytes of records that are read, so that long work can be divided into parts.

    Args:
        limit_bytes: The number of bytes after which a part ends; infinite if work is not divided.

    Attributes:
        size_bytes: The bytes that were read in this part, after decompression, and `RECORD_BYTES` for each record.
    """

    __slots__ = ("limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: float = inf) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self.limit_bytes

    def is_full_with(self, records: int) -> bool:
        """Count records, and return whether the meter is full."""
        self.size_bytes += RECORD_BYTES * records
        return self.size_bytes >= self.limit_bytes


class RefusedRecordsError(InvalidBatchError):
    """A batch with records that break the rules of a topic (Kafka's `RecordValidationException`).

    Attributes:
        faults: For each refused record, its number in the batch, from 0, and the reason.
    """

    def __init__(self, message: str, faults: Sequence["tuple[int, str]"]) -> None:
        super().__init__(message)
        self.faults = faults


class RefusedTimestampsError(RefusedRecordsError):
    """A batch with records whose timestamps are not allowed."""

    error_code: ClassVar[ErrorCode] = ErrorCode.INVALID_TIMESTAMP


class RecordRules(msgspec.Struct, frozen=True):
    """What a topic requires of produced records (Kafka's `LogValidator`).

    Attributes:
        needs_key: Whether records must have a key, as in compacted topics.
        first_ms: The smallest timestamp that is allowed; None for all. Records without a timestamp are allowed.
        last_ms: The largest timestamp that is allowed; None for all.
    """

    needs_key: bool = False
    first_ms: int | None = None
    last_ms: int | None = None

    def check(self, batch: RecordBatch, meter: ReadMeter) -> Parts[None]:
        """Check the records of a valid batch, in parts.

        Raises:
            RefusedRecordsError: Records lack a key.
            RefusedTimestampsError: Records have a timestamp that is not allowed.
        """
        faults: list[tuple[int, str]] = []
        error: type[RefusedRecordsError] = RefusedRecordsError
        for index, record in enumerate(iterate_records(batch)):
            if not (index + 1) % _PART_RECORDS and meter.is_full_with(_PART_RECORDS):
                yield
            if self.needs_key and record.key is None:
                faults.append((index, "no key, expected one, because the topic is compacted"))
            elif not self._allows(record.timestamp_ms):
                error = RefusedTimestampsError
                faults.append((index, f"timestamp {record.timestamp_ms}, expected {self._allowed()}"))
        if faults:
            index, fault = faults[0]
            count = f"{len(faults)} of {batch.record_count} records refused"
            raise error(f"{batch.label}: {count}: record {index}: {fault}", faults)

    def _allows(self, timestamp_ms: int) -> bool:
        if timestamp_ms == NO_TIMESTAMP:
            return True
        is_early = self.first_ms is not None and timestamp_ms < self.first_ms
        return not is_early and (self.last_ms is None or timestamp_ms <= self.last_ms)

    def _allowed(self) -> str:
        if self.first_ms is None:
            return f"at most {self.last_ms}"
        return f"at least {self.first_ms}" if self.last_ms is None else f"{self.first_ms} to {self.last_ms}"


def only_batch(data: bytes) -> RecordBatch:
    """Return the only batch of the records of a partition in a Produce request of version 3 or newer.

    Follows Kafka's `ProduceRequest.validateRecords`, which ignores an incomplete batch after the complete one.

    Raises:
        InvalidBatchError: There is no complete batch or more than one; `error_code` is the error code for the response.
    """
    batches = split_batches(data)
    if len(batches) != 1:
        raise InvalidBatchError(f"records of {len(data)} bytes: {len(batches)} complete record batches, expected 1")
    return batches[0]


def validate_produced(batch: RecordBatch, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES) -> RecordBatch:
    """Validate a batch at once; see `validate_in_parts`."""
    return at_once(validate_in_parts(batch, ReadMeter(), limit_bytes=limit_bytes))


def validate_in_parts(
    batch: RecordBatch,
    meter: ReadMeter,
    max_record_bytes: int | None = None,
    limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
) -> Parts[RecordBatch]:
    """Validate a batch that a producer sent, as a broker does before it appends the batch.

    Follows Kafka's `UnifiedLog.analyzeAndValidateRecords` and `LogValidator`.

    Args:
        batch: The batch.
        meter: Counts the bytes that are read. If records cannot be decompressed, it counts `limit_bytes` instead.
        max_record_bytes: The largest record of a compressed batch; None if there is no limit.
        limit_bytes: The largest size of the decompressed records.

    Returns:
        The batch, with the largest timestamp of its records in its header.

    Raises:
        InvalidBatchError: The batch is invalid; `error_code` is the error code for the response.
    """
    newest_ms = yield from _newest_timestamp(batch, meter, limit_bytes, max_record_bytes)
    if batch.base_offset != 0:
        raise InvalidBatchError(f"{batch.label}: expected base offset 0 from a producer")
    if batch.is_control:
        raise InvalidBatchError(f"{batch.label}: control records, expected none from a producer")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidBatchError(f"{batch.label}: base sequence {batch.base_sequence} at byte 53, expected 0 or more")
    return batch if newest_ms == batch.max_timestamp_ms else with_timestamps(batch, batch.timestamp_type, newest_ms)


def validate_batch(batch: RecordBatch, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES) -> int:
    """Check the CRC and record count of a batch, and that its records can be decoded and have consecutive offsets.

    Args:
        batch: The batch.
        limit_bytes: The largest size of the decompressed records.

    Returns:
        The largest timestamp of a record, in milliseconds. If the batch header has another one, brokers correct it.

    Raises:
        CorruptBatchError: The CRC is wrong.
        InvalidBatchError: The CRC is right, but the content is invalid.
    """
    return at_once(_newest_timestamp(batch, ReadMeter(), limit_bytes))


def _newest_timestamp(
    batch: RecordBatch, meter: ReadMeter, limit_bytes: int, max_record_bytes: int | None = None
) -> Parts[int]:
    """Do the work of `validate_batch` in parts."""
    sent_crc, attributes, last_offset_delta, base_timestamp_ms, _, _, _, _, record_count = batch.checked_fields()
    crc = batch.computed_crc()
    if crc != sent_crc:
        raise CorruptBatchError(f"{batch.label}: CRC {sent_crc:#010x} at byte 17, expected {crc:#010x}")
    if not 0 < record_count == last_offset_delta + 1:
        raise InvalidBatchError(
            f"{batch.label}: record count {record_count} at byte 57, expected 1 or more "
            f"and one more than the last offset delta {last_offset_delta}"
        )
    # Kafka corrects wrong offset deltas in compressed batches and ignores them in others; no client sends them.
    # If decompression raises, the whole limit stays counted: that many bytes may have been read.
    meter.size_bytes += limit_bytes
    data, start = decompressed_records(batch, limit_bytes)
    meter.size_bytes += len(data) - limit_bytes
    if max_record_bytes is not None and max_record_bytes < len(data) and batch.compression is not Compression.NONE:
        yield from _check_sizes(batch, data, max_record_bytes, meter)
    index, position, largest_delta = 0, start, 0
    while index < record_count:
        if index and meter.is_full:
            yield
        end_index = index + _PART_RECORDS
        if end_index > record_count:
            end_index = record_count
        plain = check_plain(data, position, index, end_index)
        if plain is None:
            break
        meter.size_bytes += RECORD_BYTES * (end_index - index)
        index, (position, largest) = end_index, plain
        if largest > largest_delta:
            largest_delta = largest
    newest_ms: int = base_timestamp_ms + largest_delta
    is_plain = index == record_count and position == len(data)
    if is_plain and not attributes & TIMESTAMP_TYPE_BIT and newest_ms <= INT64_MAX:
        return max(newest_ms, NO_TIMESTAMP)
    newest_ms = NO_TIMESTAMP
    for index, record in enumerate(decode_buffer(batch, data, start)):
        if record.offset != batch.base_offset + index:
            expected = batch.base_offset + index
            raise InvalidBatchError(f"{batch.label}: a record with offset {record.offset}, expected {expected}")
        if record.timestamp_ms > newest_ms:
            newest_ms = record.timestamp_ms
        if not (index + 1) % _PART_RECORDS and meter.is_full_with(_PART_RECORDS):
            yield
    return newest_ms


def _check_sizes(batch: RecordBatch, data: bytes, most_bytes: int, meter: ReadMeter) -> Parts[None]:
    """Check the sizes of decompressed records, in parts.

    Raises:
        InvalidBatchError: A record is larger than the limit.
    """
    for index, size_bytes in enumerate(record_sizes(data, batch.record_count)):
        if size_bytes > most_bytes:
            raise InvalidBatchError(
                f"{batch.label}: record {index} of {size_bytes} bytes, expected at most {most_bytes}"
            )
        if not (index + 1) % _PART_RECORDS and meter.is_full_with(_PART_RECORDS):
            yield


def recompressed(batch: RecordBatch, compression: Compression, meter: ReadMeter) -> Parts[RecordBatch]:
    """Return a valid batch with the same records and another codec. They are encoded in parts.

    Raises:
        UnencodableBatchError: Records have timestamps below -1, or the batch of a transaction or of an idempotent
            producer lacks what such a batch needs.
    """
    has_producer = batch.producer_id >= 0
    if (batch.is_transactional and not has_producer) or (
        has_producer and (batch.producer_epoch < 0 or batch.base_sequence < 0)
    ):
        # Kafka accepts the batch as it is, but its `MemoryRecordsBuilder` does not build such a one.
        raise UnencodableBatchError(f"{batch.label}: expected a producer id, an epoch and a sequence number")
    encoded: list[bytes] = []
    base_timestamp_ms: int | None = None
    max_timestamp_ms = NO_TIMESTAMP
    try:
        iterated = iterate_records(batch)
        while records := list(islice(iterated, _PART_RECORDS)):
            if base_timestamp_ms is None:
                base_timestamp_ms = records[0].timestamp_ms
            max_timestamp_ms = max(max_timestamp_ms, *(record.timestamp_ms for record in records))
            encoded.append(encode_records(records, batch.base_offset, base_timestamp_ms))
            if meter.is_full_with(len(records)):
                yield
    except ProtocolError as error:
        raise UnencodableBatchError(f"{batch.label}: {error}") from error
    assert base_timestamp_ms is not None
    return with_encoded_records(batch, b"".join(encoded), compression, base_timestamp_ms, max_timestamp_ms)
