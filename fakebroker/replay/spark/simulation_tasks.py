"""Spark tasks that simulate scripts (`--transport memory`).

A task simulates its offsets partitions one after the other, so only the members of one partition are in memory at a
time. It writes events while it runs. Its progress reports contain the sum over its partitions so far.

The outcome of an event is None if it was done, `OVER` if the simulation ended before, else an error message.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession

from fakebroker.cluster.configs.settings import Config
from fakebroker.replay.script.generator import by_offsets_partition
from fakebroker.replay.script.script import Script, script_of
from fakebroker.replay.simulation.rehearsal import GROUP_EVENTS
from fakebroker.replay.simulation.simulation import Simulation, SimulationSettings
from fakebroker.replay.simulation.virtual_cluster import partitions_of
from fakebroker.replay.spark.event_files import EventFiles
from fakebroker.replay.spark.progress import Sender, Tally
from fakebroker.replay.spark.tcp_tasks import WRITTEN, TaskPlan, written
from fakebroker.replay.workload.timeline import OVER, WHEN, EventOutcome, Outcome, by_time, event_outcome
from fakebroker.replay.workload.workload import Workload

_REPORT_EVERY_S = 0.25
"""Interval of progress reports, in real time."""

_PARTITION = "offsets_partition"
"""The column that `by_offsets_partition` adds."""

_TASKS_PER_CORE = 8
"""Number of tasks per core for many members: several, because offsets partitions differ in their number of members."""

_MANY_MEMBERS = 1_000
"""From this number of members on, simulating them takes longer than starting several tasks per core."""

Outcomes = Accumulator[dict[int, Outcome]]
"""Outcomes by index in the plan's events. Each simulation adds the events that affect its offsets partition."""


class _MergedOutcomes(AccumulatorParam[dict[int, Outcome]]):
    """Merges the outcomes of an event in several simulations: errors have precedence, then success, then `OVER`."""

    def zero(self, value: dict[int, Outcome]) -> dict[int, Outcome]:
        return {}

    def addInPlace(self, value1: dict[int, Outcome], value2: dict[int, Outcome]) -> dict[int, Outcome]:  # noqa: N802  # Spark's
        for number, why in value2.items():
            value1[number] = max(why, value1.get(number, why), key=lambda each: (each != OVER, each or ""))
        return value1


def no_outcomes(spark: SparkSession) -> Outcomes:
    """Return an accumulator for `simulate`."""
    return spark.sparkContext.accumulator({}, _MergedOutcomes())


def simulate(scripts: DataFrame, plan: TaskPlan, tasks: int, outcomes: Outcomes | None = None) -> int:
    """Simulate scripts, and write the events to the files of `plan.directory`.

    The events depend on scripts and plan only, not on the number of tasks.

    Args:
        scripts: Rows as in `Script`.
        plan: The plan; its fields about connections to a real cluster are ignored.
        tasks: Number of tasks that share the offsets partitions; see `simulating_tasks`.
        outcomes: Receives the outcomes of the plan's events.

    Returns:
        The number of rows.
    """
    partitions = Config(plan.cluster.config).number("offsets.topic.num.partitions")
    counts = by_offsets_partition(scripts, partitions, tasks).mapInArrow(_simulator(plan, outcomes), WRITTEN)
    return sum(row.rows for row in counts.collect())


def simulating_tasks(cores: int, workload: Workload, wanted: int | None) -> int:
    """Return the number of tasks of a simulation, at most one per group and offsets partition.

    Args:
        cores: Number of tasks that can run at the same time.
        workload: The workload.
        wanted: The number that the user gave; by default one per core, or several if there are many members.
    """
    default = cores * (_TASKS_PER_CORE if workload.member_count >= _MANY_MEMBERS else 1)
    return min(wanted or default, workload.group_count, workload.offsets_partitions)


def simulation_settings(plan: TaskPlan) -> SimulationSettings:
    """Return the simulations' settings for a plan."""
    return SimulationSettings(
        seed=plan.seed,
        cluster=plan.cluster,
        topics=plan.topics,
        events=plan.events,
        loads=plan.loads,
        groups_by_partition=plan.groups_by_partition,
        duration_s=plan.duration_s,
        folds=plan.record == "changes",
        closed_loop=plan.closed_loop,
    )


def with_other_outcomes(outcomes: Mapping[int, Outcome], plan: TaskPlan) -> dict[int, Outcome]:
    """Return the outcomes of complete simulations, and of conditions that no simulation has evaluated.

    These conditions are about groups in offsets partitions without members. Their clusters are simulated here.

    Args:
        outcomes: Outcomes by index in the plan's events.
        plan: As for `simulate`.
    """
    count = Config(plan.cluster.config).number("offsets.topic.num.partitions")
    found = dict(outcomes)
    for number, event in enumerate(plan.events):
        if event["do"] == "expect" and number not in found:
            partition = next(iter(partitions_of(event, count).values()), 0)
            simulation = Simulation((), partition, simulation_settings(plan))
            deque(simulation.run(), maxlen=0)
            found[number] = simulation.outcomes[number]
    return found


def timeline_of(
    events: Sequence[Mapping[str, Any]], outcomes: Mapping[int, Outcome], *, is_complete: bool
) -> list[EventOutcome]:
    """Return the timeline for `summary.json`.

    Args:
        events: The events of the workload, already validated by `rehearse`.
        outcomes: Outcomes in the simulations, by index in `events`.
        is_complete: Whether all simulations ran to their end.
    """
    return [
        event_outcome(event, event[WHEN], outcomes[number] if number in outcomes else _default(event, is_complete))
        for number, event in by_time(events)
    ]


def _default(event: Mapping[str, Any], is_complete: bool) -> Outcome:
    """Return the outcome of an event for which no simulation has returned one."""
    if not is_complete:
        return OVER
    return f"group_id={event['group_id']!r}: expected a group of the replay" if event["do"] in GROUP_EVENTS else None


def _simulator(
    plan: TaskPlan, outcomes: Outcomes | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settings, context = simulation_settings(plan), TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        with closing(Sender(plan.report_to, task)) as sender, EventFiles(plan.directory, task, attempt) as files:
            before = Tally()
            for partition, scripts in _by_partition(batches):
                simulation = Simulation(scripts, partition, settings)
                stop_requested = _run(simulation, before, sender, files)
                if outcomes is not None:
                    outcomes.add(simulation.outcomes)
                if stop_requested:
                    break
                # A file has all rows of its partitions. In virtual time, the rows of a partition are recorded late.
                files.complete_sometimes()
                # Its members have left at its end. Reports still count them as joined, and with their full time.
                lived_ms = len(scripts) * round(settings.duration_s * 1000)
                before = _sum(before, replace(simulation.tally(), joined=len(scripts), lived_ms=lived_ms))
            files.complete()
            yield written(files)

    return run


def _by_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, list[Script]]]:
    """Yield each offsets partition with its scripts."""
    rows: Iterator[dict[str, Any]] = (row for batch in batches for row in batch.to_pylist())
    for partition, of_partition in groupby(rows, key=itemgetter(_PARTITION)):
        yield partition, [script_of({key: row[key] for key in Script._fields}) for row in of_partition]


def _sum(before: Tally, now: Tally) -> Tally:
    return Tally(**{field.name: getattr(before, field.name) + getattr(now, field.name) for field in fields(Tally)})


def _run(simulation: Simulation, before: Tally, sender: Sender, files: EventFiles) -> bool:
    """Run a simulation: write its events, and report its tally plus `before`, the tally of earlier simulations.

    Returns:
        Whether the driver has requested the task to end early.
    """
    report_s = 0.0
    for batches in simulation.run():
        files.write(batches)
        if time.monotonic() >= report_s:
            report_s = time.monotonic() + _REPORT_EVERY_S
            sender.send(_sum(before, simulation.tally()))
            if sender.stop_requested():
                return True
    return False
