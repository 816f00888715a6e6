"""The protocol of a generation: elected by the members, with ties resolved as on a Java broker."""

from collections import Counter
from collections.abc import Iterable

from fakebroker.coordinator.runtime.placement import java_string_hash

_INITIAL_CAPACITY = 16  # java.util.HashMap


def java_hash_map_order(names: Iterable[str]) -> list[str]:
    """Return distinct names in the iteration order of a `java.util.HashMap` into which they are inserted in this order.

    They are ordered by the index of their bucket, and within a bucket by insertion.
    """
    keys = list(dict.fromkeys(names))
    capacity = _INITIAL_CAPACITY
    while len(keys) > capacity * 3 // 4:
        capacity *= 2

    def bucket(name: str) -> int:
        unsigned = java_string_hash(name) & 0xFFFF_FFFF
        return (unsigned ^ unsigned >> 16) & (capacity - 1)

    return sorted(keys, key=bucket)


def most_voted(votes: Iterable[str]) -> str:
    """Return the name with the most votes; of a tie, the first in `java_hash_map_order` (Kafka's `selectProtocol`)."""
    counts = Counter(votes)
    return max(java_hash_map_order(counts), key=counts.__getitem__)
