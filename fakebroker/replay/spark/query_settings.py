"""Spark settings for the queries about a run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

_PARTITIONS = "spark.sql.shuffle.partitions"
_ROWS_A_PARTITION = 250_000
"""As many as can be sorted in a task's share of the memory."""

_FEW_ROWS = 100_000
_FOR_FEW_ROWS = {
    # Compiling the many small steps of the queries takes longer than running them, and so does replanning.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # A task takes longer to start than to work on so few rows.
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def temporary_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session within the context."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


@contextmanager
def suited_to(rows: DataFrame, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[bool]:
    """Change settings of the session within the context, to suit queries on a number of rows.

    Args:
        rows: The rows, which are counted.
        more: Further settings.

    Yields:
        Whether they are few.
    """
    count = rows.count()
    with temporary_settings(rows.sparkSession, {**settings_for_count(rows.sparkSession, count), **more}):
        yield are_few(count)


def are_few(count: int) -> bool:
    """Return whether planning and starting queries takes longer than running them on so many rows."""
    return count <= _FEW_ROWS


def settings_for_count(spark: SparkSession, count: int) -> Mapping[str, str]:
    """Return the settings that suit a number of rows."""
    if are_few(count):
        return _FOR_FEW_ROWS
    given = spark.conf.get(_PARTITIONS)
    return {_PARTITIONS: str(max(int(given or 0), count // _ROWS_A_PARTITION))}


def computed_once(frame: DataFrame, few: bool) -> DataFrame:
    """Return the same rows, computed when they are first needed; `unpersist` frees them.

    Few rows also take the place of their plan, which then is not analyzed again in each query on them.
    """
    return frame.localCheckpoint(eager=False) if few else frame.persist(StorageLevel.MEMORY_AND_DISK)
