"""Implementations of `fakebroker replay`, `report` and `compare`, which return exit statuses.

Can be imported without the extra `spark`: the functions import modules that need it only after checking for it.
"""

import signal
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.replay.options import BAD_INPUT, COULD_NOT_RUN, INTERRUPTED, PASSED, STATUS_OF, ReplayOptions

_MODULES_OF_EXTRA = ("pyspark", "pyarrow", "rich", "matplotlib", "jinja2")


def replay(options: ReplayOptions) -> int:
    """Replay a workload, print the report, and write the files of the run.

    Returns:
        An exit status.
    """

    def command() -> int:
        from fakebroker.replay.runner import play  # requires the extra

        return _archived(play(options), options.master)

    return exit_status(command)


def report(run: Path, master: str) -> int:
    """Recompute the summary and report of a run from its events.

    Args:
        run: The run's directory.
        master: Spark's master URL.

    Returns:
        An exit status.
    """

    def command() -> int:
        from fakebroker.replay.rebuild import rebuild

        return _archived(rebuild(run, master), master)

    return exit_status(command)


def compare(before: Path, after: Path, again: Sequence[Path], again_after: Sequence[Path], page: Path | None) -> int:
    """Print the figures of two runs, with the noise of their differences.

    Args:
        before: Directory of the first run.
        after: Directory of the second run.
        again: Directories of runs that repeat the first one, to estimate noise.
        again_after: Directories of runs that repeat the second one.
        page: File for the comparison as an HTML page; none is written if not given.

    Returns:
        An exit status: by the verdict on the second run, but `PASSED` if the first one has the same and no outcome is
        worse.
    """

    def command() -> int:
        from rich.console import Console

        from fakebroker.replay.comparison.compare import compare
        from fakebroker.replay.comparison.comparison_report import comparison_page, print_comparison
        from fakebroker.replay.run_directory import read_summary, writing

        old, new = read_summary(before), read_summary(after)
        repeats, repeats_after = ([read_summary(each) for each in runs] for runs in (again, again_after))
        comparison = compare(old, new, repeats, repeats_after)
        if page is not None:
            with writing(page):
                page.write_text(comparison_page(old, new, comparison), encoding="utf-8")
        print_comparison(Console(), old, new, comparison)
        outcome = new.verdict.outcome
        is_worse = any(each.is_worse for each in comparison.changed)
        return STATUS_OF[outcome] if is_worse or outcome != old.verdict.outcome else PASSED

    return exit_status(command)


def _archived(status: int, master: str) -> int:
    """Return an exit status; if the report is complete, let Java's classes be archived in the background."""
    from rich.console import Console

    from fakebroker.replay.spark.class_archive import archive_in_background

    if status != INTERRUPTED:
        archive_in_background(Console(), master)
    return status


def exit_status(command: Callable[[], int]) -> int:
    """Run a command and return its exit status; print an error of this project as one message, without a traceback.

    It needs the extra `spark`, and ends with `INTERRUPTED` after SIGINT and SIGTERM.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
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
        for number, handler in handlers.items():  # Spark replaces the handler of SIGINT and does not restore it
            signal.signal(number, handler)
    if status == INTERRUPTED:
        print("fakebroker: interrupted", file=sys.stderr)
    return status


def _require_extra() -> None:
    if not all(map(find_spec, _MODULES_OF_EXTRA)):
        raise FakebrokerError("this command requires the extra 'spark': pip install 'fakebroker[spark]'")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
