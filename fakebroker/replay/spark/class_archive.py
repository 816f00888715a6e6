"""Writes an archive of the classes that Spark loads; with it, a small replay needs a quarter less CPU and wall time.

    python -m fakebroker.replay.spark.class_archive

The archive (class data sharing of Java) is a file of 190 MB in the virtual environment, or in the user's cache
directory. It is used as long as Java and Spark are the same; without it, each replay loads 15,000 classes from Spark's
jar files.
"""

import io
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from fakebroker.errors import FakebrokerError
from fakebroker.replay.options import ReplayOptions
from fakebroker.replay.runner import play
from fakebroker.replay.spark.java import WRITE_ARCHIVE, class_archive, java_home

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
    return archive


if __name__ == "__main__":
    try:
        print(write_class_archive())
    except FakebrokerError as error:
        sys.exit(f"fakebroker: {error}")
