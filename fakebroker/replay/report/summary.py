"""Computes the summary of a run, with numbers and verdict, from the files in its directory."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from fakebroker.cluster.configs.settings import Config
from fakebroker.errors import ErrorCode
from fakebroker.replay.members import events
from fakebroker.replay.promises.catalog import PROMISES, applicable_promises
from fakebroker.replay.report.number_queries import compute_numbers
from fakebroker.replay.report.one_pass import in_spark, in_this_process, plan_for
from fakebroker.replay.report.promise_checks import promise_checks, write_violations
from fakebroker.replay.run_directory import EVENTS, MEMBERS, VIOLATIONS, recorded_events
from fakebroker.replay.run_summary import Head, Summary
from fakebroker.replay.script import script
from fakebroker.replay.spark.query_settings import (
    are_few,
    computed_once,
    query_threads,
    settings_for_count,
    temporary_settings,
)
from fakebroker.replay.verify.availability import Circumstances, check_availability
from fakebroker.replay.verify.verdict import judge, with_default_expectation
from fakebroker.replay.workload.expectations import Expectation


def summarize(spark: SparkSession, directory: Path, head: Head) -> Summary:
    """Return the summary of a run, and write `violations.parquet` to its directory.

    Args:
        spark: The session.
        directory: The run's directory, with the recorded events and the scripts of the members.
        head: Settings of the run; the expectations are in its `workload`.
    """
    recorded = spark.read.schema(events.DDL).parquet(str(directory / EVENTS))
    members = spark.read.schema(script.DDL).parquet(str(directory / MEMBERS))
    count = recorded_events(directory)
    few = are_few(count)
    if few:  # many rows are read again for each query, to save memory
        recorded, members = (computed_once(frame.coalesce(1), few) for frame in (recorded, members))
    workload, promises = head.workload, head.workload["promises"]
    expected = with_default_expectation(msgspec.convert(workload["expect"], tuple[Expectation, ...]))
    run = _circumstances(head, expected)
    # Each part of the queries requires the same settings for a while, and restores those that it has found.
    with temporary_settings(spark, settings_for_count(spark, count)), query_threads(few) as threads:
        wanted = _wanted(workload)
        plan_of = partial(plan_for, wanted, head.cluster.partitions, _broker_times(head))
        observed = (
            in_this_process(
                pq.read_table(directory / EVENTS, schema=events.SCHEMA),
                map(script.script_of, pq.read_table(directory / MEMBERS).to_pylist()),
                plan_of,
            )
            if few
            else in_spark(recorded, members, count, plan_of)
        )
        write_violations(directory / VIOLATIONS, observed.violations)
        promised = promise_checks(wanted, observed.cases, observed.violations, promises.get("require", ()))
        computed = threads.submit(
            compute_numbers,
            spark,
            recorded,
            members,
            head.cluster.offsets_partitions,
            workload.get("measure_from_s"),
            head.cluster.partitions,
        )
        available = threads.submit(check_availability, spark, recorded, members, run)
        numbers = computed.result()
        verdict = judge(available.result(), promised, expected, numbers, run, _slack_ms(workload))
    if head.was_killed:
        verdict = msgspec.structs.replace(verdict, reasons=[head.early_end(numbers.span_s), *verdict.reasons])
    head = msgspec.structs.replace(head, members=sum(row.members for row in numbers.populations))
    return Summary(head=head, numbers=numbers, verdict=verdict)


def _wanted(workload: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the promises to check."""
    wanted: Sequence[str] | None = workload["promises"]["check"]
    if wanted is not None:
        return [name for name in PROMISES if name in wanted]
    populations = workload["groups"]
    return applicable_promises(
        is_transactional=any(each.get("transactional") for each in populations),
        has_consumers=any(
            each.get("protocol") == "consumer" or each.get("migrate_at_s") is not None for each in populations
        ),
    )


def _slack_ms(workload: Mapping[str, Any]) -> float:
    """Return how late a heartbeat may be before the session of its member ends; of all members, the shortest."""
    return min(
        (
            each["session_timeout_ms"] * (1 - each["timeout_jitter"])
            - each["heartbeat_interval_ms"] * (1 + each["jitter"])
            for each in workload["groups"]
        ),
        default=inf,
    )


def _broker_times(head: Head) -> dict[str, int]:
    """Return the settings of the brokers that decide what they promise, as in `observer.Run`."""
    config = Config(head.workload["cluster"]["config"] if head.cluster.embedded else {})
    return {
        "delay_us": 1000 * config.number("group.initial.rebalance.delay.ms"),
        "session_us": 1000 * config.number("group.consumer.session.timeout.ms"),
        "heartbeat_us": 1000 * config.number("group.consumer.heartbeat.interval.ms"),
    }


def _circumstances(head: Head, expected: Sequence[Expectation]) -> Circumstances:
    cluster = head.workload["cluster"]
    config = cluster["config"] if head.cluster.embedded else {}
    names = [event.get("error") for event in head.workload["event"]]
    names += [each.metric.removeprefix("errors.") for each in expected if each.metric.startswith("errors.")]
    return Circumstances(
        is_reachable=head.cluster.reachable,
        unreachable=head.cluster.unreachable,
        is_complete=head.complete,
        timeline=head.timeline,
        speed=head.workload["pacing"]["speed"],
        is_simulated=head.transport == "memory",
        initial_delay_ms=Config(config).number("group.initial.rebalance.delay.ms"),
        load_ms=cluster["load_ms"],
        awaits_instances=bool(cluster["proposals"]),
        expected_errors=[int(ErrorCode[name]) for name in names if name in ErrorCode.__members__],
    )
