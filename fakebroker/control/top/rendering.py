"""Renders the state of a cluster as lines of text that fit a terminal. Does not depend on a terminal or HTTP."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec
from rich.console import Group as Lines, RenderableType
from rich.table import Column, Table
from rich.text import Text

from fakebroker.control.top.observer import REBALANCING, ClusterState, Event, Row
from fakebroker.errors import printable
from fakebroker.host_port import format_host_port

if TYPE_CHECKING:
    from fakebroker.control.routes.blocked_groups import BlockedGroup
    from fakebroker.control.routes.views.group_rows import GroupRow
    from fakebroker.control.stats.rates import ApiRate

Choice = Literal["unstable and busiest", "unstable", "busiest"]
CHOICES: tuple[Choice, ...] = ("unstable and busiest", "unstable", "busiest")
"""The choices of groups to show."""

_WITH_TYPES = 110
"""The width from which groups have their types; below, their ids need the space."""
_WIDE = 100
_NARROW = 70
_SNAPSHOT_ROWS = 20
_BLOCKED_SHARE = 3
"""The groups that wait get at most every third of the lines without headings."""
_MAX_DURATION_MS = 1e12
_STYLES = {"Stable": "green", "Dead": "red"}
_STYLES |= dict.fromkeys((*REBALANCING, "PrepareCommit", "PrepareAbort"), "bold yellow")
_GOOD, _BAD, _QUIET, _HEAD = "green", "bold red", "bright_black", "reverse"


class Frame(msgspec.Struct, frozen=True):
    """The size and contents of the output.

    Attributes:
        width: Columns.
        height: Lines; None for as many as needed.
        choice: The groups to show.
        footer: The last line; not shown without a height.
    """

    width: int
    height: int | None = None
    choice: Choice = "unstable and busiest"
    footer: str = ""


class _Section(msgspec.Struct, frozen=True):
    """A table that is cut to the available lines; `placeholder` is shown instead of rows if there are none."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]
    placeholder: str


def render(state: ClusterState, frame: Frame) -> Lines:
    """Return the lines of a state that fit in a frame, first any members that block groups."""
    sections = _sections(state, frame)
    title, summary = _title(state.overview), _summary(state.overview)
    blocked = _blocked(state, frame.width)
    if frame.height is None:
        tables = [_table(section, _SNAPSHOT_ROWS) for section in sections]
        return Lines(title, *([_table(blocked, _SNAPSHOT_ROWS)] if blocked.rows else []), summary, *tables)
    head: list[RenderableType] = [title]
    used = 2 + len(sections) + 1  # Title, summary, headings and footer.
    if blocked.rows:
        shown = min(len(blocked.rows), max(1, (frame.height - used) // _BLOCKED_SHARE))
        head.append(_table(_cut(blocked, shown, state.blocked["total"]), shown))
        used += 1 + shown
    needed = [max(len(section.rows), 1) for section in sections]
    available = frame.height - used
    rows = _distribute(available, needed)
    tables = [_table(section, count) for section, count in zip(sections, rows, strict=True)]
    footer = Text("\n" * (available - sum(rows)) + frame.footer, _QUIET, no_wrap=True, overflow="ellipsis")
    return Lines(*head, summary, *tables, footer)


def _cut(section: _Section, count: int, total: int) -> _Section:
    """Return the first rows of a section; if there are more, the first column of the last one has their number."""
    if total <= count or count < 2:
        return section
    more = [_text(f"and {total - count + 1:,} more groups", _QUIET), *(Text() for _ in section.columns[1:])]
    return _Section(section.columns, [*section.rows[: count - 1], more], section.placeholder)


def _sections(state: ClusterState, frame: Frame) -> list[_Section]:
    is_narrow = frame.width < _NARROW
    apis = _apis(state.overview["rates"]["by_api"], is_narrow)
    sections = [_brokers(state.overview["brokers"], is_narrow), apis]
    if state.transactions:
        now_ms = state.overview["clock"]["now_ms"]
        sections.append(_transactions(state.transactions, now_ms, frame.width))
    if "unstable" in frame.choice:
        sections.append(_groups("UNSTABLE GROUP", state.unstable, frame.width))
    if "busiest" in frame.choice:
        sections.append(_groups("BUSIEST GROUP", state.busy, frame.width))
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


def _title(overview: Row) -> Table:
    brokers, clock, faults = overview["brokers"], overview["clock"], overview["faults"]
    up = sum(broker["up"] for broker in brokers)
    left = Text.assemble(
        (printable(overview["name"]), "bold"),
        "  ",
        (f"{up} of {len(brokers)} brokers up", _GOOD if up == len(brokers) else _BAD),
        f"  {_rate(overview['rates']['requests_per_s'])} requests/s",
        (f"  {_count(faults, 'fault')}", "bold yellow") if faults else "",
    )
    kind = "" if clock["kind"] == "real" else f"{clock['kind']} clock "
    line = Table.grid(_column("", ratio=1), _number(""), expand=True)
    line.add_row(left, _text(f"{kind}{_time(clock['now_ms'])} UTC"))
    return line


def _summary(overview: Row) -> Text:
    """Return the number of groups in total and by state, rebalancing ones first."""
    by_state = overview["groups_by_state"]
    line = Text(_count(sum(by_state.values()), "group"), no_wrap=True, overflow="ellipsis")
    for state, count in sorted(by_state.items(), key=lambda item: (item[0] not in REBALANCING, item[0])):
        if count:
            line.append("  ").append(f"{count:,} {state}", _STYLES.get(state, ""))
    line.append(f"  {_count(overview['members'], 'member')}  {_count(overview['rebalances'], 'rebalance')}")
    transactions = sum(overview["transactions_by_state"].values())
    return line.append(f"  {_count(transactions, 'transactional id')}") if transactions else line


def _blocked(state: ClusterState, width: int) -> _Section:
    """Return the members that block groups, their missing requests, for how long, and what happens at what time.

    Narrow terminals show the member, the group and the time only.
    """
    now_ms = state.overview["clock"]["now_ms"]
    missing, sent, waited = Column("MISSING", no_wrap=True), _number("SENT"), _number("FOR")
    middle = [] if width < _NARROW else [missing, waited] if width < _WIDE else [missing, sent, waited]
    columns = [_column("BLOCKED BY", ratio=1), _column("GROUP", ratio=1), *middle, Column("THEN", no_wrap=True)]
    rows = []
    for group in state.blocked["groups"]:
        cells = {
            "MISSING": _missing(group),
            "SENT": f"{group['sent']:,} of {group['members']:,}",
            "FOR": _duration(now_ms - group["since_ms"]),
        }
        names = [_blocking(group), _text(group["group_id"], "bold")]
        rows.append([*names, *(_text(cells[str(each.header)]) for each in middle), _text(_outcome(group, now_ms))])
    return _Section(columns, rows, "")


def _blocking(group: "BlockedGroup") -> Text:
    missing = group["missing"]
    if not missing:
        awaited = "a heartbeat" if group["request"] == "ConsumerGroupHeartbeat" else "members"
        return _text("held" if group["is_held"] else f"waiting for {awaited}", _QUIET)
    more = f" and {missing - 1:,} more" if missing > 1 else ""
    return Text.assemble((printable(group["blocking"][0]), "bold yellow"), more)


def _missing(group: "BlockedGroup") -> str:
    """Return what a group waits for: a request, or partitions that members of a consumer group have to give up."""
    if group["partitions"]:
        return _count(group["partitions"], "partition")
    return group["request"].removeprefix("ConsumerGroup") if group["missing"] else ""


def _outcome(group: "BlockedGroup", now_ms: float) -> str:
    """Return what happens to a group that waits, and in how much time: to members earlier, if their sessions expire."""
    if group["until_ms"] is None:
        return "until released" if group["is_held"] else "no time limit"
    left = _duration(group["until_ms"] - now_ms)
    if group["restarts"]:
        return f"waits again in {left}"
    return f"removed in ≤{left}" if group["removes"] else f"goes on in {left}"


def _brokers(brokers: Sequence[Row], is_narrow: bool) -> _Section:
    columns = [
        _column("BROKER"),
        _column("ADDRESS", ratio=1),
        _column("STATE"),
        *([] if is_narrow else [_column("RELEASE"), _number("CONNECTIONS")]),
        _number("GROUPS"),
        _number("REQ/S" if is_narrow else "REQUESTS/S"),
    ]
    rows = [
        [
            _text(str(broker["node_id"])),
            _text(format_host_port(broker["host"], broker["port"])),
            _text("up", _GOOD) if broker["up"] else _text("down", _BAD),
            *([] if is_narrow else [_text(broker["as_version"]), _text(f"{broker['connections']:,}")]),
            _text(f"{broker['groups']:,}"),
            _text(_rate(broker["requests_per_s"])),
        ]
        for broker in brokers
    ]
    return _Section(columns, rows, "no brokers")


def _apis(apis: "Sequence[ApiRate]", is_narrow: bool) -> _Section:
    """Return the rates and latencies of the APIs: of those that answer at once, then of those that can wait."""
    names = ("BROKER P99", "WIRE P99") if is_narrow else ("BROKER P50", "P99 MS", "WIRE P50", "P99 MS")
    columns = [_column("API", ratio=1), _number("REQ/S"), _number("ERR/S"), *map(_number, names)]
    rows = [
        [
            Text.assemble(printable(api["api"]), (" can wait" if api["can_wait"] else "", _QUIET)),
            _text(_rate(api["requests_per_s"])),
            _text(_rate(api["errors_per_s"]), _BAD if api["errors_per_s"] else ""),
            *(_text(_milliseconds(value_ms)) for value_ms in _quantiles(api, is_narrow)),
        ]
        for api in sorted(apis, key=lambda api: (api["can_wait"], -api["requests_per_s"]))
        if api["requests_per_s"] or api["broker_p50_ms"] is not None
    ]
    return _Section(columns, rows, "no requests")


def _quantiles(api: "ApiRate", is_narrow: bool) -> Sequence[float | None]:
    if is_narrow:
        return api["broker_p99_ms"], api["wire_p99_ms"]
    return api["broker_p50_ms"], api["broker_p99_ms"], api["wire_p50_ms"], api["wire_p99_ms"]


def _groups(title: str, groups: "Sequence[GroupRow]", width: int) -> _Section:
    has_types, is_wide, is_narrow = width >= _WITH_TYPES, width >= _WIDE, width < _NARROW
    # Equal widths align the tables of groups.
    columns = [_column(title, ratio=1)]
    if has_types:
        columns.append(Column("TYPE", no_wrap=True, width=8))
    columns.append(Column("STATE", no_wrap=True, width=19 if is_wide else 11))
    if not is_narrow:
        columns += [Column("GEN", justify="right", width=5), _number("MEMBERS")]
    if is_wide:
        columns += [_number("LAG"), _number("REBALANCES"), _number("BROKER")]
    rows = [_group(group, has_types, is_wide, is_narrow) for group in groups]
    return _Section([*columns, _column("REASON", ratio=1 if is_narrow else 2)], rows, "none")


def _group(group: "GroupRow", has_types: bool, is_wide: bool, is_narrow: bool) -> list[Text]:
    state = group["state"]
    cells = [
        _text(group["group_id"]),
        *([_text(group["type"] or "")] if has_types else []),
        # Saves space in narrow terminals; the short names are unambiguous.
        _text(state if is_wide else state.removesuffix("Rebalance"), _STYLES.get(state, "")),
    ]
    if not is_narrow:
        cells += [_text(str(group["generation_id"])), _text(f"{group['members']:,}")]
    if is_wide:
        broker = group["coordinator"]
        cells += [
            _text(f"{group['lag']:,}"),
            _text(f"{group['rebalances']:,}"),
            _text("none" if broker is None else str(broker)),
        ]
    return [*cells, _text(group["why"])]


def _transactions(transactions: Sequence[Row], now_ms: float, width: int) -> _Section:
    """Return the transactions that have not ended: for how long, and why."""
    is_narrow = width < _NARROW
    columns = [_column("OPEN TRANSACTION", ratio=1), Column("STATE", no_wrap=True, width=14)]
    if not is_narrow:
        columns += [_number("PRODUCER"), _number("FOR")]
    rows = []
    for each in transactions:
        cells = [_text(each["transactional_id"]), _text(each["state"], _STYLES.get(each["state"], ""))]
        if not is_narrow:
            since_ms = each["last_update_ms"] if each["start_ms"] is None else each["start_ms"]
            producer = f"{each['producer_id']}/{each['producer_epoch']}"
            cells += [_text(producer), _text(_duration(now_ms - since_ms))]
        rows.append([*cells, _text(each["why"])])
    return _Section([*columns, _column("REASON", ratio=1 if is_narrow else 2)], rows, "none")


def _events(events: Sequence[Event]) -> _Section:
    columns = [_column("TIME"), _column("RECENT EVENT", ratio=1)]
    rows = [
        [
            _text(_time(event.at_ms), _QUIET),
            Text.assemble((printable(event.subject), "bold"), f" {printable(event.description)}"),
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
    return Text(printable(text), style)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _time(at_ms: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # The date is out of range.
        return "--:--:--"


def _duration(duration_ms: float) -> str:
    """Return a duration such as "9.4 s", "4 min 48 s" or "2 h 5 min"; dashes if it is out of range."""
    if not abs(duration_ms) < _MAX_DURATION_MS:
        return "--"
    seconds = max(0.0, duration_ms) / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _rate(per_s: float) -> str:
    return f"{per_s:.1f}" if 0 < per_s < 10 else f"{per_s:,.0f}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
