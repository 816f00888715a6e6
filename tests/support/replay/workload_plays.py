"""Plays workloads in memory and in this process. Spark only generates the scripts of the members."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import SparkSession

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.run_summary import ExpectationCheck
from fakebroker.replay.runner import PreparedReplay, plan_for
from fakebroker.replay.script.generator import member_scripts
from fakebroker.replay.script.script import Script, script_of
from fakebroker.replay.simulation.simulation import Simulation
from fakebroker.replay.spark.simulation_tasks import simulation_settings, timeline_of
from fakebroker.replay.verify.verdict import events_done, expectations, with_default_expectation
from fakebroker.replay.workload.expectations import Promises
from fakebroker.replay.workload.timeline import EventOutcome, Outcome
from fakebroker.replay.workload.workload import Cluster, Workload
from tests.support.replay.plain_numbers import plain_numbers
from tests.support.replay.simulated_replays import Row

SEED = 1


@dataclass(frozen=True)
class Play:
    """A workload that was played.

    Attributes:
        workload: The workload.
        scripts: The scripts of its members.
        events: Its events: the rows of `events.parquet`.
        timeline: The `[[event]]` tables with their outcomes.
        checks: Its expectations.
    """

    workload: Workload
    scripts: list[Script]
    events: list[Row]
    timeline: list[EventOutcome]
    checks: list[ExpectationCheck]

    @property
    def missed(self) -> list[str]:
        """The expectations that were not met."""
        return [check.expectation for check in self.checks if not check.met]


class WorkloadPlayer:
    """Plays workloads one after the other; workloads with the same members share the scripts."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._scripts: dict[str, list[Script]] = {}

    def play(self, workload: Workload) -> Play:
        """Play a workload in memory, as `fakebroker replay --transport memory --seed 1`."""
        scripts, run = self._scripts_of(workload), _run(workload)
        settings = simulation_settings(plan_for(run, ("", 0), _groups_by_partition(workload, scripts)))
        events: list[Row] = []
        outcomes: dict[int, Outcome] = {}
        partitions = workload.offsets_partitions
        for partition, here in groupby(scripts, key=lambda script: partition_for(script.group, partitions)):
            simulation = Simulation(list(here), partition, settings)
            events += [row for batches in simulation.run() for batch in batches for row in batch.to_pylist()]
            outcomes |= simulation.outcomes
        numbers = plain_numbers(events, scripts, partitions, workload.topics)
        timeline = timeline_of(workload.events, outcomes, is_complete=True)
        checks = [*expectations(with_default_expectation(workload.expect), numbers), *events_done(timeline)]
        return Play(workload, scripts, events, timeline, checks)

    def _scripts_of(self, workload: Workload) -> list[Script]:
        key = repr(replace(workload, cluster=Cluster(), load=(), event=(), expect=(), promises=Promises()))
        if key not in self._scripts:
            rows = member_scripts(self._spark, workload, SEED, 1).toArrow().to_pylist()
            self._scripts[key] = [script_of(row) for row in rows]
        partitions = workload.offsets_partitions
        return sorted(
            self._scripts[key],
            key=lambda script: (partition_for(script.group, partitions), script.group, script.member),
        )


def _groups_by_partition(workload: Workload, scripts: Sequence[Script]) -> dict[str, list[int]]:
    """Count the groups, as `count_groups_by_partition` does with Spark."""
    counts = {population.name: [0] * workload.offsets_partitions for population in workload.groups}
    for population, group in {(script.population, script.group) for script in scripts}:
        counts[population][partition_for(group, workload.offsets_partitions)] += 1
    return counts


def _run(workload: Workload) -> PreparedReplay:
    return PreparedReplay(
        file=Path("a.toml"),
        workload=workload,
        seed=SEED,
        bootstrap="",
        cluster=None,
        out=Path(),
        partitions=workload.topics,
        transport="memory",
        record="changes",
    )


def tagged(name: str, play: Play, end_us: int) -> tuple[list[Row], list[Script]]:
    """Return the events and scripts of a play, with names of groups, members and topics that no other play has.

    Args:
        name: Prefix of groups, members and topics.
        play: The play.
        end_us: End of the last event; all times are shifted.
    """
    shift_us = end_us - max(row["sent_us"] for row in play.events)
    return [_tagged_row(name, row, shift_us) for row in play.events], [
        _tagged_script(name, each) for each in play.scripts
    ]


def _tagged_row(name: str, row: Row, shift_us: int) -> Row:
    changed = {key: row[key] + shift_us for key in ("scheduled_us", "sent_us", "until_us") if row[key] is not None}
    for key in ("group", "member", "member_id", "leader"):
        if row[key]:
            changed[key] = f"{name}/{row[key]}"
    for key in ("assigned", "owned"):
        if row[key] is not None:
            changed[key] = [f"{name}.{partition}" for partition in row[key]]
    if row["offsets"] is not None:
        changed["offsets"] = [{**each, "partition": f"{name}.{each['partition']}"} for each in row["offsets"]]
    if row["found"] is not None:
        changed["found"] = [{**each, "key": f"{name}/{each['key']}"} for each in row["found"]]
    return row | changed


def _tagged_script(name: str, script: Script) -> Script:
    topics = tuple(f"{name}.{topic}" for topic in script.topics)
    return script._replace(group=f"{name}/{script.group}", member=f"{name}/{script.member}", topics=topics)
