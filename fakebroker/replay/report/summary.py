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
from fakebroker.replay.promises.availability import Circumstances, checks_of, conditions_of
from fakebroker.replay.promises.catalog import PROMISES, applicable_promises
from fakebroker.replay.promises.observer import Run
from fakebroker.replay.report.number_rows import numbers_from
from fakebroker.replay.report.one_pass import Known, Plan, in_spark, in_this_process
from fakebroker.replay.report.partial_numbers import Facts, merged
from fakebroker.replay.report.promise_checks import promise_checks, write_violations
from fakebroker.replay.run_directory import EVENTS, MEMBERS, VIOLATIONS, recorded_events
from fakebroker.replay.run_summary import Head, Summary
from fakebroker.replay.spark.query_settings import are_few
from fakebroker.replay.verify.verdict import judge, with_default_expectation
from fakebroker.replay.workload.expectations import Expectation


def summarize(spark: SparkSession | None, directory: Path, head: Head) -> Summary:
    """Return the summary of a run, and write `violations.parquet` to its directory.

    Args:
        spark: The session; None if there are few events.
        directory: The run's directory, with the recorded events and the scripts of the members.
        head: Settings of the run; the expectations are in its `workload`.
    """
    workload = head.workload
    expected = with_default_expectation(msgspec.convert(workload["expect"], tuple[Expectation, ...]))
    wanted = _wanted(workload)
    run = _circumstances(head, expected)
    plan_of = partial(_plan, head, wanted, run)
    count = recorded_events(directory)
    if are_few(count):
        table = pq.read_table(directory / EVENTS).select(events.SCHEMA.names)
        known, plan, results = in_this_process(table, pq.read_table(directory / MEMBERS), run, plan_of)
    else:
        assert spark is not None
        known, plan, results = in_spark(spark, directory, count, run, plan_of)
    numbers = numbers_from(merged(results.counts), plan.facts)
    write_violations(directory / VIOLATIONS, results.violations)
    promised = promise_checks(wanted, results.cases, results.violations, workload["promises"].get("require", ()))
    available = checks_of(known.sums, plan.conditions, results.findings, run)
    verdict = judge(available, promised, expected, numbers, run, _slack_ms(workload))
    if head.was_killed:
        verdict = msgspec.structs.replace(verdict, reasons=[head.early_end(numbers.span_s), *verdict.reasons])
    head = msgspec.structs.replace(head, members=sum(row.members for row in numbers.populations))
    return Summary(head=head, numbers=numbers, verdict=verdict)


def _plan(head: Head, promises: Sequence[str], run: Circumstances, known: Known, first_act_ms: float | None) -> Plan:
    """Return the plan of the pass, given what is known of the run."""
    partitions, measure_from_s = head.cluster.partitions, head.workload.get("measure_from_s")
    of_promises = Run(
        end_us=known.sent_us,
        partitions=partitions,
        answering=frozenset(known.answering),
        listed_us=known.listed_us or None,
        **_broker_times(head),
    )
    facts = Facts.of(known.bounds, first_act_ms or 0.0, head.cluster.offsets_partitions, partitions, measure_from_s)
    return Plan(tuple(promises), of_promises, facts, conditions_of(known.sums, first_act_ms, run))


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
    """Return the brokers' settings that the promises depend on, as in `observer.Run`."""
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
