"""The charts of a summary: each function draws one chart of the report, with the functions in charts.py.

`suffix` makes the names of charts unique on a page with several runs. Does not depend on the page.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, log10

from markupsafe import Markup
from matplotlib.axes import Axes

from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.report import charts
from fakebroker.replay.run_summary import (
    BrokerNumbers,
    GroupsOverTime,
    MembersOverTime,
    OffsetsPartition,
    RequestsOverTime,
    Summary,
    named,
)
from fakebroker.replay.wording import bound

LoadRow = BrokerNumbers | OffsetsPartition
Drawer = Callable[[Axes, Sequence[float], Mapping[str, charts.Series], Mapping[str, int], str], None]

_APIS = (
    "Heartbeat",
    "JoinGroup",
    "SyncGroup",
    "OffsetCommit",
    "FindCoordinator",
    "OffsetFetch",
    "LeaveGroup",
    "Metadata",
    "DescribeGroups",
    "ListGroups",
    "Produce",
    "TxnOffsetCommit",
    "EndTxn",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "Fetch",
    "ListTransactions",
    "ListOffsets",
    "ConsumerGroupHeartbeat",
)
"""The APIs in the order of their colors."""

_GROUP_STATES = {"stable": 2, "rebalancing": 1, charts.UNKNOWN: 7, "empty": 7}
_MEMBER_STATES = {"assigned": 2, "waiting": 1, charts.UNKNOWN: 7}
"""Color indexes of states."""
_DURATIONS = {"p50": 0, "max": 1, "max until visible": 3}
"""Color indexes of quantiles of durations."""
_OUTCOMES = {"committed": 2, "aborted": 1, "not ended": 7}
"""Color indexes of outcomes of transactions."""


def rates(summary: Summary, suffix: str = "") -> Markup:
    """Draw requests per second by API and source."""
    apis = summary.numbers.over_time.apis
    series = {row.name: row.requests_per_s for row in apis}
    return _over_time(
        summary, f"rates{suffix}", "Requests per second by API over time", series, api_colors(apis), "requests/s"
    )


def latencies(summary: Summary, suffix: str = "") -> Markup:
    """Draw the p50 latency above the p99 latency."""
    what = "simulated " if summary.head.transport == "memory" else ""
    apis, times_s = summary.numbers.over_time.apis, _times_s(summary)
    with charts.drawing(f"latencies{suffix}", "Latency by API over time, p50 and p99", 1.9) as drawn:
        above, below = drawn.figure.subplots(2, 1, sharex=True, sharey=True)
        p50s = {row.name: row.p50_ms for row in apis}
        p99s = {row.name: row.p99_ms for row in apis}
        for axes, name, series in ((above, "p50", p50s), (below, "p99", p99s)):
            charts.lines(axes, times_s, series, api_colors(apis), f"{what}{name} latency, ms", log=True)
            charts.startup_area(axes, summary.numbers.measure_from_s)
            charts.event_lines(axes, _event_times_s(summary), numbered=axes is above)
        charts.legend(above)
        below.set_xlabel("seconds")
    return drawn.svg


def latencies_vary(summary: Summary) -> bool:
    """Return whether the chart of latencies shows more than the constant latencies of a simulated network."""
    apis = [row for row in summary.numbers.over_time.apis if row.api not in PARKED_APIS]
    return summary.head.transport != "memory" or any(len({*row.p99_ms} - {None}) > 1 for row in apis)


def groups(summary: Summary, suffix: str = "") -> Markup:
    """Draw the number of groups in each state."""
    series = _group_states(summary.numbers.over_time.groups)
    return _over_time(
        summary, f"groups{suffix}", "Groups by state over time", series, _GROUP_STATES, "groups", charts.stacked_areas
    )


def members(summary: Summary, suffix: str = "") -> Markup:
    """Draw the number of members with and without an assignment."""
    series = _member_states(summary.numbers.over_time.members)
    alt = "Members with and without an assignment over time"
    return _over_time(summary, f"members{suffix}", alt, series, _MEMBER_STATES, "members", charts.stacked_areas)


def _group_states(states: GroupsOverTime) -> dict[str, Sequence[float]]:
    active = {"stable": states.stable, "rebalancing": states.rebalancing}
    return active | _unknown(states.unknown) | {"empty": states.empty}


def _member_states(states: MembersOverTime) -> dict[str, Sequence[float]]:
    return {"assigned": states.assigned, "waiting": states.waiting} | _unknown(states.unknown)


def _unknown(numbers: Sequence[float]) -> dict[str, Sequence[float]]:
    """Return the series of unknown states; empty if all numbers are 0."""
    return {charts.UNKNOWN: numbers} if any(numbers) else {}


def errors(summary: Summary) -> Markup:
    """Draw the numbers of responses with errors: a series per error and API, for the most frequent errors."""
    rows = sorted(summary.numbers.over_time.errors, key=lambda row: -sum(row.answers))[: len(charts.COLORS)]
    series = {f"{row.name}, {named(row.api, row.source)}": row.answers for row in rows}
    colors = {name: index for index, name in enumerate(series)}
    return _over_time(
        summary, "errors", "Errors by code and API over time", series, colors, "responses", charts.stacked_bars
    )


def rebalances(summary: Summary) -> Markup:
    """Draw the distribution of rebalance durations beside the durations over time."""
    found, over_time = summary.numbers.rebalances.distribution, summary.numbers.over_time.rebalances
    with charts.drawing("rebalances", "Distribution of rebalance durations, and durations over time") as drawn:
        left, right = drawn.figure.subplots(1, 2)
        counts = {row.from_ms: row.count for row in found}
        edges = _edges(min(counts), max(counts)) if counts else []
        charts.bars(left, list(map(bound, edges)), [counts.get(edge, 0) for edge in edges], "rebalances")
        left.set_xlabel("duration: from this number to the next, in ms or s")
        series = {"p50": over_time.p50_ms, "max": over_time.max_ms}
        charts.lines(right, _times_s(summary), series, _DURATIONS, "duration, ms", log=True)
        charts.startup_area(right, summary.numbers.measure_from_s)
        charts.event_lines(right, _event_times_s(summary), numbered=True)
        right.set_xlabel("seconds")
        charts.legend(right)
    return drawn.svg


def transactions(summary: Summary) -> Markup:
    """Draw the numbers of transactions by outcome beside the times that they took."""
    found = summary.numbers.over_time.transactions
    assert found is not None
    with charts.drawing("transactions", "Transactions by outcome, and how long they took, over time") as drawn:
        left, right = drawn.figure.subplots(1, 2)
        outcomes = {"committed": found.committed, "aborted": found.aborted, "not ended": found.not_ended}
        charts.stacked_bars(left, _times_s(summary), outcomes, _OUTCOMES, "transactions")
        times = {"p50": found.p50_ms, "max": found.max_ms, "max until visible": found.visible_max_ms}
        charts.lines(right, _times_s(summary), times, _DURATIONS, "from begin to commit, ms", log=True)
        for axes in (left, right):
            charts.startup_area(axes, summary.numbers.measure_from_s)
            charts.event_lines(axes, _event_times_s(summary), numbered=False)
            charts.legend_above(axes)
            axes.set_xlabel("seconds")
    return drawn.svg


def _edges(first: float, last: float) -> list[float]:
    """Return the lower bounds of all intervals from one to another: 1, 2, 5, 10, 20 ..."""
    powers = range(floor(log10(first)) - 1, ceil(log10(last)) + 1)
    edges = (round(digit * 10.0**power, 3) for power in powers for digit in (1, 2, 5))
    return [edge for edge in edges if first <= edge <= last]


def populations(summary: Summary) -> Iterator[tuple[str, Markup]]:
    """Yield a row of charts for each population: groups and members by state, and the durations of rebalances."""
    times_s, events_s = _times_s(summary), _event_times_s(summary)
    for index, row in enumerate(summary.numbers.over_time.populations):
        alt = f"Groups, members and rebalances of {row.population} over time"
        with charts.drawing(f"population{index}", alt) as drawn:
            groups, members, rebalances = drawn.figure.subplots(1, 3)
            charts.stacked_areas(groups, times_s, _group_states(row.groups), _GROUP_STATES, "groups")
            charts.stacked_areas(members, times_s, _member_states(row.members), _MEMBER_STATES, "members")
            durations = {"p50": row.rebalances.p50_ms, "max": row.rebalances.max_ms}
            charts.lines(rebalances, times_s, durations, _DURATIONS, "rebalance, ms", log=True)
            for axes in (groups, members, rebalances):
                charts.startup_area(axes, summary.numbers.measure_from_s)
                charts.event_lines(axes, events_s, numbered=False)
                charts.legend_above(axes)
                axes.set_xlabel("seconds")
        yield row.population, drawn.svg


def brokers(summary: Summary) -> Markup:
    """Draw requests and groups per broker."""
    rows = {row.broker: row for row in summary.numbers.brokers if row.broker >= 0}
    return _pair("brokers", "Requests and groups per broker", rows, list(rows), "broker")


def offsets_partitions(summary: Summary) -> Markup:
    """Draw requests and groups per partition of `__consumer_offsets`."""
    found = summary.numbers.offsets_partitions
    rows = {row.partition: row for row in found.partitions}
    alt = "Requests and groups per offsets partition"
    return _pair("partitions", alt, rows, range(found.count), "offsets partition")


def api_colors(rows: Iterable[RequestsOverTime]) -> dict[str, int]:
    """Return a color index for each name of API and source, the same in all charts and reports.

    Loads have the colors of their APIs, with another line style.
    """
    colors = {}
    for row in rows:
        index = _APIS.index(row.api) if row.api in _APIS else len(_APIS) - 1
        colors[row.name] = index + (len(charts.COLORS) if row.source == "load" else 0)
    return colors


def _over_time(
    summary: Summary,
    name: str,
    alt: str,
    series: Mapping[str, charts.Series],
    colors: Mapping[str, int],
    label: str,
    draw: Drawer = charts.lines,
) -> Markup:
    with charts.drawing(name, alt) as drawn:
        axes = drawn.figure.subplots()
        draw(axes, _times_s(summary), series, colors, label)
        charts.startup_area(axes, summary.numbers.measure_from_s)
        charts.event_lines(axes, _event_times_s(summary), numbered=True)
        axes.set_xlabel("seconds")
        if series:
            charts.legend(axes)
    return drawn.svg


def _pair(name: str, alt: str, rows: Mapping[int, LoadRow], numbers: Sequence[int], what: str) -> Markup:
    """Draw requests beside groups.

    Args:
        name: Name of the chart.
        alt: Alternative text.
        rows: Loads by node id or partition.
        numbers: Node ids or partitions to draw; those without a row have no load.
        what: Label of the horizontal axis.
    """
    requests = [rows[number].requests if number in rows else 0 for number in numbers]
    groups = [rows[number].groups if number in rows else 0 for number in numbers]
    with charts.drawing(name, alt) as drawn:
        left, right = drawn.figure.subplots(1, 2)
        for axes, label, loads, color in ((left, "requests", requests, 0), (right, "groups", groups, 2)):
            charts.bars(axes, [str(number) for number in numbers], loads, label, color, sum(loads) / max(len(loads), 1))
            axes.set_xlabel(what)
    return drawn.svg


def _times_s(summary: Summary) -> list[float]:
    """Return the midpoint of each slice, in seconds."""
    over_time = summary.numbers.over_time
    return [(index + 0.5) * over_time.slice_s for index in range(over_time.slices)]


def _event_times_s(summary: Summary) -> list[float]:
    return [event["at_s"] for event in summary.head.timeline]
