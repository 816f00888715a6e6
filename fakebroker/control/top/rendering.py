"""Renders the state of a cluster as lines of text that fit a terminal. Does not depend on a terminal or HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from rich.console import Group as Lines, RenderableType
from rich.table import Column, Table
from rich.text import Text

from fakebroker.control.top.observer import ClusterState, Event
from fakebroker.host_port import format_host_port

if TYPE_CHECKING:
    from fakebroker.control.routes.group_views import GroupRow
    from fakebroker.control.routes.views import BrokerRow, Overview
    from fakebroker.control.stats.rates import ApiRate

Choice = Literal["unstable and busiest", "unstable", "busiest"]
CHOICES: tuple[Choice, ...] = ("unstable and busiest", "unstable", "busiest")
"""The choices of groups to show."""

_WIDE = 100
_SNAPSHOT_ROWS = 20
_STYLES = {"Stable": "green", "PreparingRebalance": "bold yellow", "CompletingRebalance": "bold yellow", "Dead": "red"}
_GOOD, _BAD, _QUIET, _HEAD = "green", "bold red", "bright_black", "reverse"


@dataclass(frozen=True, slots=True)
class Frame:
    """The size and contents of the output.

    Attributes:
        width: Columns.
        height: Lines; None for as many as needed.
        choice: The groups to show.
        footer: The last line, if there is a height.
    """

    width: int
    height: int | None = None
    choice: Choice = "unstable and busiest"
    footer: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    """A table that is cut to the available lines; `placeholder` is shown instead of rows if there are none."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]
    placeholder: str


def render(state: ClusterState, frame: Frame) -> Lines:
    """Return the lines of a state that fit in a frame."""
    sections = _sections(state, frame)
    needed = [max(len(section.rows), 1) for section in sections]
    head: list[RenderableType] = [_title(state.overview), _summary(state.overview)]
    if frame.height is None:
        return Lines(*head, *(_table(section, _SNAPSHOT_ROWS) for section in sections))
    available = frame.height - len(head) - len(sections) - 1
    rows = _distribute(available, needed)
    tables = (_table(section, count) for section, count in zip(sections, rows, strict=True))
    footer = Text("\n" * (available - sum(rows)) + frame.footer, _QUIET, no_wrap=True, overflow="ellipsis")
    return Lines(*head, *tables, footer)


def _sections(state: ClusterState, frame: Frame) -> list[_Section]:
    is_wide = frame.width >= _WIDE
    sections = [_brokers(state.overview["brokers"]), _apis(state.overview["rates"]["by_api"])]
    if "unstable" in frame.choice:
        sections.append(_groups("UNSTABLE GROUP", state.unstable, is_wide))
    if "busiest" in frame.choice:
        sections.append(_groups("BUSIEST GROUP", state.busy, is_wide))
    return [*sections, _events(state.events)]


def _distribute(available: int, needed: Sequence[int]) -> list[int]:
    """Distribute lines to sections one at a time, until each has the lines it needs or none are left."""
    lines = [0] * len(needed)
    while available > 0 and lines != list(needed):
        for index, need in enumerate(needed):
            if lines[index] < need and available > 0:
                lines[index] += 1
                available -= 1
    return lines


def _table(section: _Section, count: int) -> Table:
    table = Table(*section.columns, box=None, expand=True, padding=(0, 2, 0, 0), header_style=_HEAD, pad_edge=False)
    for row in section.rows[:count]:
        table.add_row(*row)
    if not section.rows:
        table.add_row(_text(section.placeholder, _QUIET))
    return table


# Sections


def _title(overview: "Overview") -> Table:
    brokers, clock, faults = overview["brokers"], overview["clock"], overview["faults"]
    up = sum(broker["up"] for broker in brokers)
    left = Text.assemble(
        (_plain(overview["name"]), "bold"),
        "  ",
        (f"{up} of {len(brokers)} brokers up", _GOOD if up == len(brokers) else _BAD),
        f"  {_rate(overview['rates']['requests_per_s'])} requests/s",
        (f"  {_count(faults, 'fault')}", "bold yellow") if faults else "",
    )
    kind = "" if clock["kind"] == "real" else f"{clock['kind']} clock "
    line = Table.grid(_column("", ratio=1), _number(""), expand=True)
    line.add_row(left, _text(f"{kind}{_time(clock['now_ms'])} UTC"))
    return line


def _summary(overview: "Overview") -> Text:
    """Return the number of groups in total and by state, rebalancing ones first."""
    by_state = overview["groups_by_state"]
    line = Text(_count(sum(by_state.values()), "group"), no_wrap=True, overflow="ellipsis")
    for state, count in sorted(by_state.items(), key=lambda item: (not item[0].endswith("Rebalance"), item[0])):
        if count:
            line.append("  ").append(f"{count:,} {state}", _STYLES.get(state, ""))
    return line.append(f"  {_count(overview['members'], 'member')}  {_count(overview['rebalances'], 'rebalance')}")


def _brokers(brokers: "Sequence[BrokerRow]") -> _Section:
    columns = [
        _column("BROKER"),
        _column("ADDRESS", ratio=1),
        _column("STATE"),
        _column("RELEASE"),
        _number("CONNECTIONS"),
        _number("GROUPS"),
        _number("REQUESTS/S"),
    ]
    rows = [
        [
            _text(str(broker["node_id"])),
            _text(format_host_port(broker["host"], broker["port"])),
            _text("up", _GOOD) if broker["up"] else _text("down", _BAD),
            _text(broker["as_version"]),
            _text(f"{broker['connections']:,}"),
            _text(f"{broker['groups']:,}"),
            _text(_rate(broker["requests_per_s"])),
        ]
        for broker in brokers
    ]
    return _Section(columns, rows, "no brokers")


def _apis(apis: "Sequence[ApiRate]") -> _Section:
    """Return the rates and latencies of the APIs: of those that answer at once, then of those that can wait."""
    columns = [
        _column("API", ratio=1),
        _number("REQ/S"),
        _number("ERR/S"),
        _number("BROKER P50"),
        _number("P99 MS"),
        _number("WIRE P50"),
        _number("P99 MS"),
    ]
    rows = [
        [
            Text.assemble(_plain(api["api"]), (" can wait" if api["can_wait"] else "", _QUIET)),
            _text(_rate(api["requests_per_s"])),
            _text(_rate(api["errors_per_s"]), _BAD if api["errors_per_s"] else ""),
            _text(_milliseconds(api["broker_p50_ms"])),
            _text(_milliseconds(api["broker_p99_ms"])),
            _text(_milliseconds(api["wire_p50_ms"])),
            _text(_milliseconds(api["wire_p99_ms"])),
        ]
        for api in sorted(apis, key=lambda api: (api["can_wait"], -api["requests_per_s"]))
        if api["requests_per_s"] or api["broker_p50_ms"] is not None
    ]
    return _Section(columns, rows, "no requests")


def _groups(title: str, groups: "Sequence[GroupRow]", is_wide: bool) -> _Section:
    # Equal widths align the tables of groups.
    state = Column("STATE", no_wrap=True, width=19 if is_wide else 10)
    columns = [_column(title, ratio=1), state, Column("GEN", justify="right", width=5), _number("MEMBERS")]
    if is_wide:
        columns += [_number("REBALANCES"), _number("BROKER")]
    rows = [_group(group, is_wide) for group in groups]
    return _Section([*columns, _column("REASON", ratio=2)], rows, "none")


def _group(group: "GroupRow", is_wide: bool) -> list[Text]:
    state = group["state"]
    cells = [
        _text(group["group_id"]),
        # Saves space in narrow terminals; the short names are unambiguous.
        _text(state if is_wide else state.removesuffix("Rebalance"), _STYLES.get(state, "")),
        _text(str(group["generation_id"])),
        _text(f"{group['members']:,}"),
    ]
    if is_wide:
        broker = group["coordinator"]
        cells += [_text(f"{group['rebalances']:,}"), _text("none" if broker is None else str(broker))]
    return [*cells, _text(group["why"])]


def _events(events: Sequence[Event]) -> _Section:
    columns = [_column("TIME"), _column("RECENT EVENT", ratio=1)]
    rows = [
        [
            _text(_time(event.at_ms), _QUIET),
            Text.assemble((_plain(event.subject), "bold"), f" {_plain(event.description)}"),
        ]
        for event in events
    ]
    return _Section(columns, rows, "no events")


# Formatting


def _column(title: str, ratio: int | None = None) -> Column:
    return Column(title, no_wrap=True, overflow="ellipsis", ratio=ratio)


def _number(title: str) -> Column:
    return Column(title, no_wrap=True, justify="right")


def _text(text: str, style: str = "") -> Text:
    return Text(_plain(text), style)


def _plain(text: str) -> str:
    """Replace nonprintable characters, which could control the terminal: clients choose names freely."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _time(at_ms: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # The date is out of range.
        return "--:--:--"


def _rate(per_s: float) -> str:
    return f"{per_s:.1f}" if 0 < per_s < 10 else f"{per_s:,.0f}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
