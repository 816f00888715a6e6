"""From member scripts to events inside Spark: each task plays its members, and all tasks start at one moment.

Knows Spark's tasks and Arrow batches; what members do is the swarm's business.
"""

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

from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.events import DDL
from fakebroker.replay.members.load_player import groups_of
from fakebroker.replay.members.swarm import Manner, Swarm
from fakebroker.replay.script.script import Script, script_of
from fakebroker.replay.spark.progress import Sender, Tally
from fakebroker.replay.spark.stream import EventStream
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.workload import Cluster

_HEAD_START_S = 0.5
"""From the moment the last task is ready to the start, for the news to get to all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all tasks are told.

    Attributes:
        bootstrap: HOST:PORT, or several with commas.
        report_to: Where live numbers go.
        seed: Of the simulation.
        loads: What is asked beside the members. The first is the first task's, the next one the next task's, and so on.
        lanes: How many connections each task has to each broker, for its members to share; None for one a member.
        speed: How many times as fast as real time the members' clock runs.
        closed_loop: Whether each heartbeat follows the answer to the last one.
        record: Whether heartbeats that change nothing are folded into one event ("changes").
        duration_s: How long the replay takes, by the members' clock.
        events: What is to happen to the simulated cluster.
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


def play_scripts(scripts: DataFrame, plan: Plan) -> DataFrame:
    """The events of playing these scripts over TCP; each time this is evaluated the members play.

    Args:
        scripts: Rows as in `Script`, the members of a group in one partition; no more partitions than run at once.
        plan: How to play.
    """
    return scripts.mapInArrow(_player(plan), DDL, barrier=True)


def _player(plan: Plan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def play(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scripts = [script_of(row) for batch in batches for row in batch.to_pylist()]
        context, stream = BarrierTaskContext.get(), EventStream(folds=plan.record == "changes")
        brokers = deque(addresses(plan.bootstrap))
        brokers.rotate(context.partitionId())  # so that not all tasks ask the same one
        manner = Manner(lanes=plan.lanes, speed=plan.speed, closed_loop=plan.closed_loop, duration_s=plan.duration_s)
        loads = _loads_here(plan.loads, scripts, context)
        with closing(Sender(plan.report_to, context.partitionId())) as sender:

            def report(tally: Tally) -> None:
                sender.send(tally)
                if sender.is_told_to_stop():
                    swarm.stop()

            swarm = Swarm(scripts, brokers, stream.add, report, manner, loads)
            swarm.connect()
            start_s = max(map(float, context.allGather(repr(time.time())))) + _HEAD_START_S
            yield from stream.during(lambda: swarm.play(start_s), swarm.stop)

    return play


def _loads_here(
    loads: Sequence[Load], scripts: Sequence[Script], context: BarrierTaskContext
) -> list[tuple[Load, dict[str, list[str]]]]:
    """The loads that this task plays, with the groups they are about, which other tasks may play."""
    if not loads:
        return []
    told = [json.loads(each) for each in context.allGather(json.dumps([groups_of(load, scripts) for load in loads]))]
    return [
        (load, {group: instances for of_task in told for group, instances in of_task[index].items()})
        for index, load in enumerate(loads)
        if index % len(told) == context.partitionId()
    ]
