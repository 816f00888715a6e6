"""Recomputes the summary and the report of a run from its events."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from fakebroker.errors import ConfigError
from fakebroker.replay.options import STATUS_OF
from fakebroker.replay.report.summary import summarize
from fakebroker.replay.report.terminal import print_report
from fakebroker.replay.run_directory import (
    EVENTS,
    HEAD,
    MEMBERS,
    WORKLOAD,
    check_ended,
    recorded_events,
    write_results,
    writing,
)
from fakebroker.replay.run_summary import RUN_FORMAT, head_of
from fakebroker.replay.spark.event_files import complete_events
from fakebroker.replay.spark.interruption import PromptEnd, wait_for_result
from fakebroker.replay.spark.live_view import status_line
from fakebroker.replay.spark.query_settings import are_few
from fakebroker.replay.spark.session import spark_errors, spark_session


def rebuild(directory: Path, master: str) -> int:
    """Recompute the summary and the report of a run, and print the report.

    Args:
        directory: Directory of the run.
        master: Spark's master URL; few events need no Spark.

    Returns:
        An exit status, by the verdict.

    Raises:
        ConfigError: The directory does not contain a run, or the run has not ended.
    """
    console = Console()
    for name in (EVENTS, MEMBERS, HEAD):
        if not (directory / name).exists():
            raise ConfigError.of("directory", str(directory), f"the directory of a run, which contains {name}")
    check_ended(directory)
    document = _json(directory / HEAD)
    if document.get("format", RUN_FORMAT) != RUN_FORMAT:
        raise ConfigError(
            f"{directory} has a run of format {document['format']}, and this fakebroker reads format {RUN_FORMAT}: "
            f"replay {directory / WORKLOAD} again"
        )
    head = head_of(document, where=str(directory / HEAD))
    log = directory / "spark.log"
    with writing(directory / EVENTS):
        complete_events(directory / EVENTS)  # of a replay that was killed
    # Ctrl-C during a call to Spark would corrupt the connection to it, so another thread calls it.
    with (
        PromptEnd() as prompt_end,
        ThreadPoolExecutor(1, "report") as thread,
        status_line(console, "Computing the summary"),
    ):
        prompt_end.handle_signals()
        thread.submit(import_module, "fakebroker.replay.report.html")  # with matplotlib, while Spark starts
        count = recorded_events(directory)
        session = nullcontext() if are_few(count) else spark_session(master, log, count)
        with session as spark, spark_errors(log):
            computed = wait_for_result(thread.submit(summarize, spark, directory, head))
            written = thread.submit(write_results, directory, computed)  # while Spark stops
        summary = wait_for_result(written)
    print_report(console, summary)
    return STATUS_OF[summary.verdict.outcome]


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: expected the settings of a run as a JSON object: {error}") from None
