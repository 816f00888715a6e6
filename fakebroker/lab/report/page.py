"""The report of a study as an HTML page."""

import traceback
from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from fakebroker.lab.design import Design
from fakebroker.lab.report.plots import scenario_charts
from fakebroker.lab.report.sequence import diagrams_of
from fakebroker.lab.report.sequence_svg import svg_of
from fakebroker.lab.report.terminal import legend, scenario_title
from fakebroker.lab.report.wording import estimate, short
from fakebroker.lab.study.figures import FIGURES, Figure
from fakebroker.lab.study.plan import StudyPlan
from fakebroker.lab.study.results import RunRow
from fakebroker.lab.study.summary import FigureEstimate, ScenarioSummary, StudySummary
from fakebroker.replay.report.html import render


class _Cell(msgspec.Struct, frozen=True):
    """A figure of a design: its text, and whether the difference to the first design is more than chance."""

    text: str
    differs: bool


class _DesignView(msgspec.Struct, frozen=True):
    """A design with its diagrams by title, or the reason why there are none."""

    design: Design
    diagrams: Sequence[tuple[str, Markup]]
    error: str


def study_page(plan: StudyPlan, rows: Sequence[RunRow], summary: StudySummary) -> str:
    """Return the report.

    Args:
        plan: The study.
        rows: The runs that are over.
        summary: The comparison of designs.
    """
    return render(
        "lab.html",
        summary=summary,
        about=plan.about,
        legend=legend(summary),
        title_of=scenario_title,
        figures_of=lambda scenario: _figure_rows(summary, scenario),
        causes_of=lambda scenario: _cause_rows(summary, scenario),
        charts_of=lambda scenario: scenario_charts(summary, scenario, rows),
        designs=[_view(plan.design(name)) for name in summary.designs],
        costs=[(each.scenario, each.design, str(each.runs), f"{each.cpu_s:,.1f}") for each in summary.costs],
    )


def _figure_rows(summary: StudySummary, scenario: ScenarioSummary) -> list[tuple[str, list[_Cell]]]:
    """Return the figures that occur in a scenario, each with a cell for each design."""
    estimates = summary.estimates(scenario.name)
    found = []
    for figure in FIGURES:
        of_figure = estimates.get(figure.name, {})
        if of_figure:
            found.append((figure.title, [_cell(figure, of_figure.get(name)) for name in summary.designs]))
    return found


def _cell(figure: Figure, found: FigureEstimate | None) -> _Cell:
    return _Cell("-", False) if found is None else _Cell(estimate(figure, found.value), found.differs)


def _cause_rows(summary: StudySummary, scenario: ScenarioSummary) -> list[list[str]]:
    rows = []
    for each in summary.causes:
        if each.scenario == scenario.name:
            times = ["-" if ms is None else short(ms / 1000) for ms in (each.p50_ms, each.p99_ms, each.max_ms)]
            traffic = ["-" if number is None else short(number) for number in (each.messages, each.bytes)]
            rows.append([each.cause, each.design, short(each.count), short(each.never_ended), *times, *traffic])
    return sorted(rows, key=lambda row: row[0])


def _view(design: Design) -> _DesignView:
    try:
        diagrams = [(diagram.title, svg_of(diagram)) for diagram in diagrams_of(design)]
    except Exception as error:  # of the design: the page has the runs of the others
        return _DesignView(design, (), traceback.format_exception_only(error)[-1].strip())
    return _DesignView(design, diagrams, "")
