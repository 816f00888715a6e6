"""Compares two runs: their numbers, the differences, and which of these exceed noise (see `RULE`).

Depends on summaries only; `replay.report.compare_report` shows the result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from statistics import fmean, median, stdev
from typing import Any

from fakebroker.replay.run_summary import Head, Summary

Metrics = dict[str, float | None]

_PARTS = 10
_FEWEST_PARTS = 5
_STUDENT_T = {2: 63.66, 3: 9.92, 4: 5.84, 5: 4.60, 6: 4.03, 7: 3.71, 8: 3.50, 9: 3.36, 10: 3.25}
"""Student's t for 99 %, two-sided, by sample size; the last one is used for larger ones."""
_STANDARD_ERRORS = 3.0
_LEAST = 0.05
_COUNTS = ("generations", "rebalances", "unexpected_errors", "unanswered", "lost")

RULE = (
    "A difference is marked when it is larger than 5 % and larger than noise. With runs that repeat BEFORE, noise is "
    "how far from their mean another one would be at most (Student's t, 99 %): of use from two repeats on, better "
    "with four. Without them it is estimated from within the two runs: rates and latencies are compared in ten parts "
    "of the time, and their mean difference must exceed what the spread of the parts allows (Student's t, 99 %); "
    "counts must differ by more than three times the square root of their sum. For other numbers there is no "
    "estimate, and no mark. One in a hundred is marked by chance. Noise that hits a whole run, such as a busy "
    "machine, only repeats can tell."
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One number of both runs.

    Attributes:
        name: As in the summary's `metrics`, with the API in front where it is of one.
        change: From before to after, as a share of before; None where one of them is 0 or missing.
        noise: The largest share that may be noise; None if unknown.
        marked: Whether it exceeds noise.
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
        repeats: Runs of the same as `before`.
    """
    numbers, numbers_after = _numbers(before), _numbers(after)
    again = [_numbers(summary) for summary in repeats]
    series, series_after = dict(_series(before)), dict(_series(after))
    found = []
    for name in [*numbers, *(name for name in numbers_after if name not in numbers)]:
        old, new = numbers.get(name, _absent(name)), numbers_after.get(name, _absent(name))
        if repeats:
            noise, marked = _beyond_repeats(old, new, [each.get(name, _absent(name)) for each in again])
        elif name in series and name in series_after:
            noise, marked = _beyond_parts(series[name], series_after[name])
        elif name in _COUNTS or name.startswith("errors.") or name.endswith(" requests"):
            noise, marked = _beyond_counting(old, new)
        else:
            noise, marked = None, False
        change = (new - old) / old if old and new is not None else None
        found.append(Difference(name, old, new, change, noise, marked and (change is None or abs(change) > _LEAST)))
    return found


def other_workload(before: Summary, after: Summary) -> list[str]:
    """Return what else differs between the runs and may explain differences: keys of the file, and how it was run."""
    old, new = ({**run.head.workload, **_how(run.head)} for run in (before, after))
    return [key for key in {**old, **new} if key != "file" and old.get(key) != new.get(key)]


def _how(head: Head) -> dict[str, Any]:
    return {
        "transport": head.transport,
        "record": head.record,
        "lanes": head.lanes,
        "an embedded cluster": head.cluster.embedded,
        "tasks": head.spark.tasks,
        "a run that was broken off": not head.complete,
    }


def _numbers(summary: Summary) -> Metrics:
    found: Metrics = dict(summary.numbers.metrics)
    for row in summary.numbers.apis:
        for name in ("requests", "requests_per_s", "p50_ms", "p99_ms"):
            found[f"{row.api} {name}"] = getattr(row, name)
    return found


def _series(summary: Summary) -> Iterator[tuple[str, Sequence[float | None]]]:
    """Yield the numbers over time that belong to numbers of the whole run."""
    over_time = summary.numbers.over_time
    for api, row in over_time.apis.items():
        yield f"{api} requests_per_s", row.requests_per_s
        yield f"{api} p50_ms", row.p50_ms
        yield f"{api} p99_ms", row.p99_ms
    rates = (row.requests_per_s for row in over_time.apis.values())
    yield "requests_per_s", [sum(parts) for parts in zip(*rates, strict=True)]
    yield "rebalance_p50_ms", over_time.rebalances.p50_ms
    yield "unassigned_member_s", over_time.members.waiting


def _absent(name: str) -> float | None:
    """Return the value of a missing number: 0 for errors, else None."""
    return 0 if name.startswith("errors.") else None


def _beyond_parts(before: Sequence[float | None], after: Sequence[float | None]) -> tuple[float | None, bool]:
    """Return the noise between parts of the time, and whether the runs differ more than that."""
    pairs = zip(_parts(before), _parts(after), strict=True)
    ratios = [log(new / old) for old, new in pairs if old and new]
    if len(ratios) < _FEWEST_PARTS:
        return None, False
    noise = _STUDENT_T[len(ratios)] * stdev(ratios) / sqrt(len(ratios))
    return noise, abs(fmean(ratios)) > noise


def _parts(numbers: Sequence[float | None]) -> list[float | None]:
    """Return the median of each tenth; None where it has no number."""
    size = len(numbers) / _PARTS
    tenths = ([n for n in numbers[int(i * size) : int((i + 1) * size)] if n is not None] for i in range(_PARTS))
    return [median(tenth) if tenth else None for tenth in tenths]


def _beyond_counting(before: float | None, after: float | None) -> tuple[float | None, bool]:
    """Return the noise of two counts of random events, and whether they differ more than that."""
    old, new = before or 0, after or 0
    noise = _STANDARD_ERRORS * sqrt(old + new)
    return (noise / old if old else None), abs(new - old) > noise


def _beyond_repeats(
    before: float | None, after: float | None, repeats: Sequence[float | None]
) -> tuple[float | None, bool]:
    """Return the noise of repeated runs, and whether a number is farther from them than another repeat would be."""
    known = [number for number in (before, *repeats) if number is not None]
    if after is None or len(known) < 2:
        return None, False
    far = _STUDENT_T[min(len(known), max(_STUDENT_T))] * stdev(known) * sqrt(1 + 1 / len(known))
    noise = far / abs(before) if before else (None if before is None else inf if far else 0.0)
    return noise, abs(after - fmean(known)) > far
