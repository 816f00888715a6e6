"""What one sees while a replay runs: a bar and a line of numbers. Knows tallies; not where they come from."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fakebroker.replay.spark.progress import Tally

_REFRESH_PER_S = 4
_RATE_OVER_S = 2.0
_LINE_EVERY_S = 10.0
_MOST_LINES = 20
"""Where there is no terminal."""


class Pace:
    """Requests per second of late, from one tally after the other.

    Args:
        clock: Tells the seconds from some time on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = deque([(clock(), 0)])

    def of(self, tally: Tally) -> float:
        """The rate over the last two seconds, up to this tally."""
        seen, now_s = self._seen, self._clock()
        if now_s > seen[-1][0]:
            seen.append((now_s, tally.requests))
        while len(seen) > 2 and seen[1][0] <= now_s - _RATE_OVER_S:
            seen.popleft()
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return (last - first) / max(last_s - first_s, 1.0)


@contextmanager
def live_view(console: Console, total: Callable[[], Tally], duration_s: float, members: int) -> Iterator[None]:
    """Show the tally that `total` returns, again and again; where there is no terminal, in a line now and then.

    Args:
        console: Where to show it.
        total: The tally of all tasks.
        duration_s: How long the replay takes, by the members' clock.
        members: How many there are in all.
    """
    pace = Pace()
    if not console.is_terminal:
        with _lines(console, lambda: line(total(), pace, duration_s, members), duration_s):
            yield
        return
    with Live(
        get_renderable=lambda: render(total(), pace, duration_s, members),
        console=console,
        refresh_per_second=_REFRESH_PER_S,
        transient=True,
    ):
        yield


def render(tally: Tally, pace: Pace, duration_s: float, members: int) -> Group:
    """The two lines for one tally."""
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
    numbers.append(f"{tally.errors:,} errors", style="red" if tally.errors else "")
    return Group(bar, numbers)


def line(tally: Tally, pace: Pace, duration_s: float, members: int) -> str:
    """The same in one plain line."""
    elapsed_s = _elapsed_s(tally, duration_s, members)
    return (
        f"{elapsed_s:.0f} of {duration_s:.0f} s: {tally.joined:,} of {members:,} members joined, "
        f"{pace.of(tally):,.0f} requests/s, {tally.errors:,} errors"
    )


def _elapsed_s(tally: Tally, duration_s: float, members: int) -> float:
    """How far all have come on average, where some play after others; else how far the replay is."""
    elapsed_ms = tally.lived_ms / members if tally.lived_ms else tally.elapsed_ms
    return min(elapsed_ms / 1000, duration_s)


@contextmanager
def _lines(console: Console, now: Callable[[], str], duration_s: float) -> Iterator[None]:
    """Print a line every ten seconds, and seldomer in long replays."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(max(_LINE_EVERY_S, duration_s / _MOST_LINES)):
            console.print(now(), highlight=False, soft_wrap=True)

    teller = threading.Thread(target=tell, name="replay lines", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
