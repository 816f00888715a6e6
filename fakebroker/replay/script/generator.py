"""Generates one script per member from a workload and a seed, in Spark.

Every random choice is a hash of (seed, group, member, choice), so that what a member does depends neither on the number
of members beside it nor on how Spark partitions them.
"""

from collections.abc import Callable
from itertools import accumulate, count
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as f

from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.replay.script.acts import RandomChoices, acts_of, is_static
from fakebroker.replay.workload.group_names import names_in
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.workload import Workload


def member_scripts(spark: SparkSession, workload: Workload, seed: int, tasks: int) -> DataFrame:
    """Return the scripts of all members, a row each as in `Script`; the members of a group share a partition.

    Args:
        spark: Generates them, lazily.
        workload: The workload.
        seed: Of all random choices.
        tasks: Among how many partitions the groups are distributed, if there are so many groups. The rows are the same
            for any number.
    """
    return _ScriptGenerator(spark, workload, seed).rows(tasks)


def by_offsets_partition(scripts: DataFrame, offsets_partitions: int, tasks: int) -> DataFrame:
    """Return the same scripts, with all groups of an offsets partition together.

    Args:
        scripts: Rows as `member_scripts` gives them.
        offsets_partitions: How many partitions `__consumer_offsets` has.
        tasks: Into how many partitions of Spark the rows go.

    Returns:
        The rows with a column `offsets_partition int`; in one partition of Spark all of the same, in order.
    """
    partition = f.udf(lambda group: partition_for(group, offsets_partitions), "int", useArrow=True)
    return (
        scripts.withColumn("offsets_partition", partition("group"))
        .repartition(tasks, "offsets_partition")
        .sortWithinPartitions("offsets_partition", "group", "member")
    )


class _ScriptGenerator:
    """Generates the scripts of one workload."""

    def __init__(self, spark: SparkSession, workload: Workload, seed: int) -> None:
        self._spark = spark
        self._workload = workload
        self._choose = RandomChoices(seed)
        self._names = [
            names_in(Path(population.from_file), population.from_column)[: population.count]
            if population.from_file
            else None
            for population in workload.groups
        ]
        counts = [
            population.group_count if names is None else len(names)
            for population, names in zip(workload.groups, self._names, strict=True)
        ]
        self._first_groups = [0, *accumulate(counts)]  # of each population, counted through all groups

    def rows(self, tasks: int) -> DataFrame:
        """See `member_scripts`."""
        named = self._with_listed_names(self._groups(tasks)).withColumn("group", self._each(self._group_name))
        sized = named.withColumn("size", self._each(self._size))
        grown = self._each(lambda population: f.lit(population.grow.instances if population.grow else 0))
        indexed = sized.withColumn("index", f.explode(f.sequence(f.lit(0), f.col("size") + grown - 1)))
        members = indexed.withColumn("member", f.concat_ws("-", "group", f.col("index").cast("string")))
        return members.select(*(column.alias(name) for name, column in self._columns().items()))

    def _groups(self, tasks: int) -> DataFrame:
        """Return the numbers of all groups, distributed one by one, so that each task has its part of a population."""
        tasks = min(tasks, self._first_groups[-1])
        number = f.explode(
            f.sequence(f.col("id"), f.lit(self._first_groups[-1] - 1).cast("long"), f.lit(tasks).cast("long"))
        )
        return self._spark.range(0, tasks, 1, tasks).select(number.alias("group_number"))

    def _with_listed_names(self, groups: DataFrame) -> DataFrame:
        """Add a column `listed` if there are names from files."""
        numbers: list[int] = []
        listed: list[str] = []
        for first, names in zip(self._first_groups, self._names, strict=False):
            numbers.extend(range(first, first + len(names or ())))
            listed.extend(names or ())
        if not numbers:
            return groups
        table = pa.table({"group_number": pa.array(numbers, pa.int64()), "listed": pa.array(listed, pa.string())})
        return groups.join(f.broadcast(self._spark.createDataFrame(table)), "group_number", "left")

    def _each(self, value: Callable[[Groups], Column]) -> Column:
        """Return a value for which each population has its own expression."""
        populations = self._workload.groups
        chosen = value(populations[-1])
        for population, end in reversed(list(zip(populations[:-1], self._first_groups[1:], strict=False))):
            chosen = f.when(f.col("group_number") < end, value(population)).otherwise(chosen)
        return chosen

    def _group_name(self, population: Groups) -> Column:
        index = self._workload.groups.index(population)
        if self._names[index] is not None:
            return f.col("listed")
        digits = len(str(population.group_count - 1))
        number = f.lpad((f.col("group_number") - self._first_groups[index]).cast("string"), digits, "0")
        name = f.replace(f.lit(population.name_pattern), f.lit("{}"), number)
        if not population.hot_partitions:
            return name
        is_hot = self._choose.share("hot", f.lit(population.name), number) < population.hot_share
        hot = f.udf(_HotName(population, self._workload.offsets_partitions), "string", useArrow=True)
        return f.when(is_hot, hot(number)).otherwise(name)

    def _size(self, population: Groups) -> Column:
        if isinstance(population.members, int):
            return f.lit(population.members)
        drawn = self._choose.share("size", f.col("group"))
        if population.members.uniform:
            fewest, most = population.members.uniform
            return (f.lit(fewest) + f.floor(drawn * (most - fewest + 1))).cast("int")
        sizes = f.expr(f"array({', '.join(map(str, population.members.weights))})")
        bounds = f.expr(
            f"cast(array({', '.join(f'{bound!r}D' for bound in population.members.bounds)}) as array<double>)"
        )
        return f.element_at(sizes, f.size(f.filter(bounds, lambda bound: bound <= drawn)) + 1)

    def _columns(self) -> dict[str, Column]:
        """The columns of a script, by their names and in their order."""
        each, workload, length = self._each, self._workload, self._length
        return {
            "population": each(lambda population: f.lit(population.name)),
            "group": f.col("group"),
            "member": f.col("member"),
            "instance_id": each(self._instance_id),
            "topics": each(lambda population: f.array(*map(f.lit, workload.topics_of(population)))),
            "assignor": each(lambda population: f.lit(population.assignor)),
            "session_timeout_ms": each(lambda some: length("session", some.session_timeout_ms, some.timeout_jitter)),
            "rebalance_timeout_ms": each(
                lambda some: length("rebalance", some.rebalance_timeout_ms, some.timeout_jitter)
            ),
            "heartbeat_interval_ms": each(
                lambda some: length("heartbeat", workload.heartbeat_interval_ms(some), some.jitter)
            ),
            "commit_interval_ms": each(lambda some: length("commit", some.commit_interval_ms, some.jitter)),
            "consume_per_s": each(lambda population: f.lit(float(population.consume_per_s))),
            "acts": each(lambda population: acts_of(population, workload, self._choose)),
        }

    def _instance_id(self, population: Groups) -> Column:
        instance_id = f.concat(f.lit("instance-"), f.col("index").cast("string"))
        return f.when(is_static(population, self._choose), instance_id)

    def _length(self, choice: str, length_ms: float, jitter: float) -> Column:
        factor = 1 + jitter * (2 * self._choose.of_member(choice) - 1)
        return f.round(f.lit(float(length_ms)) * factor).cast("int")


class _HotName:
    """Finds a name for a group that belongs to one of a population's hot partitions."""

    def __init__(self, population: Groups, offsets_partitions: int) -> None:
        self._pattern = population.name_pattern
        self._hot = frozenset(population.hot_partitions)
        self._offsets_partitions = offsets_partitions

    def __call__(self, number: str) -> str:
        candidates = (self._pattern.replace("{}", f"{number}-{attempt}") for attempt in count())
        return next(name for name in candidates if partition_for(name, self._offsets_partitions) in self._hot)
