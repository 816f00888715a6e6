"""Cases and violations of promises by group, so that groups of one run can be tested separately."""

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


def promises_by_prefix(
    spark: SparkSession, events: DataFrame, members: DataFrame, partitions: Mapping[str, int]
) -> tuple[dict[str, dict[str, int]], dict[str, list[str]]]:
    """Return the number of cases by promise, and the violations, of the groups with a prefix such as "run-1/"."""
    cases: dict[str, dict[str, int]] = {}
    violations: dict[str, list[str]] = {}
    prefix = "substring_index(`group`, '/', 1) prefix"
    with promise_views(spark, events, members, partitions) as views:
        for name, promise in PROMISES.items():
            counted = views.sql(f"select {prefix}, sum(cases) cases from ({promise.cases}) group by 1")
            for row in counted.collect():
                cases.setdefault(row["prefix"], {})[name] = row["cases"]
            for row in views.sql(f"select {prefix}, what from ({promise.query})").collect():
                violations.setdefault(row["prefix"], []).append(f"{name}: {row['what']}")
    return cases, violations
