"""Tables and charts of a placement study, from two hand-made rows of each kind."""

from typing import Literal

from msgspec.structs import replace

from fakebroker.lab.estimate import Estimate
from fakebroker.lab.placement.command import PlacementRecord
from fakebroker.lab.placement.placement_plan import LookupPlan, PlacementPlan
from fakebroker.lab.placement.report import balance_tables, lookups_tables, moves_table, placement_section
from fakebroker.lab.placement.result import (
    BalanceFigures,
    Change,
    LookupFigures,
    MoveFigures,
    PlacementName,
    PlacementResult,
)
from fakebroker.replay.report.html import render

ONE = Estimate(1.0, 1.0, 1.0, 1)
WIDE = Estimate(1.5, 1.25, 1.75, 3)


def _balance(placement: PlacementName, partitions: int | None, asked: int | None, worst: Estimate) -> BalanceFigures:
    return BalanceFigures(
        placement=placement,
        groups=10,
        brokers=4,
        partitions=partitions,
        asked=asked,
        members=ONE,
        worst_groups=ONE,
        worst_members=worst,
        worst_heartbeats_per_s=ONE,
    )


def _moves(placement: PlacementName, partitions: int | None, replicas: str | None, change: Change) -> MoveFigures:
    return MoveFigures(
        placement=placement,
        groups=10,
        brokers=4,
        partitions=partitions,
        replicas=replicas,
        change=change,
        moved_groups=Estimate(0.25, 0.25, 0.25, 3),
        moved_members=Estimate(0.5, 0.4, 0.6, 3),
        worst_members=WIDE,
    )


def _lookups(placement: PlacementName, phase: Literal["start-up", "broker dies"]) -> LookupFigures:
    return LookupFigures(
        placement=placement,
        phase=phase,
        groups=1_000,
        brokers=4,
        found_ms=Estimate(5_000.0, 4_000.0, 6_000.0, 3),
        after_expiry_ms=Estimate(12.0, 12.0, 12.0, 3),
        client_messages=Estimate(4_000.0, 4_000.0, 4_000.0, 3),
        registry_messages=Estimate(12.4, 12.0, 13.0, 3),
        controller_messages=ONE,
        registry_busy=Estimate(0.01, 0.01, 0.01, 3),
    )


RESULT = PlacementResult(
    plan=PlacementPlan(groups=(10,), brokers=(4,), partitions=(50,), lookups=LookupPlan(groups=(1_000,))),
    balance=(
        _balance("option-2a", 50, None, WIDE),
        _balance("option-2b", None, 4, ONE),
        _balance("option-2b", None, 3, WIDE),
    ),
    moves=(_moves("option-2a", 50, "striped", "dies"), _moves("option-2b", None, None, "dies")),
    lookups=tuple(
        _lookups(placement, phase) for placement in ("option-2a", "option-2b") for phase in ("start-up", "broker dies")
    ),
)


def test_balance_has_a_row_for_each_placement_and_a_column_for_each_number_of_brokers() -> None:
    (found,) = balance_tables(RESULT)
    assert found.columns == ["10 groups: members of the busiest broker / mean", "4 brokers"]
    assert found.rows == [
        ["option-2a, 50 partitions", "1.5 ±0.25"],
        ["option-2b", "1"],
        ["option-2b, 3 asked first", "1.5 ±0.25"],
    ]


def test_moves_are_shares() -> None:
    found = moves_table(RESULT)
    assert found.rows == [
        ["option-2a, 50 partitions, striped", "one dies", "25 %", "50 ±10 %", "1.5 ±0.25"],
        ["option-2b", "one dies", "25 %", "50 ±10 %", "1.5 ±0.25"],
    ]


def test_look_ups_have_times_and_messages() -> None:
    started, died = lookups_tables(RESULT)
    costs = ["4,000", "12", "1"]
    assert started.rows == [[name, "1,000", "5", *costs, "1 %"] for name in ("option-2a", "option-2b")]
    assert died.rows == [[name, "1,000", "5", "0.012", *costs] for name in ("option-2a", "option-2b")]


def test_a_page_of_one_seed_has_no_confidence_intervals() -> None:
    def page(seeds: tuple[int, ...]) -> str:
        result = replace(RESULT, plan=replace(RESULT.plan, seeds=seeds))
        record = PlacementRecord(seconds=1.0, cpu_s=1.0, result=result)
        return render("placement.html", section=placement_section(result), record=record)

    assert "One seed: without confidence intervals." in page((1,))
    assert "Means of 2 seeds with half of their 95 % confidence interval (Student" in page((1, 2))


def test_the_section_has_a_chart_for_each_comparison() -> None:
    section = placement_section(RESULT)
    assert [chart.title for chart in section.charts] == [
        "Members of the busiest broker / mean, 10 groups",
        "Members that move with their groups, % of all, 4 brokers",
        "Members of the busiest broker / mean, afterwards, 4 brokers",
        "Messages of the registry, start-up",
        "Messages of the registry, broker dies",
    ]
