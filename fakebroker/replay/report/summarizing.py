"""Computes the summary of a run, numbers and verdict, from the files in its directory."""

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
    """Return the whole summary.

    Args:
        spark: The session.
        directory: The directory with the recorded events and members.
        head: The other keys of the summary; `workload` in it contains the expectations.
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
