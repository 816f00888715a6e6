"""Records of a Produce request: record batches, message sets and compressed data, in all codecs."""

import struct
from collections.abc import Iterator
from zlib import crc32

from fakebroker.errors import ProtocolError
from fakebroker.protocol.compression import Compression, compress, decompress
from fakebroker.protocol.message_sets import encode_message, iterate_messages, split_messages, to_record_batch
from fakebroker.protocol.produced_batches import ReadMeter, at_once, recompressed, validate_produced
from fakebroker.protocol.records import (
    NO_TIMESTAMP,
    InvalidBatchError,
    Record,
    RecordBatch,
    UnencodableBatchError,
    crc32c,
    decode_records,
    encode_batch,
    record_keys,
    split_batches,
)

LIMIT_BYTES = 64 * 1024
"""The largest size of decompressed data: small, so that the search is fast."""

_CRC = struct.Struct(">I")
_BATCH_CRC_AT, _BATCH_CHECKED_AT = 17, 21
_MESSAGE_CRC_AT, _MESSAGE_CHECKED_AT = 12, 16
_CODECS = tuple(Compression)
_CODEC_BITS = 0x07


def run(data: bytes) -> None:
    """Read records.

    Args:
        data: A byte, whose lowest two bits are what follows: a record batch (0), a message (1), compressed data (2), or
            the records of a batch that is compressed here (3). The other bits select the codec of 2 and 3. CRCs are
            corrected, because a search does not find them.
    """
    kind, codec, content = data[0] & 3 if data else 0, _CODECS[(data[0] >> 2) % 5 if data else 0], data[1:]
    if kind == 0:
        _read_batches(_with_crc(content, _BATCH_CRC_AT, _BATCH_CHECKED_AT, crc32c))
    elif kind == 1:
        _read_messages(_with_crc(content, _MESSAGE_CRC_AT, _MESSAGE_CHECKED_AT, crc32))
    elif kind == 2:
        _decompress(codec, content)
    else:
        _read_batches(_compressed_batch(content, codec))


def _with_crc(data: bytes, crc_at: int, checked_at: int, crc: object) -> bytes:
    assert callable(crc)
    if len(data) < checked_at:
        return data
    return data[:crc_at] + _CRC.pack(crc(data[checked_at:])) + data[checked_at:]


def _compressed_batch(content: bytes, codec: Compression) -> bytes:
    """Return a batch whose count of records is the first byte, and whose records are the others, compressed."""
    plain = bytearray(encode_batch([Record(0, 1, None, b"")]))
    header = plain[:61]
    count = content[0] if content else 1
    header[22] = header[22] & ~_CODEC_BITS | codec
    struct.pack_into(">i", header, 23, count - 1)
    struct.pack_into(">i", header, 57, count)
    body = compress(codec, content[1:])
    struct.pack_into(">i", header, 8, len(header) - 12 + len(body))
    return _with_crc(bytes(header) + body, _BATCH_CRC_AT, _BATCH_CHECKED_AT, crc32c)


def _read_batches(data: bytes) -> None:
    try:
        batches = split_batches(data)
    except InvalidBatchError:
        return
    for batch in batches:
        try:
            validated = validate_produced(batch, LIMIT_BYTES)
        except InvalidBatchError:
            _decode_invalid(batch)
            continue
        _check_valid(validated)


def _decode_invalid(batch: RecordBatch) -> None:
    try:
        decode_records(batch, LIMIT_BYTES)
    except InvalidBatchError:
        return


def _check_valid(batch: RecordBatch) -> None:
    """Check that each function reads the same records from a valid batch."""
    records = decode_records(batch, LIMIT_BYTES)
    assert len(records) == batch.record_count
    assert [(each.offset, each.key, each.value is not None) for each in records] == list(record_keys(batch))
    try:
        assert decode_records(at_once(recompressed(batch, Compression.ZSTD, ReadMeter()))) == records
    except UnencodableBatchError:
        assert min(each.timestamp_ms for each in records) < NO_TIMESTAMP
    if batch.compression is not Compression.ZSTD:
        messages = split_messages(b"".join(iterate_messages([batch], 1, 0)))
        assert [(each.offset, each.key, each.value) for each in messages] == [
            (each.offset, each.key, each.value) for each in records
        ]


def _read_messages(data: bytes) -> None:
    try:
        messages = split_messages(data)
        if not messages:
            return
        batch = RecordBatch(to_record_batch(messages, LIMIT_BYTES))
    except InvalidBatchError:
        return
    _check_valid(validate_produced(batch))


def _decompress(codec: Compression, data: bytes) -> None:
    try:
        result = decompress(codec, data, LIMIT_BYTES)
    except ProtocolError:
        return
    if codec is not Compression.NONE:
        assert len(result) <= LIMIT_BYTES
        assert decompress(codec, compress(codec, result), LIMIT_BYTES + 1) == result


def seeds() -> Iterator[bytes]:
    """Yield batches, messages and compressed data in each codec."""
    records = [Record(0, 1000, b"key", b"value", (("h", b"x"),)), Record(1, 1001, None, None), Record(2, 999, b"", b"")]
    for number, codec in enumerate(_CODECS):
        yield b"\x00" + encode_batch(records, compression=codec)
        yield bytes([2 | number << 2]) + compress(codec, b"some data " * 9)
        yield bytes([3 | number << 2, len(records)]) + encode_batch(records)[61:]
        if codec is not Compression.ZSTD:
            inner = b"".join(encode_message(each, 1) for each in records)
            wrapper = Record(2, 1000, None, compress(codec, inner))
            yield b"\x01" + encode_message(wrapper, 1, compression=codec)
    yield b"\x01" + encode_message(records[0], 0)
    yield b"\x00" + encode_batch(records, producer_id=7, producer_epoch=1, base_sequence=5, is_transactional=True)
