"""Comparison of the numbers of two runs: which differences exceed noise, by the rule in `RULE`.

Depends on summaries only, not on Spark; `replay.report.compare_report` shows the result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from statistics import fmean, median, stdev
from typing import Any

from fakebroker.replay.run_summary import Head, Summary

Metrics = dict[str, float | None]

_PARTS = 10
_MIN_PARTS = 5
_STUDENT_T = {2: 63.66, 3: 9.92, 4: 5.84, 5: 4.60, 6: 4.03, 7: 3.71, 8: 3.50, 9: 3.36, 10: 3.25}
"""Two-sided 99 % quantiles of Student's t distribution by sample size; larger samples use the last value."""
_STANDARD_ERRORS = 3.0
_MIN_CHANGE = 0.05
_COUNTS = ("generations", "rebalances", "unexpected_errors", "unanswered", "lost")

RULE = (
    "A difference is marked if it exceeds both 5 % and the noise. With repeats of BEFORE, the noise is the range in "
    "which one more repeat is expected (Student's t, 99 %); this needs at least two repeats and is better with four. "
    "Without repeats, the noise is estimated within the two runs. Rates and latencies are compared in ten parts of the "
    "time, and the mean of the ten differences must be significant (Student's t, 99 %). Counts must differ by more "
    "than three times the square root of their sum. Other numbers have no estimate and are never marked. About one "
    "number in a hundred is marked by chance. Noise that affects a whole run, such as a busy machine, is only "
    "detected with repeats."
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The values of one number in both runs.

    Attributes:
        name: A name in the summary's `metrics`, or an API, source and a key of its row in `apis`: "Heartbeat p50_ms"
            or "OffsetFetch (load) p50_ms".
        before: Value in the first run; None if that run has no such number.
        after: Value in the second run; None if that run has no such number.
        change: Relative change, such as 0.5 for +50 %; None if `before` is 0 or a value is missing.
        noise: Relative change up to which a difference may be noise; None if unknown.
        marked: Whether the difference exceeds both the noise and 5 %.
    """

    name: str
    before: float | None
    after: float | None
    change: float | None
    noise: float | None
    marked: bool


def compare(before: Summary, after: Summary, repeats: Sequence[Summary] = ()) -> list[Difference]:
    """Compare all numbers of two runs.

    Args:
        before: Summary of the first run.
        after: Summary of the second run.
        repeats: Summaries of runs that repeat the first one.
    """
    numbers, numbers_after = _numbers(before), _numbers(after)
    repeated = [_numbers(summary) for summary in repeats]
    series, series_after = dict(_series(before)), dict(_series(after))
    found = []
    for name in [*numbers, *(name for name in numbers_after if name not in numbers)]:
        old, new = numbers.get(name, _value_if_missing(name)), numbers_after.get(name, _value_if_missing(name))
        if repeats:
            noise, marked = noise_of_repeats(old, new, [each.get(name, _value_if_missing(name)) for each in repeated])
        elif name in series and name in series_after:
            noise, marked = _noise_over_time(series[name], series_after[name])
        elif name in _COUNTS or name.startswith("errors.") or name.endswith(" requests"):
            noise, marked = _noise_of_counts(old, new)
        else:
            noise, marked = None, False
        change = (new - old) / old if old and new is not None else None
        found.append(
            Difference(name, old, new, change, noise, marked and (change is None or abs(change) > _MIN_CHANGE))
        )
    return found


def differing_settings(before: Summary, after: Summary) -> list[str]:
    """Return the settings of the two runs that differ: keys of the workload and of the summary."""
    old, new = ({**run.head.workload, **_run_settings(run.head)} for run in (before, after))
    return [key for key in {**old, **new} if key != "file" and old.get(key) != new.get(key)]


def _run_settings(head: Head) -> dict[str, Any]:
    """Return settings that are not in the workload and may change numbers, by their keys in the summary."""
    return {
        "transport": head.transport,
        "record": head.record,
        "scale": head.scale,
        "lanes": head.lanes,
        "cluster.embedded": head.cluster.embedded,
        "spark.tasks": head.spark.tasks,
        "complete": head.complete,
    }


def _numbers(summary: Summary) -> Metrics:
    found: Metrics = dict(summary.numbers.metrics)
    for row in summary.numbers.apis:
        for name in ("requests", "requests_per_s", "p50_ms", "p99_ms"):
            found[f"{row.name} {name}"] = getattr(row, name)
    return found


def _series(summary: Summary) -> Iterator[tuple[str, Sequence[float | None]]]:
    """Yield the numbers that also have a value for each time slice, by the names that `_numbers` gives them."""
    over_time = summary.numbers.over_time
    for row in over_time.apis:
        yield f"{row.name} requests_per_s", row.requests_per_s
        yield f"{row.name} p50_ms", row.p50_ms
        yield f"{row.name} p99_ms", row.p99_ms
    rates = (row.requests_per_s for row in over_time.apis)
    yield "requests_per_s", [sum(parts) for parts in zip(*rates, strict=True)]
    yield "rebalance_p50_ms", over_time.rebalances.p50_ms
    yield "unassigned_member_s", over_time.members.waiting


def _value_if_missing(name: str) -> float | None:
    """Return the value of a number that a summary does not have: 0 for errors, else None."""
    return 0 if name.startswith("errors.") else None


def _noise_over_time(before: Sequence[float | None], after: Sequence[float | None]) -> tuple[float | None, bool]:
    """Return the noise between ten parts of the time, and whether the runs differ by more."""
    pairs = zip(_parts(before), _parts(after), strict=True)
    ratios = [log(new / old) for old, new in pairs if old and new]
    if len(ratios) < _MIN_PARTS:
        return None, False
    noise = _STUDENT_T[len(ratios)] * stdev(ratios) / sqrt(len(ratios))
    return noise, abs(fmean(ratios)) > noise


def _parts(numbers: Sequence[float | None]) -> list[float | None]:
    """Return the median of each tenth of the slices; None for a tenth without values."""
    size = len(numbers) / _PARTS
    tenths = ([n for n in numbers[int(i * size) : int((i + 1) * size)] if n is not None] for i in range(_PARTS))
    return [median(tenth) if tenth else None for tenth in tenths]


def _noise_of_counts(before: float | None, after: float | None) -> tuple[float | None, bool]:
    """Return the noise of two counts of random events (Poisson), and whether they differ by more."""
    old, new = before or 0, after or 0
    noise = _STANDARD_ERRORS * sqrt(old + new)
    return (noise / old if old else None), abs(new - old) > noise


def noise_of_repeats(
    before: float | None, after: float | None, repeats: Sequence[float | None]
) -> tuple[float | None, bool]:
    """Return the noise of repeated runs, and whether a number is outside the prediction interval for one more repeat.

    Args:
        before: The number in the first run.
        after: The number in the run to judge.
        repeats: The number in the runs that repeat the first one.
    """
    known = [number for number in (before, *repeats) if number is not None]
    if after is None or len(known) < 2:
        return None, False
    reach = _STUDENT_T[min(len(known), max(_STUDENT_T))] * stdev(known) * sqrt(1 + 1 / len(known))
    noise = reach / abs(before) if before else (None if before is None else inf if reach else 0.0)
    return noise, abs(after - fmean(known)) > reach
