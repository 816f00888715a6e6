"""Counts of groups in Spark SQL, without Python per row: Java's hash of names, and sizes from seeded hashes.

Each number depends only on the group's number and the seed, so the counts do not depend on tasks.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from math import lcm

import msgspec
import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, SparkSession, functions as f

from fakebroker.coordinator.partitions import java_string_hash
from fakebroker.lab.placement.draws import ASKED, SIZE, THRESHOLD_BITS, SizeTable, key_of
from fakebroker.lab.placement.placement_plan import PlacementPlan
from fakebroker.replay.script.generator import partition_of_hash

Counts = NDArray[np.int64]

_CHUNK = 10_000
"""Names are hashed in two parts: the last four digits, and what comes before them."""
_CHUNK_DIGITS = 4
_UINT32 = 2**32

_MAX_SEEDS_AT_ONCE = 5
"""Java does not compile methods beyond a size, so one query has the sums of a few seeds."""


class PartitionCounts(msgspec.Struct, frozen=True):
    """Groups by partition of the offsets topic; the arrays have a row per population.

    Attributes:
        groups: Number of groups by partition.
        members: By seed, the number of members by partition.
    """

    groups: Counts
    members: tuple[Counts, ...]


class Populations:
    """The populations of a plan. The queries count the groups that one population has in addition to the last one.

    Args:
        spark: The session.
        plan: The plan.
        tasks: Number of Spark partitions of each query.
    """

    def __init__(self, spark: SparkSession, plan: PlacementPlan, tasks: int) -> None:
        self._plan = plan
        self._rows = spark.range(0, plan.groups[-1], 1, tasks)
        self._number = f.col("id")
        self._table = SizeTable(plan.sizes)
        self._cells = _array(self._table.cells)
        self.partitions = lcm(*plan.partitions)
        self.asked = lcm(*plan.brokers, plan.bootstrap)

    def by_partition(self) -> PartitionCounts:
        """Count groups and members by partition, for as many partitions as the multiple of all partition counts."""
        seeds, counted, members = self._plan.seeds, None, []
        for first in range(0, len(seeds), _MAX_SEEDS_AT_ONCE):
            some = seeds[first : first + _MAX_SEEDS_AT_ONCE]
            found = self._count(self._partition(), self.partitions, [self._size(seed) for seed in some])
            counted, sums = found[0], found[1:]
            members += sums
        assert counted is not None
        return PartitionCounts(counted, tuple(members))

    def by_asked_and_size(self, seed: int) -> Counts:
        """Count groups by the broker that is asked first and by size; the result has an axis for each.

        The broker is a number below the least common multiple of all broker counts.
        """
        largest = self._plan.sizes.largest
        asked = self._drawn(seed, ASKED) % self.asked
        (counts,) = self._count(asked * largest + self._size(seed) - 1, self.asked * largest, ())
        return counts.reshape(len(self._plan.groups), self.asked, largest)

    def _count(self, key: Column, keys: int, summed: Sequence[Column]) -> list[Counts]:
        """Return the number of groups, and sums, by population and by a key in [0, keys)."""
        level = reduce(
            lambda chosen, index: f.when(f.lit(self._plan.groups[index]) > self._number, index).otherwise(chosen),
            reversed(range(len(self._plan.groups) - 1)),
            f.lit(len(self._plan.groups) - 1),
        )
        sums = [f.sum(each).alias(f"sum{index}") for index, each in enumerate(summed)]
        grouped = self._rows.groupBy((level.cast("long") * keys + key).alias("key"))
        rows = grouped.agg(f.count("*").alias("groups"), *sums).toArrow()
        indexes = rows.column("key").to_numpy()
        found = []
        for name in rows.column_names[1:]:
            added = np.zeros(len(self._plan.groups) * keys, np.int64)
            added[indexes] = rows.column(name).to_numpy()
            found.append(added.reshape(-1, keys).cumsum(axis=0))
        return found

    def _partition(self) -> Column:
        """Return the partition of a group's name, of as many as the multiple of all partition counts."""
        before, after = self._plan.name_pattern.split("{}")
        shift = pow(31, _CHUNK_DIGITS + len(after.encode("utf-16-le")) // 2, _UINT32)
        whole = [java_string_hash(f"{before}{number}{after}") for number in range(_CHUNK)]
        last = [java_string_hash(f"{number:0{_CHUNK_DIGITS}}{after}") for number in range(_CHUNK)]
        chunks = (self._plan.groups[-1] - 1) // _CHUNK + 1
        first = [0, *(java_string_hash(f"{before}{number}") % _UINT32 * shift for number in range(1, chunks))]
        index = f.when(self._number < _CHUNK, self._number).otherwise(_CHUNK + self._number % _CHUNK)
        hashes = _array(each % _UINT32 for each in (*whole, *last))
        high = _array(each % _UINT32 for each in first)[f.expr(f"cast(id div {_CHUNK} as int)")]
        return partition_of_hash(high + hashes[index.cast("int")], self.partitions)

    def _size(self, seed: int) -> Column:
        """Return a group's number of members, like `SizeTable.size`."""
        drawn, bits = self._drawn(seed, SIZE), self._table.index_bits
        index = drawn.bitwiseAND((1 << bits) - 1)
        cell = self._cells[index.cast("int")]
        is_below = f.shiftright(drawn, bits).bitwiseAND((1 << THRESHOLD_BITS) - 1) < f.shiftright(cell, bits)
        return f.when(is_below, index).otherwise(cell.bitwiseAND((1 << bits) - 1)) + 1

    def _drawn(self, seed: int, choice: int) -> Column:
        """Return a random number of a group, like `draw`."""
        return f.xxhash64(self._number.bitwiseXOR(f.lit(key_of(seed, choice)))).bitwiseAND((1 << 63) - 1)


def _array(numbers: Iterable[int]) -> Column:
    """Return a constant array. Spark converts the text once; thousands of literals would take it seconds to analyze."""
    text = ",".join(map(str, numbers))
    return f.expr(f"cast(split('{text}', ',') as array<bigint>)")
