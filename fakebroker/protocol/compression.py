"""The codecs of record batches: gzip, snappy (raw or in xerial's framing), lz4 frames and zstd.

Does not depend on the formats of records. Decompression is limited to a given size.
"""

import mmap
import struct
from enum import IntEnum

import cramjam

from fakebroker.errors import ProtocolError


class Compression(IntEnum):
    """The compression of a batch: bits 0 to 2 of its attributes (Kafka's `CompressionType`)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# xerial's framing (snappy-java): this magic, two int32 versions, then blocks: an int32 length and raw snappy data.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_VERSION = 1
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")


def compress(compression: Compression, data: bytes) -> bytes:
    """Compress data as Kafka's Java client does."""
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            # Kafka reads only frames of independent blocks (KIP-57).
            compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data))


def decompress(compression: Compression, data: bytes, limit_bytes: int) -> bytes:
    """Decompress data.

    Args:
        compression: The codec. NONE returns the data unchanged, without a limit.
        data: The compressed bytes.
        limit_bytes: The largest size of the result, at least 1. Larger sizes announced in the data allocate no memory.

    Raises:
        ProtocolError: The data is malformed, or the result would exceed the limit.
    """
    try:
        match compression:
            case Compression.NONE:
                return data
            case Compression.SNAPPY:
                return _decompress_snappy(data, limit_bytes)
            case Compression.GZIP:
                codec = cramjam.gzip.decompress_into
            case Compression.LZ4:
                codec = cramjam.lz4.decompress_into
            case Compression.ZSTD:
                codec = cramjam.zstd.decompress_into
        # Pages of anonymous memory are allocated when they are written, so a large limit costs nothing.
        with mmap.mmap(-1, limit_bytes) as scratch:
            return scratch[: codec(data, scratch)]
    except cramjam.DecompressionError as error:
        raise ProtocolError(
            f"{compression.name.lower()} data of {len(data)} bytes: {error}; "
            f"expected a complete stream of at most {limit_bytes} decompressed bytes"
        ) from error


def _compress_xerial(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION))
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += _BLOCK_LENGTH.pack(len(block)) + block
    return bytes(out)


def _decompress_snappy(data: bytes, limit_bytes: int) -> bytes:
    """Decompress framed snappy, as Java clients write it, or raw snappy. The versions in the frame are ignored."""
    if len(data) < _XERIAL_HEADER.size or not data.startswith(_XERIAL_MAGIC):
        return _decompress_block(data, limit_bytes)
    out = bytearray()
    position = _XERIAL_HEADER.size
    while position < len(data):
        start = position + _BLOCK_LENGTH.size
        block_bytes = _BLOCK_LENGTH.unpack_from(data, position)[0] if start <= len(data) else -1
        if not 0 <= block_bytes <= len(data) - start:
            raise ProtocolError(
                f"snappy block at byte {position}: length {block_bytes}, expected 0 to {max(0, len(data) - start)}"
            )
        position = start + block_bytes
        out += _decompress_block(data[start:position], limit_bytes - len(out))
    return bytes(out)


def _decompress_block(block: bytes, limit_bytes: int) -> bytes:
    claimed_bytes = cramjam.snappy.decompress_raw_len(block)
    if claimed_bytes > limit_bytes:
        raise ProtocolError(f"snappy block of {claimed_bytes} bytes decompressed, expected at most {limit_bytes}")
    return bytes(cramjam.snappy.decompress_raw(block))
