"""The summary as tables in a terminal, from 80 columns on. Knows the summary's keys; works nothing out."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

Summary = Mapping[str, Any]


def print_report(console: Console, summary: Summary) -> None:
    """Print all tables, the verdict last, and where the files are."""
    sections: dict[str, Table | str] = {
        "Requests": _latency(summary),
        "Brokers": _brokers(summary),
        "Errors": _errors(summary),
        "Rebalances": _rebalances(summary),
        "Swarm": _swarm(summary),
        f"Verdict: {_mark(summary['verdict']['passed'], 'passed', 'FAILED')}": _verdict(summary["verdict"]),
        f"Files in {escape(summary['directory'])}": _files(summary),
    }
    for title, content in sections.items():
        console.print(f"\n[bold]{title}[/bold]", highlight=False, soft_wrap=True)
        console.print(Padding(content, (0, 0, 0, 2)), highlight=False)
    console.print(f"\nSeed {summary['seed']}", highlight=False)


def _table(*columns: str, left: int = 1) -> Table:
    """A table without lines; the first columns are text, the others numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", header_style="dim")
    return table


def _latency(summary: Summary) -> Table:
    table = _table("API", "requests", "per s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "errors")
    for row in [*summary["apis"], summary["total"]]:
        table.add_row(
            row["api"],
            f"{row['requests']:,}",
            f"{row['requests_per_s']:,.1f}",
            *(_ms(row[name]) for name in ("p50_ms", "p99_ms", "p99_9_ms", "max_ms")),
            f"{row['unexpected_errors'] + row['unanswered']:,}",
            style="bold" if row is summary["total"] else None,
        )
    return table


def _brokers(summary: Summary) -> Table:
    table = _table("broker", "requests", "share", "groups")
    for row in summary["brokers"]:
        broker = "unknown" if row["broker"] < 0 else str(row["broker"])
        table.add_row(broker, f"{row['requests']:,}", f"{row['share']:.1%}", f"{row['groups']:,}")
    return table


def _errors(summary: Summary) -> Table:
    table = _table("error", "API", "", "code", "answers", left=3)
    for row in summary["errors"]:
        kind = "ordinary" if row["ordinary"] else "[red]unexpected[/red]"
        table.add_row(row["name"], row["api"], kind, str(row["code"]), f"{row['requests']:,}")
    if not summary["errors"]:
        table.add_row("none")
    return table


def _rebalances(summary: Summary) -> str:
    row = summary["rebalances"]
    if not row["count"]:
        return "none"
    return (
        f"{row['count']:,}, from first join to last sync "
        f"p50 {_ms(row['p50_ms'])} ms, p99 {_ms(row['p99_ms'])} ms, max {_ms(row['max_ms'])} ms"
    )


def _swarm(summary: Summary) -> str:
    late, found = summary["sent_late"], summary["find_coordinator"]
    return (
        f"{summary['members']:,} members of {summary['groups']:,} groups in {summary['spark']['tasks']} tasks; "
        f"{found['lookups']:,} coordinators looked up in {found['requests']:,} requests\n"
        f"sent p50 {_ms(late['p50_ms'])} ms, p99 {_ms(late['p99_ms'])} ms after it was wanted, which counts as latency"
    )


def _verdict(verdict: Summary) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for check in verdict["promises"]:
        table.add_row(_mark(check["kept"], "kept", "BROKEN"), check["promise"])
        if check["broken"]:
            table.add_row("", f"{check['broken']:,} times: {escape('; '.join(check['examples']))}")
    for check in verdict["expectations"]:
        actual = "there is none" if check["actual"] is None else f"is {check['actual']:,.6g}"
        table.add_row(_mark(check["met"], "met", "MISSED"), f"{check['expectation']} [dim]({actual})[/dim]")
    return table


def _files(summary: Summary) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, what in summary["files"].items():
        table.add_row(name, f"[dim]{what}[/dim]")
    return table


def _mark(good: bool, yes: str, no: str) -> str:
    return f"[green]{yes}[/green]" if good else f"[bold red]{no}[/bold red]"


def _ms(value: float | None) -> str:
    """Three digits that matter: 0.123, 1.23, 12.3, 1,234."""
    if value is None:
        return "-"
    return f"{value:,.{max(0, 3 - len(str(int(value)).lstrip('0')))}f}" if value < 1000 else f"{value:,.0f}"
