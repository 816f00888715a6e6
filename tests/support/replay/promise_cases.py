"""Counts the cases of promises by group, so that groups of one run can be tested separately."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from fakebroker.replay.verify.promise_views import promise_views
from fakebroker.replay.verify.promises import PROMISES


def cases_by_group(
    spark: SparkSession, events: DataFrame, members: DataFrame, partitions: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return the number of cases by group and promise; promises without a case are left out."""
    counts: dict[str, dict[str, int]] = {}
    with promise_views(spark, events, members, partitions) as views:
        for name, promise in PROMISES.items():
            for row in views.sql(f"select `group`, sum(cases) cases from ({promise.cases}) group by `group`").collect():
                if row["cases"]:
                    counts.setdefault(row["group"], {})[name] = row["cases"]
    return counts
