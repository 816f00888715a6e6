"""Correction of the header checksum of LZ4 frames in messages of magic 0 (KAFKA-3160).

Old Kafka clients computed the checksum over the wrong bytes. Kafka ignores it in these messages, but LZ4 libraries
verify it.
"""

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
