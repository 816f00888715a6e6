"""Generates one script per member from a workload and a seed, in Spark.

Each random number is a hash of seed, group, member and the name of the choice. So random numbers do not depend on
other groups or members, or on the number of Spark partitions.
"""

from collections.abc import Callable
from itertools import accumulate, count
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as f

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.script.acts import RandomChoices, acts_of, is_static
from fakebroker.replay.script.script import DDL
from fakebroker.replay.workload.group_names import names_in
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.table import ends
from fakebroker.replay.workload.workload import Workload

_TRANSACTIONS = DDL.partition(" transactions ")[2].removesuffix(", protocol string")
"""The type of the column `transactions`."""


def member_scripts(spark: SparkSession, workload: Workload, seed: int, tasks: int) -> DataFrame:
    """Return the scripts of all members, as rows of `Script`. The members of a group are in one Spark partition.

    Args:
        spark: The session.
        workload: The workload.
        seed: Seed of all random choices.
        tasks: Number of Spark partitions, at most one per group. The rows do not depend on it.
    """
    return _ScriptGenerator(spark, workload, seed).rows(tasks)


def count_groups_by_partition(spark: SparkSession, workload: Workload, seed: int, tasks: int) -> dict[str, list[int]]:
    """Return the number of groups in each offsets partition, by population; arguments as for `member_scripts`."""
    partitions = workload.offsets_partitions
    found = {population.name: [0] * partitions for population in workload.groups}
    for row in _ScriptGenerator(spark, workload, seed).group_counts(tasks, partitions).collect():
        found[row["population"]][row["offsets_partition"]] = row["count"]
    return found


def by_offsets_partition(scripts: DataFrame, offsets_partitions: int, tasks: int) -> DataFrame:
    """Return scripts with all groups of an offsets partition in one Spark partition.

    Args:
        scripts: Rows of `member_scripts`.
        offsets_partitions: Number of partitions of `__consumer_offsets`.
        tasks: Number of Spark partitions.

    Returns:
        The rows with an additional column `offsets_partition int`. Each Spark partition is sorted by this column, group
        and member.
    """
    return (
        scripts.withColumn("offsets_partition", offsets_partition(f.col("group"), offsets_partitions))
        .repartition(tasks, "offsets_partition")
        .sortWithinPartitions("offsets_partition", "group", "member")
    )


def offsets_partition(group: Column, offsets_partitions: int) -> Column:
    """Return the partition of `__consumer_offsets` of a group, like `partition_for`, but without Python workers."""

    def added(value: Column, character: Column) -> Column:
        code = f.ascii(character).cast("long")
        above = code - 0x10000
        first, second = 0xD800 + f.shiftright(above, 10), 0xDC00 + above.bitwiseAND(0x3FF)  # UTF-16 surrogates
        units = 31 * (31 * value + first) + second
        hashed = f.when(code < 0x10000, 31 * value + code).otherwise(units).bitwiseAND(0xFFFF_FFFF)
        return f.when(character == "", value).otherwise(hashed)

    return partition_of_hash(f.aggregate(f.split(group, ""), f.lit(0).cast("long"), added), offsets_partitions)


def partition_of_hash(hashed: Column, partitions: int) -> Column:
    """Return Kafka's `Utils.abs(hash) % partitions` for a bigint whose lower 32 bits are Java's hash."""
    signed = f.shiftright(f.shiftleft(hashed, 32), 32)
    return (f.abs(signed).bitwiseAND(0x7FFF_FFFF) % partitions).cast("int")


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
        self._first_groups = [0, *accumulate(counts)]  # First group number of each population, and the total.

    def rows(self, tasks: int) -> DataFrame:
        """Return the result of `member_scripts`."""
        sized = self._named_groups(tasks).withColumn("size", self._by_population(self._size))
        grown = self._by_population(lambda population: f.lit(population.grow.instances if population.grow else 0))
        indexed = sized.withColumn("index", f.explode(f.sequence(f.lit(0), f.col("size") + grown - 1)))
        members = indexed.withColumn("member", f.concat_ws("-", "group", f.col("index").cast("string")))
        return members.select(*(column.alias(name) for name, column in self._columns().items()))

    def group_counts(self, tasks: int, partitions: int) -> DataFrame:
        """Return the number of groups by population and offsets partition."""
        population = self._by_population(lambda population: f.lit(population.name)).alias("population")
        partition = offsets_partition(f.col("group"), partitions).alias("offsets_partition")
        return self._named_groups(tasks).groupBy(population, partition).count()

    def _named_groups(self, tasks: int) -> DataFrame:
        return self._with_listed_names(self._groups(tasks)).withColumn("group", self._by_population(self._group_name))

    def _groups(self, tasks: int) -> DataFrame:
        """Return all group numbers, distributed to the tasks in turn, so that each gets a part of each population."""
        tasks = min(tasks, self._first_groups[-1])
        number = f.explode(
            f.sequence(f.col("id"), f.lit(self._first_groups[-1] - 1).cast("long"), f.lit(tasks).cast("long"))
        )
        return self._spark.range(0, tasks, 1, tasks).select(number.alias("group_number"))

    def _with_listed_names(self, groups: DataFrame) -> DataFrame:
        """Add a column `listed` with group names from files. Without such names, return `groups`."""
        numbers: list[int] = []
        listed: list[str] = []
        for first, names in zip(self._first_groups, self._names, strict=False):
            numbers.extend(range(first, first + len(names or ())))
            listed.extend(names or ())
        if not numbers:
            return groups
        table = pa.table({"group_number": pa.array(numbers, pa.int64()), "listed": pa.array(listed, pa.string())})
        return groups.join(f.broadcast(self._spark.createDataFrame(table)), "group_number", "left")

    def _by_population(self, value: Callable[[Groups], Column]) -> Column:
        """Return an expression that depends on the population of the row's group."""
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
        """Return the columns of a script by name, in their order."""
        by_population, workload, jitter = self._by_population, self._workload, self._with_jitter
        return {
            "population": by_population(lambda population: f.lit(population.name)),
            "group": f.col("group"),
            "member": f.col("member"),
            "instance_id": by_population(self._instance_id),
            "topics": by_population(lambda population: f.array(*map(f.lit, workload.topics_of(population)))),
            "assignor": by_population(lambda population: f.lit(population.assignor)),
            "session_timeout_ms": by_population(
                lambda groups: (
                    jitter("session", groups.session_timeout_ms, groups.timeout_jitter)
                    if groups.has_classic_members
                    else f.lit(groups.session_timeout_ms)
                )
            ),
            "rebalance_timeout_ms": by_population(
                lambda groups: jitter("rebalance", groups.rebalance_timeout_ms, groups.timeout_jitter)
            ),
            "heartbeat_interval_ms": by_population(
                lambda groups: (
                    jitter("heartbeat", workload.heartbeat_interval_ms(groups), groups.jitter)
                    if groups.has_classic_members
                    else f.lit(groups.heartbeat_interval_ms)
                )
            ),
            "commit_interval_ms": by_population(
                lambda groups: f.lit(0) if groups.transactional else self._commit_interval_ms(groups)
            ),
            "consume_per_s": by_population(lambda population: f.lit(float(population.consume_per_s))),
            "acts": by_population(lambda population: acts_of(population, workload, self._choose)),
            "transactions": by_population(self._transactions),
            "protocol": by_population(lambda population: f.lit(population.protocol)),
        }

    def _commit_interval_ms(self, population: Groups) -> Column:
        return self._with_jitter("commit", population.commit_interval_ms, population.jitter)

    def _transactions(self, population: Groups) -> Column:
        transaction = population.transaction
        if transaction is None:
            return f.lit(None).cast(_TRANSACTIONS)
        values = {
            "topic": f.lit(transaction.to),
            "records": f.lit(transaction.records),
            "interval_ms": self._commit_interval_ms(population),
            "timeout_ms": f.lit(transaction.timeout_ms),
            "abort": f.lit(float(transaction.abort)),
            "crash": f.lit(float(transaction.crash)),
            "return_ms": f.array(*(f.lit(1000.0 * each) for each in ends(transaction.return_after_s))),
            "seed": self._choose.seed("transactions"),
        }
        return f.struct(*(column.alias(name) for name, column in values.items())).cast(_TRANSACTIONS)

    def _instance_id(self, population: Groups) -> Column:
        instance_id = f.concat(f.lit("instance-"), f.col("index").cast("string"))
        return f.when(is_static(population, self._choose), instance_id)

    def _with_jitter(self, choice: str, time_ms: float, jitter: float) -> Column:
        """Return a time that differs among members by up to the share `jitter` in both directions."""
        factor = 1 + jitter * (2 * self._choose.of_member(choice) - 1)
        return f.round(f.lit(float(time_ms)) * factor).cast("int")


class _HotName:
    """A function for Spark that returns, for the number of a group, a name that maps to one of the hot partitions.

    It tries names with an increasing suffix until one belongs to a hot partition.
    """

    def __init__(self, population: Groups, offsets_partitions: int) -> None:
        self._pattern = population.name_pattern
        self._hot = frozenset(population.hot_partitions)
        self._offsets_partitions = offsets_partitions

    def __call__(self, number: str) -> str:
        candidates = (self._pattern.replace("{}", f"{number}-{attempt}") for attempt in count())
        return next(name for name in candidates if partition_for(name, self._offsets_partitions) in self._hot)
