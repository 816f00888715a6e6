"""Stops a replay before the disk is full: its last events would be lost, and there would be no report."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fakebroker.errors import FakebrokerError

BLOCK_BYTES = 16 * 1024 * 1024
"""Space reserved for each task, for the rows that it has in memory. Also the size of row groups that Spark writes."""

_LEAST_BYTES = 96 * 1024 * 1024
"""Space reserved for the summary and the report."""

_CHECK_EVERY_S = 0.25


@contextmanager
def watch_disk_space(directory: Path, tasks: int, end: Callable[[str], object]) -> Iterator[None]:
    """Check the free space of a directory's disk every 250 ms, in a thread, until the context ends.

    Args:
        directory: The directory that files are written to.
        tasks: Number of tasks that write at the same time.
        end: Called once, in that thread, with an error message if there is too little space.
    """
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            if message := _shortage(directory, tasks):
                end(message)
                return
            is_over.wait(_CHECK_EVERY_S)

    watcher = threading.Thread(target=watch, name="replay disk space", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def check_disk_space(directory: Path) -> None:
    """Check the free space before a replay.

    Raises:
        FakebrokerError: There is too little space.
    """
    if message := _shortage(directory, tasks=1):
        raise FakebrokerError(message)


def _shortage(directory: Path, tasks: int) -> str:
    """Return an error message if there is too little space, else an empty string."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError:  # Writing to the directory will fail with a better message.
        return ""
    least = _LEAST_BYTES + tasks * BLOCK_BYTES
    return f"{directory}: {_mib(free)} of free disk space: expected at least {_mib(least)}" if free < least else ""


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
