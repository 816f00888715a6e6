"""Spark settings for the queries about a run, depending on its number of rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")

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
