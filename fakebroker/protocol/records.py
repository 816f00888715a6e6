"""Record batches of format v2 (magic 2): encoding and decoding. `produced_batches.py` validates batches from producers.

Does not depend on requests or logs. Exceptions have the `error_code` of the response to a producer.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cache
from typing import ClassVar

import msgspec

from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.compression import Compression, compress, decompress
from fakebroker.protocol.types import unsigned_varint
from fakebroker.utf8 import decode_utf8

DEFAULT_DECOMPRESSED_LIMIT_BYTES = 64 * 1024 * 1024
"""The default limit for the decompressed records of one batch. Kafka has no limit."""

NO_TIMESTAMP = -1

Header = tuple[str, bytes | None]

# Kafka's `DefaultRecordBatch`: base offset, batch length, partition leader epoch, magic, CRC. The CRC covers the rest:
# attributes, last offset delta, base and max timestamp, producer id and epoch, base sequence, record count, records.
_UNCHECKED_PART = struct.Struct(">qiibI")
_CHECKED_PART = struct.Struct(">hiqqqhii")
_HEADER = struct.Struct(_UNCHECKED_PART.format + _CHECKED_PART.format[1:])
_VALIDATED = struct.Struct(">I" + _CHECKED_PART.format[1:])  # The CRC and what it covers.
_OFFSETS = struct.Struct(">q15xi34x")  # The base offset and the last offset delta of a complete header.
_INT16, _INT32, _INT64, _UINT32 = (struct.Struct(">" + code) for code in "hiqI")
_LENGTH_AT, _LEADER_EPOCH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT = 8, 12, 16, 17, 21
_MAX_TIMESTAMP_AT = 35
_LOW_ATTRIBUTES_AT = _ATTRIBUTES_AT + 1
_LENGTH_END = 12  # The batch length counts the bytes from here.
_SMALLEST_LENGTH = 14  # The smallest message of magic 0. A smaller length is corrupt: the next batch cannot be found.
_MAGIC = 2
_COMPRESSION_BITS, TIMESTAMP_TYPE_BIT, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0x07, 0x08, 0x10, 0x20
_COMPRESSIONS = tuple(Compression)  # By number: calling an enumeration takes longer.
_INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the CRC-32C of data that follows data with the CRC-32C `before`."""
    return _crc32c()(data, before)


@cache
def _crc32c() -> Callable[[bytes | bytearray | memoryview, int], int]:
    """Import the package `crc32c` when a checksum is needed: its import reads the metadata of installed packages."""
    import crc32c

    return crc32c.crc32c


class InvalidBatchError(ProtocolError):
    """A record batch that Kafka rejects, with the `error_code` of the Produce response."""

    error_code: ClassVar[ErrorCode] = ErrorCode.INVALID_RECORD


class CorruptBatchError(InvalidBatchError):
    """A record batch with the wrong CRC, or with a header too malformed to find the CRC."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE


class UnencodableBatchError(InvalidBatchError):
    """A valid batch with records that cannot be encoded again, because timestamps are below -1.

    Kafka accepts such a batch if it can append the batch as it is. If Kafka has to compress the records in another way,
    `MemoryRecordsBuilder` raises an `IllegalArgumentException`.
    """

    error_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class TimestampType(IntEnum):
    """Whether the producer or the broker sets the timestamps of a batch: bit 3 of its attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(msgspec.Struct):
    """One record. `timestamp_ms` counts from the Unix epoch, -1 for none; a value of None is a tombstone."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class _HeaderField:
    """A field in the header of a batch, decoded when it is read."""

    __slots__ = ("_position", "_unpack_from")

    def __init__(self, code: str, position: int) -> None:
        self._unpack_from = struct.Struct(f">{code}").unpack_from
        self._position = position

    def __get__(self, batch: "RecordBatch", owner: type) -> int:
        value: int = self._unpack_from(batch.data, self._position)[0]
        return value


class RecordBatch:
    """A complete record batch, which is not validated and not modified.

    A log can have a million small batches. So a batch has only the attributes by which logs look for it, and decodes
    the other fields of its header when they are read.

    Args:
        data: All bytes of the batch, including the header.

    Raises:
        struct.error: There are fewer bytes than in a header.
    """

    __slots__ = ("base_offset", "data", "last_offset")

    batch_length = _HeaderField("i", _LENGTH_AT)
    partition_leader_epoch = _HeaderField("i", _LEADER_EPOCH_AT)
    magic = _HeaderField("b", _MAGIC_AT)
    crc = _HeaderField("I", _CRC_AT)
    attributes = _HeaderField("h", _ATTRIBUTES_AT)
    last_offset_delta = _HeaderField("i", 23)
    base_timestamp_ms = _HeaderField("q", 27)
    max_timestamp_ms = _HeaderField("q", _MAX_TIMESTAMP_AT)
    producer_id = _HeaderField("q", 43)
    producer_epoch = _HeaderField("h", 51)
    base_sequence = _HeaderField("i", 53)
    record_count = _HeaderField("i", 57)

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.base_offset, last_offset_delta = _OFFSETS.unpack_from(data)
        # Most batches of group coordinators have one record, for which one number is enough.
        self.last_offset = self.base_offset + last_offset_delta if last_offset_delta else self.base_offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordBatch) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def checked_fields(self) -> tuple[int, ...]:
        """Return the CRC and the fields of the header that it covers; decoding each takes several times as long."""
        return _VALIDATED.unpack_from(self.data, _CRC_AT)

    def computed_crc(self) -> int:
        """Return the CRC of the content, which `crc` should be."""
        return crc32c(memoryview(self.data)[_ATTRIBUTES_AT:])

    @property
    def compression(self) -> Compression:
        """The codec. Raises `InvalidBatchError` if it is unknown."""
        number = self.attributes & _COMPRESSION_BITS
        if number > Compression.ZSTD:
            raise InvalidBatchError(f"{self.label}: compression {number} in the attributes at byte 21, expected 0 to 4")
        return _COMPRESSIONS[number]

    @property
    def timestamp_type(self) -> TimestampType:
        is_append_time = self.attributes & TIMESTAMP_TYPE_BIT
        return TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.data[_LOW_ATTRIBUTES_AT] & _TRANSACTIONAL_BIT)  # Half the time of `attributes`.

    @property
    def is_control(self) -> bool:
        return bool(self.data[_LOW_ATTRIBUTES_AT] & _CONTROL_BIT)

    @property
    def label(self) -> str:
        """The name of this batch in error messages."""
        return f"record batch with base offset {self.base_offset}"


def split_batches(data: bytes) -> list[RecordBatch]:
    """Split bytes into batches and decode their headers. CRCs and records are not checked.

    An incomplete last batch is ignored, because a fetch response can end inside a batch (KIP-74).

    Raises:
        CorruptBatchError: A batch has an invalid length or an unknown magic.
        InvalidBatchError: A batch has magic 0 or 1.
    """
    batches, position = [], 0
    while size_bytes := _complete_batch_bytes(data, position):
        batches.append(RecordBatch(data[position : position + size_bytes]))
        position += size_bytes
    return batches


def _complete_batch_bytes(data: bytes, position: int) -> int:
    """Return the size of the batch at a position; 0 if it is incomplete (Kafka's `ByteBufferLogInputStream`)."""
    if len(data) - position < _LENGTH_END:
        return 0
    length = _INT32.unpack_from(data, position + _LENGTH_AT)[0]
    where = f"record batch at byte {position}"
    if length < _SMALLEST_LENGTH:
        raise CorruptBatchError(f"{where}: batch length {length}, expected {_SMALLEST_LENGTH} or more")
    size_bytes: int = _LENGTH_END + length
    if len(data) - position < size_bytes:
        return 0
    magic = data[position + _MAGIC_AT]
    if magic != _MAGIC:
        error = InvalidBatchError if magic < _MAGIC else CorruptBatchError
        raise error(f"{where}: magic {magic} at byte {position + _MAGIC_AT}, expected {_MAGIC}")
    if size_bytes < _HEADER.size:
        raise CorruptBatchError(f"{where}: {size_bytes} bytes, expected {_HEADER.size} or more")
    return size_bytes


def decode_records(batch: RecordBatch, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """Return all records of a batch; see `iterate_records`."""
    return list(iterate_records(batch, limit_bytes))


def iterate_records(batch: RecordBatch, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES) -> Iterator[Record]:
    """Decode the records of a batch one by one, without checking the CRC.

    Args:
        batch: The batch.
        limit_bytes: The largest size of the decompressed records.

    Raises:
        InvalidBatchError: A record is malformed, or the record count of the header is wrong. Records before the error
            have been yielded by then.
    """
    if batch.record_count < 0:
        raise InvalidBatchError(f"{batch.label}: record count {batch.record_count} at byte 57, expected 0 or more")
    return decode_buffer(batch, *decompressed_records(batch, limit_bytes))


def decompressed_records(batch: RecordBatch, limit_bytes: int) -> tuple[bytes, int]:
    """Return a buffer with the decompressed records of a batch, and the position of the first one.

    Raises:
        InvalidBatchError: The records cannot be decompressed.
    """
    if batch.compression is Compression.NONE:
        return batch.data, _HEADER.size
    try:
        return decompress(batch.compression, batch.data[_HEADER.size :], limit_bytes), 0
    except ProtocolError as error:
        raise InvalidBatchError(f"{batch.label}: {error}") from error


def decode_buffer(batch: RecordBatch, data: bytes, position: int) -> Iterator[Record]:
    """Decode the records of a batch in a buffer; see `iterate_records`."""
    append_time_ms = batch.max_timestamp_ms if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    for index in range(batch.record_count):
        start = position
        try:
            record, position = _read_record(data, start, batch.base_offset, batch.base_timestamp_ms)
        except (IndexError, ValueError) as error:
            fault = "incomplete" if isinstance(error, IndexError) else error
            raise InvalidBatchError(f"{batch.label}: record {index} at byte {start}: {fault}") from error
        if append_time_ms is not None:
            record.timestamp_ms = append_time_ms
        yield record
    if position != len(data):
        raise InvalidBatchError(f"{batch.label}: {len(data) - position} unexpected bytes at byte {position}")


def _read_record(data: bytes, position: int, base_offset: int, base_timestamp_ms: int) -> tuple[Record, int]:
    """Decode one record; return it and the position after it (Kafka's `DefaultRecord`). Its attributes are ignored.

    Raises:
        IndexError: The record is incomplete.
        ValueError: The record is malformed.
    """
    length, position = _read_varint(data, position, _INT32_MAX)
    end = position + length
    if end > len(data):
        raise IndexError(end)
    timestamp_delta, position = _read_varint(data, position + 1, INT64_MAX)
    offset_delta, position = _read_varint(data, position, _INT32_MAX)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    header_count, position = _read_varint(data, position, _INT32_MAX)
    headers: tuple[Header, ...] = ()
    if header_count:
        headers, position = _read_headers(data, position, header_count)
    if position != end:
        raise ValueError(f"length {length} up to byte {end}, but its fields end at byte {position}")
    timestamp_ms = base_timestamp_ms + timestamp_delta
    if not -INT64_MAX - 1 <= timestamp_ms <= INT64_MAX:
        raise ValueError(f"timestamp {timestamp_ms}, expected an int64")
    return Record(base_offset + offset_delta, timestamp_ms, key, value, headers), position


def record_keys(batch: RecordBatch) -> Iterator[tuple[int, bytes | None, bool]]:
    """Yield the offset and the key of each record of a valid batch, and whether it has a value.

    Faster than `iterate_records`.
    """
    if batch.attributes & _COMPRESSION_BITS:
        for record in iterate_records(batch):
            yield record.offset, record.key, record.value is not None
        return
    data, end = batch.data, _HEADER.size
    if batch.last_offset == batch.base_offset:  # One record, as in most batches of coordinators.
        position = after_varint(data, after_varint(data, after_varint(data, end) + 1))  # length, timestamp, offset
        key, position = _read_bytes(data, position)
        yield batch.base_offset, key, not data[position] & 1  # Odd lengths are negative.
        return
    for _ in range(batch.record_count):
        length, position = _read_varint(data, end, _INT32_MAX)
        end = position + length
        _, position = _read_varint(data, position + 1, INT64_MAX)
        offset_delta, position = _read_varint(data, position, _INT32_MAX)
        key, position = _read_bytes(data, position)
        yield batch.base_offset + offset_delta, key, _read_varint(data, position, _INT32_MAX)[0] >= 0


def record_sizes(data: bytes, count: int) -> Iterator[int]:
    """Yield the sizes of encoded records, without the lengths before them, up to the first malformed one."""
    position = 0
    for _ in range(count):
        try:
            length, position = _read_varint(data, position, _INT32_MAX)
        except (IndexError, ValueError):
            return
        yield length
        position += max(0, length)


def after_varint(data: bytes, position: int) -> int:
    """Return the position after a varint."""
    while data[position] > 127:
        position += 1
    return position + 1


def _read_headers(data: bytes, position: int, count: int) -> tuple[tuple[Header, ...], int]:
    most = (len(data) - position) // 2  # A header has two lengths of at least one byte.
    if not 0 <= count <= most:
        raise ValueError(f"header count {count} at byte {position}, expected 0 to {most}")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise ValueError(f"header key null at byte {position}, expected a string")
        value, position = _read_bytes(data, position)
        headers.append((decode_utf8(key), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Decode bytes after their varint length; null if it is negative, as in Kafka. The position may exceed the data."""
    length, position = _read_varint(data, position, _INT32_MAX)
    if length < 0:
        return None, position
    end = position + length
    return data[position:end], end


def _read_varint(data: bytes, position: int, largest: int) -> tuple[int, int]:
    """Decode a zigzag varint from `-largest - 1` to `largest`; return it and the position after it."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if value >> 1 > largest:
            break
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise ValueError(f"varint too large at byte {position - 1}, expected {-largest - 1} to {largest}")


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset: int | None = None,
    compression: Compression = Compression.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Encode one batch.

    Args:
        records: At least one, in ascending order of offsets. Gaps are allowed, as after compaction.
        base_offset: Offset deltas are relative to this offset. At most the offset of the first record.
        last_offset: The last offset of the batch, if its last records were removed by compaction.
        compression: The codec of the records.
        leader_epoch: The partition leader epoch; -1 for none, as in batches of producers.
        producer_id: The id of an idempotent producer; -1 for none.
        producer_epoch: The epoch of that producer; -1 for none.
        base_sequence: The sequence number of the first record; -1 for none.
        timestamp_type: With LOG_APPEND_TIME, all records are decoded with the largest timestamp of the batch.
        is_transactional: Whether the batch is part of a transaction.
        is_control: Whether the records are control records, which end transactions.

    Raises:
        ProtocolError: The records cannot be encoded in one batch.
    """
    if not records:
        raise ProtocolError("record batch of 0 records, expected at least 1")
    first, last = records[0], records[-1]
    attributes = compression | timestamp_type * TIMESTAMP_TYPE_BIT
    attributes |= is_transactional * _TRANSACTIONAL_BIT | is_control * _CONTROL_BIT
    max_timestamp_ms = max(record.timestamp_ms for record in records)
    last_offset = last.offset if last_offset is None else last_offset
    deltas = (attributes, last_offset - base_offset, first.timestamp_ms, max_timestamp_ms)
    try:
        body = compress(compression, encode_records(records, base_offset, first.timestamp_ms))
        checked = _CHECKED_PART.pack(*deltas, producer_id, producer_epoch, base_sequence, len(records)) + body
        length = _HEADER.size - _LENGTH_END + len(body)
        return _UNCHECKED_PART.pack(base_offset, length, leader_epoch, _MAGIC, crc32c(checked)) + checked
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"record batch with base offset {base_offset}: {error}") from error


def encode_pairs(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    producer: tuple[int, int] | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Encode keys and values with the same timestamp as one batch, as coordinators write them.

    `encode_batch` returns the same bytes, but takes several times as long.

    Args:
        pairs: Keys and values, at least one pair.
        timestamp_ms: Milliseconds since the Unix epoch.
        producer: The id and the epoch of the producer if the batch is transactional. The base sequence is then 0: group
            coordinators do not count the records of a producer (Kafka's `CoordinatorRuntime`).
        base_offset: The offset of the first record.
        leader_epoch: The partition leader epoch; -1 for none.
    """
    count = len(pairs)
    if producer is None:
        header = _CHECKED_PART.pack(0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
    else:
        header = _CHECKED_PART.pack(_TRANSACTIONAL_BIT, count - 1, timestamp_ms, timestamp_ms, *producer, 0, count)
    parts = [header]
    for number, (key, value) in enumerate(pairs):
        delta, key_length = VARINTS[number], VARINTS[len(key)]
        size_bytes = 3 + len(delta) + len(key_length) + len(key)  # with attributes, timestamp delta and no headers
        if value is None:
            parts += (VARINTS[size_bytes + 1], b"\0\0", delta, key_length, key, NULL, b"\0")
        else:
            value_length = VARINTS[len(value)]
            size_bytes += len(value_length) + len(value)
            parts += (VARINTS[size_bytes], b"\0\0", delta, key_length, key, value_length, value, b"\0")
    checked = b"".join(parts)
    length = _HEADER.size - _LENGTH_END - _CHECKED_PART.size + len(checked)
    return _UNCHECKED_PART.pack(base_offset, length, leader_epoch, _MAGIC, crc32c(checked)) + checked


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp_ms: int) -> bytes:
    out: list[bytes] = []
    next_offset = base_offset
    for record in records:
        if not next_offset <= record.offset <= base_offset + _INT32_MAX:
            raise ProtocolError(f"record {record.offset}: expected offset {next_offset} to {base_offset + _INT32_MAX}")
        next_offset = record.offset + 1
        if not -1 <= record.timestamp_ms <= INT64_MAX:
            raise ProtocolError(f"record {record.offset}: timestamp {record.timestamp_ms}, expected -1 to 2**63 - 1")
        body = _encode_record(record, record.timestamp_ms - base_timestamp_ms, record.offset - base_offset)
        out += (VARINTS[len(body)], body)
    return b"".join(out)


def _encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    parts = [b"\0", VARINTS[timestamp_delta], VARINTS[offset_delta]]
    for each in (record.key, record.value):
        parts += (NULL,) if each is None else (VARINTS[len(each)], each)
    parts.append(VARINTS[len(record.headers)])
    for name, value in record.headers:
        key = name.encode()
        parts += (VARINTS[len(key)], key, *((NULL,) if value is None else (VARINTS[len(value)], value)))
    return b"".join(parts)


class _Varints(dict[int, bytes]):
    """Int64s as zigzag varints. Small integers, such as most lengths, are stored. Others are encoded at each use."""

    __slots__ = ()

    def __missing__(self, value: int) -> bytes:
        return unsigned_varint(value << 1 ^ value >> 63)


VARINTS = _Varints((value, unsigned_varint(value << 1)) for value in range(512))
NULL = b"\1"
"""The length of null: -1 as a zigzag varint."""


def with_base_offset(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Return a produced batch with the two fields that a broker sets. The CRC does not cover them."""
    length = batch[_LENGTH_AT:_LEADER_EPOCH_AT]
    return b"".join((_INT64.pack(base_offset), length, _INT32.pack(leader_epoch), memoryview(batch)[_MAGIC_AT:]))


def emptied(batch: RecordBatch) -> RecordBatch:
    """Return a batch without records, which keeps the offsets and the state of its producer in the log.

    Follows Kafka's `DefaultRecordBatch.writeEmptyHeader`.
    """
    attributes = batch.attributes & ~_COMPRESSION_BITS
    times = NO_TIMESTAMP, batch.max_timestamp_ms
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    checked = _CHECKED_PART.pack(attributes, batch.last_offset_delta, *times, *producer, 0)
    unchecked = batch.base_offset, _HEADER.size - _LENGTH_END, batch.partition_leader_epoch, _MAGIC, crc32c(checked)
    return RecordBatch(_UNCHECKED_PART.pack(*unchecked) + checked)


def with_timestamps(batch: RecordBatch, timestamp_type: TimestampType, max_timestamp_ms: int) -> RecordBatch:
    """Return a batch with another timestamp type and largest timestamp (`DefaultRecordBatch.setMaxTimestamp`).

    With LOG_APPEND_TIME, all records then have the largest timestamp; their own ones remain in the bytes.
    """
    data = bytearray(batch.data)
    attributes = (batch.attributes & ~TIMESTAMP_TYPE_BIT) | timestamp_type * TIMESTAMP_TYPE_BIT
    _INT16.pack_into(data, _ATTRIBUTES_AT, attributes)
    _INT64.pack_into(data, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    _UINT32.pack_into(data, _CRC_AT, crc32c(memoryview(data)[_ATTRIBUTES_AT:]))
    return RecordBatch(bytes(data))


def with_encoded_records(
    batch: RecordBatch, encoded: bytes, compression: Compression, base_timestamp_ms: int, max_timestamp_ms: int
) -> RecordBatch:
    """Return a copy of a batch with its records encoded again.

    Args:
        batch: The batch.
        encoded: The encoded records, not compressed.
        compression: The codec of the new batch.
        base_timestamp_ms: The timestamp from which the records' timestamps are counted.
        max_timestamp_ms: The largest timestamp of the records.
    """
    attributes = batch.attributes & ~_COMPRESSION_BITS | compression
    times, body = (base_timestamp_ms, max_timestamp_ms), compress(compression, encoded)
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    fields = attributes, batch.last_offset_delta, *times, *producer, batch.record_count
    checked = _CHECKED_PART.pack(*fields) + body
    length = _HEADER.size - _LENGTH_END + len(body)
    unchecked = batch.base_offset, length, batch.partition_leader_epoch, _MAGIC, crc32c(checked)
    return RecordBatch(_UNCHECKED_PART.pack(*unchecked) + checked)
