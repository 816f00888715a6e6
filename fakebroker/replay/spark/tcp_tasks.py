"""Spark tasks that play scripts over TCP: each task plays its members, and all tasks start at the same time."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame

from fakebroker.replay.members.admin_load import groups_of
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.events import DDL
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop
from fakebroker.replay.script.script import Script, script_of
from fakebroker.replay.spark.event_stream import EventStream
from fakebroker.replay.spark.progress import Sender, Tally
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.workload import Cluster

_HEAD_START_S = 0.5
"""From when the last task is ready until the start, so that all tasks learn of it in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """What all tasks of a replay have in common.

    Attributes:
        bootstrap: HOST:PORT, or several with commas.
        report_to: Where live numbers are sent.
        seed: Of the simulation.
        loads: Requests beside the members. The tasks take turns with them: the first load is played by the first task.
        lanes: How many connections to each broker the members of a task share; None for one per member.
        speed: How many times as fast as real time the members' clock runs.
        closed_loop: Whether each heartbeat follows the answer to the last one.
        record: Whether heartbeats that change nothing are folded into one event ("changes").
        duration_s: How long the replay takes, by the members' clock.
        events: What happens to the simulated cluster.
        cluster: The simulated cluster.
        topics: Its topics, with their partitions.
    """

    bootstrap: str
    report_to: tuple[str, int]
    seed: int = 0
    loads: tuple[Load, ...] = ()
    lanes: int | None = None
    speed: float = 1.0
    closed_loop: bool = False
    record: Literal["all", "changes"] = "all"
    duration_s: float
    events: tuple[Mapping[str, Any], ...] = ()
    cluster: Cluster = field(default_factory=Cluster)
    topics: Mapping[str, int] = field(default_factory=dict)


def play_scripts(scripts: DataFrame, plan: TaskPlan) -> DataFrame:
    """Return the events of playing scripts over TCP. The members play each time this is evaluated.

    Args:
        scripts: Rows as in `Script`, the members of a group in one partition; no more partitions than run at once.
        plan: How to play.
    """
    return scripts.mapInArrow(_player(plan), DDL, barrier=True)


def _player(plan: TaskPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def play(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scripts = [script_of(row) for batch in batches for row in batch.to_pylist()]
        context, stream = BarrierTaskContext.get(), EventStream(folds=plan.record == "changes")
        brokers = deque(addresses(plan.bootstrap))
        brokers.rotate(context.partitionId())  # so that not all tasks ask the same broker
        settings = LoopSettings(
            lanes=plan.lanes, speed=plan.speed, closed_loop=plan.closed_loop, duration_s=plan.duration_s
        )
        loads = _loads_here(plan.loads, scripts, context)
        with closing(Sender(plan.report_to, context.partitionId())) as sender:

            def report(tally: Tally) -> None:
                sender.send(tally)
                if sender.stop_requested():
                    members.stop()

            members = MemberLoop(scripts, brokers, stream.add, report, settings, loads)
            members.connect()
            start_s = max(map(float, context.allGather(repr(time.time())))) + _HEAD_START_S
            yield from stream.during(lambda: members.play(start_s), members.stop)

    return play


def _loads_here(
    loads: Sequence[Load], scripts: Sequence[Script], context: BarrierTaskContext
) -> list[tuple[Load, dict[str, list[str]]]]:
    """Return the loads that this task plays, with their groups, whose members other tasks may play."""
    if not loads:
        return []
    gathered = context.allGather(json.dumps([groups_of(load, scripts) for load in loads]))
    by_task = [json.loads(each) for each in gathered]
    return [
        (load, {group: instances for of_task in by_task for group, instances in of_task[index].items()})
        for index, load in enumerate(loads)
        if index % len(by_task) == context.partitionId()
    ]
