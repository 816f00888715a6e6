"""XXH3 with 64 bits: the hash function with which consumer groups notice changes of topics (KIP-1101).

Only for inputs of at least 4 bytes, with the default secret and the seed 0. Source: the specification of xxHash.
"""

from collections.abc import Sequence
from struct import Struct

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
    "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
    "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_MASK_32, _MASK_64 = 2**32 - 1, 2**64 - 1

_PRIME_32_1, _PRIME_32_2, _PRIME_32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_64_1, _PRIME_64_2, _PRIME_64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_PRIME_64_4, _PRIME_64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_PRIME_MX_1, _PRIME_MX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_STRIPE, _LANES, _STRIPES_PER_BLOCK = 64, 8, 16
_START = (
    _PRIME_32_3, _PRIME_64_1, _PRIME_64_2, _PRIME_64_3, _PRIME_64_4, _PRIME_32_2, _PRIME_64_5, _PRIME_32_1,
)  # fmt: skip

_stripe = Struct("<8Q").unpack_from
_pair = Struct("<2Q").unpack_from
_KEYS = [_stripe(_SECRET, 8 * number) for number in range(_STRIPES_PER_BLOCK)]
_SCRAMBLE_KEYS, _LAST_KEYS = _stripe(_SECRET, 128), _stripe(_SECRET, 121)


def xxh3(data: bytes) -> int:
    """Return the hash of at least 4 bytes, from 0 to 2**64 - 1."""
    size = len(data)
    assert size >= 4, "shorter inputs are not supported"
    if size <= 8:
        return _hash_of_8(data)
    if size <= 16:
        return _hash_of_16(data)
    if size <= 128:
        return _hash_of_128(data)
    return _hash_of_240(data) if size <= 240 else _hash_of_more(data)


def _word(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _fold(one: int, other: int) -> int:
    product = one * other
    return product & _MASK_64 ^ product >> 64


def _avalanche(hash_: int) -> int:
    hash_ = (hash_ ^ hash_ >> 37) * _PRIME_MX_1 & _MASK_64
    return hash_ ^ hash_ >> 32


def _mixed(data: bytes, offset: int, secret_offset: int) -> int:
    low, high = _pair(data, offset)
    low_key, high_key = _pair(_SECRET, secret_offset)
    return _fold(low ^ low_key, high ^ high_key)


def _hash_of_8(data: bytes) -> int:
    first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[-4:], "little")
    hash_ = (last + (first << 32)) ^ _word(_SECRET, 8) ^ _word(_SECRET, 16)
    hash_ ^= (hash_ << 49 | hash_ >> 15) & _MASK_64 ^ (hash_ << 24 | hash_ >> 40) & _MASK_64
    hash_ = hash_ * _PRIME_MX_2 & _MASK_64
    hash_ ^= (hash_ >> 35) + len(data)
    hash_ = hash_ * _PRIME_MX_2 & _MASK_64
    return hash_ ^ hash_ >> 28


def _hash_of_16(data: bytes) -> int:
    low = _word(data, 0) ^ _word(_SECRET, 24) ^ _word(_SECRET, 32)
    high = _word(data, len(data) - 8) ^ _word(_SECRET, 40) ^ _word(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche(len(data) + swapped + high + _fold(low, high) & _MASK_64)


def _hash_of_128(data: bytes) -> int:
    hash_ = len(data) * _PRIME_64_1
    for number in range((len(data) - 1) // 32 + 1):
        hash_ += _mixed(data, 16 * number, 32 * number)
        hash_ += _mixed(data, len(data) - 16 * (number + 1), 32 * number + 16)
    return _avalanche(hash_ & _MASK_64)


def _hash_of_240(data: bytes) -> int:
    hash_ = len(data) * _PRIME_64_1 + sum(_mixed(data, 16 * number, 16 * number) for number in range(8))
    hash_ = _avalanche(hash_ & _MASK_64)
    hash_ += sum(_mixed(data, 16 * number, 16 * (number - 8) + 3) for number in range(8, len(data) // 16))
    hash_ += _mixed(data, len(data) - 16, 136 - 17)
    return _avalanche(hash_ & _MASK_64)


def _hash_of_more(data: bytes) -> int:
    sums = list(_START)
    last = (len(data) - 1) // _STRIPE  # The last stripe may overlap the one before.
    for number in range(last):
        place = number % _STRIPES_PER_BLOCK
        if number and place == 0:
            _scramble(sums)
        _accumulate(sums, _stripe(data, number * _STRIPE), _KEYS[place])
    if last % _STRIPES_PER_BLOCK == 0:
        _scramble(sums)
    _accumulate(sums, _stripe(data, len(data) - _STRIPE), _LAST_KEYS)
    hash_ = len(data) * _PRIME_64_1
    for lane in range(0, _LANES, 2):
        low_key, high_key = _pair(_SECRET, 11 + 8 * lane)
        hash_ += _fold(sums[lane] ^ low_key, sums[lane + 1] ^ high_key)
    return _avalanche(hash_ & _MASK_64)


def _accumulate(sums: list[int], stripe: Sequence[int], keys: Sequence[int]) -> None:
    for lane in range(_LANES):
        keyed = stripe[lane] ^ keys[lane]
        sums[lane ^ 1] += stripe[lane]
        sums[lane] += (keyed & _MASK_32) * (keyed >> 32)
    # The sums are masked once a stripe, and not with each addition, which is faster.
    sums[:] = [each & _MASK_64 for each in sums]


def _scramble(sums: list[int]) -> None:
    for lane, key in enumerate(_SCRAMBLE_KEYS):
        sums[lane] = (sums[lane] ^ sums[lane] >> 47 ^ key) * _PRIME_32_1 & _MASK_64
