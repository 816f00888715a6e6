"""A placement study as a section of a report: tables and charts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from fakebroker.lab.estimate import Estimate
from fakebroker.lab.placement.result import (
    PLACEMENTS,
    BalanceFigures,
    Change,
    LookupFigures,
    MoveFigures,
    PlacementName,
    PlacementResult,
)
from fakebroker.lab.report.sections import Chart, ReportSection, ReportTable
from fakebroker.replay.report import charts
from fakebroker.replay.wording import counted

Row = TypeVar("Row", BalanceFigures, MoveFigures)

_WIDTH = 0.5
_LEAST_HEIGHT, _HEIGHT_PER_BAR = 0.5, 0.07
"""Size of a chart, as multiples of the usual one; the height grows with the number of bars."""

_COLORS: Mapping[str, int] = {name: index for index, name in enumerate(PLACEMENTS)}

_CHANGES: Mapping[Change, str] = {
    "dies": "one dies",
    "added": "one is added",
    "reassigned": "and gets its share",
    "rolling restart": "all restart in turn",
}
"""What happens to the brokers."""

_ABOUT = (
    "Which broker coordinates which group: the leader of the partition that the hash of the group id selects "
    "(option-2a), the broker that is asked first, elected in a registry (option-2b), or the broker with least members, "
    "the largest group first (load-aware, the ideal)."
)


def placement_section(result: PlacementResult) -> ReportSection:
    """Return the tables and charts of a placement study."""
    tables = [*balance_tables(result), moves_table(result)]
    drawn = [*_balance_charts(result), *_moves_charts(result)]
    if result.lookups:
        tables += lookups_tables(result)
        drawn += _lookup_charts(result)
    return ReportSection("Placement of groups", _ABOUT, tables, drawn)


def balance_tables(result: PlacementResult) -> Iterator[ReportTable]:
    """Yield a table for each population: how much the busiest broker has of members, and so of heartbeats."""
    for groups in result.plan.groups:
        rows: dict[str, list[str]] = {}
        for row in _of(result.balance, groups):
            name = placement_title(row.placement, row.partitions, _asked(row))
            rows.setdefault(name, [""] * len(result.plan.brokers))
            rows[name][result.plan.brokers.index(row.brokers)] = estimate(row.worst_members)
        title = f"{counted(groups, 'group')}: members of the busiest broker / mean"
        columns = [title, *(counted(brokers, "broker") for brokers in result.plan.brokers)]
        yield ReportTable(columns, [[name, *cells] for name, cells in rows.items()])


def moves_table(result: PlacementResult) -> ReportTable:
    """Return a table of what moves, for the largest population and the middle number of brokers."""
    brokers = _middle(result.plan.brokers)
    rows = [
        [
            placement_title(row.placement, row.partitions) + (f", {row.replicas}" if row.replicas else ""),
            _CHANGES[row.change],
            percentage(row.moved_groups),
            percentage(row.moved_members),
            estimate(row.worst_members),
        ]
        for row in _of(result.moves, result.plan.groups[-1])
        if row.brokers == brokers
    ]
    title = f"{counted(brokers, 'broker')}, {counted(result.plan.groups[-1], 'group')}"
    return ReportTable([title, "change", "groups moved", "members moved", "busiest / mean"], rows, left=2)


def lookups_tables(result: PlacementResult) -> Iterator[ReportTable]:
    """Yield a table of the look-ups at start-up, and one of those after deaths."""
    messages = ["client messages", "registry messages", "metadata messages"]
    started = [
        [
            row.placement,
            f"{row.groups:,}",
            f"{row.found_ms.mean / 1000:.3g}",
            *_messages(row),
            percentage(row.registry_busy),
        ]
        for row in result.lookups
        if row.phase == "start-up"
    ]
    yield ReportTable(["start-up", "groups", "found s", *messages, "registry busy"], started)
    died = [
        [
            f"{row.placement}, controller" if row.phase == "controller dies" else row.placement,
            f"{row.groups:,}",
            f"{row.found_ms.mean / 1000:.3g}",
            seconds(row.after_expiry_ms),
            *_messages(row),
        ]
        for row in result.lookups
        if row.phase != "start-up"
    ]
    yield ReportTable(["broker dies", "groups", "found s", "after expiry s", *messages], died)


def _messages(row: LookupFigures) -> list[str]:
    return [f"{each.mean:,.0f}" for each in (row.client_messages, row.registry_messages, row.controller_messages)]


def placement_title(placement: PlacementName, partitions: int | None, asked: int | None = None) -> str:
    """Return the name of a placement with its parameters."""
    if partitions is not None:
        return f"{placement}, {counted(partitions, 'partition')}"
    return placement if asked is None else f"{placement}, {asked} asked first"


def estimate(value: Estimate) -> str:
    """Format a mean with half of its confidence interval: 1.23 ±0.04."""
    half = (value.high - value.low) / 2
    return f"{value.mean:.3g} ±{half:.2g}" if half > 0.0005 * abs(value.mean) else f"{value.mean:.4g}"


def percentage(value: Estimate) -> str:
    """Format a share, possibly more than 1, as a percentage."""
    half = 100 * (value.high - value.low) / 2
    mean = f"{100 * value.mean:.3g}"
    return f"{mean} ±{half:.2g} %" if half > 0.0005 * abs(100 * value.mean) else f"{mean} %"


def seconds(value: Estimate) -> str:
    """Format a time in milliseconds in seconds."""
    return estimate(Estimate(value.mean / 1000, value.low / 1000, value.high / 1000, value.seeds))


def _asked(row: BalanceFigures) -> int | None:
    """Return the number of brokers that are asked first, if these are not all."""
    return row.asked if row.asked != row.brokers else None


def _of(rows: Sequence[Row], groups: int) -> Iterator[Row]:
    return (row for row in rows if row.groups == groups)


def _middle(numbers: Sequence[int]) -> int:
    return sorted(numbers)[len(numbers) // 2]


def _height(bars: int) -> float:
    return _LEAST_HEIGHT + _HEIGHT_PER_BAR * bars


def _balance_charts(result: PlacementResult) -> Iterator[Chart]:
    numbers = [counted(brokers, "broker") for brokers in result.plan.brokers]
    for groups in result.plan.groups:
        by_name: dict[str, list[float]] = {}
        for row in _of(result.balance, groups):
            if _asked(row) is None:
                name = placement_title(row.placement, row.partitions)
                by_name.setdefault(name, []).append(row.worst_members.mean)
        title = f"Members of the busiest broker / mean, {counted(groups, 'group')}"
        series = {each: [values[index] for values in by_name.values()] for index, each in enumerate(numbers)}
        with charts.drawing(title, title, _height(len(by_name) * len(numbers)), _WIDTH) as drawn:
            axes = drawn.figure.subplots()
            rounded = {each: [float(f"{value:.3g}") for value in values] for each, values in series.items()}
            colors = {each: index for index, each in enumerate(numbers)}
            charts.paired_bars(axes, list(by_name), rounded, colors, is_horizontal=True)
            charts.legend_above(axes)
        yield Chart(title, drawn.svg)


def _moves_charts(result: PlacementResult) -> Iterator[Chart]:
    """Yield the charts of what moves, and how even load is afterwards, for changes that both options have."""
    brokers, partitions = _middle(result.plan.brokers), result.plan.partitions[-1]
    rows = {
        (row.change, row.placement): row
        for row in _of(result.moves, result.plan.groups[-1])
        if row.brokers == brokers and row.partitions in (None, partitions) and row.replicas in (None, "striped")
    }
    changes = [change for change in _CHANGES if (change, "option-2b") in rows]
    names: tuple[PlacementName, ...] = ("option-2a", "option-2b")
    moved = {name: [100 * rows[each, name].moved_members.mean for each in changes] for name in names}
    busiest = {name: [rows[each, name].worst_members.mean for each in changes] for name in names}
    for title, values in (
        ("Members that move with their groups, % of all", moved),
        ("Members of the busiest broker / mean, afterwards", busiest),
    ):
        series: dict[str, list[float]] = {name: [float(f"{each:.3g}") for each in values[name]] for name in names}
        about = f"{title}, {counted(brokers, 'broker')}"
        with charts.drawing(about, about, _height(2 * len(changes)), _WIDTH) as drawn:
            axes = drawn.figure.subplots()
            charts.paired_bars(axes, [_CHANGES[change] for change in changes], series, _COLORS, is_horizontal=True)
            charts.legend_above(axes)
        yield Chart(about, drawn.svg)


def _lookup_charts(result: PlacementResult) -> Iterator[Chart]:
    for phase in ("start-up", "broker dies"):
        found = [row for row in result.lookups if row.phase == phase]
        names = [counted(groups, "group") for groups in result.plan.lookups.groups]
        title = f"Messages of the registry, {phase}"
        series: dict[str, list[float]] = {
            name: [round(row.registry_messages.mean) for row in found if row.placement == name]
            for name in PLACEMENTS
            if any(row.placement == name for row in found)
        }
        with charts.drawing(f"placement {phase}", title, _height(2 * len(names)), _WIDTH) as drawn:
            axes = drawn.figure.subplots()
            charts.paired_bars(axes, names, series, _COLORS, is_horizontal=True)
            charts.legend_above(axes)
        yield Chart(title, drawn.svg)
