"""From a run's directory to its summary: numbers and verdict. Knows what is read, and by whom it is worked out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from fakebroker.replay.members import events
from fakebroker.replay.report.numbers import SUMMARY_VERSION
from fakebroker.replay.report.summary import summarize
from fakebroker.replay.run_directory import EVENTS, MEMBERS
from fakebroker.replay.script import script
from fakebroker.replay.verify.verdict import judge, with_somebody
from fakebroker.replay.workload.expectations import Expectation


def summarized(spark: SparkSession, directory: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """The whole summary.

    Args:
        directory: Has the events and the members.
        head: What else is known of the run; its `workload` says what is expected.
    """
    recorded = spark.read.schema(events.DDL).parquet(str(directory / EVENTS))
    members = spark.read.schema(script.DDL).parquet(str(directory / MEMBERS))
    cluster = head["cluster"]
    numbers = summarize(spark, recorded, members, cluster["offsets_partitions"])
    expected = with_somebody(msgspec.convert(head["workload"]["expect"], tuple[Expectation, ...]))
    wanted = head["workload"]["promises"]["check"]
    verdict = judge(
        spark,
        recorded,
        members,
        cluster["partitions"],
        expected,
        numbers,
        wanted,
        head["timeline"],
        is_reachable=cluster["reachable"],
        speed=head["workload"]["pacing"]["speed"],
        is_simulated=head["transport"] == "memory",
    )
    return {
        "version": SUMMARY_VERSION,
        **head,
        "groups": sum(row["groups"] for row in numbers["populations"]),
        "members": sum(row["members"] for row in numbers["populations"]),
        **numbers,
        "verdict": verdict,
    }
