"""The verdict on a replay: availability of the cluster, promises of group coordinators, and expectations."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from fakebroker.replay.run_summary import AvailabilityCheck, ExpectationCheck, Number, Numbers, PromiseCheck, Verdict
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
    reasons = _reasons(available, promised, compared)
    return Verdict("failed" if reasons else "passed", reasons, available, promised, compared)


def _reasons(
    available: Sequence[AvailabilityCheck], promised: Sequence[PromiseCheck], compared: Sequence[ExpectationCheck]
) -> list[str]:
    """Return a sentence for each check, promise and expectation that makes the verdict "failed"."""
    failed = [f"Availability check {each.name}: {each.violations[0].what}." for each in available if not each.passed]
    broken = [
        f"Promise {each.name} is broken: {_counted(each.broken, 'violation')}." for each in promised if each.broken
    ]
    missed = [f"Expectation not met: {each.expectation}; {_actual(each.actual)}." for each in compared if not each.met]
    return [*failed, *broken, *missed]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _actual(actual: Number | None) -> str:
    return "the run has no value" if actual is None else f"the actual value is {actual:g}"


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
