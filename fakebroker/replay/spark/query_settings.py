"""Spark settings for the queries about a run, depending on its number of rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

_PARTITIONS = "spark.sql.shuffle.partitions"
_ROWS_PER_PARTITION = 250_000
"""Rows that a task can sort in its share of the memory."""

_FEW_ROWS = 100_000
"""Up to this number of rows, planning a query and starting its tasks take longer than running it."""

_SETTINGS_FOR_FEW_ROWS = {
    # Code generation and adaptive execution take longer than they save.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


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


def are_few(count: int) -> bool:
    """Return whether planning and starting a query on this number of rows takes longer than running it."""
    return count <= _FEW_ROWS


def settings_for_count(spark: SparkSession, count: int) -> Mapping[str, str]:
    """Return the settings that suit a number of rows."""
    if are_few(count):
        return _SETTINGS_FOR_FEW_ROWS
    current = spark.conf.get(_PARTITIONS)
    return {_PARTITIONS: str(max(int(current or 0), count // _ROWS_PER_PARTITION))}


def computed_once(frame: DataFrame, few: bool) -> DataFrame:
    """Return the same rows, stored when they are first computed; `unpersist` frees them.

    Args:
        frame: The rows.
        few: Whether the rows are few. Then queries on them do not include the plan that computed them, so that Spark
            does not analyze that plan each time.
    """
    return frame.localCheckpoint(eager=False) if few else frame.persist(StorageLevel.MEMORY_AND_DISK)
