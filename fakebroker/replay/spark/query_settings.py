"""Spark settings for the queries about a run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

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


def settings_for_rows(rows: DataFrame) -> Mapping[str, str]:
    """Return the settings that suit the number of rows."""
    count = rows.count()
    if count <= _FEW_ROWS:
        return _FOR_FEW_ROWS
    given = rows.sparkSession.conf.get(_PARTITIONS)
    return {_PARTITIONS: str(max(int(given or 0), count // _ROWS_A_PARTITION))}
