"""The charts of a summary: maps the summary's keys to the functions of charts.py. Independent of the page.

`of` makes the names of charts unique when a page shows several runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from fakebroker.replay.report import charts
from fakebroker.replay.report.html import LIGHT, Markup

Summary = Mapping[str, Any]
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
)
_GROUPS = {"stable": 2, "rebalancing": 1, "empty": 7}
_MEMBERS = {"assigned": 2, "waiting": 1}


def rates(summary: Summary, of: str = "") -> Markup:
    series = {api: row["requests_per_s"] for api, row in summary["over_time"]["apis"].items()}
    return _over_time(
        summary, f"rates{of}", "Requests per second by API over time", series, api_colors(series), "requests/s"
    )


def latencies(summary: Summary, of: str = "") -> Markup:
    """Draw the p50 latency above the p99 latency."""
    apis, times_s = summary["over_time"]["apis"], _times_s(summary)
    with charts.drawing(f"latencies{of}", "Latency by API over time, p50 and p99", 1.9) as drawn:
        above, below = drawn.figure.subplots(2, 1, sharex=True, sharey=True)
        for axes, name in ((above, "p50_ms"), (below, "p99_ms")):
            series = {api: row[name] for api, row in apis.items()}
            charts.lines(axes, times_s, series, api_colors(apis), f"{name.removesuffix('_ms')} latency, ms", log=True)
            charts.happenings(axes, _happenings_s(summary), numbered=axes is above)
        charts.legend(above)
        below.set_xlabel("seconds")
    return drawn.svg


def groups(summary: Summary, of: str = "") -> Markup:
    series = summary["over_time"]["groups"]
    return _over_time(summary, f"groups{of}", "Groups by state over time", series, _GROUPS, "groups", charts.stacked)


def members(summary: Summary, of: str = "") -> Markup:
    states = summary["over_time"]["members"]
    series = {name: states[name] for name in _MEMBERS}
    alt = "Members with and without an assignment over time"
    return _over_time(summary, f"members{of}", alt, series, _MEMBERS, "members", charts.stacked)


def errors(summary: Summary) -> Markup:
    """Draw responses with errors; each error and API is a series, limited to the number of colors."""
    rows = sorted(summary["over_time"]["errors"], key=lambda row: -sum(row["answers"]))[: len(LIGHT)]
    series = {f"{row['name']}, {row['api']}": row["answers"] for row in rows}
    colors = {name: index for index, name in enumerate(series)}
    return _over_time(summary, "errors", "Errors by code and API over time", series, colors, "answers", charts.piled)


def rebalances(summary: Summary) -> Markup:
    """Draw the distribution of rebalance durations beside the durations over time."""
    found, over_time = summary["rebalances"]["distribution"], summary["over_time"]["rebalances"]
    with charts.drawing("rebalances", "Rebalance durations, and when rebalances began") as drawn:
        left, right = drawn.figure.subplots(1, 2)
        names = [f"{row['from_ms']:,g}" for row in found]
        charts.bars(left, names, [row["count"] for row in found], "rebalances")
        left.set_xlabel("duration from, ms")
        series = {"p50": over_time["p50_ms"], "longest": over_time["max_ms"]}
        charts.lines(right, _times_s(summary), series, {"p50": 0, "longest": 1}, "duration, ms", log=True)
        charts.happenings(right, _happenings_s(summary), numbered=True)
        right.set_xlabel("seconds")
        charts.legend(right)
    return drawn.svg


def brokers(summary: Summary) -> Markup:
    known = [row for row in summary["brokers"] if row["broker"] >= 0]
    return _pair(
        "brokers", "Requests and groups per broker", [str(row["broker"]) for row in known], known, len(known), "broker"
    )


def offsets_partitions(summary: Summary) -> Markup:
    count = summary["offsets_partitions"]["count"]
    by_partition = {row["partition"]: row for row in summary["offsets_partitions"]["partitions"]}
    rows = [by_partition.get(partition, {"requests": 0, "groups": 0}) for partition in range(count)]
    alt = "Requests and groups per offsets partition"
    return _pair("partitions", alt, list(map(str, range(count))), rows, count, "offsets partition")


def api_colors(apis: Mapping[str, Any]) -> dict[str, int]:
    """Return a color index for each API; an API has the same color in all charts and reports."""
    return {api: _APIS.index(api) if api in _APIS else len(_APIS) - 1 for api in apis}


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
        charts.happenings(axes, _happenings_s(summary), numbered=True)
        axes.set_xlabel("seconds")
        if series:
            charts.legend(axes)
    return drawn.svg


def _pair(name: str, alt: str, names: Sequence[str], rows: Sequence[Summary], count: int, what: str) -> Markup:
    """Draw requests beside groups."""
    with charts.drawing(name, alt) as drawn:
        for color, (axes, key) in enumerate(zip(drawn.figure.subplots(1, 2), ("requests", "groups"), strict=True)):
            numbers = [row[key] for row in rows]
            charts.bars(axes, names, numbers, key, color * 2, sum(numbers) / max(count, 1))
            axes.set_xlabel(what)
    return drawn.svg


def _times_s(summary: Summary) -> list[float]:
    """Return the midpoint of each slice, in seconds."""
    over_time = summary["over_time"]
    return [(index + 0.5) * over_time["slice_s"] for index in range(over_time["slices"])]


def _happenings_s(summary: Summary) -> list[float]:
    return [event["at_s"] for event in summary.get("timeline", ())]
