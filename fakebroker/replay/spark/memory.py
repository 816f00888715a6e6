"""`--transport memory`: a replay without sockets, in virtual time, exact; in Spark, one offsets partition at a time.

Knows Spark's tasks and Arrow batches; what happens in an offsets partition is the simulation's business. A task holds
the actors of one offsets partition at most, and hands its events over as they come.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession

from fakebroker.cluster.configs.settings import Config
from fakebroker.replay.members.events import DDL
from fakebroker.replay.script.script import Script, script_of
from fakebroker.replay.script.scripts import by_offsets_partition
from fakebroker.replay.simulation.rehearsal import OF_GROUPS
from fakebroker.replay.simulation.simulation import Simulation, World
from fakebroker.replay.spark.progress import Sender, Tally
from fakebroker.replay.spark.task import Plan
from fakebroker.replay.workload.timeline import OVER, WHEN, Outcome, Told, by_time, told

_REPORT_EVERY_S = 0.25
_PARTITION = "offsets_partition"
_TASKS_A_CORE = 8


Outcomes = Accumulator[dict[int, Outcome]]
"""What came of events in the simulations that they were about, by their places among all."""


class _BestKnown(AccumulatorParam[dict[int, Outcome]]):
    """One outcome an event: a refusal counts most, and that a simulation was over least."""

    def zero(self, value: dict[int, Outcome]) -> dict[int, Outcome]:
        return {}

    def addInPlace(self, value1: dict[int, Outcome], value2: dict[int, Outcome]) -> dict[int, Outcome]:  # noqa: N802  # Spark's
        for number, why in value2.items():
            value1[number] = max(why, value1.get(number, why), key=lambda each: (each != OVER, each or ""))
        return value1


def no_outcomes(spark: SparkSession) -> Outcomes:
    """For `simulate` to add to."""
    return spark.sparkContext.accumulator({}, _BestKnown())


def simulate(scripts: DataFrame, plan: Plan, tasks: int | None = None, outcomes: Outcomes | None = None) -> DataFrame:
    """The events of playing these scripts in memory; equal scripts and plans give equal events, whatever the tasks.

    Args:
        scripts: Rows as in `Script`.
        plan: How to play; of the connections to a real cluster nothing is looked at.
        tasks: Into how many tasks the offsets partitions go; a few for each core if not given, as some have more to do.
        outcomes: Takes what came of the plan's events.
    """
    partitions = Config(plan.cluster.config).number("offsets.topic.num.partitions")
    count = simulating_tasks(scripts, partitions, tasks)
    return by_offsets_partition(scripts, partitions, count).mapInArrow(_simulator(plan, outcomes), DDL)


def simulating_tasks(scripts: DataFrame, offsets_partitions: int, wanted: int | None) -> int:
    """Into how many tasks a simulation goes: no more than there are offsets partitions."""
    return min(wanted or _TASKS_A_CORE * scripts.sparkSession.sparkContext.defaultParallelism, offsets_partitions)


def world_of(plan: Plan) -> World:
    """What the simulations of a plan are told."""
    return World(
        seed=plan.seed,
        cluster=plan.cluster,
        topics=plan.topics,
        events=plan.events,
        loads=plan.loads,
        duration_s=plan.duration_s,
        folds=plan.record == "changes",
        closed_loop=plan.closed_loop,
    )


def timeline_of(
    events: Sequence[Mapping[str, Any]], outcomes: Mapping[int, Outcome], *, is_complete: bool
) -> list[Told]:
    """What happened, as it stands in `summary.json`.

    Args:
        events: What was to happen; each has been rehearsed.
        outcomes: What is known.
        is_complete: Whether all simulations were played to their end.
    """
    return [
        told(event, event[WHEN], outcomes[number] if number in outcomes else _unseen(event, is_complete))
        for number, event in by_time(events)
    ]


def _unseen(event: Mapping[str, Any], is_complete: bool) -> Outcome:
    """What came of an event that was about no group that there is."""
    if not is_complete:
        return OVER
    return f"no group {event['group_id']!r}" if event["do"] in OF_GROUPS else None


def _simulator(plan: Plan, outcomes: Outcomes | None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        world, context = world_of(plan), TaskContext.get()
        with closing(Sender(plan.report_to, context.partitionId() if context else 0)) as sender:
            before = Tally()
            for partition, scripts in _by_partition(batches):
                simulation = Simulation(scripts, partition, world)
                is_told_to_stop = yield from _played(simulation, before, sender)
                if outcomes is not None:
                    outcomes.add(simulation.outcomes)
                if is_told_to_stop:
                    return
                # They have left: of them nobody is missing any more.
                all_of_it = len(scripts) * round(world.duration_s * 1000)
                before = _together(before, replace(simulation.tally(), joined=len(scripts), lived_ms=all_of_it))

    return run


def _by_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, list[Script]]]:
    """The scripts of one offsets partition after the other."""
    rows: Iterator[dict[str, Any]] = (row for batch in batches for row in batch.to_pylist())
    for partition, of_partition in groupby(rows, key=itemgetter(_PARTITION)):
        yield partition, [script_of({key: row[key] for key in Script._fields}) for row in of_partition]


def _together(before: Tally, now: Tally) -> Tally:
    return Tally(**{field.name: getattr(before, field.name) + getattr(now, field.name) for field in fields(Tally)})


def _played(simulation: Simulation, before: Tally, sender: Sender) -> Generator[pa.RecordBatch, None, bool]:
    """The events of one offsets partition; its progress is reported meanwhile, on top of that of the ones before.

    Returns:
        Whether the driver wants the task to end early.
    """
    report_s = 0.0
    for packed in simulation.run():
        yield from packed
        if time.monotonic() >= report_s:
            report_s = time.monotonic() + _REPORT_EVERY_S
            sender.send(_together(before, simulation.tally()))
            if sender.is_told_to_stop():
                return True
    return False
