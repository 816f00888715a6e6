"""`fakebroker replay`, `report` and `compare`: options in, exit status out.

The one module of the package that imports without the extra `spark`, so that it can say that it is missing.
"""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from fakebroker.errors import ConfigError, FakebrokerError

PASSED, COULD_NOT_RUN, BAD_INPUT, FAILED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit statuses: all is well; something went wrong; a file or an option is; the verdict is bad; somebody stopped it."""

_NEEDED = ("pyspark", "pyarrow", "msgspec", "rich", "matplotlib")

Transport = Literal["tcp", "memory"]
Record = Literal["all", "changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What the command line says.

    Attributes:
        file: The workload.
        bootstrap: HOST:PORT of a cluster, or several with commas; an embedded one is started if not given.
        transport: Members play over TCP, or are simulated in memory, in a time of their own.
        record: Every request, or heartbeats that change nothing many in one row; the first over TCP, the second in
            memory if not given.
        lanes: How many connections each task has to each broker, for its members to share; one a member if not given.
        tasks: Among how many tasks of Spark the groups are dealt; as many as run at once if not given.
        master: Spark's master URL.
        out: Directory for the results; `runs/<workload>-<time>` if not given.
        seed: Of every random choice; the workload's own if not given, drawn if that has none.
    """

    file: Path
    bootstrap: str | None = None
    transport: Transport = "tcp"
    record: Record | None = None
    lanes: int | None = None
    tasks: int | None = None
    master: str = "local[*]"
    out: Path | None = None
    seed: int | None = None


def replay(options: ReplayOptions) -> int:
    """Play a workload, print the report, leave the files.

    Returns:
        An exit status.
    """

    def play() -> int:
        from fakebroker.replay.runner import play  # it imports what the extra brings

        return play(options)

    return _run(play)


def report(run: Path, master: str) -> int:
    """Work a run's summary and report out anew, from what it recorded.

    Returns:
        An exit status.
    """

    def rebuild() -> int:
        from fakebroker.replay.rebuild import rebuild

        return rebuild(run, master)

    return _run(rebuild)


def compare(before: Path, after: Path, again: list[Path], page: Path | None) -> int:
    """Print two runs beside each other.

    Args:
        again: Runs that repeat the first.
        page: Where the same goes as an HTML page.

    Returns:
        An exit status.
    """

    def compare() -> int:
        from fakebroker.replay.comparing import compare_runs

        return compare_runs(before, after, again, page)

    return _run(compare)


def _run(command: Callable[[], int]) -> int:
    """Run a command; what is wrong becomes one sentence and a status."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _need_extra()
        status = command()
    except FakebrokerError as error:
        print(f"fakebroker: {error}", file=sys.stderr)
        return BAD_INPUT if isinstance(error, ConfigError) else COULD_NOT_RUN
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        for number, handler in before.items():  # Spark sets one for SIGINT and leaves it
            signal.signal(number, handler)
    if status == INTERRUPTED:
        print("fakebroker: interrupted", file=sys.stderr)
    return status


def _need_extra() -> None:
    if not all(map(find_spec, _NEEDED)):
        raise FakebrokerError("Replaying needs the extra 'spark': pip install 'fakebroker[spark]'")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
