"""Checks promises and counts their cases by group, so that groups of one run can be tested separately."""

from functools import partial, reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from fakebroker.replay.run_summary import PromiseCheck
from fakebroker.replay.spark.query_settings import computed_once, in_parallel
from fakebroker.replay.verify.promise_views import PromiseViews
from fakebroker.replay.verify.promises import PROMISES, cases_query, checked_promises, countable_promises


def checked_with_cases(
    views: PromiseViews, file: Path | None = None
) -> tuple[list[PromiseCheck], dict[str | None, dict[str, int]]]:
    """Check all promises on the views of a run; also return the number of cases by group and promise.

    Promises without a case are left out of these numbers. Requests about several groups are cases of no group. The
    check adds up these numbers, so that the queries of the cases, which take long to plan, are planned once.

    Args:
        views: The views.
        file: File for the violations.
    """

    def by_group(name: str) -> DataFrame:
        cases = cases_query(views, name)
        query = f"select '{name}' promise, `group`, sum(cases) cases from ({cases}) group by `group`"
        frame = computed_once(views.sql(query), views.few)
        frame.createOrReplaceTempView(_view(name))
        return frame

    frames = in_parallel([partial(by_group, name) for name in countable_promises(views)], views.few)
    with pytest.MonkeyPatch.context() as patch:
        counted = "fakebroker.replay.verify.promises.cases_query"
        patch.setattr(counted, lambda _, name: f"select `group`, cases from {_view(name)}")
        checked = checked_promises(views, list(PROMISES), file=file)
    counts: dict[str | None, dict[str, int]] = {}
    for row in reduce(DataFrame.union, frames).where("cases > 0").collect():
        counts.setdefault(row["group"], {})[row["promise"]] = row["cases"]
    return checked, counts


def _view(promise: str) -> str:
    return f"`cases of {promise}`"
