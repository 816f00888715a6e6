"""Random numbers and group sizes that Spark computes equally: hashes of a seed, a choice and the number of a group.

Does not depend on Spark.
"""

from functools import cached_property

from fakebroker.lab.placement.placement_plan import GroupSizes

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_PRIMES = (
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
)
_SPARK_SEED = 42

SIZE, ASKED = 1, 2
"""Choices: the size of a group, and the broker that is asked first."""

THRESHOLD_BITS = 32
"""Precision of the probabilities in a `SizeTable`."""


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def xxhash64(number: int) -> int:
    """Return Spark's `xxhash64` of a bigint: a signed 64-bit number."""
    first, second, third, fourth, fifth = _PRIMES
    value = _SPARK_SEED + fifth + 8 & _MASK
    value ^= _rotated((number & _MASK) * second & _MASK, 31) * first & _MASK
    value = _rotated(value, 27) * first + fourth & _MASK
    value = (value ^ value >> 33) * second & _MASK
    value = (value ^ value >> 29) * third & _MASK
    value ^= value >> 32
    return value - 2**64 if value >> 63 else value


def key_of(seed: int, choice: int) -> int:
    """Return a key for `draw`."""
    return xxhash64(xxhash64(seed) ^ choice)


def draw(key: int, number: int) -> int:
    """Return a random number in [0, 2 ** 63) for a group.

    Args:
        key: The result of `key_of`.
        number: The number of the group.
    """
    return xxhash64(key ^ number) & _MASK >> 1


class SizeTable:
    """Draws sizes by Zipf's law with two table look-ups: Walker's alias method, in integers.

    A draw selects a cell with its lower bits; its next bits select one of the two sizes of the cell.

    Args:
        sizes: The distribution.

    Attributes:
        index_bits: Number of bits that select the cell.
    """

    def __init__(self, sizes: GroupSizes) -> None:
        self._weights = [k**-sizes.exponent for k in range(1, sizes.largest + 1)]
        self.index_bits = (sizes.largest - 1).bit_length()

    @cached_property
    def cells(self) -> list[int]:
        """By index, `threshold << index_bits | alias`: the size is index + 1 below the threshold, else alias + 1."""
        count, total = 1 << self.index_bits, sum(self._weights)
        scaled = [weight / total * count for weight in self._weights]
        scaled += [0.0] * (count - len(scaled))
        thresholds, aliases = [1 << THRESHOLD_BITS] * count, list(range(count))
        low = [index for index, share in enumerate(scaled) if share < 1]
        high = [index for index, share in enumerate(scaled) if share >= 1]
        while low and high:
            index, donor = low.pop(), high[-1]
            thresholds[index] = round(scaled[index] * (1 << THRESHOLD_BITS))
            aliases[index] = donor
            scaled[donor] -= 1 - scaled[index]
            if scaled[donor] < 1:
                low.append(high.pop())
        return [threshold << self.index_bits | alias for threshold, alias in zip(thresholds, aliases, strict=True)]

    def size(self, drawn: int) -> int:
        """Return the size for a result of `draw`."""
        index = drawn & (1 << self.index_bits) - 1
        cell = self.cells[index]
        is_below = drawn >> self.index_bits & (1 << THRESHOLD_BITS) - 1 < cell >> self.index_bits
        return 1 + (index if is_below else cell & (1 << self.index_bits) - 1)
