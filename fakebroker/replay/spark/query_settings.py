"""Spark settings for the queries about a run, depending on its number of rows."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession

T = TypeVar("T")

_MOST_AT_ONCE = 6
"""Maximum number of queries on few rows that are planned at the same time."""

_PARTITIONS = "spark.sql.shuffle.partitions"
_ROWS_PER_PARTITION = 250_000
"""Rows that a task can sort in its share of the memory."""

_FEW_ROWS = 100_000
"""Up to this number of rows, planning a query and starting its tasks take longer than running it."""

SETTINGS_FOR_FEW_ROWS = MappingProxyType(
    {
        # Code generation and adaptive execution take longer than they save.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        # A broadcast is a Spark job of its own.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # Conditions that Spark derives from others would filter few rows, and take a tenth of the planning.
        "spark.sql.constraintPropagation.enabled": "false",
    }
)
"""Settings of a session, or of a part of its queries, on at most `_FEW_ROWS` rows."""

_SETTINGS_FOR_MANY_ROWS = MappingProxyType(
    {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.autoBroadcastJoinThreshold": "10MB",
        "spark.sql.constraintPropagation.enabled": "true",
        # For stored rows: trying out encodings for each column costs more than the memory that they save.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # Replaces the names of a `with` by their queries before Spark analyzes them. Rows stored by `persist` are only
        # recognized with this setting; those of `computed_once` always are, and 4,000 members take as long without it.
        "spark.sql.legacy.ctePrecedencePolicy": "LEGACY",
    }
)
"""Settings of a session on many rows. The first ones are Spark's defaults, for sessions that were started for few."""

_LEAST_PARTITIONS = 4
"""Minimum number of partitions of many rows, on one machine."""


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session within the context."""
    previous = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, previous_value in previous.items():
            if previous_value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, previous_value)


@contextmanager
def suited_to(rows: DataFrame, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[bool]:
    """Change settings of the session within the context, to suit queries on these rows.

    Args:
        rows: The rows; this counts them.
        more: Further settings.

    Yields:
        Whether the rows are few; see `are_few`.
    """
    count = rows.count()
    with temporary_settings(rows.sparkSession, {**settings_for_count(rows.sparkSession, count), **more}):
        yield are_few(count)


def are_few(count: float) -> bool:
    """Return whether planning and starting a query on this number of rows takes longer than running it."""
    return count <= _FEW_ROWS


def settings_for_count(spark: SparkSession, count: int) -> Mapping[str, str]:
    """Return the settings that suit a number of rows."""
    if are_few(count):
        return SETTINGS_FOR_FEW_ROWS
    current = int(spark.conf.get(_PARTITIONS) or 0)
    partitions = max(current, _LEAST_PARTITIONS, count // _ROWS_PER_PARTITION)
    return {**_SETTINGS_FOR_MANY_ROWS, _PARTITIONS: str(partitions)}


def local_table(spark: SparkSession, rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> DataFrame:
    """Return a few rows as a table. Unlike with a table of `createDataFrame(list)`, queries need no Python worker."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))


def query_threads(few: bool) -> ThreadPoolExecutor:
    """Return threads for calls that run queries.

    With few rows, several run at a time: most of their time is planning, which uses one core per query, and the rest is
    waiting for Spark's tasks. With many rows they run one after the other, because each uses all cores and much memory.
    """
    return ThreadPoolExecutor(min(_MOST_AT_ONCE, 1 + (os.cpu_count() or 1)) if few else 1, "queries")


def in_parallel(calls: Sequence[Callable[[], T]], few: bool) -> list[T]:
    """Return the results of calls that run queries; see `query_threads`."""
    with query_threads(few) as threads:
        return list(threads.map(lambda call: call(), calls))


def rows_of(
    spark: SparkSession, queries: Mapping[str, tuple[str, Mapping[str, Any]]], few: bool
) -> dict[str, list[Row]]:
    """Return the rows of queries by their names.

    Args:
        spark: The session.
        queries: By name, the query and its parameters.
        few: Whether the queries read few rows; see `in_parallel`.
    """

    def rows(query: str, parameters: Mapping[str, Any]) -> list[Row]:
        return spark.sql(query, dict(parameters)).collect()

    return dict(zip(queries, in_parallel([partial(rows, *each) for each in queries.values()], few), strict=True))


def computed_once(frame: DataFrame, few: bool) -> DataFrame:
    """Return the same rows, stored; `free` frees them.

    Queries on them do not include the query that computed them. After `persist` they would: Spark would analyze it for
    each query, and search it for stored rows.

    Args:
        frame: The rows.
        few: Whether the rows are few. Then they are computed now, and not sent to each task as a plan. Many rows are
            stored when they are first read.
    """
    if few:
        return frame.localCheckpoint()
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    sql = jvm.org.apache.spark.sql
    relation = getattr(getattr(sql.execution.columnar, "InMemoryRelation$"), "MODULE$")
    level = spark.sparkContext._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK_DESER)
    rows = relation.apply(level, frame._jdf.queryExecution(), jvm.scala.Option.empty())
    return DataFrame(sql.classic.Dataset.ofRows(spark._jsparkSession, rows), spark)


def free(frames: Iterable[DataFrame], few: bool) -> None:
    """Free rows that `computed_once` has stored. Few rows are freed by Java's garbage collector."""
    for frame in () if few else frames:
        frame._jdf.queryExecution().analyzed().cacheBuilder().clearCache(False)
