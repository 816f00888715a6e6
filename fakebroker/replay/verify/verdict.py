"""The verdict on a replay: availability of the cluster, promises of group coordinators, and expectations."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from fakebroker.replay.run_summary import ExpectationCheck, Number, Numbers, Verdict
from fakebroker.replay.verify.availability import check_availability
from fakebroker.replay.verify.promises import check_promises
from fakebroker.replay.workload.expectations import COMPARISONS, Expectation

SOMEBODY = Expectation(metric="members_joined", comparison=">", value=0)


def judge(
    spark: SparkSession,
    events: DataFrame,
    members: DataFrame,
    partitions: Mapping[str, int],
    expected: Sequence[Expectation],
    numbers: Numbers,
    wanted: Sequence[str] | None = None,
    timeline: Sequence[Mapping[str, Any]] = (),
    *,
    is_reachable: bool = True,
    speed: float = 1.0,
    is_simulated: bool = False,
) -> Verdict:
    """Return the verdict for `summary.json`.

    For the arguments see `check_promises`, `expectations`, `events_done` and `check_availability`.
    """
    available = check_availability(
        spark,
        events,
        members,
        is_reachable=is_reachable,
        timeline=timeline,
        speed=speed,
        is_simulated=is_simulated,
    )
    promised = check_promises(spark, events, members, partitions, wanted)
    compared = [*expectations(expected, numbers), *events_done(timeline)]
    passed = (
        all(check.passed for check in available)
        and all(check.kept for check in promised)
        and all(check.met for check in compared)
    )
    return Verdict(passed, available, promised, compared)


def with_somebody(expected: Sequence[Expectation]) -> list[Expectation]:
    """Add the default expectation that some member joins: a cluster that admits no members violates no promise."""
    says_otherwise = any(expectation.metric == SOMEBODY.metric for expectation in expected)
    return [*expected] if says_otherwise else [*expected, SOMEBODY]


def events_done(timeline: Sequence[Mapping[str, Any]]) -> list[ExpectationCheck]:
    """Return the implicit expectation of a workload with events: that all of them were performed."""
    if not timeline:
        return []
    done = sum(event["done"] for event in timeline)
    return [ExpectationCheck(f"events_done == {len(timeline)}", done == len(timeline), done)]


def expectations(expected: Sequence[Expectation], numbers: Numbers) -> list[ExpectationCheck]:
    """Compare expectations with the numbers of a run; an expectation whose number is missing is not met."""
    checked = []
    for expectation in expected:
        actual = metric(expectation, numbers)
        met = actual is not None and COMPARISONS[expectation.comparison](actual, expectation.value)
        checked.append(ExpectationCheck(str(expectation), met, actual))
    return checked


def metric(expectation: Expectation, numbers: Numbers) -> Number | None:
    """Return the number for an expectation; `None` if there were no such requests.

    An error that never occurred has the number 0.
    """
    metrics: Mapping[str, Number | None] = numbers.metrics
    if expectation.api is not None:
        metrics = next((msgspec.structs.asdict(row) for row in numbers.apis if row.api == expectation.api), {})
    return metrics.get(expectation.key, 0 if expectation.key.startswith("errors.") else None)
