"""The placement study: `place` returns the figures of a plan. Spark counts the groups."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec.structs import asdict
from pyspark.sql import SparkSession

from fakebroker.lab.estimate import estimate_of
from fakebroker.lab.placement.counts import ElectedGroups, EvenGroups, HashedGroups, Sample
from fakebroker.lab.placement.lookups import LookupRun
from fakebroker.lab.placement.placement_plan import PlacementPlan
from fakebroker.lab.placement.population import Counts, Populations
from fakebroker.lab.placement.result import BalanceFigures, LookupFigures, MoveFigures, PlacementName, PlacementResult
from fakebroker.replay.spark.query_settings import settings_for_count, temporary_settings

Row = TypeVar("Row", BalanceFigures, MoveFigures, LookupFigures)

_TASKS_PER_CORE = 4
"""More tasks than cores, so that all cores are used until the end."""

_PARTITIONS = "4"
"""Number of Spark partitions after the aggregation of each task."""


def place(spark: SparkSession, plan: PlacementPlan, tasks: int | None = None) -> PlacementResult:
    """Return the figures of a plan.

    Args:
        spark: A session of `replay.spark.session`.
        plan: What is compared.
        tasks: Number of Spark partitions; the figures do not depend on it. None: four per core.
    """
    tasks = tasks or _TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    with temporary_settings(spark, settings_for(spark, plan.groups[-1])):
        balance, moves = _samples(Populations(spark, plan, tasks), plan)
    return PlacementResult(
        plan=plan,
        balance=tuple(_rows(BalanceFigures, balance)),
        moves=tuple(_rows(MoveFigures, moves)),
        lookups=tuple(_rows(LookupFigures, _lookups(plan))),
    )


def settings_for(spark: SparkSession, groups: int) -> Mapping[str, str]:
    """Return Spark's settings for a number of groups. There are few rows after the aggregation of each task."""
    return {**settings_for_count(spark, groups), "spark.sql.shuffle.partitions": _PARTITIONS}


def _samples(populations: Populations, plan: PlacementPlan) -> tuple[list[Sample], list[Sample]]:
    """Return the samples of balance and moves for all seeds."""
    balance: list[Sample] = []
    moves: list[Sample] = []
    by_partition = populations.by_partition()
    for number, seed in enumerate(plan.seeds):
        by_asked = populations.by_asked_and_size(seed)
        for population in range(len(plan.groups)):
            groups, members = by_partition.groups[population], by_partition.members[number][population]
            for brokers in plan.brokers:
                for partitions in plan.partitions:
                    folded = _folded(groups, partitions), _folded(members, partitions)
                    hashed = HashedGroups(*folded, brokers, plan.replication_factor, seed)
                    balance.append(hashed.balance(plan.heartbeat_interval_ms))
                    moves += hashed.moves() if brokers > 1 else ()
                for placed in _by_size(by_asked[population], plan, brokers, seed, balance):
                    moves += placed.moves() if brokers > 1 else ()
    return balance, moves


def _by_size(
    by_asked: Counts, plan: PlacementPlan, brokers: int, seed: int, balance: list[Sample]
) -> Iterator[ElectedGroups | EvenGroups]:
    """Yield the placements that move groups instead of partitions; add their balance."""
    elected = ElectedGroups(_folded(by_asked, brokers), seed)
    balance.append(elected.balance(plan.heartbeat_interval_ms, brokers))
    if plan.bootstrap < brokers:
        some = _folded(by_asked, plan.bootstrap)
        few = ElectedGroups(_padded(some, brokers), seed)
        balance.append(few.balance(plan.heartbeat_interval_ms, plan.bootstrap))
    even = EvenGroups(by_asked.sum(axis=0), brokers)
    balance.append(even.balance(plan.heartbeat_interval_ms))
    yield elected
    yield even


def _lookups(plan: PlacementPlan) -> Iterator[Sample]:
    """Yield the samples of look-ups for all seeds."""
    first, last = 1, plan.lookups.brokers
    cases: tuple[tuple[PlacementName, str, int], ...] = (
        ("option-2a", "broker dies", last),
        ("option-2a", "controller dies", first),
        ("option-2b", "broker dies", last),
    )
    for groups in plan.lookups.groups:
        names = [plan.name_pattern.format(number) for number in range(groups)]
        for placement, phase, node_id in cases:
            for seed in plan.seeds:
                run = LookupRun(placement, plan.lookups, names, seed)
                about = {"placement": placement, "groups": groups, "brokers": plan.lookups.brokers}
                started = asdict(run.start_up())
                if phase == "broker dies":
                    yield {**about, "phase": "start-up"}, started
                yield {**about, "phase": phase}, asdict(run.stop(node_id))


def _folded(counts: Counts, number: int) -> Counts:
    """Return counts by the first axis modulo a number that divides its length."""
    folded: Counts = counts.reshape(-1, number, *counts.shape[1:]).sum(axis=0)
    return folded


def _padded(counts: Counts, brokers: int) -> Counts:
    """Return counts by broker with rows of zeros for brokers that are never asked first."""
    padded = counts[:1].repeat(brokers, axis=0)
    padded[:] = 0
    padded[: len(counts)] = counts
    return padded


def _rows(row: type[Row], samples: Iterable[Sample]) -> Iterator[Row]:
    """Yield a row for each identity, with the estimates of its values over seeds."""
    by_identity: dict[tuple[tuple[str, object], ...], list[Sample]] = {}
    for sample in samples:
        by_identity.setdefault(tuple(sample[0].items()), []).append(sample)
    for same in by_identity.values():
        about, first = same[0]
        estimates = {name: estimate_of([values[name] for _, values in same]) for name in first}
        fields: dict[str, Any] = {**about, **estimates}
        yield row(**fields)
