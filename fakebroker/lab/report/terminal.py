"""Prints the comparison of designs as tables, for terminals with at least 80 columns."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from fakebroker.lab.report.wording import estimate
from fakebroker.lab.study.figures import FIGURES
from fakebroker.lab.study.summary import FigureEstimate, ScenarioSummary, StudySummary
from fakebroker.replay.report.terminal import table
from fakebroker.replay.wording import counted

_DESIGNS_PER_TABLE = 3
"""Number of designs whose figures fit beside each other in 80 columns, with their intervals."""


def print_study(console: Console, summary: StudySummary) -> None:
    """Print a table for each scenario with the decisive figures of all designs, then the runs that failed."""
    for scenario in summary.scenarios:
        estimates = summary.estimates(scenario.name)
        if estimates:
            console.print(f"\n[bold]{escape(scenario_title(scenario))}[/bold]", highlight=False)
            for designs in _portions(summary.designs):
                console.print(Padding(_table(designs, estimates), (0, 0, 0, 2)), highlight=False)
    console.print(f"\n{legend(summary)}", style="dim", highlight=False)
    for run in summary.failed:
        name = f"design={run.design} scenario={run.scenario} seed={run.seed}"
        console.print(f"[bold red]failed[/bold red] {escape(name)}: {escape(run.error)}", highlight=False)


def scenario_title(scenario: ScenarioSummary) -> str:
    """Return the heading of a scenario: its name and size."""
    sizes = f"{counted(scenario.groups, 'group')}, {counted(scenario.members, 'member')}"
    return f"{scenario.name}: {sizes}, {scenario.duration_s:g} s"


def legend(summary: StudySummary) -> str:
    """Return a sentence on what the numbers are."""
    seeds = counted(len(summary.seeds), "seed")
    if len(summary.seeds) == 1:
        return "One seed: without confidence intervals."
    return f"Means of {seeds} with half of their 95 % confidence interval (Student's t)."


def _portions(designs: Sequence[str]) -> Iterator[Sequence[str]]:
    for index in range(0, len(designs), _DESIGNS_PER_TABLE):
        yield designs[index : index + _DESIGNS_PER_TABLE]


def _table(designs: Sequence[str], estimates: dict[str, dict[str, FigureEstimate]]) -> Table:
    grid = table("", *designs)
    for figure in FIGURES:
        of_figure = estimates.get(figure.name, {})
        values = [of_figure[name].value if name in of_figure else None for name in designs]
        if figure.is_decisive and any(of_figure.values()):
            grid.add_row(figure.title, *(estimate(figure, value) for value in values))
    return grid
