"""Message sets of magic 0 and 1: kafka-python and aiokafka in both directions, wrappers, invalid messages."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any
from zlib import crc32

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, note, settings, strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression, compress
from fakebroker.protocol.message_sets import (
    LegacyRecord,
    UnsupportedCompressionError,
    encode_message,
    iterate_messages,
    magic_of,
    split_messages,
    to_record_batch,
    unwrap,
    xxh32,
)
from fakebroker.protocol.produced_batches import validate_batch
from fakebroker.protocol.records import (
    InvalidBatchError,
    Record,
    RecordBatch,
    TimestampType,
    decode_records,
    encode_batch,
)
from tests.support.annotated_hex import annotated_hex
from tests.support.soak import examples, soak

DRAWN = settings(max_examples=examples(8, soak=500))

BUILDERS = [KafkaPythonBuilder, AiokafkaBuilder]
READERS = [KafkaPythonRecords, AiokafkaRecords]
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
# Neither library supports LZ4 in magic 0 in all installations: a test below builds its frames.
FORMATS = [(magic, codec) for magic in (0, 1) for codec in CODECS if (magic, codec) != (0, Compression.LZ4)]

optional_bytes = st.none() | st.binary(max_size=20)
timestamps_ms = st.integers(-1, 2**62)
contents = st.lists(st.tuples(timestamps_ms, optional_bytes, optional_bytes), min_size=1, max_size=5)

Content = tuple[int, bytes | None, bytes | None]


def content_of(records: Sequence[Any]) -> list[Content]:
    """Return timestamps, keys and values; -1 for the missing timestamps of magic 0, which libraries return as None."""
    return [(-1 if each.timestamp is None else each.timestamp, each.key, each.value) for each in records]


def expected(content: list[Content], magic: int) -> list[Content]:
    return content if magic else [(-1, key, value) for _, key, value in content]


def stored(data: bytes) -> RecordBatch:
    """Return the record batch that a broker stores for a message set."""
    batch = RecordBatch(to_record_batch(split_messages(data)))
    validate_batch(batch)
    return batch


@soak
@pytest.mark.parametrize("builder", BUILDERS)
@DRAWN
@given(content=contents)
def test_message_sets_of_other_clients_are_converted_to_record_batches(builder: Any, content: list[Content]) -> None:
    for magic, codec in FORMATS:
        note(f"magic {magic}, {codec.name}")
        theirs = builder(magic=magic, compression_type=int(codec), batch_size=10_000)
        for offset, (timestamp_ms, key, value) in enumerate(content):
            theirs.append(offset, timestamp=timestamp_ms, key=key, value=value)
        batch = stored(bytes(theirs.build()))

        assert batch.compression is codec
        assert (batch.base_offset, batch.timestamp_type) == (0, TimestampType.CREATE_TIME)
        decoded = [(each.timestamp_ms, each.key, each.value) for each in decode_records(batch)]
        assert decoded == expected(content, magic)


def read_by(reader: Any, data: bytes) -> Iterator[Any]:
    theirs = reader(data)
    while theirs.has_next():
        batch = theirs.next_batch()
        assert batch.validate_crc()
        yield from batch


@soak
@pytest.mark.parametrize("reader", READERS)
@DRAWN
@given(content=contents, base_offset=st.integers(0, 2**60))
def test_other_clients_decode_message_sets_converted_from_record_batches(
    reader: Any, content: list[Content], base_offset: int
) -> None:
    records = [Record(base_offset + index, *each, headers=(("lost", b""),)) for index, each in enumerate(content)]
    for magic, codec in product((0, 1), CODECS):
        note(f"magic {magic}, {codec.name}")
        batch = RecordBatch(encode_batch(records, base_offset=base_offset, compression=codec))
        read = list(read_by(reader, b"".join(iterate_messages([batch], magic, 0))))

        assert [each.offset for each in read] == [each.offset for each in records]
        assert content_of(read) == expected(content, magic)
        # None without a timestamp; 0 is CreateTime, 1 LogAppendTime.
        assert {each.timestamp_type for each in read} <= {0, None}


RECORD = Record(7, 1_500_000_000_000, b"k", b"val")
BYTES = {
    0: """
        00 00 00 00 00 00 00 07  # offset
        00 00 00 12              # size: 18
        31 6a 1d f0              # CRC-32 of what follows
        00 00                    # magic, attributes
        00 00 00 01 6b           # key: "k"
        00 00 00 03 76 61 6c     # value: "val"
    """,
    1: """
        00 00 00 00 00 00 00 07  # offset
        00 00 00 1a              # size: 26
        3c f3 03 90              # CRC-32 of what follows
        01 00                    # magic, attributes
        00 00 01 5d 3e f7 98 00  # timestamp
        00 00 00 01 6b           # key: "k"
        00 00 00 03 76 61 6c     # value: "val"
    """,
}


@pytest.mark.parametrize("magic", [0, 1])
def test_golden_bytes_are_encoded_and_decoded(magic: int) -> None:
    raw = annotated_hex(BYTES[magic])
    timestamp_ms = RECORD.timestamp_ms if magic else -1

    assert encode_message(RECORD, magic).hex(" ") == raw.hex(" ")
    assert split_messages(raw) == [LegacyRecord(7, magic, 0, timestamp_ms, b"k", b"val", len(raw))]
    assert magic_of(raw) == magic


def test_the_magic_of_record_batches_and_of_too_few_bytes() -> None:
    assert magic_of(encode_batch([Record(0, 1, None, b"v")])) == 2
    assert magic_of(bytes(16)) is None


def wrapped(
    *offsets: int,
    magic: int = 1,
    offset: int = 0,
    codec: Compression = Compression.GZIP,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    inner: bytes | None = None,
) -> bytes:
    """Return a wrapper of messages with these offsets, or of encoded messages (`inner`)."""
    if inner is None:
        inner = b"".join(encode_message(Record(each, each, None, b"v"), magic) for each in offsets)
    wrapper = Record(offset, 0, None, compress(codec, inner))
    return encode_message(wrapper, magic, compression=codec, timestamp_type=timestamp_type)


def test_offsets_in_wrappers_are_replaced_by_consecutive_ones(subtests: pytest.Subtests) -> None:
    for case, magic, offset, inner in (
        ("relative, as sent by Java's producer", 1, 2, (0, 1, 2)),
        ("wrapper without an offset, as sent by librdkafka", 1, 0, (0, 1, 2)),
        ("wrapper with an offset of a log", 1, 9, (0, 1, 2)),
        ("all 0", 1, 0, (0, 0, 0)),
        ("magic 0", 0, 0, (0, 1, 2)),
        ("magic 0, whose offsets are absolute", 0, 1, (5, 6, 7)),
    ):
        with subtests.test(case):
            records = decode_records(stored(wrapped(*inner, magic=magic, offset=offset)))

            assert [each.offset for each in records] == [0, 1, 2]
            assert [each.timestamp_ms for each in records] == (list(inner) if magic else [-1] * 3)


@pytest.mark.parametrize("content_size", [False, True])
def test_lz4_of_magic_0_may_have_any_header_checksum(content_size: bool) -> None:
    inner = encode_message(Record(0, -1, None, b"v" * 100), 0)
    # A frame starts with a magic number, flags, a block descriptor, the content size if flagged, and the checksum.
    frame = compress(Compression.LZ4, inner)
    head, rest = frame[:6], frame[7:]
    if content_size:
        head = frame[:4] + bytes((frame[4] | 8, frame[5])) + len(inner).to_bytes(8, "little")
    for checksum in range(256):
        wrapper = Record(0, -1, None, head + bytes((checksum,)) + rest)
        batch = stored(encode_message(wrapper, 0, compression=Compression.LZ4))

        assert (batch.compression, decode_records(batch)[0].value) == (Compression.LZ4, b"v" * 100)


def test_lz4_of_magic_1_needs_the_correct_header_checksum() -> None:
    frame = compress(Compression.LZ4, encode_message(Record(0, 0, None, b"v"), 1))
    bad = frame[:6] + bytes((frame[6] ^ 1,)) + frame[7:]

    assert refusal(encode_message(Record(0, 0, None, bad), 1, compression=Compression.LZ4)) is INVALID


def test_xxh32() -> None:
    known = {b"": 0x02CC5D05, b"a": 0x550D7456, b"abc": 0x32D153FF, b"abcd": 0xA3643705}

    assert {data: xxh32(data) for data in known} == known


INVALID, CORRUPT = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
PLAIN = encode_message(RECORD, 1)


def refusal(data: bytes, limit_bytes: int = 1000) -> ErrorCode:
    with pytest.raises(InvalidBatchError) as caught:
        to_record_batch(split_messages(data), limit_bytes)
    return caught.value.error_code


def with_crc(message: bytes) -> bytes:
    return message[:12] + crc32(message[16:]).to_bytes(4, "big") + message[16:]


REFUSED_SETS: dict[str, tuple[bytes, ErrorCode]] = {
    "flipped byte": (PLAIN[:-1] + b"?", CORRUPT),
    "size too small": (PLAIN[:8] + bytes(3) + b"\x0d" + PLAIN[12:], CORRUPT),
    "size negative": (PLAIN[:8] + b"\xff" * 4 + PLAIN[12:], CORRUPT),
    "magic 2": (with_crc(PLAIN[:16] + b"\2" + PLAIN[17:]), CORRUPT),
    "key too long": (with_crc(PLAIN[:29] + b"\x09" + PLAIN[30:]), INVALID),
    "bytes after the value": (with_crc(PLAIN[:8] + b"\0\0\0\x1b" + PLAIN[12:] + b"?"), INVALID),
    "too short for magic 1": (with_crc(PLAIN[:8] + b"\0\0\0\x0e" + PLAIN[12:26]), INVALID),
    "zstd": (with_crc(PLAIN[:17] + b"\4" + PLAIN[18:]), INVALID),
    "unknown codec": (with_crc(PLAIN[:17] + b"\7" + PLAIN[18:]), INVALID),
    "timestamp": (encode_message(Record(0, -2, None, b""), 1), ErrorCode.INVALID_TIMESTAMP),
    "LogAppendTime": (
        encode_message(RECORD, 1, timestamp_type=TimestampType.LOG_APPEND_TIME),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "wrapper with LogAppendTime": (
        wrapped(0, timestamp_type=TimestampType.LOG_APPEND_TIME),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "two wrappers": (wrapped(0) + wrapped(0), INVALID),
    "a message and a wrapper": (PLAIN + wrapped(0), INVALID),
    "wrapper with null": (encode_message(Record(0, 0, None, None), 1, compression=Compression.GZIP), INVALID),
    "empty wrapper": (wrapped(inner=b""), INVALID),
    "half a message in a wrapper": (wrapped(inner=PLAIN[:-1]), INVALID),
    "flipped byte in a wrapper": (wrapped(inner=PLAIN[:-1] + b"?"), CORRUPT),
    "another magic in a wrapper": (wrapped(inner=encode_message(RECORD, 0)), INVALID),
    "a wrapper in a wrapper": (wrapped(inner=wrapped(0)), INVALID),
    "wrapper's offset below that of its last message": (wrapped(0, 1, 2, offset=1), INVALID),
    "over the limit": (wrapped(inner=encode_message(Record(0, 0, None, bytes(967)), 1)), INVALID),
    "not compressed": (encode_message(Record(0, 0, None, b"no gzip"), 1, compression=Compression.GZIP), INVALID),
    "short LZ4 frame": (encode_message(Record(0, 0, None, b"lz4"), 0, compression=Compression.LZ4), INVALID),
}


def test_invalid_message_sets_are_refused(subtests: pytest.Subtests) -> None:
    for case, (data, error) in REFUSED_SETS.items():
        with subtests.test(case):
            assert refusal(data) is error


def test_a_wrapper_may_be_as_large_as_the_limit() -> None:
    inner = encode_message(Record(0, 0, None, bytes(966)), 1)
    (wrapper,) = split_messages(wrapped(inner=inner))

    assert len(inner) == 1000
    assert unwrap(wrapper, 1000) == split_messages(inner)


@pytest.mark.parametrize("magic", [0, 1])
def test_an_incomplete_message_at_the_end_is_ignored(magic: int) -> None:
    whole = encode_message(RECORD, magic)

    for end in range(len(whole)):
        assert split_messages(whole + whole[:end]) == split_messages(whole)


@soak
@settings(max_examples=examples(60, soak=2000))
@given(st.data())
def test_wrappers_with_a_changed_byte_are_converted_or_an_invalid_batch(data: st.DataObject) -> None:
    raw = bytearray(wrapped(0, 1, magic=data.draw(st.integers(0, 1)), codec=data.draw(st.sampled_from(CODECS[1:]))))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    changed = with_crc(bytes(raw))
    try:
        messages = split_messages(changed)
        batch = to_record_batch(messages) if messages else None
    except InvalidBatchError:
        return
    assert batch is None or decode_records(RecordBatch(batch))


def batch(*values: bytes, base_offset: int = 0, **fields: Any) -> RecordBatch:
    records = [Record(base_offset + index, 1000 + index, None, value) for index, value in enumerate(values)]
    return RecordBatch(encode_batch(records, base_offset=base_offset, **fields))


def offsets(batches: list[RecordBatch], first_offset: int = 0) -> list[int]:
    return [split_messages(each)[0].offset for each in iterate_messages(batches, 1, first_offset)]


def test_converted_messages_start_at_the_requested_offset() -> None:
    assert offsets([batch(b"a", b"b"), batch(b"c", b"d", base_offset=2)], 1) == [1, 2, 3]


def test_control_batches_are_not_converted() -> None:
    assert offsets([batch(b"a"), batch(b"b", base_offset=1, is_control=True), batch(b"c", base_offset=2)]) == [0, 2]


def test_gaps_between_offsets_are_preserved() -> None:
    records = [Record(3, 0, None, b"a"), Record(7, 0, None, b"b")]
    assert offsets([RecordBatch(encode_batch(records, base_offset=2))]) == [3, 7]


def test_converting_zstd_is_an_error() -> None:
    messages = iterate_messages([batch(b"a"), batch(b"b", base_offset=1, compression=Compression.ZSTD)], 1, 0)

    assert split_messages(next(messages))[0].value == b"a"
    with pytest.raises(UnsupportedCompressionError) as caught:
        next(messages)
    assert caught.value.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_log_append_time_have_the_largest_timestamp(magic: int) -> None:
    appended = batch(b"a", b"b", timestamp_type=TimestampType.LOG_APPEND_TIME)
    (first, second) = (split_messages(each)[0] for each in iterate_messages([appended], magic, 0))
    expected_type = TimestampType(magic)

    assert (first.timestamp_type, first.timestamp_ms) == (expected_type, 1001 if magic else -1)
    assert (second.timestamp_type, second.timestamp_ms) == (expected_type, 1001 if magic else -1)
