"""Counts the cases of promises by group, so that groups of one run can be tested separately."""

from functools import partial, reduce

from pyspark.sql import DataFrame

from fakebroker.replay.spark.query_settings import computed_once, in_parallel
from fakebroker.replay.verify.promise_views import PromiseViews
from fakebroker.replay.verify.promises import cases_query, countable_promises


def cases_by_group(views: PromiseViews) -> dict[str | None, dict[str, int]]:
    """Return the number of cases by group and promise; promises without a case are left out.

    Requests about several groups are cases of no group.
    """

    def planned(name: str) -> DataFrame:
        cases = cases_query(views, name)
        query = f"select '{name}' promise, `group`, sum(cases) cases from ({cases}) group by `group`"
        return computed_once(views.sql(query), views.few)

    counts: dict[str | None, dict[str, int]] = {}
    frames = in_parallel([partial(planned, name) for name in countable_promises(views)], views.few)
    for row in reduce(DataFrame.union, frames).where("cases > 0").collect():
        counts.setdefault(row["group"], {})[row["promise"]] = row["cases"]
    return counts
