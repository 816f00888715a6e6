"""Message sets, the record formats before Kafka 0.11 (magic 0 and 1), and their conversion to batches and back.

See `records.py` for the errors.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.compression import Compression, decompress
from fakebroker.protocol.lz4_header import mend_lz4_header
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

# Offset, size, the CRC of what follows, magic, attributes; in magic 1 a timestamp; then key and
# value behind their lengths. With a codec in its attributes it is a wrapper: its value is a compressed message set.
_HEADER = struct.Struct(">qiIbb")
_UNCHECKED_PART = struct.Struct(">qiI")
_OFFSET_AND_SIZE = struct.Struct(">qi")
_CHECKED_PARTS = (struct.Struct(">bb"), struct.Struct(">bbq"))
_INT64, _INT32 = struct.Struct(">q"), struct.Struct(">i")
_SMALLEST_SIZE = 14  # Of magic 0, without key and value. The size counts the bytes behind it.
_COMPRESSION_BITS, _TIMESTAMP_TYPE_BIT = 0x07, 0x08
_NO_TIMESTAMP_MS = -1


class InvalidTimestampError(InvalidBatchError):
    """A record with a timestamp that a producer may not set."""

    error_code: ClassVar[ErrorCode] = ErrorCode.INVALID_TIMESTAMP


class UnsupportedCompressionError(InvalidBatchError):
    """A record batch with a codec that message sets do not have."""

    error_code: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@dataclass(frozen=True, slots=True)
class LegacyRecord:
    """One record of a message set. `size_bytes` is its whole size; `timestamp_ms` is -1 for none."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    size_bytes: int

    @property
    def compression(self) -> Compression:
        """The codec. Raises `InvalidBatchError` for one that message sets do not have."""
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
    """The magic of the first message or record batch, which have it at the same place; None if there is none."""
    return data[_UNCHECKED_PART.size] if len(data) > _UNCHECKED_PART.size else None


def split_messages(data: bytes) -> list[LegacyRecord]:
    """The whole messages in the bytes, wrappers as they are; an incomplete last one is left out.

    Raises:
        CorruptBatchError: There is no telling where a message ends, its magic is unknown, or its CRC does not match.
        InvalidBatchError: The CRC matches, and still key and value do not fill the message.
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
        raise InvalidBatchError(f"{label}: its {len(data)} bytes end inside it") from error
    if position != len(data):
        raise InvalidBatchError(f"{label}: {len(data)} bytes, expected its value to end there, not at byte {position}")
    return LegacyRecord(offset, magic, attributes, timestamp_ms, key, value, len(data))


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Read bytes after their length. Any negative length is null, as in Kafka. May end past the data."""
    length = _INT32.unpack_from(data, position)[0]
    start = position + _INT32.size
    return (None, start) if length < 0 else (data[start : start + length], start + length)


def to_record_batch(messages: Sequence[LegacyRecord], limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """The one record batch that a broker makes of the messages that a producer has sent for a partition.

    Its records are numbered from 0 on, whatever the messages' offsets; its codec is that of the wrapper. The checks are
    those of Kafka's `LogValidator`.

    Args:
        messages: At least one: either messages without compression or one wrapper.
        limit_bytes: How large the messages in a wrapper may be.

    Raises:
        InvalidBatchError: With the `error_code` to answer.
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
    """The messages in a wrapper, their offsets as they stand there: from 0 on in magic 1, those of the log in magic 0.

    Raises:
        InvalidBatchError: They cannot be read, or are none that may stand in this wrapper.
    """
    label, data = f"wrapper {wrapper.label}", wrapper.value
    if data is None:
        raise InvalidBatchError(f"{label}: value null, expected a compressed message set")
    if wrapper.compression is Compression.LZ4 and wrapper.magic == 0:
        data = mend_lz4_header(data)
    try:
        messages = split_messages(decompress(wrapper.compression, data, limit_bytes))
    except InvalidBatchError:
        raise
    except ProtocolError as error:
        raise InvalidBatchError(f"{label}: {error}") from error
    if not messages:
        raise InvalidBatchError(f"{label}: no whole message in it, expected 1 or more")
    for message in messages:
        if message.magic != wrapper.magic:
            raise InvalidBatchError(f"{label}: magic {message.magic} in it, expected {wrapper.magic}")
        if message.compression is not Compression.NONE:
            raise InvalidBatchError(f"{label}: a compressed message in it, expected none")
    # Some clients leave the wrapper's offset 0; else it is that of its last message, which brokers make absolute.
    if wrapper.magic == 1 and wrapper.offset != 0 and wrapper.offset < messages[-1].offset:
        raise InvalidBatchError(f"{label}: offset {messages[-1].offset} at its end, expected at most its own")
    return messages


def iterate_messages(batches: Iterable[RecordBatch], magic: int, first_offset: int) -> Iterator[bytes]:
    """Record batches as messages one by one, none of them compressed; headers are lost (Kafka's `RecordsUtil`).

    Args:
        batches: Batches as a log holds them. Control batches, which no message can be, are left out.
        magic: The format: 0, which has no timestamps, or 1.
        first_offset: The offset to start from; some clients take what comes before it for new.

    Raises:
        UnsupportedCompressionError: At a batch compressed with zstd: clients that read messages do not know of it.
    """
    for batch in batches:
        if batch.is_control:
            continue
        if batch.compression is Compression.ZSTD:
            raise UnsupportedCompressionError(f"{batch.label}: compressed with zstd, expected a codec of messages")
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
    """Encode one record of a message set.

    Args:
        record: Its offset, key and value, and its timestamp in magic 1.
        magic: 0 or 1.
        compression: The codec that the value, a message set, has been compressed with.
        timestamp_type: Stored in magic 1 only.
    """
    attributes = compression | (timestamp_type * _TIMESTAMP_TYPE_BIT if magic else 0)
    fields = (magic, attributes, record.timestamp_ms)[: 2 + magic]
    checked = _CHECKED_PARTS[magic].pack(*fields) + _encode_bytes(record.key) + _encode_bytes(record.value)
    size = _UNCHECKED_PART.size - _OFFSET_AND_SIZE.size + len(checked)
    return _UNCHECKED_PART.pack(record.offset, size, crc32(checked)) + checked


def _encode_bytes(value: bytes | None) -> bytes:
    return _INT32.pack(-1) if value is None else _INT32.pack(len(value)) + value
