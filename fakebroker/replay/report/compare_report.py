"""Shows a comparison of two runs in a terminal and as an HTML page."""

from collections.abc import Sequence
from math import isinf

from rich.console import Console
from rich.markup import escape

from fakebroker.replay.compare import RULE, Difference, differing_settings
from fakebroker.replay.report.html import render
from fakebroker.replay.report.terminal import table
from fakebroker.replay.report.wording import number
from fakebroker.replay.run_summary import Summary

_COLUMNS = ("", "before", "after", "difference", "noise", "")
_MARK = "differs"


def print_comparison(console: Console, before: Summary, after: Summary, differences: Sequence[Difference]) -> None:
    """Print the numbers of both runs side by side, and the rule by which differences are marked."""
    for line in _headings(before, after):
        console.print(escape(line), highlight=False, soft_wrap=True)
    rows = table(*_COLUMNS)
    for difference in differences:
        rows.add_row(*_cells(difference), style="bold yellow" if difference.marked else None)
    console.print(rows)
    console.print(f"\n{RULE}", style="dim", highlight=False)


def comparison_page(before: Summary, after: Summary, differences: Sequence[Difference]) -> str:
    """Return the comparison as an HTML page, with the charts of both runs."""
    return render(
        "comparison.html",
        before=before,
        after=after,
        headings=_headings(before, after),
        columns=_COLUMNS,
        rows=[(difference, _cells(difference)) for difference in differences],
        rule=RULE,
    )


def _headings(before: Summary, after: Summary) -> list[str]:
    lines = [
        f"{name}: {run.directory}, {run.head.workload['file']}, seed {run.head.seed}, {run.head.started}, verdict "
        f"{run.verdict.outcome}{'' if run.head.complete else ', interrupted'}"
        for name, run in (("before", before), ("after", after))
    ]
    if settings := differing_settings(before, after):
        lines.append(f"These settings of the runs differ, which may explain differences: {', '.join(settings)}.")
    return lines


def _cells(difference: Difference) -> list[str]:
    change = "" if difference.change is None else f"{difference.change:+.1%}"
    noise = "unknown" if difference.noise is None or isinf(difference.noise) else f"{difference.noise:.1%}"
    return [
        difference.name,
        number(difference.before),
        number(difference.after),
        change,
        noise,
        _MARK if difference.marked else "",
    ]
