"""Runs a placement study: Spark, the figures, tables, and the files of the study."""

import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from rich.console import Console
from rich.padding import Padding

from fakebroker.lab.placement.placement_plan import PlacementPlan
from fakebroker.lab.placement.report import placement_section
from fakebroker.lab.placement.result import PlacementResult
from fakebroker.lab.placement.study import place
from fakebroker.lab.report.sections import ReportSection
from fakebroker.replay.options import PASSED
from fakebroker.replay.report.html import render
from fakebroker.replay.report.terminal import table
from fakebroker.replay.run_directory import new_directory, writing
from fakebroker.replay.spark.interruption import wait_for_result
from fakebroker.replay.spark.live_view import status_line
from fakebroker.replay.spark.session import LOCAL_JAVA_OPTIONS, spark_errors, spark_session
from fakebroker.replay.wording import counted

RESULT, PAGE = "placement.json", "placement.html"

_MANY_GROUPS = 3_000_000
_MANY_GROUPS_JAVA_OPTIONS = "-XX:+UseParallelGC"
"""Java's optimizing compiler: on two cores, 20 million groups take 18 s with it and 26 s without; 10,000 groups 15 s
and 12 s.
"""


class PlacementRecord(msgspec.Struct, frozen=True):
    """The content of `placement.json`.

    Attributes:
        seconds: Duration of the study, with Spark's start.
        cpu_s: CPU time of this process and of Spark.
        result: The figures.
    """

    seconds: float
    cpu_s: float
    result: PlacementResult


def study_placement(plan: PlacementPlan, master: str, out: Path | None) -> int:
    """Run a placement study, print its tables, and write its files.

    Args:
        plan: What is compared.
        master: Spark's master URL.
        out: Directory for the results; `runs/placement-<time>` if not given.

    Returns:
        The exit status `PASSED`.

    Raises:
        ConfigError: The directory is not valid.
        FakebrokerError: Spark failed, or a file cannot be written.
    """
    console = Console()
    java_options = _MANY_GROUPS_JAVA_OPTIONS if plan.groups[-1] >= _MANY_GROUPS else LOCAL_JAVA_OPTIONS
    started_s, started_cpu_s = time.monotonic(), _cpu_s()
    with new_directory(out, "placement", (RESULT, PAGE)) as directory:
        log = directory / "spark.log"
        with (
            # Ctrl-C arrives in the main thread; in a call of Spark it would corrupt the connection to Spark.
            ThreadPoolExecutor(1, "placement") as thread,
            status_line(console, f"Placing {counted(plan.groups[-1], 'group')}, {counted(len(plan.seeds), 'seed')}"),
            spark_session(master, log, plan.groups[-1], java_options) as spark,
            spark_errors(log, "the placement study"),
        ):
            result = wait_for_result(thread.submit(place, spark, plan))
        record = PlacementRecord(round(time.monotonic() - started_s, 1), round(_cpu_s() - started_cpu_s, 1), result)
        section = placement_section(result)
        _write(directory / RESULT, msgspec.json.encode(record).decode() + "\n")
        _write(directory / PAGE, render("placement.html", section=section, record=record))
    print_section(console, section)
    console.print(f"\n{record.seconds:,} s, {record.cpu_s:,} s of CPU time. Results in {directory}", highlight=False)
    return PASSED


def print_section(console: Console, section: ReportSection) -> None:
    """Print the tables of a section of a report."""
    console.print(f"\n[bold]{section.title}[/bold]\n{section.about}", highlight=False)
    for each in section.tables:
        grid = table(*each.columns, left=each.left)
        grid.columns[0].min_width = max(len(word) for row in each.rows for word in row[0].split())
        for row in each.rows:
            grid.add_row(*row)
        console.print(Padding(grid, (1, 0, 0, 2)), highlight=False)


def _cpu_s() -> float:
    """Return the CPU time of this process and of its processes that have ended, as Spark's has."""
    usages = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _write(path: Path, text: str) -> None:
    with writing(path):
        path.write_text(text, encoding="utf-8")
