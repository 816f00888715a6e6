"""The charts of a scenario: a figure of all designs with confidence intervals, and what happens over time."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from fakebroker.lab.measures import SLICES
from fakebroker.lab.report.sections import Chart
from fakebroker.lab.study.figures import FIGURES, Figure
from fakebroker.lab.study.results import RunRow
from fakebroker.lab.study.summary import FigureEstimate, ScenarioSummary, StudySummary
from fakebroker.replay.report import charts

_WIDTH, _LEAST_HEIGHT, _ROW_HEIGHT = 0.44, 0.4, 0.11
"""Size of a chart, as multiples of the usual one; the height grows with the number of designs."""

_OVER_TIME = {"incomplete": "Groups that are not complete", "requests_per_s": "Requests a second, all brokers"}


def scenario_charts(summary: StudySummary, scenario: ScenarioSummary, rows: Sequence[RunRow]) -> list[Chart]:
    """Return the charts of a scenario.

    Args:
        summary: The study.
        scenario: The scenario.
        rows: The runs of the study.
    """
    estimates = summary.estimates(scenario.name)
    drawn = [
        _intervals(summary, scenario, figure, estimates[figure.name])
        for figure in FIGURES
        if any(each.value.mean for each in estimates.get(figure.name, {}).values())
    ]
    of_scenario = [row for row in rows if row.scenario == scenario.name and row.result is not None]
    return [*drawn, *_over_time(summary, scenario, of_scenario)]


def _intervals(
    summary: StudySummary, scenario: ScenarioSummary, figure: Figure, estimates: dict[str, FigureEstimate]
) -> Chart:
    values = [
        None
        if name not in estimates
        else tuple(
            max(0.0, each) / figure.divisor
            for each in (estimates[name].value.mean, estimates[name].value.low, estimates[name].value.high)
        )
        for name in summary.designs
    ]
    title = figure.title[0].upper() + figure.title[1:]
    height = _LEAST_HEIGHT + _ROW_HEIGHT * len(summary.designs)
    with charts.drawing(f"{scenario.name} {figure.name}", f"{title}, by design", height, _WIDTH) as drawn:
        triples = [None if each is None else (each[0], each[1], each[2]) for each in values]
        charts.intervals(drawn.figure.subplots(), summary.designs, triples, range(len(summary.designs)))
    return Chart(title, drawn.svg)


def _over_time(summary: StudySummary, scenario: ScenarioSummary, rows: Sequence[RunRow]) -> Iterator[Chart]:
    slice_s = scenario.duration_s / SLICES
    times_s = [(index + 0.5) * slice_s for index in range(SLICES)]
    colors = {name: index for index, name in enumerate(summary.designs)}
    for attribute, title in _OVER_TIME.items():
        series: dict[str, charts.Series] = {}
        for name in summary.designs:
            found = [getattr(row.result, attribute) for row in rows if row.design == name]
            if found:
                series[name] = [fmean(values) for values in zip(*found, strict=True)]
        if not any(any(values) for values in series.values()):
            continue
        with charts.drawing(f"{scenario.name} {attribute}", f"{title} over time, by design", 0.9, _WIDTH) as drawn:
            axes = drawn.figure.subplots()
            charts.lines(axes, times_s, series, colors, "")
            axes.set_xlabel("seconds")
            charts.legend_above(axes)
        yield Chart(f"{title}, mean of seeds", drawn.svg)
