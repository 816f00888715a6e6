"""Spark tasks that run the runs of a study, and send their progress to the driver.

Each run is independent of the others, so results do not depend on the number of tasks. A run whose design raises an
exception has a row with the traceback, and the others continue.
"""

import gc
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from fakebroker.lab.measures import measure
from fakebroker.lab.scenario.script_builder import script_of
from fakebroker.lab.study.plan import RunKey, StudyPlan
from fakebroker.lab.study.results import SCHEMA, RunRow, batch_of
from fakebroker.lab.world.world import World
from fakebroker.replay.spark.progress import Sender

_REPORT_EVERY_S = 0.25
"""Interval of progress reports, in real time."""

_STEP_MS = 250.0
"""Interval at which runs look at the time, in virtual time."""

_TASKS_PER_CORE = 8
"""Number of tasks per core: several, because runs differ in their length."""


@dataclass(slots=True)
class StudyTally:
    """The progress of one task, or of all.

    Attributes:
        runs: Runs that are over.
        failed: Runs that failed.
        played_ms: Virtual time of the runs so far.
    """

    runs: int = 0
    failed: int = 0
    played_ms: float = 0.0


class _Stopped(Exception):  # noqa: N818  # Not an error.
    """The driver has requested the task to end."""


def default_tasks(cores: int, runs: int) -> int:
    """Return the number of tasks that share the runs."""
    return max(1, min(runs, cores * _TASKS_PER_CORE))


def run_all(spark: SparkSession, plan: StudyPlan, tasks: int, report_to: tuple[str, int]) -> DataFrame:
    """Return the rows of all runs, which are computed when the rows are written.

    Args:
        spark: The session.
        plan: The runs.
        tasks: Number of tasks.
        report_to: Host and port to which tasks report their progress.
    """
    rows = spark.range(0, tasks, 1, tasks)
    return rows.mapInArrow(_task(plan, tasks, report_to), from_arrow_schema(SCHEMA))


def _task(
    plan: StudyPlan, tasks: int, report_to: tuple[str, int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with closing(Sender(report_to, number)) as sender:
                    yield from _run_share(plan, plan.runs()[number::tasks], sender)

    return run


def _run_share(plan: StudyPlan, runs: list[RunKey], sender: Sender) -> Iterator[pa.RecordBatch]:
    tally = StudyTally()
    sender.send(tally)
    for key in runs:
        before_ms = tally.played_ms
        report = _reporter(tally, sender)
        try:
            row = run_one(plan, key, report)
        except _Stopped:
            return
        tally.played_ms = before_ms + plan.scenarios[key.scenario].duration_s * 1000
        tally.runs += 1
        tally.failed += row.error is not None
        sender.send(tally)
        yield batch_of([row])
        gc.collect()  # the run, before the next one


def _reporter(tally: StudyTally, sender: Sender) -> Callable[[float], None]:
    """Return a function that reports the virtual time of the present run, at most every `_REPORT_EVERY_S`."""
    before_ms, report_s = tally.played_ms, 0.0

    def report(at_ms: float) -> None:
        nonlocal report_s
        if time.monotonic() >= report_s:
            report_s = time.monotonic() + _REPORT_EVERY_S
            tally.played_ms = before_ms + at_ms
            sender.send(tally)
            if sender.stop_requested():
                raise _Stopped

    return report


def run_one(plan: StudyPlan, key: RunKey, report: Callable[[float], None] = lambda at_ms: None) -> RunRow:
    """Run one run.

    Args:
        plan: The study.
        key: The run.
        report: Called with the virtual time since its beginning, in milliseconds; it may raise an exception.
    """
    scenario, began_s = plan.scenarios[key.scenario], time.process_time()
    error, result = None, None
    # A run creates hardly any cycles until its end, and looking for them takes a quarter of its time.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        script = script_of(scenario, key.seed)
        report(0.0)
        world = World(plan.design(key.design), script)
        for at_ms in world.play(_STEP_MS):
            report(at_ms)
        result = measure(world, scenario.steady_s)
    except _Stopped:
        raise
    except Exception:  # of a design: the other runs are not affected
        error = traceback.format_exc()
    finally:
        if is_collecting:
            gc.enable()
    cpu_s = round(time.process_time() - began_s, 3)
    return RunRow(**key._asdict(), cpu_s=cpu_s, error=error, result=result)
