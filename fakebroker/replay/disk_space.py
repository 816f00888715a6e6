"""Room for what is recorded: a replay ends while there is still some on the disk, and keeps what it has.

Knows no members and no Spark. A disk that is full loses what Spark has not yet written to its end.
"""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fakebroker.errors import FakebrokerError

BLOCK_BYTES = 16 * 1024 * 1024
"""How much Spark writes at once: each task may have recorded so much that is not written yet."""

_LEAST_BYTES = 96 * 1024 * 1024
"""Must be left besides, for the report."""

_LOOK_EVERY_S = 0.25


@contextmanager
def watched_room(directory: Path, tasks: int, end: Callable[[str], object]) -> Iterator[None]:
    """Look at the room on a directory's disk while something is written there.

    Args:
        directory: Where.
        tasks: How many write at the same time.
        end: Is told once, in a sentence, that there is too little.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if why := _too_little(directory, tasks):
                end(why)
                return
            over.wait(_LOOK_EVERY_S)

    watcher = threading.Thread(target=watch, name="replay room", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def check_room(directory: Path) -> None:
    """Look whether there is room to begin with.

    Raises:
        FakebrokerError: There is too little.
    """
    if why := _too_little(directory, tasks=1):
        raise FakebrokerError(why)


def _too_little(directory: Path, tasks: int) -> str:
    """A sentence, if there is too little room."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError:  # What is written there will tell.
        return ""
    least = _LEAST_BYTES + tasks * BLOCK_BYTES
    return f"{directory}: {_mib(free)} left on its disk, expected at least {_mib(least)}" if free < least else ""


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
