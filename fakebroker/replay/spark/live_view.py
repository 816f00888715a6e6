"""Live progress of a replay: a progress bar with numbers in a terminal, else plain lines."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fakebroker.replay.spark.progress import Tally

_REFRESH_PER_S = 4
_RATE_OVER_S = 2.0
_LINE_EVERY_S = 10.0
"""Shortest interval of lines without a terminal."""

_MAX_LINES = 20
"""Maximum number of lines without a terminal."""


class Pace:
    """Rate of requests over the last two seconds, from consecutive tallies.

    Args:
        clock: Returns monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = deque([(clock(), 0)])

    def of(self, tally: Tally) -> float:
        """Return requests per second, with this tally as the newest."""
        seen, now_s = self._seen, self._clock()
        if now_s > seen[-1][0]:
            seen.append((now_s, tally.requests))
        while len(seen) > 2 and seen[1][0] <= now_s - _RATE_OVER_S:
            seen.popleft()
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return (last - first) / max(last_s - first_s, 1.0)


@contextmanager
def status_line(console: Console, text: str) -> Iterator[None]:
    """Print a line about the work in the context; in a terminal, show a spinner meanwhile."""
    console.print(text)
    with console.status(""):
        yield


@contextmanager
def live_view(console: Console, total: Callable[[], Tally], duration_s: float, members: int) -> Iterator[None]:
    """Show the progress of a replay within the context.

    In a terminal the display is live; else a line is printed every ten seconds, less often in long replays.

    Args:
        console: The output.
        total: Returns the sum of the tasks' tallies.
        duration_s: Duration of the replay by the members' clock.
        members: Number of members.
    """
    pace = Pace()
    with shown_live(
        console,
        lambda: render(total(), pace, duration_s, members),
        lambda: line(total(), pace, duration_s, members),
        max(_LINE_EVERY_S, duration_s / _MAX_LINES),
    ):
        yield


@contextmanager
def shown_live(
    console: Console, render: Callable[[], RenderableType], line: Callable[[], str], line_every_s: float = _LINE_EVERY_S
) -> Iterator[None]:
    """Show progress within the context: live in a terminal, else as lines.

    Args:
        console: The output.
        render: Returns what a terminal shows.
        line: Returns a line.
        line_every_s: Interval of the lines.
    """
    if not console.is_terminal:
        with _lines(console, line, line_every_s):
            yield
        return
    with Live(get_renderable=render, console=console, refresh_per_second=_REFRESH_PER_S, transient=True):
        yield


def render(tally: Tally, pace: Pace, duration_s: float, members: int) -> Group:
    """Return the two lines that a terminal shows: a progress bar and the numbers."""
    elapsed_s = _elapsed_s(tally, duration_s, members)
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(no_wrap=True)
    bar.add_column(ratio=1)
    bar.add_column(no_wrap=True)
    left = f"{duration_s - elapsed_s:.0f} s left"
    bar.add_row(f"{elapsed_s:4.0f} of {duration_s:.0f} s", ProgressBar(total=duration_s, completed=elapsed_s), left)
    numbers = Text(
        f"{tally.joined:,} of {members:,} members joined   {pace.of(tally):,.0f} requests/s   ", overflow="ellipsis"
    )
    numbers.append(f"{tally.errors:,} failed", style="red" if tally.errors else "")
    return Group(bar, numbers)


def line(tally: Tally, pace: Pace, duration_s: float, members: int) -> str:
    """Return the line that is printed without a terminal."""
    elapsed_s = _elapsed_s(tally, duration_s, members)
    return (
        f"{elapsed_s:.0f} of {duration_s:.0f} s: {tally.joined:,} of {members:,} members joined, "
        f"{pace.of(tally):,.0f} requests/s, {tally.errors:,} failed"
    )


def _elapsed_s(tally: Tally, duration_s: float, members: int) -> float:
    """Return the progress of the replay. In memory this is the average of the members, which are simulated in turn."""
    elapsed_ms = tally.lived_ms / members if tally.lived_ms else tally.elapsed_ms
    return min(elapsed_ms / 1000, duration_s)


@contextmanager
def _lines(console: Console, now: Callable[[], str], every_s: float) -> Iterator[None]:
    """Print lines from another thread within the context."""
    over = threading.Event()

    def print_lines() -> None:
        while not over.wait(every_s):
            console.print(now(), highlight=False, soft_wrap=True)

    thread = threading.Thread(target=print_lines, name="replay lines", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
