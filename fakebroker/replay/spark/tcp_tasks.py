"""Spark tasks that play scripts over TCP. All tasks run at the same time and start their members together."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame

from fakebroker.client.client_config import read_client_config
from fakebroker.client.security import PLAINTEXT
from fakebroker.replay.members.admin_load import groups_of
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.event_recorder import batch_of
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop
from fakebroker.replay.script.script import Script, script_of
from fakebroker.replay.spark.event_files import EventFiles
from fakebroker.replay.spark.event_stream import EventStream
from fakebroker.replay.spark.progress import Sender, Tally
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.workload import Cluster

_HEAD_START_S = 0.5
"""Time from when the last task is ready until the start of the replay; by then, all tasks know the start time."""


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all tasks of a replay share, over TCP and in memory. Made by `plan_for` in replay/runner.py.

    Attributes:
        bootstrap: Bootstrap servers, HOST:PORT separated by commas. TCP only.
        client_config: Path of the file with the client's security settings; None for none. Each task reads the file, so
            that Spark, which stores and shows plans, has no secrets. TCP only.
        report_to: Host and port of the receiver of tallies.
        seed: Seed of ids and random choices. In memory only.
        loads: The loads. Over TCP, the load at index i is played by the task with number i modulo the number of tasks.
        lanes: Number of connections to each broker that the members of a task share; None for one connection per
            member. TCP only.
        speed: Speed of the members' clock, as a multiple of real time. TCP only.
        closed_loop: Whether each heartbeat is sent as soon as the previous one is answered.
        record: "changes" to fold heartbeats (see `EventRecorder`), "all" to record each.
        duration_s: Duration of the replay by the members' clock.
        events: The `[[event]]` tables. In memory only.
        cluster: The cluster's settings. In memory only.
        topics: Partition counts by name. In memory only.
        directory: Directory of the events, as an absolute path; see `EventFiles`.
        groups_by_partition: Number of groups in each offsets partition by population. In memory, for loads with a rate.
    """

    bootstrap: str
    report_to: tuple[str, int]
    directory: Path
    client_config: Path | None = None
    seed: int = 0
    loads: tuple[Load, ...] = ()
    lanes: int | None = None
    speed: float = 1.0
    closed_loop: bool = False
    record: Literal["all", "changes"] = "all"
    duration_s: float
    events: tuple[Mapping[str, Any], ...] = ()
    cluster: Cluster = msgspec.field(default_factory=Cluster)
    topics: Mapping[str, int] = msgspec.field(default_factory=dict)
    groups_by_partition: Mapping[str, Sequence[int]] = msgspec.field(default_factory=dict)


WRITTEN = "rows long"
"""What a task returns to Spark: the number of rows that it has written."""


def written(files: EventFiles) -> pa.RecordBatch:
    """Return the result of a task, as `WRITTEN`."""
    return pa.record_batch([pa.array([files.rows], pa.int64())], names=["rows"])


def play_scripts(scripts: DataFrame, plan: TaskPlan) -> int:
    """Play scripts over TCP, and write the events to the files of `plan.directory`.

    Args:
        scripts: Rows as in `Script`, with the members of each group in one Spark partition. The number of partitions is
            the number of tasks, at most the number of cores.
        plan: The options of the replay.

    Returns:
        The number of rows.
    """
    return sum(row.rows for row in scripts.mapInArrow(_player(plan), WRITTEN, barrier=True).collect())


def _player(plan: TaskPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def play(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scripts = [script_of(row) for batch in batches for row in batch.to_pylist()]
        context, stream = BarrierTaskContext.get(), EventStream(folds=plan.record == "changes")
        brokers = deque(addresses(plan.bootstrap))
        brokers.rotate(context.partitionId())  # spreads the look-ups of all tasks among the brokers
        settings = LoopSettings(
            lanes=plan.lanes,
            speed=plan.speed,
            closed_loop=plan.closed_loop,
            duration_s=plan.duration_s,
            security=PLAINTEXT if plan.client_config is None else read_client_config(plan.client_config),
        )
        loads = _loads_of_task(plan.loads, scripts, context)
        with (
            closing(Sender(plan.report_to, context.partitionId())) as sender,
            EventFiles(plan.directory, context.partitionId(), context.attemptNumber(), has_journal=True) as files,
        ):

            def report(tally: Tally) -> None:
                stream.end_part(members.pending)
                sender.send(tally)
                if sender.stop_requested():
                    members.stop()

            members = MemberLoop(scripts, brokers, stream.add, report, settings, loads)
            members.connect()
            start_s = max(map(float, context.allGather(repr(time.time())))) + _HEAD_START_S
            for recorded in stream.during(lambda: members.play(start_s), members.stop):
                files.write(recorded.batches)
                if recorded.open_rows is not None:
                    files.end_part(batch_of(recorded.open_rows))
            files.complete()
            yield written(files)

    return play


def _loads_of_task(
    loads: Sequence[Load], scripts: Sequence[Script], context: BarrierTaskContext
) -> list[tuple[Load, dict[str, list[str]]]]:
    """Return the loads that this task plays, each with its groups in all tasks.

    Every task must call this function, because it waits for the groups of the other tasks.
    """
    if not loads:
        return []
    gathered = context.allGather(json.dumps([groups_of(load, scripts) for load in loads]))
    by_task = [json.loads(each) for each in gathered]
    return [
        (load, {group: instances for of_task in by_task for group, instances in of_task[index].items()})
        for index, load in enumerate(loads)
        if index % len(by_task) == context.partitionId()
    ]
