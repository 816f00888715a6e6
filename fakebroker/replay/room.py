"""Room for what is recorded: a replay ends while there is still some on the disk, and keeps what it has.

Knows no members and no Spark. A disk that is full loses what Spark has not yet written to its end.
"""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LEAST_BYTES = 128 * 1024 * 1024
"""Must be left: for what is recorded and not written yet, and for the report."""

_LOOK_EVERY_S = 0.25


@contextmanager
def watched_room(directory: Path, end: Callable[[str], object]) -> Iterator[None]:
    """Look at the room on a directory's disk while something is written there.

    Args:
        directory: Where.
        end: Is told once, in a sentence, that there is too little.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            free = shutil.disk_usage(directory).free
            if free < LEAST_BYTES:
                end(f"{directory}: {_mib(free)} left on its disk, expected at least {_mib(LEAST_BYTES)}")
                return
            over.wait(_LOOK_EVERY_S)

    watcher = threading.Thread(target=watch, name="replay room", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
