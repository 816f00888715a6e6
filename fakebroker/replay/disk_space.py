"""Stops a replay before the disk fills: on a full disk, files that Spark has not completed yet would be lost."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fakebroker.errors import FakebrokerError

BLOCK_BYTES = 16 * 1024 * 1024
"""How much Spark writes at once: each task may have recorded that much that is not written yet."""

_LEAST_BYTES = 96 * 1024 * 1024
"""Reserved for the report."""

_CHECK_EVERY_S = 0.25


@contextmanager
def watch_disk_space(directory: Path, tasks: int, end: Callable[[str], object]) -> Iterator[None]:
    """Check the free space of a directory's disk repeatedly within the context.

    Args:
        directory: Where files are written.
        tasks: How many tasks write at the same time.
        end: Called once with a sentence if there is too little.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if why := _too_little(directory, tasks):
                end(why)
                return
            over.wait(_CHECK_EVERY_S)

    watcher = threading.Thread(target=watch, name="replay disk space", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def check_disk_space(directory: Path) -> None:
    """Check the free space before a replay.

    Raises:
        FakebrokerError: There is too little.
    """
    if why := _too_little(directory, tasks=1):
        raise FakebrokerError(why)


def _too_little(directory: Path, tasks: int) -> str:
    """Return a sentence if there is too little space, else an empty string."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError:  # Writing there will fail with a better message.
        return ""
    least = _LEAST_BYTES + tasks * BLOCK_BYTES
    return f"{directory}: {_mib(free)} left on its disk, expected at least {_mib(least)}" if free < least else ""


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
