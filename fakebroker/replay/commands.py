"""`fakebroker replay`, `report` and `compare`: from options to an exit status.

Imports without the extra `spark`, so that it can report that the extra is missing.
"""

import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.replay.options import BAD_INPUT, COULD_NOT_RUN, INTERRUPTED, PASSED, ReplayOptions

_NEEDED = ("pyspark", "pyarrow", "rich", "matplotlib", "jinja2")


def replay(options: ReplayOptions) -> int:
    """Play a workload, print the report, and write the files of the run.

    Returns:
        An exit status.
    """

    def play() -> int:
        from fakebroker.replay.runner import play  # needs the extra

        return play(options)

    return _run(play)


def report(run: Path, master: str) -> int:
    """Recompute the summary and report of a run from its events.

    Args:
        run: Its directory.
        master: Spark's master URL.

    Returns:
        An exit status.
    """

    def rebuild() -> int:
        from fakebroker.replay.rebuild import rebuild

        return rebuild(run, master)

    return _run(rebuild)


def compare(before: Path, after: Path, again: list[Path], page: Path | None) -> int:
    """Print two runs side by side.

    Args:
        before: The directory of a run.
        after: The directory of the other one.
        again: Runs that repeat the first, to estimate noise.
        page: Where to write the comparison as an HTML page, if wanted.

    Returns:
        An exit status.
    """

    def compare() -> int:
        from rich.console import Console

        from fakebroker.replay.compare import compare
        from fakebroker.replay.report.compare_report import comparison_page, print_comparison
        from fakebroker.replay.run_directory import read_summary, writing

        old, new, *repeats = (read_summary(directory) for directory in (before, after, *again))
        differences = compare(old, new, repeats)
        print_comparison(Console(), old, new, differences)
        if page is not None:
            with writing(page):
                page.write_text(comparison_page(old, new, differences), encoding="utf-8")
        return PASSED

    return _run(compare)


def _run(command: Callable[[], int]) -> int:
    """Run a command; an error becomes one sentence and a status."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _require_extra()
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


def _require_extra() -> None:
    if not all(map(find_spec, _NEEDED)):
        raise FakebrokerError("Replaying needs the extra 'spark': pip install 'fakebroker[spark]'")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
