"""What one sees while a replay runs: a bar and a line of numbers. Knows tallies; not where they come from."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fakebroker.replay.progress import Tally

_REFRESH_PER_S = 4
_RATE_OVER_MS = 2_000
_LINE_EVERY_S = 10.0
_MOST_LINES = 20
"""Where there is no terminal."""


class Pace:
    """Requests per second of late, from one tally after the other."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def of(self, tally: Tally) -> float:
        """The rate over the last two seconds, up to this tally."""
        seen, now_ms = self._seen, tally.elapsed_ms
        if not seen or now_ms > seen[-1][0]:
            seen.append((now_ms, tally.requests))
        while len(seen) > 2 and seen[1][0] <= now_ms - _RATE_OVER_MS:
            seen.popleft()
        (first_ms, first), (last_ms, last) = seen[0], seen[-1]
        if last_ms == first_ms:
            return last * 1000 / max(last_ms, 1000)
        return (last - first) * 1000 / (last_ms - first_ms)


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
    elapsed_s = min(tally.elapsed_ms / 1000, duration_s)
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
    elapsed_s = min(tally.elapsed_ms / 1000, duration_s)
    return (
        f"{elapsed_s:.0f} of {duration_s:.0f} s: {tally.joined:,} of {members:,} members joined, "
        f"{pace.of(tally):,.0f} requests/s, {tally.errors:,} errors"
    )


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
