"""From member scripts to events inside Spark: each task plays its members, and all tasks start at one moment.

Knows Spark's tasks and Arrow batches; what members do is the swarm's business.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import trio
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame

from fakebroker.replay.bootstrap import addresses
from fakebroker.replay.events import DDL, Recorder
from fakebroker.replay.player import Script
from fakebroker.replay.progress import Sender
from fakebroker.replay.swarm import Swarm

_HEAD_START_S = 0.5
"""From the moment the last task is ready to the start, for the news to get to all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all tasks are told.

    Attributes:
        bootstrap: HOST:PORT, or several with commas.
        report_to: Where live numbers go.
    """

    bootstrap: str
    report_to: tuple[str, int]


def play_scripts(scripts: DataFrame, plan: Plan) -> DataFrame:
    """The events of playing these scripts; each time this is evaluated the members play.

    Args:
        scripts: Rows as in `Script`, the members of a group in one partition; no more partitions than run at once.
    """
    return scripts.mapInArrow(_player(plan), DDL, barrier=True)


def _player(plan: Plan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def play(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scripts = [Script(**row) for batch in batches for row in batch.to_pylist()]
        context = BarrierTaskContext.get()
        start_s = max(map(float, context.allGather(repr(time.time())))) + _HEAD_START_S
        recorder = Recorder()
        with closing(Sender(plan.report_to, context.partitionId())) as sender:
            brokers = deque(addresses(plan.bootstrap))
            brokers.rotate(context.partitionId())  # so that not all tasks ask the same one
            swarm = Swarm(scripts, brokers, start_s, recorder.add, sender.send)
            trio.run(swarm.run)
        yield from recorder.batches()

    return play
