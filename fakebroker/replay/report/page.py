"""The report of a replay as one HTML page, from its summary."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from fakebroker.replay.report import figures, html
from fakebroker.replay.report.wording import broker, happening, ms, number, share, times

Summary = Mapping[str, Any]

_QUANTILES = ("p50_ms", "p99_ms", "p99_9_ms", "max_ms")


def page(summary: Summary) -> str:
    """Return the complete page."""
    name = summary["workload"]["file"]
    return html.document(
        f"{name}: {_verdict_word(summary)}",
        f"<h1>{html.marked(name, '')}</h1>",
        html.paragraph(_about(summary), "faint"),
        html.tiles(_tiles(summary)),
        html.section("Verdict", *_verdict(summary["verdict"])),
        *_sections(summary),
    )


def _sections(summary: Summary) -> Iterator[str]:
    empty = not summary["total"]["requests"]
    if summary.get("timeline"):
        yield html.section("What happened to the cluster", _timeline(summary))
    yield html.section(
        "Requests per second",
        html.paragraph("Averages of each slice of time. Numbered lines are what happened to the cluster.", "faint"),
        "" if empty else figures.rates(summary),
    )
    yield html.section(
        "Latency",
        html.paragraph(
            "From the moment a request was due until its answer was read. A JoinGroup is answered when all members "
            "of its group have joined.",
            "faint",
        ),
        "" if empty else figures.latencies(summary),
        _latencies(summary),
    )
    yield html.section("Groups", figures.groups(summary), _populations(summary))
    yield html.section(
        "Members",
        html.paragraph("Those that want an assignment, with and without one.", "faint"),
        figures.members(summary),
    )
    yield html.section("Rebalances", *_rebalances(summary))
    yield html.section("Errors", *_errors(summary))
    yield html.section("Brokers", "" if empty else figures.brokers(summary), _brokers(summary))
    yield html.section("Offsets partitions", *_partitions(summary))
    yield html.section("Slowest groups", _slowest(summary))
    yield html.section("Look-ups", _lookups(summary))
    yield html.section(
        "Files",
        html.table(("file", "what it is"), [(name, what) for name, what in summary["files"].items()], left=2),
        html.paragraph(f"In {summary['directory']}. Keys, units and meanings: scenarios/runs.md.", "faint"),
    )


def _about(summary: Summary) -> str:
    cluster, spark = summary["cluster"], summary["spark"]
    where = "an embedded cluster" if cluster["embedded"] else cluster["bootstrap"]
    started = datetime.fromisoformat(summary["started"]).strftime("%Y-%m-%d %H:%M:%S UTC")
    how = "simulated" if summary["transport"] == "memory" else f"over TCP, {spark['tasks']} tasks{_shared(summary)}"
    cut = "" if summary["complete"] else " It was broken off; this is what was recorded until then."
    gone = "" if cluster["reachable"] else " The cluster was gone in the end."
    return f"{started}, {where}, {how}, seed {summary['seed']}.{cut}{gone}"


def _shared(summary: Summary) -> str:
    return "" if summary["lanes"] is None else f" with {summary['lanes']} lanes to each broker"


def _tiles(summary: Summary) -> list[tuple[str, str]]:
    total, metrics = summary["total"], summary["metrics"]
    return [
        ("verdict", html.marked(_verdict_word(summary), "good" if summary["verdict"]["passed"] else "bad")),
        ("groups", number(summary["groups"])),
        ("members", number(summary["members"])),
        ("requests", number(total["requests"])),
        ("requests/s", number(total["requests_per_s"])),
        ("p99, ms", ms(total["p99_ms"])),
        ("generations", number(metrics["generations"])),
        ("member-seconds unassigned", number(metrics["unassigned_member_s"])),
        ("unexpected errors", number(total["unexpected_errors"])),
    ]


def _verdict_word(summary: Summary) -> str:
    return "passed" if summary["verdict"]["passed"] else "failed"


def _verdict(verdict: Summary) -> Iterator[str]:
    available = [
        (_mark(check["passed"], "passed", "failed"), check["check"], _violations(check["violations"]))
        for check in verdict.get("availability", ())
    ]
    if available:
        yield html.table(("", "availability", "failures"), available, left=3)
    promises = [
        (_mark(check["kept"], "kept", "broken"), check["promise"], number(check["broken"]) if check["broken"] else "")
        for check in verdict["promises"]
    ]
    if promises:
        yield html.table(("", "promise", "violations"), promises, left=2)
    for check in verdict["promises"]:
        if check.get("violations"):
            yield html.folded(f"Where it was broken: {check['promise']}", *map(_violation, check["violations"]))
    expected = [
        (_mark(check["met"], "met", "missed"), check["expectation"], number(check["actual"]))
        for check in verdict["expectations"]
    ]
    if expected:
        yield html.table(("", "expectation", "actual"), expected, left=2)


def _violations(violations: Iterable[Summary]) -> str:
    return "; ".join(violation["what"] for violation in violations)


def _violation(violation: Summary) -> html.Markup:
    events = list(violation.get("events") or ())
    columns = [name for name in (events[0] if events else ()) if any(event[name] is not None for event in events)]
    rows = [["" if event[name] is None else str(event[name]) for name in columns] for event in events]
    where = f"{violation['group'] or 'no group'}, generation {number(violation['generation'])}: {violation['what']}"
    return html.Markup(html.paragraph(where) + (html.table(columns, rows, left=len(columns)) if events else ""))


def _timeline(summary: Summary) -> html.Markup:
    rows = [
        (
            str(index),
            f"{event['at_s']:,.1f}",
            happening(event),
            "done" if event["done"] else f"not done: {event['why']}",
        )
        for index, event in enumerate(summary["timeline"], 1)
    ]
    return html.table(("", "at s", "what", ""), rows, left=4)


def _latencies(summary: Summary) -> html.Markup:
    rows = [
        (
            row["api"],
            number(row["requests"]),
            number(row["requests_per_s"]),
            *(ms(row[name]) for name in _QUANTILES),
            *(number(row[name]) for name in ("unexpected_errors", "lost", "unanswered")),
        )
        for row in [*summary["apis"], summary["total"]]
    ]
    quantiles = ("p50 ms", "p99 ms", "p99.9 ms", "max ms")
    return html.table(("API", "requests", "per s", *quantiles, "errors", "lost", "unanswered"), rows, total=True)


def _populations(summary: Summary) -> html.Markup:
    columns = (
        "population",
        "groups",
        "members",
        "got an assignment",
        "generations",
        "unassigned member-s",
        "longest rebalance ms",
    )
    rows = [
        (
            row["population"],
            *(
                number(row[name])
                for name in ("groups", "members", "members_joined", "generations", "unassigned_member_s")
            ),
            ms(row["longest_rebalance_ms"]),
        )
        for row in summary["populations"]
    ]
    return html.table(columns, rows)


def _rebalances(summary: Summary) -> Iterator[str]:
    row = summary["rebalances"]
    if row["count"]:
        yield html.paragraph(
            "One per group and generation: from its first JoinGroup sent to its last SyncGroup answered.", "faint"
        )
        yield figures.rebalances(summary)
    columns = ("rebalances", "p50 ms", "p99 ms", "max ms", "generations")
    yield html.table(
        columns,
        [
            (
                number(row["count"]),
                *(ms(row[name]) for name in ("p50_ms", "p99_ms", "max_ms")),
                number(row["generations"]),
            )
        ],
        left=0,
    )


def _errors(summary: Summary) -> Iterator[str]:
    if not summary["errors"]:
        yield html.paragraph("None.")
        return
    yield figures.errors(summary)
    rows = [
        (
            row["name"],
            row["api"],
            _mark(row["ordinary"], "ordinary", "unexpected"),
            str(row["code"]),
            number(row["requests"]),
        )
        for row in summary["errors"]
    ]
    yield html.table(("error", "API", "", "code", "answers"), rows, left=3)


def _brokers(summary: Summary) -> html.Markup:
    rows = [
        (broker(row["broker"]), number(row["requests"]), share(row["share"]), number(row["groups"]))
        for row in summary["brokers"]
    ]
    return html.table(("broker", "requests", "share", "groups"), rows)


def _partitions(summary: Summary) -> Iterator[str]:
    found = summary["offsets_partitions"]
    yield html.paragraph(
        f"The most loaded of {found['count']} has {times(found['requests_skew'])} its even share of requests, "
        f"and {times(found['groups_skew'])} that of groups.",
        "faint",
    )
    yield figures.offsets_partitions(summary)
    rows: Iterable[tuple[str, ...]] = (
        (str(row["partition"]), broker(row["broker"]), number(row["groups"]), number(row["requests"]))
        for row in found["partitions"]
    )
    yield html.folded("All of them", html.table(("partition", "broker", "groups", "requests"), rows))


def _slowest(summary: Summary) -> html.Markup:
    rows = [
        (
            row["group"],
            row["population"] or "",
            number(row["members"]),
            number(row["generations"]),
            ms(row["longest_rebalance_ms"]),
            number(row["unassigned_member_s"]),
        )
        for row in summary["slowest_groups"]
    ]
    columns = ("group", "population", "members", "generations", "longest rebalance ms", "unassigned member-s")
    return html.table(columns, rows, left=2)


def _lookups(summary: Summary) -> html.Markup:
    rows = [
        (row["api"], number(row["requests"]), number(row["keys"]), number(row["most_in_one_request"]))
        for row in summary["lookups"]
    ]
    return html.table(("API", "requests", "groups asked about", "most in one request"), rows)


def _mark(good: bool, yes: str, no: str) -> html.Markup:
    return html.marked(yes, "faint" if yes == "ordinary" and good else "good") if good else html.marked(no, "bad")
