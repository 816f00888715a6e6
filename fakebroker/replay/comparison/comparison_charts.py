"""The charts of a comparison: each has both runs in one picture, on the same axes.

A chart is half as wide as a report's. Two charts are beside each other on a wide page, and their text is readable on a
narrow page. Does not depend on the page.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import floor, log10
from typing import Any, NamedTuple

from markupsafe import Markup

from fakebroker.replay.members.request_outcomes import ORDINARY_ERRORS
from fakebroker.replay.report import charts
from fakebroker.replay.run_summary import RequestsOverTime, Summary
from fakebroker.replay.wording import bound, error_name

NAMES = ("before", "after")
_COLORS = {"before": 0, "after": 1}
_EVENTS = 7
"""Index of the color of events."""

_WIDTH, _HEIGHT = 0.44, 0.84
_MOST_ERRORS = 8

Series = charts.Series


class Chart(NamedTuple):
    """A chart with its heading.

    Attributes:
        title: Its heading, with the unit.
        svg: The chart.
    """

    title: str
    svg: Markup


class Line(NamedTuple):
    """A series of one run.

    Attributes:
        times_s: The midpoints of its slices.
        values: A value for each slice; None for a slice without a value.
    """

    times_s: Sequence[float]
    values: Series


def comparison_charts(before: Summary, after: Summary) -> list[Chart]:
    """Return all charts for which at least one of the runs has data."""
    runs = (before, after)
    return [*_over_time(runs), *_distributions(runs)]


def event_times_s(before: Summary, after: Summary) -> list[float]:
    """Return the times of the events of both workloads, in seconds."""
    return sorted({event["at_s"] for run in (before, after) for event in run.head.timeline})


def startup_s(before: Summary, after: Summary) -> float:
    """Return the time at which both runs are in the steady state, in seconds; 0 if one has none."""
    begins_s = [run.numbers.measure_from_s for run in (before, after)]
    return max(each or 0.0 for each in begins_s) if None not in begins_s else 0.0


def _over_time(runs: Sequence[Summary]) -> Iterator[Chart]:
    """Yield the charts with a line for each run."""
    events_s = event_times_s(*runs)
    simulated = [run.head.transport == "memory" for run in runs]
    latency = (
        "simulated latency" if all(simulated) else "latency (one run is simulated)" if any(simulated) else "latency"
    )
    for index, (title, line, log) in enumerate(_lines(latency)):
        drawn = [line(run) for run in runs]
        if any(value for each in drawn if each is not None for value in each.values):
            yield Chart(title, _lines_chart(f"line{index}", title, drawn, events_s, startup_s(*runs), log=log))


def _lines(latency: str) -> Iterator[tuple[str, Callable[[Summary], Line | None], bool]]:
    """Yield title and series of each chart, and whether its axis is logarithmic."""
    yield "Requests per second", _line_of(lambda run: _sums(run.numbers.over_time.apis, "requests_per_s")), False
    for name, what in (("Requests that never park", "never_parked"), ("JoinGroup and SyncGroup", "parked")):
        for title, key in (("median", "p50_ms"), ("99th percentile", "p99_ms")):
            yield f"{name}: {title} of {latency}, ms", _latency(what, key), True
    yield "Rebalances in progress", _line_of(lambda run: run.numbers.over_time.groups.rebalancing), False
    yield "Members with an assignment", _line_of(lambda run: run.numbers.over_time.members.assigned), False
    yield "Members waiting for an assignment", _line_of(lambda run: run.numbers.over_time.members.waiting), False
    yield "Members whose state is unknown", _line_of(lambda run: run.numbers.over_time.members.unknown), False
    yield "Responses with unexpected errors per second", _line_of(_unexpected_per_s), False
    yield "Lost and unanswered requests per second", _line_of(_missing_per_s), False


def _line_of(values: Callable[[Summary], Series]) -> Callable[[Summary], Line | None]:
    return lambda run: _line(run, values(run))


def _latency(what: str, key: str) -> Callable[[Summary], Line | None]:
    """Return the line of a latency: of the requests that are never parked, or of those that are."""

    def line(run: Summary) -> Line | None:
        found: RequestsOverTime | None = getattr(run.numbers.over_time, what)
        return None if found is None else _line(run, getattr(found, key))

    return line


def _sums(rows: Iterable[Any], name: str) -> Series:
    """Return the sum of a series of all rows."""
    return [sum(values) for values in zip(*(getattr(row, name) for row in rows), strict=True)]


def _unexpected_per_s(run: Summary) -> Series:
    over_time = run.numbers.over_time
    ordinary = {error_name(code) for code in ORDINARY_ERRORS}
    answers = _sums((row for row in over_time.errors if row.name not in ordinary), "answers")
    return [(each or 0) / over_time.slice_s for each in answers]


def _missing_per_s(run: Summary) -> Series:
    over_time = run.numbers.over_time
    return [each / over_time.slice_s for each in over_time.missing]


def _line(summary: Summary, values: Series) -> Line:
    slice_s = summary.numbers.over_time.slice_s
    return Line([(index + 0.5) * slice_s for index in range(len(values))], values)


def _lines_chart(
    name: str, title: str, drawn: Sequence[Line | None], events_s: Sequence[float], startup_s: float, *, log: bool
) -> Markup:
    with _drawing(name, f"{title} over time") as drawing:
        axes = drawing.figure.subplots()
        longest = max((each.times_s for each in drawn if each is not None), key=lambda times: times[-1])
        for run, each in zip(NAMES, drawn, strict=True):
            if each is not None:
                charts.lines(axes, each.times_s, {run: each.values}, _COLORS, "", log=log)
        charts.fit_axes(axes, longest[-1] + longest[0])
        charts.startup_area(axes, startup_s)
        for at_s in events_s:
            axes.axvline(at_s, color=charts.COLORS[_EVENTS], lw=0.9, ls=":")
        axes.set_xlabel("seconds")
        charts.legend_above(axes)
    return drawing.svg


def _distributions(runs: Sequence[Summary]) -> Iterator[Chart]:
    """Yield the charts with a bar for each run."""
    durations = [{row.from_ms: row.count for row in run.numbers.rebalances.distribution} for run in runs]
    if any(durations):
        edges_ms = bins_ms([edge for each in durations for edge in each])
        counts = [[each.get(edge, 0) for edge in edges_ms] for each in durations]
        with _drawing("durations", "Rebalances by duration") as drawing:
            axes = drawing.figure.subplots()
            charts.paired_bars(axes, list(map(bound, edges_ms)), dict(zip(NAMES, counts, strict=True)), _COLORS)
            axes.set_xlabel("duration: from this number to the next, in ms or s")
            charts.legend_above(axes)
        yield Chart("Rebalances by duration", drawing.svg)
    errors = [Counter[str]() for _ in runs]
    for run, found in zip(runs, errors, strict=True):
        for row in run.numbers.errors:
            found[row.name] += row.requests
    names = sorted(errors[0] | errors[1], key=lambda name: -max(each[name] for each in errors))[:_MOST_ERRORS]
    if names:
        counts = [[each[name] for name in names] for each in errors]
        with _drawing("errors", "Responses by error", height=0.5 + 0.13 * len(names)) as drawing:
            axes = drawing.figure.subplots()
            charts.paired_bars(axes, names, dict(zip(NAMES, counts, strict=True)), _COLORS, is_horizontal=True)
            charts.legend_above(axes)
        yield Chart("Responses by error", drawing.svg)


def bins_ms(edges_ms: Iterable[float]) -> list[float]:
    """Return all lower bounds of the series 1, 2, 5, 10, ... from the lowest to the highest of these bounds."""
    known = sorted(edges_ms)
    powers = range(floor(log10(known[0])), floor(log10(known[-1])) + 1)
    series = (round(digit * 10.0**power, 3) for power in powers for digit in (1, 2, 5))
    return [edge for edge in series if known[0] <= edge <= known[-1]]


def _drawing(name: str, alt: str, height: float = _HEIGHT) -> AbstractContextManager[charts.Drawing]:
    return charts.drawing(name, f"{alt}, before and after", height, _WIDTH)
