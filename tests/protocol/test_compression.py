"""Compression: round trips, other implementations in both directions, damage and bombs."""

import gzip
import struct
from collections.abc import Callable
from contextlib import suppress

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from fakebroker.errors import ProtocolError
from fakebroker.protocol.compression import Compression, compress, decompress

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LIMIT_BYTES = 1 << 20
# Three blocks of xerial's framing, the last of them not full.
TEXT = b"".join(b"%d bottles, " % number for number in range(6000))


def arrow_compress(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.compress(data, codec=codec, asbytes=True))


@pytest.mark.parametrize("codec", list(Compression))
@given(data=st.binary(max_size=300) | st.integers(0, 100_000).map(lambda size: bytes(size)))
def test_round_trip(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), LIMIT_BYTES) == data


@pytest.mark.parametrize(
    ("codec", "other"),
    [
        (Compression.GZIP, gzip.compress),
        (Compression.SNAPPY, arrow_compress("snappy")),
        (Compression.LZ4, arrow_compress("lz4")),
        (Compression.ZSTD, arrow_compress("zstd")),
    ],
)
def test_reads_what_others_write(codec: Compression, other: Callable[[bytes], bytes]) -> None:
    assert decompress(codec, other(TEXT), LIMIT_BYTES) == TEXT


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_others_read_what_it_writes(codec: Compression) -> None:
    name = codec.name.lower()
    assert pa.decompress(compress(codec, TEXT), decompressed_size=len(TEXT), codec=name, asbytes=True) == TEXT


def test_snappy_is_written_in_blocks_of_32_kib_with_xerials_framing() -> None:
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


def test_versions_in_xerials_header_are_not_read() -> None:
    data = compress(Compression.SNAPPY, TEXT)
    assert decompress(Compression.SNAPPY, data[:8] + b"\1\0\0\0\1\0\0\0" + data[16:], LIMIT_BYTES) == TEXT


def test_lz4_blocks_are_independent() -> None:
    flags = compress(Compression.LZ4, TEXT)[4]
    assert flags & 0x20


@pytest.mark.parametrize("codec", CODECS)
def test_limit_is_the_largest_size_that_comes_out(codec: Compression) -> None:
    data = compress(codec, TEXT)
    assert decompress(codec, data, len(TEXT)) == TEXT
    with pytest.raises(ProtocolError, match="expected"):
        decompress(codec, data, len(TEXT) - 1)


@pytest.mark.parametrize(
    "bomb",
    [
        *((codec, compress(codec, bytes(16 << 20))) for codec in CODECS),
        (Compression.SNAPPY, b"\xff\xff\xff\xff\x0f"),  # raw, and says that it is 4 GiB - 1 bytes
        (Compression.SNAPPY, XERIAL_HEADER + b"\0\0\0\5\xff\xff\xff\xff\x0f"),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8\x29\0\0hello"),  # asks for a window of 2**41 bytes
    ],
    ids=lambda bomb: f"{bomb[0].name}-{len(bomb[1])}",
)
def test_bombs_are_refused(bomb: tuple[Compression, bytes]) -> None:
    with pytest.raises(ProtocolError):
        decompress(*bomb, LIMIT_BYTES)


@pytest.mark.parametrize("length", [-1, 6, 2**31 - 1])
def test_length_of_a_snappy_block_is_checked(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"snappy block at byte 16: length {length}, expected 0 to 5"):
        decompress(Compression.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + b"\3\x08abc", LIMIT_BYTES)


@pytest.mark.parametrize("codec", CODECS)
def test_truncation_never_passes_for_the_whole(codec: Compression) -> None:
    data = compress(codec, TEXT[:200])
    for size in range(len(data)):
        try:
            out = decompress(codec, data[:size], LIMIT_BYTES)
        except ProtocolError:
            continue
        assert (codec, size, out) == (Compression.SNAPPY, len(XERIAL_HEADER), b"")


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_damage_raises_nothing_but_protocol_errors(codec: Compression, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, TEXT[:2000]))
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=3)):
        damaged[position] = data.draw(st.integers(0, 255))
    raises_only_protocol_errors(codec, bytes(damaged))


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=60), prefix=st.sampled_from([b"", XERIAL_HEADER, b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"]))
def test_any_bytes_raise_nothing_but_protocol_errors(codec: Compression, data: bytes, prefix: bytes) -> None:
    raises_only_protocol_errors(codec, prefix + data)


def raises_only_protocol_errors(codec: Compression, data: bytes) -> None:
    with suppress(ProtocolError):
        assert len(decompress(codec, data, LIMIT_BYTES)) <= LIMIT_BYTES
