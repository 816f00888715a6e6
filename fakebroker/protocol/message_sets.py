"""Message sets, the record formats before Kafka 0.11 (magic 0 and 1), and conversion to and from record batches.

A wrapper is a compressed message: its value is a compressed message set. Invalid messages raise `InvalidBatchError`
(`records.py`) or a subclass.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar
from zlib import crc32

import msgspec

from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.compression import Compression, decompress
from fakebroker.protocol.records import (
    DEFAULT_DECOMPRESSED_LIMIT_BYTES,
    CorruptBatchError,
    InvalidBatchError,
    Record,
    RecordBatch,
    TimestampType,
    encode_batch,
    iterate_records,
)

_HEADER = struct.Struct(">qiIbb")
_UNCHECKED_PART = struct.Struct(">qiI")
_OFFSET_AND_SIZE = struct.Struct(">qi")
_CHECKED_PARTS = (struct.Struct(">bb"), struct.Struct(">bbq"))
_INT64, _INT32 = struct.Struct(">q"), struct.Struct(">i")
_SMALLEST_SIZE = 14  # Magic 0 with null key and value. The size field counts the bytes after it.
_COMPRESSION_BITS, _TIMESTAMP_TYPE_BIT = 0x07, 0x08
_NO_TIMESTAMP_MS = -1


class InvalidTimestampError(InvalidBatchError):
    """A timestamp or timestamp type that is not allowed in produced records."""

    error_code: ClassVar[ErrorCode] = ErrorCode.INVALID_TIMESTAMP


class UnsupportedCompressionError(InvalidBatchError):
    """A record batch with a codec that message sets do not support."""

    error_code: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class LegacyRecord(msgspec.Struct, frozen=True):
    """A message of a message set. `size_bytes` includes offset and size field; `timestamp_ms` is -1 in magic 0."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    size_bytes: int

    @property
    def compression(self) -> Compression:
        """The codec. Raises `InvalidBatchError` if message sets do not support it."""
        number = self.attributes & _COMPRESSION_BITS
        if number > Compression.LZ4:
            raise InvalidBatchError(f"{self.label}: compression {number} in its attributes, expected 0 to 3")
        return Compression(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(self.magic > 0 and bool(self.attributes & _TIMESTAMP_TYPE_BIT))

    @property
    def label(self) -> str:
        """The name of this record in error messages."""
        return f"message with offset {self.offset}"


def magic_of(data: bytes) -> int | None:
    """Return the magic of the first message or record batch (both have it at the same position); None if too short."""
    return data[_UNCHECKED_PART.size] if len(data) > _UNCHECKED_PART.size else None


def split_messages(data: bytes) -> list[LegacyRecord]:
    """Decode a message set without decompressing its wrappers. An incomplete last message is ignored.

    Raises:
        CorruptBatchError: A message has an invalid size, an unknown magic or the wrong CRC.
        InvalidBatchError: A message has the right CRC, but its size does not match its fields.
    """
    messages, position = [], 0
    while len(data) - position >= _OFFSET_AND_SIZE.size:
        size = _OFFSET_AND_SIZE.unpack_from(data, position)[1]
        if size < _SMALLEST_SIZE:
            raise CorruptBatchError(f"message at byte {position}: size {size}, expected {_SMALLEST_SIZE} or more")
        end = position + _OFFSET_AND_SIZE.size + size
        if end > len(data):
            break
        messages.append(_read_message(data[position:end]))
        position = end
    return messages


def _read_message(data: bytes) -> LegacyRecord:
    offset, _, crc, magic, attributes = _HEADER.unpack_from(data)
    label = f"message with offset {offset}"
    computed = crc32(memoryview(data)[_UNCHECKED_PART.size :])
    if crc != computed:
        raise CorruptBatchError(f"{label}: CRC {crc:#010x}, expected {computed:#010x}")
    if magic not in (0, 1):
        raise CorruptBatchError(f"{label}: magic {magic}, expected 0 or 1")
    timestamp_ms, position = _NO_TIMESTAMP_MS, _HEADER.size
    try:
        if magic == 1:
            timestamp_ms, position = _INT64.unpack_from(data, position)[0], position + _INT64.size
        key, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
    except struct.error as error:
        raise InvalidBatchError(f"{label}: {len(data)} bytes, expected more") from error
    if position != len(data):
        raise InvalidBatchError(f"{label}: {len(data)} bytes, but its value ends at byte {position}")
    return LegacyRecord(offset, magic, attributes, timestamp_ms, key, value, len(data))


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Decode bytes after their length; null for any negative length, as in Kafka. The position may exceed the data."""
    length = _INT32.unpack_from(data, position)[0]
    start = position + _INT32.size
    return (None, start) if length < 0 else (data[start : start + length], start + length)


def to_record_batch(messages: Sequence[LegacyRecord], limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Convert the messages produced for a partition to one record batch, with the checks of Kafka's `LogValidator`.

    The offsets of the records start at 0, regardless of the messages' offsets. The batch has the codec of the wrapper.

    Args:
        messages: One wrapper, or one or more messages without compression.
        limit_bytes: The largest decompressed size of a wrapper.

    Raises:
        InvalidBatchError: The messages are invalid; `error_code` is the error code for the response.
    """
    compression = max(message.compression for message in messages)
    for message in messages:
        if message.timestamp_type is TimestampType.LOG_APPEND_TIME:
            raise InvalidTimestampError(f"{message.label}: timestamp type LogAppendTime, expected CreateTime")
    if compression is not Compression.NONE:
        if len(messages) > 1:
            raise InvalidBatchError(f"{len(messages)} messages, some of them compressed, expected a single wrapper")
        messages = unwrap(messages[0], limit_bytes)
    for message in messages:
        if message.timestamp_ms < _NO_TIMESTAMP_MS:
            raise InvalidTimestampError(f"{message.label}: timestamp {message.timestamp_ms}, expected -1 or more")
    records = [Record(index, each.timestamp_ms, each.key, each.value) for index, each in enumerate(messages)]
    return encode_batch(records, compression=compression)


def unwrap(wrapper: LegacyRecord, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES) -> list[LegacyRecord]:
    """Decompress the messages of a wrapper. Their offsets are relative (from 0) in magic 1 and absolute in magic 0.

    Raises:
        InvalidBatchError: The messages are malformed, or not allowed in this wrapper.
    """
    label, data = f"wrapper {wrapper.label}", wrapper.value
    if data is None:
        raise InvalidBatchError(f"{label}: value null, expected a compressed message set")
    if wrapper.compression is Compression.LZ4 and wrapper.magic == 0:
        data = correct_lz4_header(data)
    try:
        messages = split_messages(decompress(wrapper.compression, data, limit_bytes))
    except InvalidBatchError:
        raise
    except ProtocolError as error:
        raise InvalidBatchError(f"{label}: {error}") from error
    if not messages:
        raise InvalidBatchError(f"{label}: no complete message, expected 1 or more")
    for message in messages:
        if message.magic != wrapper.magic:
            raise InvalidBatchError(f"{label}: contains magic {message.magic}, expected {wrapper.magic}")
        if message.compression is not Compression.NONE:
            raise InvalidBatchError(f"{label}: contains a compressed message, expected none")
    # The offset of a wrapper is that of its last message; brokers make it absolute, and some clients leave it at 0.
    if wrapper.magic == 1 and wrapper.offset != 0 and wrapper.offset < messages[-1].offset:
        raise InvalidBatchError(f"{label}: last offset {messages[-1].offset}, expected at most that of the wrapper")
    return messages


def iterate_messages(batches: Iterable[RecordBatch], magic: int, first_offset: int) -> Iterator[bytes]:
    """Convert record batches to uncompressed messages, one per record; headers are lost (Kafka's `RecordsUtil`).

    Args:
        batches: Batches of a log. Control batches are skipped.
        magic: The format: 0, which has no timestamps, or 1.
        first_offset: The first offset to return. Some clients would return earlier records to the application.

    Raises:
        UnsupportedCompressionError: A batch is compressed with zstd, which clients of message sets do not support.
    """
    for batch in batches:
        if batch.is_control:
            continue
        if batch.compression is Compression.ZSTD:
            raise UnsupportedCompressionError(f"{batch.label}: compressed with zstd, expected a codec of message sets")
        for record in iterate_records(batch):
            if record.offset >= first_offset:
                yield encode_message(record, magic, timestamp_type=batch.timestamp_type)


def encode_message(
    record: Record,
    magic: int,
    *,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Encode a message of a message set.

    Args:
        record: Offset, key, value and timestamp; headers, and timestamps in magic 0, are not encoded.
        magic: 0 or 1.
        compression: For a wrapper, the codec with which its value is already compressed.
        timestamp_type: Encoded in magic 1 only.
    """
    attributes = compression | (timestamp_type * _TIMESTAMP_TYPE_BIT if magic else 0)
    fields = (magic, attributes, record.timestamp_ms)[: 2 + magic]
    checked = _CHECKED_PARTS[magic].pack(*fields) + _encode_bytes(record.key) + _encode_bytes(record.value)
    size = _UNCHECKED_PART.size - _OFFSET_AND_SIZE.size + len(checked)
    return _UNCHECKED_PART.pack(record.offset, size, crc32(checked)) + checked


def _encode_bytes(value: bytes | None) -> bytes:
    return _INT32.pack(-1) if value is None else _INT32.pack(len(value)) + value


# LZ4 frames in messages of magic 0. Old Kafka clients computed the checksum of their header over the wrong bytes
# (KAFKA-3160). Kafka ignores it in these messages, but LZ4 libraries verify it.

_MAGIC_BYTES = 4
_CONTENT_SIZE_BIT, _CONTENT_SIZE_BYTES = 0x08, 8
_SMALLEST_HEADER_BYTES = 7  # Magic, flags, block descriptor, checksum.

_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_UINT32 = 0xFFFFFFFF


def correct_lz4_header(frame: bytes) -> bytes:
    """Return a frame with the correct header checksum. Data shorter than a header is returned unchanged."""
    if len(frame) < _SMALLEST_HEADER_BYTES:
        return frame
    checksum_at = _SMALLEST_HEADER_BYTES - 1
    if frame[_MAGIC_BYTES] & _CONTENT_SIZE_BIT:
        checksum_at += _CONTENT_SIZE_BYTES
    checksum = xxh32(frame[_MAGIC_BYTES:checksum_at]) >> 8 & 0xFF
    return frame[:checksum_at] + bytes((checksum,)) + frame[checksum_at + 1 :]


def xxh32(data: bytes) -> int:
    """Return the 32-bit xxHash of less than 16 bytes, with the seed 0."""
    value = _PRIMES[4] + len(data)
    words = len(data) // 4 * 4
    for start in range(0, words, 4):
        lane = int.from_bytes(data[start : start + 4], "little")
        value = _rotated(value + lane * _PRIMES[2], 17) * _PRIMES[3]
    for byte in data[words:]:
        value = _rotated(value + byte * _PRIMES[4], 11) * _PRIMES[0]
    value &= _UINT32
    value = (value ^ value >> 15) * _PRIMES[1] & _UINT32
    value = (value ^ value >> 13) * _PRIMES[2] & _UINT32
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _UINT32
    return (value << bits | value >> 32 - bits) & _UINT32


# A message: offset, size, CRC of the following fields, magic, attributes, timestamp (magic 1 only), key and value. Key
# and value follow their lengths. A message with a codec in its attributes is a wrapper.
