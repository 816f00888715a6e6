"""The partition of an internal topic that a group id or transactional id belongs to, by Java's string hash."""

import struct
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")

MAX_HASHES = 200_000
"""Maximum number of keys whose hash is kept."""

_UINT32_MASK = 0xFFFF_FFFF
_INT32_MIN = -(2**31)


def _utf16_units(text: str) -> tuple[int, ...]:
    # As in Java, a string may contain a lone surrogate; "surrogatepass" encodes it as one unit.
    encoded = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(encoded) // 2}H", encoded)


def java_string_length(text: str) -> int:
    """Return the length as Java's `String.length` counts it: characters above U+FFFF count twice."""
    if text.isascii():
        return len(text)
    return len(text) + sum(character > "\uffff" for character in text)


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: a signed 32-bit number over UTF-16 units."""
    value = 0
    for unit in _utf16_units(text):
        value = (31 * value + unit) & _UINT32_MASK
    return value - 2**32 if value >> 31 else value


class Hashes(dict[K, int]):
    """The hashes of keys seen recently, as Kafka's `Utils.abs(key.hashCode())`; a new key is hashed when looked up.

    The number of keys is limited to `MAX_HASHES`; hashing costs twenty times as much as looking up.

    Args:
        text_of: Returns the text of a key, which is hashed.
    """

    __slots__ = ("_text_of",)

    def __init__(self, text_of: Callable[[K], str]) -> None:
        self._text_of = text_of

    def __missing__(self, key: K) -> int:
        if len(self) >= MAX_HASHES:
            self.clear()
        value = java_string_hash(self._text_of(key))
        self[key] = value = 0 if value == _INT32_MIN else abs(value)
        return value


POSITIVE_HASHES: Hashes[str] = Hashes(str)
"""The hash by key."""


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of `__consumer_offsets` (or `__transaction_state`) that `key` belongs to.

    Kafka's `Utils.abs(key.hashCode()) % partitionCount`, where the absolute value of the smallest int is 0.

    Args:
        key: A group id or a transactional id; may be empty.
        partition_count: The number of partitions of the internal topic, at least 1.
    """
    if partition_count < 1:
        raise ValueError(f"partition_count={partition_count}: expected an integer >= 1")
    return POSITIVE_HASHES[key] % partition_count
