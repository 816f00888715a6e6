"""Record batches: golden bytes, round trips, kafka-python and aiokafka in both directions, invalid batches."""

import random
import struct
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from crc32c import crc32c
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import (
    DefaultRecordBatch as KafkaPythonBatch,
    DefaultRecordBatchBuilder as KafkaPythonBuilder,
)

from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.produced_batches import only_batch, validate_batch, validate_produced
from fakebroker.protocol.records import (
    CorruptBatchError,
    InvalidBatchError,
    Record,
    RecordBatch,
    TimestampType,
    decode_records,
    encode_batch,
    encode_pairs,
    iterate_records,
    split_batches,
    with_base_offset,
)
from tests.support.soak import examples, soak

DRAWN = settings(max_examples=examples(20, soak=1000))
NOW_MS = 1_700_000_000_000

PRODUCERS = st.fixed_dictionaries(
    {
        "producer_id": st.integers(-1, 2**63 - 1),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": st.integers(-1, 2**31 - 1),
    }
)

GOLDEN_RECORDS = [
    Record(0, NOW_MS, b"k", b"value", (("h", b"x"), ("é", None))),
    Record(1, NOW_MS - 100, None, None),
]
GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset 0
    "0000004e"  # batch length 78: all that follows
    "ffffffff"  # partition leader epoch -1
    "02"  # magic 2
    "10d9fa06"  # CRC-32C of all that follows
    "0010"  # attributes: not compressed, create time, transactional
    "00000001"  # last offset delta 1
    "0000018bcfe56800"  # base timestamp 1,700,000,000,000
    "0000018bcfe56800"  # max timestamp
    "0000000000001092"  # producer id 4242
    "0007"  # producer epoch 7
    "0000002a"  # base sequence 42
    "00000002"  # 2 records
    "28"  # record of 20 bytes
    "00"  # attributes, unused
    "00"  # timestamp delta 0
    "00"  # offset delta 0
    "02"
    "6b"  # key of 1 byte
    "0a"
    "76616c7565"  # value of 5 bytes
    "04"  # 2 headers
    "02"
    "68"
    "02"
    "78"  # h: x
    "04"
    "c3a9"
    "01"  # é: null
    "0e"  # record of 7 bytes
    "00"
    "c701"  # timestamp delta -100
    "02"  # offset delta 1
    "01"  # key null
    "01"  # value null
    "00"  # no headers
)
RECORD_COUNT_AT, RECORDS_AT = 57, 61

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
BYTES = st.none() | st.binary(max_size=100) | st.just(bytes(10_000))


@st.composite
def record_lists(draw: st.DrawFn, last_timestamp_ms: int = 2**63 - 1) -> list[Record]:
    """Draw records with consecutive offsets from 0."""
    timestamps = st.integers(NOW_MS, NOW_MS + 1000) | st.integers(0, last_timestamp_ms)
    contents = st.lists(st.tuples(timestamps, BYTES, BYTES, HEADERS), min_size=1, max_size=5)
    return [Record(offset, *content) for offset, content in enumerate(draw(contents))]


def validated(data: bytes, limit_bytes: int = 1 << 27) -> RecordBatch:
    """Return the batch of a Produce request, as it is appended."""
    return validate_produced(only_batch(data), limit_bytes)


def the_batch(data: bytes) -> RecordBatch:
    (batch,) = split_batches(data)
    return batch


def repaired(data: bytes) -> bytes:
    """Return a batch with correct length and CRC."""
    out = bytearray(data)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def batch_of(records: bytes, count: int = 1) -> bytes:
    """Return an uncompressed batch of encoded records."""
    data = bytearray(encode_batch([Record(0, NOW_MS, None, None)])[:RECORDS_AT] + records)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, RECORD_COUNT_AT, count)
    return repaired(bytes(data))


def test_records_are_encoded_as_the_golden_bytes() -> None:
    data = encode_batch(GOLDEN_RECORDS, producer_id=4242, producer_epoch=7, base_sequence=42, is_transactional=True)
    assert data.hex() == GOLDEN.hex()


def test_the_golden_bytes_are_decoded() -> None:
    batch = validated(GOLDEN)
    assert (batch.base_offset, batch.batch_length, batch.partition_leader_epoch, batch.magic) == (0, 78, -1, 2)
    assert (batch.crc, batch.attributes, batch.last_offset_delta) == (0x10D9FA06, 0x10, 1)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (NOW_MS, NOW_MS)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count) == (4242, 7, 42, 2)
    assert batch.data == GOLDEN
    assert (batch.size_bytes, batch.last_offset) == (len(GOLDEN), 1)
    assert batch.compression is Compression.NONE
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.is_transactional
    assert not batch.is_control
    assert decode_records(batch) == GOLDEN_RECORDS


@soak
@pytest.mark.parametrize("compression", list(Compression))
@DRAWN
@given(records=record_lists())
def test_decoded_records_equal_the_encoded_ones(compression: Compression, records: list[Record]) -> None:
    batch = validated(encode_batch(records, compression=compression))
    assert batch.compression is compression
    assert batch.record_count == len(records)
    assert batch.max_timestamp_ms == max(record.timestamp_ms for record in records)
    assert decode_records(batch) == records


@soak
@DRAWN
@given(
    base_offset=st.integers(0, 2**62),
    deltas=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=True).map(sorted),
    leader_epoch=st.integers(-1, 2**31 - 1),
)
def test_gaps_between_the_offsets_of_a_batch_are_preserved(
    base_offset: int, deltas: list[int], leader_epoch: int
) -> None:
    records = [Record(base_offset + delta, -1, b"", b"") for delta in deltas]
    batch = the_batch(encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch))
    assert decode_records(batch) == records
    assert (batch.base_offset, batch.last_offset) == (base_offset, records[-1].offset)
    assert batch.partition_leader_epoch == leader_epoch


def test_records_of_a_batch_with_log_append_time_have_its_largest_timestamp() -> None:
    data = encode_batch(GOLDEN_RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert [record.timestamp_ms for record in decode_records(the_batch(data))] == [NOW_MS, NOW_MS]


def test_an_empty_batch_left_by_compaction_has_no_records() -> None:
    assert decode_records(the_batch(batch_of(b"", count=0))) == []


@soak
@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AiokafkaBuilder])
@DRAWN
@given(records=record_lists(last_timestamp_ms=2**62), producer=PRODUCERS, is_transactional=st.booleans())
def test_uncompressed_batches_have_the_bytes_of_other_clients(
    builder: Any, records: list[Record], producer: dict[str, Any], is_transactional: bool
) -> None:
    theirs = built_by(builder, records, Compression.NONE, **producer, is_transactional=is_transactional)
    ours = encode_batch(records, **producer, is_transactional=is_transactional)
    assert with_base_offset(ours, 0, the_batch(theirs).partition_leader_epoch) == theirs


@soak
@pytest.mark.parametrize(
    ("builder", "compression"),
    [(KafkaPythonBuilder, Compression.GZIP), *((AiokafkaBuilder, codec) for codec in list(Compression)[1:])],
)
@DRAWN
@given(records=record_lists(last_timestamp_ms=2**62))
def test_compressed_batches_of_other_clients_are_decoded(
    builder: Any, compression: Compression, records: list[Record]
) -> None:
    # These clients do not compress a batch that would not become smaller.
    records[0].value = bytes(10_000)
    batch = validated(built_by(builder, records, compression))
    assert batch.compression is compression
    assert decode_records(batch) == records


@soak
@pytest.mark.parametrize(
    ("reader", "compression"),
    [
        (KafkaPythonBatch, Compression.NONE),
        (KafkaPythonBatch, Compression.GZIP),
        *((AiokafkaBatch, codec) for codec in Compression),
    ],
)
@DRAWN
@given(records=record_lists(last_timestamp_ms=2**62))
def test_other_clients_decode_the_batches(reader: Any, compression: Compression, records: list[Record]) -> None:
    data = encode_batch(records, compression=compression, producer_id=5, producer_epoch=6, base_sequence=7)
    theirs = reader(data)
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 6, 7)
    fields = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert fields == records


def built_by(builder: Any, records: list[Record], compression: Compression, **changes: Any) -> bytes:
    """Return a batch built by another client."""
    producer = {"is_transactional": 1, "producer_id": 5, "producer_epoch": 6, "base_sequence": 7} | changes
    theirs = builder(magic=2, compression_type=int(compression), batch_size=1 << 20, **producer)
    for record in records:
        headers = list(record.headers)
        assert theirs.append(record.offset, record.timestamp_ms, record.key, record.value, headers) is not None
    return bytes(theirs.build())


@soak
@DRAWN
@given(
    pairs=st.lists(st.tuples(BYTES.map(lambda key: key or b""), BYTES), min_size=1, max_size=70),
    timestamp_ms=st.integers(0, 2**63 - 1),
    producer=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)),
    place=st.tuples(st.integers(0, 2**62), st.integers(-1, 2**31 - 1)),
)
def test_encoded_pairs_are_a_batch_of_records(
    pairs: list[tuple[bytes, bytes | None]], timestamp_ms: int, producer: tuple[int, int], place: tuple[int, int]
) -> None:
    batch = [Record(offset, timestamp_ms, key, value) for offset, (key, value) in enumerate(pairs)]
    assert encode_pairs(pairs, timestamp_ms) == encode_batch(batch)
    producer_id, epoch = producer
    assert encode_pairs(pairs, timestamp_ms, producer) == encode_batch(
        batch, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
    )
    assert encode_pairs(pairs, timestamp_ms, None, *place) == with_base_offset(encode_batch(batch), *place)


def test_with_base_offset_changes_only_fields_that_the_crc_does_not_cover() -> None:
    stored = with_base_offset(GOLDEN, 2**40, 9)
    assert stored == struct.pack(">q", 2**40) + GOLDEN[8:12] + struct.pack(">i", 9) + GOLDEN[16:]
    batch = the_batch(stored)
    validate_batch(batch)
    assert [record.offset for record in decode_records(batch)] == [2**40, 2**40 + 1]


def test_split_batches_ignores_a_truncated_last_batch() -> None:
    data = GOLDEN + with_base_offset(GOLDEN, 2, 0)
    for size in range(len(data) + 1):
        offsets = [batch.base_offset for batch in split_batches(data[:size])]
        assert offsets == [0, 2][: size // len(GOLDEN)]


def test_a_truncated_batch_cannot_be_produced(subtests: pytest.Subtests) -> None:
    for size in range(len(GOLDEN)):
        with subtests.test(size=size):
            message = f"records of {size} bytes: 0 complete record batches, expected 1"
            with pytest.raises(InvalidBatchError, match=message) as error:
                validated(GOLDEN[:size])
            assert error.value.error_code is ErrorCode.INVALID_RECORD


def test_an_incomplete_batch_after_a_produced_one_is_dropped() -> None:
    assert validated(GOLDEN + GOLDEN[:-1]).data == GOLDEN


def changed(position: int, form: str, value: int) -> bytes:
    out = bytearray(GOLDEN)
    struct.pack_into(form, out, position, value)
    return bytes(out)


CORRUPT = {
    "no length": (changed(8, ">i", 13), "record batch at byte 0: batch length 13, expected 14 or more"),
    "negative length": (changed(8, ">i", -1), "batch length -1, expected 14 or more"),
    "shorter than a header": (changed(8, ">i", 48), "60 bytes, expected 61 or more"),
    "magic 3": (changed(16, ">B", 3), "magic 3 at byte 16, expected 2"),
    "magic 255": (changed(16, ">B", 255), "magic 255 at byte 16, expected 2"),
    "CRC": (changed(17, ">I", 0), "CRC 0x00000000 at byte 17, expected 0x"),
    "attributes": (changed(21, ">h", 0x30), "CRC 0x"),
}


def test_corrupt_batches_are_errors(subtests: pytest.Subtests) -> None:
    for name, (data, message) in CORRUPT.items():
        with subtests.test(name):
            with pytest.raises(CorruptBatchError, match=message) as error:
                validated(data)
            assert error.value.error_code is ErrorCode.CORRUPT_MESSAGE


def compressed_batch(attributes: int, records: bytes) -> bytes:
    data = bytearray(batch_of(records))
    struct.pack_into(">h", data, 21, attributes)
    return repaired(bytes(data))


PLAIN = "0c 00 00 00 01 01 00"
INVALID = {
    "two batches": (GOLDEN + GOLDEN, "2 complete record batches, expected 1"),
    "magic 0": (changed(16, ">B", 0), "magic 0 at byte 16, expected 2"),
    "magic 1": (changed(16, ">B", 1), "magic 1 at byte 16, expected 2"),
    "base offset": (changed(0, ">q", 7), "base offset 7: expected base offset 0"),
    "control batch": (encode_batch(GOLDEN_RECORDS, is_control=True), "control records, expected none"),
    "no sequence": (
        encode_batch(GOLDEN_RECORDS, producer_id=5),
        "base sequence -1 at byte 53, expected 0 or more",
    ),
    "no records": (batch_of(b"", count=0), "record count 0 at byte 57, expected 1 or more"),
    "negative count": (batch_of(b"", count=-5), "record count -5 at byte 57, expected 1 or more"),
    "count and delta": (
        repaired(changed(RECORD_COUNT_AT, ">i", 1)),
        "record count 1 at byte 57, .* last offset delta 1",
    ),
    "more records counted": (batch_of(bytes.fromhex(PLAIN), count=2), "record 1 at byte 68: incomplete"),
    "2**31 - 1 counted": (batch_of(bytes.fromhex(PLAIN), count=2**31 - 1), "record 1 at byte 68: incomplete"),
    "fewer records counted": (batch_of(bytes.fromhex(PLAIN * 2)), "7 unexpected bytes at byte 68"),
    "offset delta": (batch_of(bytes.fromhex("0c 00 00 02 01 01 00")), "a record with offset 1, expected 0"),
    "record too short": (
        batch_of(bytes.fromhex("0a 00 00 00 01 01 00")),
        "length 5 up to byte 67, but its fields end at byte 68",
    ),
    "record too long": (
        batch_of(bytes.fromhex("0e 00 00 00 01 01 00")),
        "record 0 at byte 61: incomplete",
    ),
    "no length of a record": (batch_of(b""), "record 0 at byte 61: incomplete"),
    "key too long": (batch_of(bytes.fromhex("0c 00 00 00 7e 01 00")), "record 0 at byte 61: incomplete"),
    "header value too long": (
        batch_of(bytes.fromhex("12 00 00 00 01 01 02 00 7e 00")),
        "up to byte 71, but its fields end at byte ",
    ),
    "varint too long": (batch_of(b"\x80" * 80), "varint too large at byte 70"),
    "varint past 32 bits": (batch_of(b"\xff\xff\xff\xff\x1f"), "expected -2147483648 to 2147483647"),
    "header count": (batch_of(bytes.fromhex("0c 00 00 00 01 01 02")), "header count 1 at byte 68, expected 0 to 0"),
    "negative header count": (batch_of(bytes.fromhex("0c 00 00 00 01 01 01")), "header count -1"),
    "header key null": (batch_of(bytes.fromhex("10 00 00 00 01 01 02 01 01")), "header key null at byte 69"),
    "timestamp": (
        batch_of(bytes.fromhex("1e 00 feffffffffffffffff01 00 01 01 00")),
        f"timestamp {NOW_MS + 2**63 - 1}, expected an int64",
    ),
    "compression 5": (compressed_batch(5, b""), "compression 5 in the attributes at byte 21, expected 0 to 4"),
    **{
        f"{codec.name} garbage": (compressed_batch(codec, b"garbage"), f"base offset 0: {codec.name.lower()} ")
        for codec in list(Compression)[1:]
    },
}


def test_invalid_batches_are_errors(subtests: pytest.Subtests) -> None:
    for name, (data, message) in INVALID.items():
        with subtests.test(name):
            with pytest.raises(InvalidBatchError, match=message) as error:
                validated(data)
            assert error.value.error_code is ErrorCode.INVALID_RECORD


def test_header_keys_that_are_not_utf_8_are_valid_and_replaced() -> None:
    """As in Kafka, whose brokers do not decode them, and whose clients replace malformed bytes (`RecordHeader`)."""
    data = batch_of(bytes.fromhex("12 00 00 00 01 01 02 02 ff 01"))
    validated(data)
    (record,) = decode_records(the_batch(data))
    assert record.headers == (("\ufffd", None),)


def test_a_negative_record_count_cannot_be_decoded() -> None:
    with pytest.raises(InvalidBatchError, match="record count -1 at byte 57, expected 0 or more"):
        decode_records(the_batch(batch_of(b"", count=-1)))


def test_the_decompressed_size_is_limited(subtests: pytest.Subtests) -> None:
    for compression in list(Compression)[1:]:
        with subtests.test(compression.name):
            data = encode_batch([Record(0, NOW_MS, None, bytes(1 << 20))], compression=compression)
            with pytest.raises(InvalidBatchError, match="expected"):
                validated(data, limit_bytes=1 << 20)
            assert validated(data, limit_bytes=(1 << 20) + 20).record_count == 1


@pytest.mark.parametrize("compression", list(Compression))
def test_each_flipped_bit_that_the_crc_covers_is_an_error(compression: Compression) -> None:
    data = encode_batch(GOLDEN_RECORDS, compression=compression)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            batch = validated(bytes(flipped))
        except InvalidBatchError:
            continue
        assert 12 <= bit // 8 < 16  # the leader epoch
        assert decode_records(batch) == GOLDEN_RECORDS


@soak
@pytest.mark.parametrize("compression", list(Compression))
@DRAWN
@given(data=st.data())
def test_damaged_records_are_decoded_or_a_protocol_error(compression: Compression, data: st.DataObject) -> None:
    damaged = bytearray(encode_batch(GOLDEN_RECORDS, compression=compression))
    for position in data.draw(st.lists(st.integers(21, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[position] = data.draw(st.integers(0, 255))
    batch = the_batch(bytes(damaged))
    for check in (decode_records, lambda batch: validated(repaired(batch.data))):
        with suppress(ProtocolError):
            check(batch)


def plainly_validated(batch: RecordBatch) -> int | str:
    """Return the largest timestamp of all decoded records, or the first error."""
    try:
        newest_ms = -1
        for offset, record in enumerate(iterate_records(batch)):
            if record.offset != offset:
                return f"{batch.label}: a record with offset {record.offset}, expected {offset}"
            newest_ms = max(newest_ms, record.timestamp_ms)
    except InvalidBatchError as error:
        return str(error)
    return newest_ms


NEGATIVE_LENGTHS = {
    "null": "0c 00 00 00 01 01 00",
    "record": "0d 00 00 00 01 01 00",
    "key": "0e 00 00 00 03 04 01 00",
    "key, valid": "0e 00 00 00 03 02 01 00",
    "value": "0e 00 00 00 01 03 00 00",
    "timestamp": "0c 00 01 00 01 01 00",
    "header count": "0c 00 00 00 01 01 01",
}


def test_negative_lengths_are_validated_as_if_the_record_was_decoded(subtests: pytest.Subtests) -> None:
    for name, record in NEGATIVE_LENGTHS.items():
        with subtests.test(name):
            batch = the_batch(batch_of(bytes.fromhex(record)))
            try:
                found: int | str = validate_batch(batch)
            except InvalidBatchError as error:
                found = str(error)
            assert found == plainly_validated(batch)


@soak
@DRAWN
@given(
    records=record_lists() | st.lists(st.builds(Record, st.just(0), st.integers(NOW_MS, NOW_MS + 9), BYTES, BYTES)),
    damage=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 255)), max_size=2),
    attributes=st.sampled_from((0, 8)),
)
def test_batches_are_validated_as_if_their_records_were_decoded(
    records: list[Record], damage: list[tuple[int, int]], attributes: int
) -> None:
    numbered = [
        msgspec.structs.replace(record, offset=offset) for offset, record in enumerate(records)
    ] or GOLDEN_RECORDS
    data = bytearray(encode_batch(numbered))
    data[22] = attributes
    for position, byte in damage:
        data[RECORDS_AT + position % (len(data) - RECORDS_AT)] = byte
    batch = the_batch(repaired(bytes(data)))
    try:
        found: int | str = validate_batch(batch)
    except InvalidBatchError as error:
        found = str(error)
    assert found == plainly_validated(batch)


SIZES = st.none() | st.integers(0, 80) | st.just(8_200)


@soak
@DRAWN
@given(
    runs=st.lists(st.tuples(SIZES, SIZES, st.integers(0, 100), st.integers(1, 70)), min_size=1, max_size=3),
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=2),
    cut=st.just(0) | st.integers(0, 200),
)
def test_batches_with_records_of_the_same_sizes_are_validated_as_if_they_were_decoded(
    runs: list[tuple[int | None, int | None, int, int]], damage: list[tuple[float, int]], cut: int
) -> None:
    records: list[Record] = []
    for key_bytes, value_bytes, delay_ms, repeats in runs:
        for _ in range(repeats):
            key, value = (
                None if size is None else random.Random(len(records)).randbytes(size)
                for size in (key_bytes, value_bytes)
            )
            records.append(Record(len(records), NOW_MS + delay_ms, key, value))
    data = bytearray(encode_batch(records))
    for place, byte in damage:
        data[RECORDS_AT + int(place * (len(data) - RECORDS_AT))] = byte
    batch = the_batch(repaired(bytes(data[: max(RECORDS_AT, len(data) - cut)])))
    try:
        found: int | str = validate_batch(batch)
    except InvalidBatchError as error:
        found = str(error)
    assert found == plainly_validated(batch)


@soak
@DRAWN
@given(data=st.binary(max_size=100), records=st.binary(max_size=40), count=st.integers(-1, 4))
def test_any_bytes_are_decoded_or_a_protocol_error(data: bytes, records: bytes, count: int) -> None:
    for produced in (data, batch_of(records, count)):
        with suppress(ProtocolError):
            assert validated(produced).record_count > 0


def test_records_that_cannot_be_encoded_are_errors(subtests: pytest.Subtests) -> None:
    cases: list[tuple[list[Record], dict[str, int], str]] = [
        ([], {}, "record batch of 0 records, expected at least 1"),
        ([Record(4, 0, None, None)], {"base_offset": 5}, "record 4: expected offset 5 to"),
        ([Record(5, 0, None, None)] * 2, {"base_offset": 5}, "record 5: expected offset 6 to"),
        ([Record(2**31, 0, None, None)], {}, "record 2147483648: expected offset 0 to 2147483647"),
        ([Record(0, -2, None, None)], {}, "record 0: timestamp -2, expected -1 to"),
        ([Record(0, 2**63, None, None)], {}, "record 0: timestamp 9223372036854775808, expected -1 to"),
        ([Record(0, 0, None, None, (("\ud800", None),))], {}, "surrogates not allowed"),
        ([Record(0, 0, None, None)], {"producer_epoch": 2**15}, "record batch with base offset 0: "),
    ]
    for records, options, message in cases:
        with subtests.test(message), pytest.raises(ProtocolError, match=message):
            encode_batch(records, **options)  # type: ignore[arg-type]  # mypy cannot tell the types of the options
