"""Reporting anew on a run that is over. Plays nothing."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from fakebroker.errors import ConfigError
from fakebroker.replay.commands import FAILED, PASSED
from fakebroker.replay.report.summarizing import summarized
from fakebroker.replay.report.terminal import print_report
from fakebroker.replay.run_directory import EVENTS, HEAD, MEMBERS, write_results
from fakebroker.replay.run_schema import SUMMARY_KEYS
from fakebroker.replay.runner import spark_at, stage
from fakebroker.replay.spark.session import spark_session

HEAD_KEYS = (
    "workload",
    "seed",
    "started",
    "complete",
    "transport",
    "record",
    "lanes",
    "cluster",
    "spark",
    "timeline",
)
"""What the events do not tell."""


def rebuild(directory: Path, master: str) -> int:
    """Work out summary and report of a run anew.

    Returns:
        An exit status: whether the verdict is good.

    Raises:
        ConfigError: It is not the directory of a run.
    """
    console = Console()
    for name in (EVENTS, MEMBERS, HEAD):
        if not (directory / name).exists():
            raise ConfigError(f"{directory}: expected the directory of a run, which has {name}")
    head = {"lanes": None, **_json(directory / HEAD)}
    if missing := next(_missing(head), None):
        raise ConfigError(f"{directory / HEAD}: {missing} is missing")
    with (
        ThreadPoolExecutor(1, "report") as thread,  # Ctrl-C in Python's main one would garble the talk with Spark
        stage(console, "Working out the summary"),
        spark_session(master, directory / "spark.log", head.get("members", 0)) as spark,
        spark_at(directory),
    ):
        summary = thread.submit(lambda: write_results(directory, summarized(spark, directory, head))).result()
    print_report(console, summary)
    return PASSED if summary["verdict"]["passed"] else FAILED


def _missing(head: Mapping[str, Any]) -> Iterator[str]:
    """What it should say and does not."""
    for key in SUMMARY_KEYS:
        part, _, inner = key.name.removesuffix("[]").partition(".")
        if part in HEAD_KEYS and (part not in head or (inner and inner not in head[part])):
            yield key.name


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: expected what the events of a run do not tell: {error}") from None
