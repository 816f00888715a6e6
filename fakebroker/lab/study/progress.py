"""Live progress of a study: a progress bar in a terminal, else lines."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from fakebroker.lab.study.tasks import StudyTally
from fakebroker.replay.spark.live_view import shown_live


@contextmanager
def study_view(console: Console, total: Callable[[], StudyTally], runs: int, duration_ms: float) -> Iterator[None]:
    """Show the progress within the context.

    Args:
        console: The output.
        total: Returns the sum of the tasks' tallies.
        runs: Number of runs.
        duration_ms: Virtual time of all runs together.
    """
    began_s = time.monotonic()

    def line() -> str:
        return progress_line(total(), runs, duration_ms, time.monotonic() - began_s)

    def render() -> Table:
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_row(ProgressBar(total=duration_ms, completed=min(total().played_ms, duration_ms)), line())
        return bar

    with shown_live(console, render, line):
        yield


def progress_line(tally: StudyTally, runs: int, duration_ms: float, elapsed_s: float) -> str:
    """Return the progress as text, with the time left if it continues at the same speed."""
    share = min(1.0, tally.played_ms / duration_ms)
    left = f", {elapsed_s * (1 - share) / share:,.0f} s left" if share > 0 else ""
    failed = f", {tally.failed} failed" if tally.failed else ""
    return f"{tally.runs:,} of {runs:,} runs{failed}{left}"
