"""Recomputes the summary and report of a run from its events."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from fakebroker.errors import ConfigError
from fakebroker.replay.options import FAILED, PASSED
from fakebroker.replay.report.summarizing import summarized
from fakebroker.replay.report.terminal import print_report
from fakebroker.replay.run_directory import EVENTS, HEAD, MEMBERS, write_results
from fakebroker.replay.run_summary import head_of
from fakebroker.replay.spark.live_view import status_line
from fakebroker.replay.spark.session import spark_errors, spark_session


def rebuild(directory: Path, master: str) -> int:
    """Recompute the summary and report of a run.

    Args:
        directory: Of the run.
        master: Spark's master URL.

    Returns:
        An exit status: whether the verdict is good.

    Raises:
        ConfigError: The directory is not one of a run.
    """
    console = Console()
    for name in (EVENTS, MEMBERS, HEAD):
        if not (directory / name).exists():
            raise ConfigError.of("directory", str(directory), f"the directory of a run, which has {name}")
    head = head_of(_json(directory / HEAD), where=str(directory / HEAD))
    log = directory / "spark.log"
    with (
        ThreadPoolExecutor(1, "report") as thread,  # in the main thread, Ctrl-C would corrupt the connection to Spark
        status_line(console, "Working out the summary"),
        spark_session(master, log, head.members) as spark,
        spark_errors(log),
    ):
        summary = thread.submit(lambda: write_results(directory, summarized(spark, directory, head))).result()
    print_report(console, summary)
    return PASSED if summary.verdict.passed else FAILED


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: expected what the events of a run do not tell: {error}") from None
