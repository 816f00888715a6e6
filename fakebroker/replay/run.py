"""`fakebroker replay`: options in, exit status out.

The one module of the package that imports without the extra `spark`, so that it can say that it is missing.
"""

import signal
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fakebroker.errors import FakebrokerError

PASSED, COULD_NOT_RUN, FAILED, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses: the verdict is good, there was no replay, the verdict is bad, somebody stopped it."""

_NEEDED = ("pyspark", "pyarrow", "msgspec", "rich")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What the command line says.

    Attributes:
        file: The workload.
        bootstrap: HOST:PORT of a cluster, or several with commas; an embedded one is started if not given.
        master: Spark's master URL.
        out: Directory for the results; `runs/<workload>-<seed>-<time>` if not given.
        seed: Of every random choice; the workload's own if not given, drawn if that has none.
    """

    file: Path
    bootstrap: str | None = None
    master: str = "local[*]"
    out: Path | None = None
    seed: int | None = None


def replay(options: ReplayOptions) -> int:
    """Play a workload, print the report, leave the files.

    Returns:
        An exit status: 0, 1, 2 or 130.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return PASSED if _play(options) else FAILED
    except FakebrokerError as error:
        print(f"fakebroker: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        print("fakebroker: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        for number, handler in before.items():  # Spark sets one for SIGINT and leaves it
            signal.signal(number, handler)


def _play(options: ReplayOptions) -> bool:
    if not all(map(find_spec, _NEEDED)):
        raise FakebrokerError("Replaying needs the extra 'spark': pip install 'fakebroker[spark]'")
    from fakebroker.replay.play import play  # it imports what the extra brings

    return play(options)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
