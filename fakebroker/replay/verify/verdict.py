"""The verdict on a replay: availability of the cluster, promises of group coordinators, and expectations."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from fakebroker.replay.run_summary import ExpectationCheck, Number, Numbers, Verdict
from fakebroker.replay.verify.availability import check_availability
from fakebroker.replay.verify.promises import check_promises
from fakebroker.replay.workload.expectations import COMPARISONS, Expectation

MEMBERS_JOIN = Expectation(metric="members_joined", comparison=">", value=0)
"""The default expectation, because a cluster that admits no members violates no promise."""


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

    The arguments are those of `check_availability`, `check_promises`, `expectations` and `events_done`.
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


def with_default_expectation(expected: Sequence[Expectation]) -> list[Expectation]:
    """Return the expectations with `MEMBERS_JOIN`, unless they have one about the same metric."""
    is_overridden = any(expectation.metric == MEMBERS_JOIN.metric for expectation in expected)
    return [*expected] if is_overridden else [*expected, MEMBERS_JOIN]


def events_done(timeline: Sequence[Mapping[str, Any]]) -> list[ExpectationCheck]:
    """Return the implicit expectation that all events of the workload were done; none if it has no events."""
    if not timeline:
        return []
    done = sum(event["done"] for event in timeline)
    return [ExpectationCheck(f"events_done == {len(timeline)}", done == len(timeline), done)]


def expectations(expected: Sequence[Expectation], numbers: Numbers) -> list[ExpectationCheck]:
    """Compare expectations with the numbers of a run; an expectation without a number is not met."""
    checked = []
    for expectation in expected:
        actual = metric(expectation, numbers)
        met = actual is not None and COMPARISONS[expectation.comparison](actual, expectation.value)
        checked.append(ExpectationCheck(str(expectation), met, actual))
    return checked


def metric(expectation: Expectation, numbers: Numbers) -> Number | None:
    """Return the number for an expectation: 0 for an error that never occurred, None without any such requests."""
    metrics: Mapping[str, Number | None] = numbers.metrics
    if expectation.api is not None:
        metrics = next((msgspec.structs.asdict(row) for row in numbers.apis if row.api == expectation.api), {})
    return metrics.get(expectation.key, 0 if expectation.key.startswith("errors.") else None)
