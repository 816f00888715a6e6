"""Counts of groups in Spark equal those of the pure placements, however many tasks compute them."""

import json
from collections import Counter
from random import Random

import msgspec
import numpy as np
import pytest
from pyspark.sql import SparkSession, functions as f

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.placement.draws import ASKED, SIZE, SizeTable, draw, key_of, xxhash64
from fakebroker.lab.placement.placement_plan import GroupSizes, LookupPlan, PlacementPlan
from fakebroker.lab.placement.population import Populations
from fakebroker.lab.placement.study import place, settings_for
from fakebroker.replay.script.generator import partition_of_hash
from fakebroker.replay.spark.query_settings import temporary_settings


def _plan(random: Random) -> PlacementPlan:
    """Return a random plan whose populations are on both sides of the parts in which names are hashed."""
    pattern = random.choice(["group-{}", "{}", "k\u00e4se-{}-\U0001f600", "x" * 40 + "{}.y"])
    groups = tuple(sorted({random.randint(1, 50), random.randint(51, 9_999), random.randint(10_000, 30_000)}))
    return PlacementPlan(
        groups=groups[random.randrange(3) :],
        name_pattern=pattern,
        sizes=GroupSizes(exponent=random.uniform(1.2, 3), largest=random.choice([1, 5, 64, 100])),
        brokers=(2, 6),
        partitions=(50, 31),
        bootstrap=4,
        seeds=(random.randint(1, 10**9),),
        lookups=LookupPlan(groups=()),
    )


@pytest.mark.parametrize("rows", [1, 10**9])
def test_counts_in_sql_are_those_of_the_pure_placement(spark: SparkSession, rows: int) -> None:
    """With the settings for few rows, which interpret expressions, and with those for many rows, which compile them."""
    plan = _plan(Random(rows))
    with temporary_settings(spark, settings_for(spark, rows)):
        populations, table = Populations(spark, plan, tasks=2), SizeTable(plan.sizes)
        by_partition, by_asked = populations.by_partition(), populations.by_asked_and_size(plan.seeds[0])
    assert (populations.partitions, populations.asked) == (1_550, 12)
    size_key, asked_key = (key_of(plan.seeds[0], choice) for choice in (SIZE, ASKED))
    for index, groups in enumerate(plan.groups):
        expected, members, asked = Counter[int](), Counter[int](), Counter[tuple[int, int]]()
        for each in range(groups):
            partition = partition_for(plan.name_pattern.format(each), 1_550)
            size = table.size(draw(size_key, each))
            expected[partition] += 1
            members[partition] += size
            asked[draw(asked_key, each) % 12, size] += 1
        assert dict(enumerate(by_partition.groups[index])) == {each: expected[each] for each in range(1_550)}, plan
        assert dict(enumerate(by_partition.members[0][index])) == {each: members[each] for each in range(1_550)}, plan
        found = {(broker, size + 1): count for (broker, size), count in np.ndenumerate(by_asked[index]) if count}
        assert found == asked, plan


def test_hashes_and_partitions_at_their_limits(spark: SparkSession) -> None:
    """Kafka's `Utils.abs` of the smallest int is 0."""
    hashes = [0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 3 * 2**32 + 5, -1]
    rows = spark.sql(f"select explode(array({', '.join(f'{each}L' for each in hashes)})) as hash")
    found = rows.select(partition_of_hash(f.col("hash"), 50), f.xxhash64("hash")).collect()
    assert [row[0] for row in found] == [0, 1, 47, 0, 47, 1, 0, 5, 1]
    assert [row[1] for row in found] == [xxhash64(each) for each in hashes]


def test_tasks_and_partitions_do_not_change_the_result(spark: SparkSession) -> None:
    plan = PlacementPlan(
        groups=(100, 30_000), brokers=(1, 3), partitions=(50,), seeds=(-1,), lookups=LookupPlan(groups=(20,))
    )
    results = [msgspec.json.encode(place(spark, plan, tasks)) for tasks in (1, 4)]
    assert results[0] == results[1]
    decoded = json.loads(results[0])
    assert {row["placement"] for row in decoded["balance"]} == {"option-2a", "option-2b", "load-aware"}
    assert {row["change"] for row in decoded["moves"]} == {"dies", "added", "reassigned", "rolling restart"}
