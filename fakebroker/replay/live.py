"""What one sees while a replay runs: a bar and a line of numbers. Knows tallies; not where they come from."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fakebroker.replay.progress import Tally

_REFRESH_PER_S = 4


@contextmanager
def live_view(console: Console, total: Callable[[], Tally], duration_s: float, members: int) -> Iterator[None]:
    """Show the tally that `total` returns, again and again; where there is no terminal, show nothing."""
    with Live(
        get_renderable=lambda: render(total(), duration_s, members),
        console=console,
        refresh_per_second=_REFRESH_PER_S,
        transient=True,
    ):
        yield


def render(tally: Tally, duration_s: float, members: int) -> Group:
    """The two lines for one tally."""
    elapsed_s = min(tally.elapsed_ms / 1000, duration_s)
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(no_wrap=True)
    bar.add_column(ratio=1)
    bar.add_row(f"{elapsed_s:4.0f} of {duration_s:.0f} s", ProgressBar(total=duration_s, completed=elapsed_s))
    numbers = Text(
        f"{tally.requests:,} requests ({tally.requests / max(elapsed_s, 1):,.0f}/s)   "
        f"{tally.joined:,} of {members:,} members joined   "
    )
    numbers.append(f"{tally.errors:,} errors", style="red" if tally.errors else "")
    return Group(bar, numbers)
