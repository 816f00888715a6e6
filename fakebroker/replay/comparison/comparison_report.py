"""Shows a comparison of two runs in a terminal of 80 columns and as an HTML page."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from fakebroker.replay.comparison.compare import RULE, Comparison, Difference
from fakebroker.replay.comparison.comparison_charts import comparison_charts, event_times_s, startup_s
from fakebroker.replay.report.html import render
from fakebroker.replay.report.terminal import table
from fakebroker.replay.run_summary import Summary
from fakebroker.replay.wording import event, number

_MOST_CHANGE = 10.0
"""Relative differences from this size are shown as absolute ones."""

_NO_PROBLEMS = "The runs have the same workload and settings."


def print_comparison(console: Console, before: Summary, after: Summary, comparison: Comparison) -> None:
    """Print what makes the runs incomparable, outcomes that changed, and the figures of both runs."""
    _print(console, "Runs", _runs(before, after))
    _print(console, "Can they be compared?", _lines(comparison.problems or [_NO_PROBLEMS]))
    _print(console, "Outcomes", _outcomes(comparison))
    _print(console, exceeding_title(comparison), _figures(comparison.exceeding) if comparison.exceeding else None)
    for title, differences, draw in (
        (unjudged_title(comparison), comparison.unjudged, _unjudged),
        (within_title(comparison), comparison.within, _figures),
    ):
        if differences:
            _print(console, title, draw(differences))
    if comparison.equal:
        _print(console, equal_title(comparison), _lines([", ".join(each.name for each in comparison.equal)]))
    console.print(f"\n{RULE}", style="dim", highlight=False)


def exceeding_title(comparison: Comparison) -> str:
    """Return the heading of the figures that exceed their noise."""
    order = ", the clearest first" if len(comparison.exceeding) > 1 else ""
    return f"{_counted(len(comparison.exceeding))} by more than noise{order}"


def unjudged_title(comparison: Comparison) -> str:
    """Return the heading of the figures that cannot be judged."""
    return f"{_counted(len(comparison.unjudged))}, but whether by more than noise cannot be told"


def within_title(comparison: Comparison) -> str:
    """Return the heading of the figures within their noise."""
    count = len(comparison.within)
    return f"{_counted(count)} by no more than noise"


def equal_title(comparison: Comparison) -> str:
    """Return the heading of the figures that are equal."""
    count = len(comparison.equal)
    return "1 figure is equal" if count == 1 else f"{count} figures are equal"


def _counted(count: int) -> str:
    return f"{count or 'No'} figure differs" if count < 2 else f"{count} figures differ"


def comparison_page(before: Summary, after: Summary, comparison: Comparison) -> str:
    """Return the comparison as an HTML page, with charts of both runs in one picture."""
    return render(
        "comparison.html",
        before=before,
        after=after,
        comparison=comparison,
        no_problems=_NO_PROBLEMS,
        settings=_settings(before, after),
        exceeding_title=exceeding_title(comparison),
        unjudged_title=unjudged_title(comparison),
        within_title=within_title(comparison),
        equal_title=equal_title(comparison),
        cells_of=cells,
        charts=comparison_charts(before, after),
        startup_s=startup_s(before, after),
        events=_events(before, after),
        rule=RULE,
    )


def cells(each: Difference) -> tuple[str, ...]:
    """Return name, values, difference, noise and the multiple of the noise of a figure, with "better" or "worse"."""
    times = "" if each.times is None else "exact" if each.is_exact else _times(each.times)
    return (
        each.name,
        number(_rounded(each.before)),
        number(_rounded(each.after)),
        _signed(each),
        _noise(each),
        f"{times} {each.mark}".rstrip(),
    )


def _times(times: float) -> str:
    return f"{times:.1f}" if times < 100 else "> 100"


def _signed(each: Difference) -> str:
    """Format a difference relative to the first run, or absolutely if that is 0."""
    if each.difference is None:
        return ""
    if each.change is not None and abs(each.change) < _MOST_CHANGE:
        return f"{each.change:+.1%}" if each.change else "0"
    return f"{'+' if each.difference > 0 else ''}{number(_rounded(each.difference))}"


def _noise(each: Difference) -> str:
    """Format the noise relative to the first run, as `_signed` does the difference."""
    if each.noise is None:
        return ""
    if each.before and (each.change is None or abs(each.change) < _MOST_CHANGE):
        return f"{each.noise / abs(each.before):.1%}"
    return number(_rounded(each.noise))


def _rounded(value: float | None) -> float | None:
    """Round to three digits after the point, or three significant ones; whole numbers stay whole."""
    if value is None or value == int(value):
        return value if value is None else int(value)
    return float(f"{value:.3g}") if abs(value) < 100 else round(value, 1) if abs(value) < 10_000 else round(value)


def _settings(before: Summary, after: Summary) -> Mapping[str, tuple[str, str]]:
    """Return what identifies the runs, by name."""
    pairs = [_identity(run) for run in (before, after)]
    return {name: (pairs[0][name], pairs[1][name]) for name in pairs[0]}


def _identity(run: Summary) -> dict[str, str]:
    head = run.head
    state = "" if head.complete else ", ended early"
    return {
        "verdict": f"{run.verdict.outcome}{state}",
        "directory": run.directory,
        "workload": str(head.workload["file"]),
        "seed": str(head.seed),
        "transport": "in memory" if head.transport == "memory" else "TCP",
        "started": head.started[:19].replace("T", " "),
        "length": f"{run.numbers.span_s:,.1f} s",
        "members": f"{head.members:,}",
        "requests": f"{run.numbers.total.requests:,}",
    }


def _runs(before: Summary, after: Summary) -> Table:
    grid = table("", "before", "after", left=3)
    for name, values in _settings(before, after).items():
        grid.add_row(name, *map(escape, values))
    return grid


def _outcomes(comparison: Comparison) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for each in comparison.changed:
        color = "bold red" if each.is_worse else "bold"
        change = f"[dim]{escape(each.before)} ->[/dim] [{color}]{escape(each.after)}[/{color}]"
        grid.add_row(change, escape(each.what))
    if comparison.changed:
        grid.add_row("", "")
    outer = Table.grid()
    outer.add_row(grid)
    outer.add_row(comparison.same)
    return outer


def _figures(differences: Sequence[Difference]) -> Table:
    grid = table("figure", "before", "after", "difference", "noise", "× noise")
    for each in differences:
        grid.add_row(*map(escape, cells(each)), style="bold" if each.exceeds else "dim")
    return grid


def _unjudged(differences: Sequence[Difference]) -> Table:
    grid = table("figure", "before", "after", "why")
    grid.columns[3].justify = "left"
    for each in differences:
        name, old, new, *_ = cells(each)
        grid.add_row(escape(name), old, new, f"[dim]{escape(each.why)}[/dim]")
    return grid


def _lines(lines: Sequence[str]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        grid.add_row("-", escape(line))
    return grid


def _print(console: Console, title: str, content: Table | None) -> None:
    console.print(f"\n[bold]{escape(title)}[/bold]", highlight=False)
    if content is not None:
        console.print(Padding(content, (0, 0, 0, 2)), highlight=False)


def _events(before: Summary, after: Summary) -> list[str]:
    """Return the events that the charts show, each with its time."""
    of = {
        at_s: [each for run in (before, after) for each in run.head.timeline if each["at_s"] == at_s]
        for at_s in event_times_s(before, after)
    }
    return [f"{at_s:g} s: {', '.join(dict.fromkeys(map(event, events)))}" for at_s, events in of.items()]
