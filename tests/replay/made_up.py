"""Events written by hand: a group of two that comes up, rebalances once and stays, with numbers one can check."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from fakebroker.replay.events import SCHEMA, Event, Recorder

HEALTHY = [
    # Generation 1: member 0 alone. Its first JoinGroup is sent back with an id.
    Event(1_000, 1_000, 2_000, "FindCoordinator", 6, 1, "g", lookups=1, error=0),
    Event(3_000, 3_500, 1_000, "JoinGroup", 9, 2, "g", "g-0", error=79),
    Event(4_000, 4_000, 6_000, "JoinGroup", 9, 2, "g", "g-0", 1, 0),
    Event(10_000, 10_000, 4_000, "SyncGroup", 5, 2, "g", "g-0", 1, 0, assigned=["orders-0", "orders-1"]),
    # Generation 2: member 1 joins, member 0 hears of it in its heartbeat.
    Event(20_000, 20_000, 1_000, "JoinGroup", 9, 2, "g", "g-1", error=79),
    Event(21_000, 21_000, 19_000, "JoinGroup", 9, 2, "g", "g-1", 2, 0),
    Event(30_000, 31_000, 2_000, "Heartbeat", 4, 2, "g", "g-0", 1, 27),
    Event(35_000, 35_000, 5_000, "JoinGroup", 9, 2, "g", "g-0", 2, 0),
    Event(40_000, 40_000, 5_000, "SyncGroup", 5, 2, "g", "g-1", 2, 0, assigned=["orders-1"]),
    Event(40_000, 40_000, 3_000, "SyncGroup", 5, 2, "g", "g-0", 2, 0, assigned=["orders-0"]),
    *(Event(50_000 + n, 50_000 + n, n * 1_000, "Heartbeat", 4, 2, "g", "g-0", 2, 0) for n in range(1, 100)),
]

PARTITIONS = {"orders": 2}


def frame(spark: SparkSession, events: list[Event], directory: Path) -> DataFrame:
    """The events as Spark gets them: in Arrow batches, by way of a file."""
    recorder = Recorder()
    for event in events:
        recorder.add(event)
    pq.write_table(pa.Table.from_batches(recorder.batches(), SCHEMA), directory / "events.parquet")
    return spark.read.parquet(str(directory / "events.parquet"))


def scripts(spark: SparkSession) -> DataFrame:
    """The columns of the scripts that the verdict looks at."""
    return spark.sql("select 'g' group, concat('g-', id) member, array('orders') topics from range(2)")
