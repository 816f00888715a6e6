"""Runs a study, from the scenario files to the report: Spark, the runs, the comparison, the files."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from rich.console import Console

from fakebroker.errors import FakebrokerError
from fakebroker.host_port import unbracketed
from fakebroker.lab.options import StudyOptions
from fakebroker.lab.report.page import study_page
from fakebroker.lab.report.terminal import print_study
from fakebroker.lab.study.plan import StudyPlan, plan_of
from fakebroker.lab.study.progress import study_view
from fakebroker.lab.study.results import RUNS, RunRow, read_rows
from fakebroker.lab.study.summary import StudySummary, summarize
from fakebroker.lab.study.tasks import StudyTally, default_tasks, run_all
from fakebroker.replay.options import INTERRUPTED, PASSED
from fakebroker.replay.run_directory import REPORT, SUMMARY, json_text, new_directory, writing
from fakebroker.replay.spark.interruption import Interruption, wait_for_result
from fakebroker.replay.spark.live_view import status_line
from fakebroker.replay.spark.progress import receiving
from fakebroker.replay.spark.session import spark_errors, spark_session
from fakebroker.replay.wording import counted


def study(options: StudyOptions) -> int:
    """Run a study, print its tables, and write its files.

    Returns:
        An exit status: `PASSED` or `INTERRUPTED`.

    Raises:
        ConfigError: A scenario or an option is invalid.
        FakebrokerError: A run failed, after all others and the report are done; or Spark failed.
    """
    console = Console()
    plan = plan_of(options)
    with new_directory(options.out, "lab", (RUNS, SUMMARY, REPORT)) as out:
        _print_heading(console, options, plan, out)
        interruption = Interruption()
        with ExitStack() as stack:
            # Ctrl-C arrives in the main thread; in a call of Spark it would corrupt the connection to Spark.
            thread = stack.enter_context(ThreadPoolExecutor(1, "study"))
            with status_line(console, "Starting Spark"):
                spark = stack.enter_context(spark_session(options.master, out / "spark.log"))
            playing = thread.submit(_play, spark, plan, options.tasks, out, console, interruption)
            try:
                wait_for_result(playing)
            except KeyboardInterrupt:
                if not interruption.request():
                    raise
                console.print("Interrupted: finishing the report. Press Ctrl-C again to quit without it.")
                wait_for_result(playing)
        rows = read_rows(out)
        summary = summarize(plan, rows, options.scale)
        with status_line(console, "Writing the report"):
            _write(out, plan, rows, summary)
    print_study(console, summary)
    if not summary.complete:
        return INTERRUPTED
    if summary.failed:
        runs = counted(len(plan.runs()), "run")
        raise FakebrokerError(f"{len(summary.failed)} of {runs} failed; their tracebacks are in {out / SUMMARY}")
    return PASSED


def _print_heading(console: Console, options: StudyOptions, plan: StudyPlan, out: Path) -> None:
    scale = "" if options.scale == 1 else f", scale {options.scale:g}"
    parts = [
        counted(len(plan.designs), "design"),
        counted(len(plan.scenarios), "scenario"),
        counted(len(plan.seeds), "seed"),
    ]
    runs = counted(len(plan.runs()), "run")
    console.print(f"{runs}: {' x '.join(parts)}{scale}, results in {out}", highlight=False, soft_wrap=True)


def _play(
    spark: SparkSession, plan: StudyPlan, tasks: int | None, out: Path, console: Console, interruption: Interruption
) -> None:
    """Run all runs, and write their rows. Called in the thread "study"."""
    runs = len(plan.runs())
    count = min(tasks, runs) if tasks else default_tasks(spark.sparkContext.defaultParallelism, runs)
    driver = unbracketed(spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))
    with receiving(driver, StudyTally) as receiver, ExitStack() as stack:
        stack.enter_context(study_view(console, receiver.total, runs, plan.duration_ms))
        stack.enter_context(interruption.running(receiver.stop_tasks))
        with spark_errors(out / "spark.log", "the study"):
            rows = run_all(spark, plan, count, (driver, receiver.port))
            rows.write.mode("overwrite").parquet(str(out / RUNS))


def _write(out: Path, plan: StudyPlan, rows: list[RunRow], summary: StudySummary) -> None:
    """Write `summary.json` and `report.html`."""
    texts = {SUMMARY: json_text(msgspec.to_builtins(summary)), REPORT: study_page(plan, rows, summary)}
    for name, text in texts.items():
        with writing(out / name):
            (out / name).write_text(text, encoding="utf-8")
