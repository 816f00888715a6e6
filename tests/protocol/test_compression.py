"""Compression: round trips, other libraries in both directions, damaged data and decompression bombs."""

import gzip
import struct
from contextlib import suppress

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.errors import ProtocolError
from fakebroker.protocol.compression import Compression, compress, decompress
from tests.support.soak import examples, soak

DRAWN = settings(max_examples=examples(20, soak=1000))
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LIMIT_BYTES = 1 << 20
# Three blocks of xerial's framing; the last one is shorter.
TEXT = b"".join(b"%d bottles, " % number for number in range(6000))


@soak
@pytest.mark.parametrize("codec", list(Compression))
@DRAWN
@given(data=st.binary(max_size=300) | st.integers(0, 100_000).map(lambda size: bytes(size)))
def test_decompressed_data_equals_the_compressed_data(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), LIMIT_BYTES) == data


def test_data_compressed_by_other_libraries_is_decompressed() -> None:
    assert decompress(Compression.GZIP, gzip.compress(TEXT), LIMIT_BYTES) == TEXT
    for codec in (Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        theirs = bytes(pa.compress(TEXT, codec=codec.name.lower(), asbytes=True))
        assert decompress(codec, theirs, LIMIT_BYTES) == TEXT, codec.name


def test_other_libraries_decompress_the_data() -> None:
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        ours = compress(codec, TEXT)
        theirs = pa.decompress(ours, decompressed_size=len(TEXT), codec=codec.name.lower(), asbytes=True)
        assert theirs == TEXT, codec.name


def test_snappy_has_blocks_of_32_kib_in_xerials_framing() -> None:
    data = compress(Compression.SNAPPY, TEXT)
    assert data.startswith(XERIAL_HEADER)
    blocks, position = [], len(XERIAL_HEADER)
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        block = data[position + 4 : position + 4 + length]
        blocks.append(pa.decompress(block, cramjam.snappy.decompress_raw_len(block), codec="snappy", asbytes=True))
        position += 4 + length
    assert b"".join(blocks) == TEXT
    assert [len(block) for block in blocks] == [32768, 32768, len(TEXT) - 65536]


def test_versions_in_xerials_header_are_ignored() -> None:
    data = compress(Compression.SNAPPY, TEXT)
    assert decompress(Compression.SNAPPY, data[:8] + b"\1\0\0\0\1\0\0\0" + data[16:], LIMIT_BYTES) == TEXT


def test_lz4_blocks_are_independent() -> None:
    flags = compress(Compression.LZ4, TEXT)[4]
    assert flags & 0x20


def test_the_limit_is_the_largest_decompressed_size(subtests: pytest.Subtests) -> None:
    for codec in CODECS:
        with subtests.test(codec.name):
            data = compress(codec, TEXT)
            assert decompress(codec, data, len(TEXT)) == TEXT
            with pytest.raises(ProtocolError, match="expected"):
                decompress(codec, data, len(TEXT) - 1)


def test_decompression_bombs_are_refused(subtests: pytest.Subtests) -> None:
    for codec, data in (
        *((codec, compress(codec, bytes(16 << 20))) for codec in CODECS),
        (Compression.SNAPPY, b"\xff\xff\xff\xff\x0f"),  # raw, announces 4 GiB - 1 bytes
        (Compression.SNAPPY, XERIAL_HEADER + b"\0\0\0\5\xff\xff\xff\xff\x0f"),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8\x29\0\0hello"),  # requires a window of 2**41 bytes
    ):
        with subtests.test(f"{codec.name}, {len(data)} bytes"), pytest.raises(ProtocolError):
            decompress(codec, data, LIMIT_BYTES)


def test_lengths_of_snappy_blocks_are_checked(subtests: pytest.Subtests) -> None:
    for length in (-1, 6, 2**31 - 1):
        data = XERIAL_HEADER + struct.pack(">i", length) + b"\3\x08abc"
        error = f"snappy block at byte 16: length {length}, expected 0 to 5"
        with subtests.test(length=length), pytest.raises(ProtocolError, match=error):
            decompress(Compression.SNAPPY, data, LIMIT_BYTES)


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_data_is_an_error(codec: Compression) -> None:
    data = compress(codec, TEXT[:200])
    for size in range(len(data)):
        try:
            decompressed = decompress(codec, data[:size], LIMIT_BYTES)
        except ProtocolError:
            continue
        # A header of xerial's framing without blocks is complete.
        assert (codec, size, decompressed) == (Compression.SNAPPY, len(XERIAL_HEADER), b"")


@soak
@pytest.mark.parametrize("codec", CODECS)
@DRAWN
@given(data=st.data())
def test_damaged_data_is_decompressed_or_a_protocol_error(codec: Compression, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, TEXT[:2000]))
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=3)):
        damaged[position] = data.draw(st.integers(0, 255))
    assert_decompressed_or_protocol_error(codec, bytes(damaged))


@soak
@pytest.mark.parametrize("codec", CODECS)
@DRAWN
@given(data=st.binary(max_size=60), prefix=st.sampled_from([b"", XERIAL_HEADER, b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"]))
def test_any_bytes_are_decompressed_or_a_protocol_error(codec: Compression, data: bytes, prefix: bytes) -> None:
    assert_decompressed_or_protocol_error(codec, prefix + data)


def assert_decompressed_or_protocol_error(codec: Compression, data: bytes) -> None:
    with suppress(ProtocolError):
        assert len(decompress(codec, data, LIMIT_BYTES)) <= LIMIT_BYTES
