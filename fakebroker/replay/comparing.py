"""Comparing two runs that are over, from their directories. Needs no Spark."""

from pathlib import Path

from rich.console import Console

from fakebroker.replay.commands import PASSED
from fakebroker.replay.compare import compare
from fakebroker.replay.report.compare_report import comparison_page, print_comparison
from fakebroker.replay.run_directory import read_summary, writing


def compare_runs(before: Path, after: Path, again: list[Path], page: Path | None) -> int:
    """Print two runs beside each other, and write the page if one is wanted.

    Returns:
        An exit status.

    Raises:
        ConfigError: One is not the directory of a run.
    """
    old, new, *repeats = (read_summary(directory) for directory in (before, after, *again))
    differences = compare(old, new, repeats)
    print_comparison(Console(), old, new, differences)
    if page is not None:
        with writing(page):
            page.write_text(comparison_page(old, new, differences), encoding="utf-8")
    return PASSED
