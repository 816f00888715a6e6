"""Writes an archive of the classes that Spark loads; with it, a small replay needs a quarter less CPU and wall time.

    python -m fakebroker.replay.spark.class_archive

The archive (class data sharing of Java) is a file of 190 MB in the virtual environment, or in the user's cache
directory. It is used as long as Java and Spark are the same; without it, each replay loads 15,000 classes from Spark's
jar files. The first replay starts this module in the background at its end.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path

from rich.console import Console

from fakebroker.errors import FakebrokerError
from fakebroker.replay.options import ReplayOptions
from fakebroker.replay.runner import play
from fakebroker.replay.spark.java import WRITE_ARCHIVE, class_archive, is_configured_by_user, java_home
from fakebroker.replay.spark.session import is_local

SWITCH = "FAKEBROKER_CLASS_ARCHIVE"
"""Environment variable: with the value `never`, replays do not write an archive."""

_IN_BACKGROUND = "--in-background"
_LIMIT_S = 600
"""How long writing an archive in the background may take, on a slow machine, too."""

_RETRY_AFTER_S = 86_400
"""How long no other replay writes an archive after one has begun to; it may have failed."""

_LEAST_FREE_BYTES = 2**30
_WORKLOAD = """\
duration_s = 5
topics = { orders = 2 }
cluster = { config = { "group.initial.rebalance.delay.ms" = 0 } }
groups = [{ name = "g", count = 2, members = 2 }]
"""


def write_class_archive() -> Path:
    """Replay a small workload, and write the classes that this needs to an archive.

    Returns:
        The path of the archive.

    Raises:
        FakebrokerError: There is no Java for Spark, or it cannot write the archive.
    """

    with tempfile.TemporaryDirectory(prefix="fakebroker-") as scratch:
        (workload := Path(scratch, "workload.toml")).write_text(_WORKLOAD)
        archive = class_archive(java_home(Path(scratch)))
        archive.parent.mkdir(parents=True, exist_ok=True)
        # Replays that start meanwhile must not read an incomplete file.
        with tempfile.TemporaryDirectory(prefix="writing-", dir=archive.parent) as beside:
            os.environ[WRITE_ARCHIVE] = str(Path(beside, archive.name))
            try:
                with redirect_stdout(io.StringIO()):
                    play(ReplayOptions(file=workload, transport="memory", out=Path(scratch, "run"), seed=1))
                Path(beside, archive.name).replace(archive)
            except FileNotFoundError:
                raise FakebrokerError(
                    f"{archive}: Java did not write it; is Spark configured by the environment?"
                ) from None
            finally:
                del os.environ[WRITE_ARCHIVE]
    _started(archive).unlink(missing_ok=True)
    return archive


def archive_in_background(console: Console, master: str) -> None:
    """Start a process that writes the archive, and print a line about it, unless there is one or it is not wanted.

    The process has the lowest priority, and a process session of its own, so that it outlives a terminal. Only one is
    started per day. If it fails, nothing is printed.

    Args:
        console: The output.
        master: Spark's master URL. Only local sessions use archives.
    """
    is_wanted = os.environ.get(SWITCH) != "never" and WRITE_ARCHIVE not in os.environ
    if not is_wanted or not is_local(master) or is_configured_by_user():
        return
    with suppress(OSError, FakebrokerError), tempfile.TemporaryDirectory(prefix="fakebroker-") as scratch:
        archive = class_archive(java_home(Path(scratch)))
        if archive.exists():
            return
        archive.parent.mkdir(parents=True, exist_ok=True)
        started = _started(archive)
        if started.exists() and time.time() - started.stat().st_mtime > _RETRY_AFTER_S:
            started.unlink()
        if shutil.disk_usage(archive.parent).free < _LEAST_FREE_BYTES:
            return
        started.touch(exist_ok=False)  # Another replay may do this at the same time.
        nothing = subprocess.DEVNULL
        command = [sys.executable, "-m", __name__, _IN_BACKGROUND]
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
        console.print(
            "Java's classes are being archived in the background, for a faster start next time (190 MB, once).",
            highlight=False,
            soft_wrap=True,
        )


def _started(archive: Path) -> Path:
    """Return the path of the empty file that exists while the archive is being written, and after a failure."""
    return archive.with_suffix(".started")


def _end(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    if _IN_BACKGROUND in sys.argv:
        os.nice(19)
        signal.signal(signal.SIGALRM, _end)
        signal.alarm(_LIMIT_S)
    try:
        print(write_class_archive())
    except FakebrokerError as error:
        sys.exit(f"fakebroker: {error}")
