"""The charts of a comparison: each has both runs in one picture, on the same axes.

The charts are half as wide as those of a report, so that two are beside each other on a wide page and their text is
readable on a narrow one. Does not depend on the page.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import floor, log10
from typing import NamedTuple

from markupsafe import Markup

from fakebroker.replay.comparison.compared_figures import (
    Run,
    Where,
    latencies_ms,
    lost_or_unanswered,
    never_parked,
    parked,
    requests,
    unexpected,
)
from fakebroker.replay.report import charts
from fakebroker.replay.run_summary import Summary
from fakebroker.replay.wording import bound

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
        title: What it shows, with the unit.
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


def comparison_charts(before: Run, after: Run) -> list[Chart]:
    """Return all charts for which at least one of the runs has data."""
    runs = (before, after)
    return [*_over_time(runs), *_distributions(runs)]


def event_times_s(before: Run, after: Run) -> list[float]:
    """Return the times of the events of both workloads, in seconds."""
    return sorted({event["at_s"] for run in (before, after) for event in run.summary.head.timeline})


def startup_s(before: Run, after: Run) -> float:
    """Return the time at which both runs are in the steady state, in seconds; 0 if one has none."""
    begins_s = [run.summary.numbers.measure_from_s for run in (before, after)]
    return max(each or 0.0 for each in begins_s) if None not in begins_s else 0.0


def _over_time(runs: Sequence[Run]) -> Iterator[Chart]:
    """Yield the charts with a line for each run."""
    events_s = event_times_s(*runs)
    simulated = [run.summary.head.transport == "memory" for run in runs]
    latency = (
        "simulated latency" if all(simulated) else "latency (one run is simulated)" if any(simulated) else "latency"
    )
    for index, (title, line, log) in enumerate(_lines(latency)):
        drawn = [line(run) for run in runs]
        if any(value for each in drawn if each is not None for value in each.values):
            yield Chart(title, _lines_chart(f"line{index}", title, drawn, events_s, startup_s(*runs), log=log))


def _lines(latency: str) -> Iterator[tuple[str, Callable[[Run], Line | None], bool]]:
    """Yield title and series of each chart, and whether its axis is logarithmic."""
    yield "Requests per second", _rates(requests()), False
    for name, q in (("median", 0.5), ("99th percentile", 0.99)):
        yield f"Requests that never park: {name} of {latency}, ms", _latency(never_parked, q), True
    for name, q in (("median", 0.5), ("99th percentile", 0.99)):
        yield f"JoinGroup and SyncGroup: {name} of {latency}, ms", _latency(parked, q), True
    yield "Rebalances in progress", _state("groups", "rebalancing"), False
    yield "Members with an assignment", _state("members", "assigned"), False
    yield "Members waiting for an assignment", _state("members", "waiting"), False
    yield "Members whose state is unknown", _state("members", "unknown"), False
    yield "Responses with unexpected errors per second", _rates(unexpected), False
    yield "Lost and unanswered requests per second", _rates(lost_or_unanswered), False


def _latency(where: Where, q: float) -> Callable[[Run], Line | None]:
    def line(run: Run) -> Line | None:
        return None if run.samples is None else _line(run.summary, latencies_ms(run.samples, where, q))

    return line


def _rates(where: Where) -> Callable[[Run], Line | None]:
    def line(run: Run) -> Line | None:
        if run.samples is None:
            return None
        counts = run.samples.select("time", where).totals()[:, 0]
        return _line(run.summary, list(counts / run.summary.numbers.over_time.slice_s))

    return line


def _state(what: str, state: str) -> Callable[[Run], Line | None]:
    def line(run: Run) -> Line | None:
        values = getattr(getattr(run.summary.numbers.over_time, what), state, None)
        return None if values is None else _line(run.summary, values)

    return line


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


def _distributions(runs: Sequence[Run]) -> Iterator[Chart]:
    """Yield the charts with a bar for each run."""
    durations = [{row.from_ms: row.count for row in run.summary.numbers.rebalances.distribution} for run in runs]
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
        for row in run.summary.numbers.errors:
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
