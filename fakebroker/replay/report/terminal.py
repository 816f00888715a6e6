"""Prints a summary as tables, for terminals with at least 80 columns."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fakebroker.replay.members.request_outcomes import MEANINGS
from fakebroker.replay.report.evidence import Case, unavailable, violated
from fakebroker.replay.run_summary import DELAYED, Phase, PromiseCheck, Summary, TransactionNumbers, named
from fakebroker.replay.wording import broker, by_chance, counted, event as event_text, ms, number, result, share, times

_BLOCKS = " ▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH = 48
_MOST_VIOLATIONS = 3
_MOST_EVENTS = 10
"""Maximum number of events shown with a violation."""
_EVENT_COLUMNS: dict[str, dict[str, Any]] = {
    "sent s": {"width": 8, "justify": "right"},
    "answered": {"width": 8, "justify": "right"},
    "API": {"width": len("FindCoordinator")},
    "member": {"ratio": 1},
    "gen.": {"width": 4, "justify": "right"},
    "br.": {"width": 3, "justify": "right"},
    "response": {"ratio": 2},
}
"""Columns of a table of events. In 80 columns, `response` is as wide as REBALANCE_IN_PROGRESS; it also has details."""
_MOST_GROUPS = 5


def print_report(console: Console, summary: Summary) -> None:
    """Print all tables, the verdict, and the list of files."""
    for title, content in _sections(summary):
        console.print(f"\n[bold]{title}[/bold]", highlight=False, soft_wrap=True)
        console.print(Padding(content, (0, 0, 0, 2)), highlight=False)
    notes = [f"Seed {summary.head.seed}."]
    if summary.head.scale != 1:
        notes.append(f"The workload was scaled to {number(summary.head.scale)} (--scale).")
    if early_end := summary.head.early_end(summary.numbers.span_s):
        notes.append(early_end)
    if summary.head.cluster.reachable is False:
        notes.append("The cluster was unreachable at the end.")
    console.print("\n" + "\n".join(notes), highlight=False)


def _sections(summary: Summary) -> Iterator[tuple[str, RenderableType]]:
    numbers = summary.numbers
    yield "Latency" + (" in the simulated network" if summary.head.transport == "memory" else ""), _headline(summary)
    if summary.head.timeline:
        yield "Events", _timeline(summary)
    if numbers.steady:
        yield f"Requests, steady state from second {numbers.steady.from_s:.1f}", _requests(numbers.steady)
    if numbers.startup:
        name = f"start-up until second {numbers.startup.until_s:.1f}" if numbers.steady else "whole replay"
        yield f"Requests, {name}", _requests(numbers.startup)
    if any(_meanings(summary)):
        yield "Failed requests", "\n".join(_meanings(summary))
    yield "Over time", _over_time(summary)
    yield "Populations", _populations(summary)
    yield "Rebalances", _rebalances(summary)
    if summary.numbers.transactions:
        yield "Transactions", _transactions(summary.numbers.transactions)
    if summary.numbers.slowest_groups:
        yield "Slowest groups", _slowest(summary)
    yield "Brokers", _brokers(summary)
    yield "Errors", _errors(summary)
    yield "Load", _load(summary)
    outcome = summary.verdict.outcome
    yield f"Verdict: {_mark(outcome == 'passed', outcome, outcome.upper())}", _verdict(summary)
    yield from _violations(summary)
    yield f"Files in {escape(summary.directory)}", _files(summary)


def table(*columns: str, left: int = 1) -> Table:
    """Return a table without borders; its first `left` columns are text, the others are numbers."""
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, column in enumerate(columns):
        grid.add_column(column, justify="left" if index < left else "right", header_style="dim")
    return grid


def _timeline(summary: Summary) -> Table:
    grid = table("time s", "event", left=2)
    for event in summary.head.timeline:
        done = "" if event["done"] else f" [red]{escape(result(event))}[/red]"
        grid.add_row(f"{event['at_s']:,.1f}", escape(event_text(event)) + done)
    return grid


def _headline(summary: Summary) -> str:
    """Return the latencies of requests that are never parked, and of those that are."""
    numbers = summary.numbers
    phase, name = (numbers.steady, "steady state") if numbers.steady else (numbers.startup, "whole replay")
    found = phase.never_parked if phase else numbers.never_parked
    lines = []
    for what, row in (
        (f"requests that are never parked, {name}", found),
        ("JoinGroup and SyncGroup, parked until a group is ready", numbers.parked),
    ):
        lines.append(f"{what}: p50 {ms(row.p50_ms)} ms, p99 {ms(row.p99_ms)} ms")
        if row.undelayed_p99_ms is not None and row.undelayed_p99_ms != row.p99_ms:
            undelayed = f"p50 {ms(row.undelayed_p50_ms)} ms, p99 {ms(row.undelayed_p99_ms)} ms"
            lines.append(f"  without the delay of the replay itself: {undelayed}")
    if found.is_delayed:
        lines.append(f"[bold yellow]{DELAYED}[/bold yellow]")
    return "\n".join(lines)


def _requests(phase: Phase) -> Table:
    grid = table("API", "requests", "per s", "p50 ms", "p99 ms", "undelayed", "max ms", "failed")
    rows = [(row.name, row, None) for row in phase.apis]
    sums = [("never parked", phase.never_parked, "bold"), ("parked", phase.parked, "bold")]
    for name, row, style in [*rows, *sums]:
        grid.add_row(
            name,
            f"{row.requests:,}",
            f"{row.requests_per_s:,.1f}",
            *map(ms, (row.p50_ms, row.p99_ms, row.undelayed_p99_ms, row.max_ms)),
            f"{row.unexpected_errors + row.lost + row.unanswered:,}",
            style=style,
        )
    return grid


def _meanings(summary: Summary) -> Iterator[str]:
    """Yield the counts of requests that failed or were cut off, with the meanings of these words."""
    for name, meaning in MEANINGS.items():
        count = getattr(summary.numbers.total, name)
        if count:
            yield f"[dim]{count:,} {name.replace('_', ' ')}: {meaning.replace('`', '')}[/dim]"


def _over_time(summary: Summary) -> Table:
    """Return a table of sparklines, each scaled to its maximum."""
    over_time = summary.numbers.over_time
    rates = [sum(parts) for parts in zip(*(row.requests_per_s for row in over_time.apis), strict=True)]
    grid = table("", "start to end", "max", left=2)
    for name, numbers in (
        ("requests/s", rates),
        ("groups rebalancing", over_time.groups.rebalancing),
        ("members waiting", over_time.members.waiting),
        ("members unknown", over_time.members.unknown),
    ):
        grid.add_row(name, sparkline(numbers, _SPARKLINE_WIDTH), f"{max(numbers, default=0):,.0f}")
    return grid


def sparkline(numbers: list[float], width: int) -> str:
    """Draw numbers as at most `width` block characters, each the mean of one number or several neighbors."""
    highest = max(numbers, default=0) or 1
    step = max(1, -(-len(numbers) // width))
    parts = [numbers[index : index + step] for index in range(0, len(numbers), step)]
    return "".join(_BLOCKS[round(sum(part) / len(part) / highest * (len(_BLOCKS) - 1))] for part in parts)


def _populations(summary: Summary) -> Table:
    grid = table("population", "groups", "members", "joined", "generations", "unassigned\nmember-s", "partition-s")
    for row in summary.numbers.populations:
        counts = (row.groups, row.members, row.members_joined, row.generations, row.unassigned_member_s)
        grid.add_row(escape(row.population), *map(number, (*counts, row.unassigned_partition_s)))
    return grid


def _slowest(summary: Summary) -> Table:
    grid = table("group", "members", "generations", "longest rebalance ms", "unassigned member-s")
    for row in summary.numbers.slowest_groups[:_MOST_GROUPS]:
        numbers = (number(row.members), number(row.generations), ms(row.longest_rebalance_ms))
        grid.add_row(escape(row.group), *numbers, number(row.unassigned_member_s))
    return grid


def _brokers(summary: Summary) -> Table:
    grid = table("broker", "requests", "share", "groups")
    for row in summary.numbers.brokers:
        grid.add_row(broker(row.broker), f"{row.requests:,}", share(row.share), f"{row.groups:,}")
    return grid


def _errors(summary: Summary) -> Table:
    grid = table("error", "API", "kind", "code", "responses", left=3)
    for row in summary.numbers.errors:
        kind = "normal" if row.ordinary else "[red]unexpected[/red]"
        grid.add_row(row.name, named(row.api, row.source), kind, str(row.code), f"{row.requests:,}")
    if not summary.numbers.errors:
        grid.add_row("none")
    return grid


def _rebalances(summary: Summary) -> str:
    row = summary.numbers.rebalances
    if not row.count:
        return "none"
    ends = "from the first JoinGroup to the last SyncGroup response"
    if summary.numbers.uses_consumer_protocol:
        ends += ",\nor from the first heartbeat of a group epoch until all members have reached it"
    return (
        f"{row.count:,} rebalances, {ends}:\np50 {ms(row.p50_ms)} ms, p99 {ms(row.p99_ms)} ms, max {ms(row.max_ms)} ms"
    )


def _transactions(row: TransactionNumbers) -> str:
    outcomes = f"{row.committed:,} committed, {row.aborted:,} aborted, {row.not_ended:,} not ended"
    return (
        f"{row.begun:,} transactions: {outcomes}\n"
        f"until committed: p50 {ms(row.p50_ms)} ms, p99 {ms(row.p99_ms)} ms, max {ms(row.max_ms)} ms\n"
        f"until the records were visible: p50 {ms(row.visible_p50_ms)} ms, max {ms(row.visible_max_ms)} ms"
    )


def _load(summary: Summary) -> str:
    late, partitions = summary.numbers.sent_late, summary.numbers.offsets_partitions
    lines = [
        f"{summary.head.members:,} members of {summary.numbers.groups:,} groups in {summary.head.spark.tasks} tasks",
        f"delay of the replay itself, part of the latency: p50 {ms(late.p50_ms)} ms, p99 {ms(late.p99_ms)} ms",
        f"busiest of {partitions.count} offsets partitions: {times(partitions.requests_skew)} the mean of requests"
        + by_chance(partitions.requests_skew, partitions.requests_skew_by_chance),
    ]
    lines += [f"{row.name}: {row.requests:,} requests with {row.keys:,} groups" for row in summary.numbers.lookups]
    return "\n".join(lines)


def _verdict(summary: Summary) -> Table:
    verdict, began_us = summary.verdict, summary.numbers.began_us
    grid = Table.grid(padding=(0, 2, 0, 0))
    for check in verdict.availability:
        grid.add_row(_mark(check.passed, "passed", check.outcome.upper()), escape(check.check))
        if check.observed:
            grid.add_row("", f"[dim]{escape(check.observed)}[/dim]")
        for violation in [*check.violations, *check.doubts][:_MOST_VIOLATIONS]:
            case = unavailable(violation, began_us)
            grid.add_row("", escape("; ".join((case.what, *(f"{name} {fact}" for name, fact in case.facts.items())))))
    for promised in verdict.promises:
        cases = counted(promised.cases, "case")
        grid.add_row(_outcome(promised), f"[dim]{cases}:[/dim] {escape(promised.promise)}")
        if promised.broken:
            grid.add_row("", counted(promised.broken, "violation"))
    for expected in verdict.expectations:
        actual = "no value" if expected.actual is None else f"actual: {number(expected.actual)}"
        missed = "INCONCLUSIVE" if expected.doubt else "MISSED"
        grid.add_row(_mark(expected.met, "met", missed), f"{escape(expected.expectation)} [dim]({actual})[/dim]")
        if expected.doubt:
            grid.add_row("", escape(expected.doubt))
    return grid


def _violations(summary: Summary) -> Iterator[tuple[str, RenderableType]]:
    """Yield a section for each of the first violations: first one of each broken promise, then the others."""
    checks = [check for check in summary.verdict.promises if check.violations]
    ranked = sorted(
        ((place, check) for check in checks for place in range(len(check.violations))), key=lambda ranked: ranked[0]
    )
    for place, check in ranked[:_MOST_VIOLATIONS]:
        case = violated(check.violations[place], summary.numbers.began_us)
        yield f"[red]Broken:[/red] {escape(check.promise)}", Group(*_case(case))
    more = sum(check.broken for check in checks) - len(ranked[:_MOST_VIOLATIONS])
    if more:
        what = "1 more violation is" if more == 1 else f"{more:,} more violations are"
        yield f"{what} in report.html and violations.parquet.", ""


def _case(case: Case) -> Iterator[RenderableType]:
    yield Text(case.what)
    yield Text(", ".join(f"{name} {fact}" for name, fact in case.facts.items()), style="dim")
    if not case.rows:
        return
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=True)
    for name, layout in _EVENT_COLUMNS.items():
        grid.add_column(name, header_style="dim", overflow="fold", **layout)
    for *cells, response, details in case.rows[:_MOST_EVENTS]:
        grid.add_row(*map(escape, cells), escape("\n".join(text for text in (response, details) if text)))
    yield grid
    if len(case.rows) > _MOST_EVENTS:
        yield Text(f"{counted(len(case.rows) - _MOST_EVENTS, 'more event')} in report.html", style="dim")


def _files(summary: Summary) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, description in summary.files.items():
        grid.add_row(name, f"[dim]{description}[/dim]")
    return grid


def _outcome(check: PromiseCheck) -> str:
    if check.outcome == "not exercised" and not check.required:
        return f"[dim]{check.outcome}[/dim]"
    return _mark(check.outcome == "kept", check.outcome, check.outcome.upper())


def _mark(good: bool, yes: str, no: str) -> str:
    return f"[green]{yes}[/green]" if good else f"[bold red]{no}[/bold red]"
