"""The tables of `scenarios/performance.md`, from the results that `make bench` has recorded last."""

from collections.abc import Mapping
from typing import Any

from tests.bench.bench import recorded_runs
from tests.bench.figures import Figure, shown
from tests.bench.loads import ECHO, FAKEBROKER, Result
from tests.bench.parts import PARTS
from tests.bench.workloads import WORKLOADS
from tests.documents.markdown import table


def _recorded() -> dict[str, Any]:
    return recorded_runs()[0]


def machine() -> str:
    """Return date and machine of the results."""
    return "\n".join(
        f"{'Recorded' if not number else 'Before that,'} {_about(run)}" for number, run in enumerate(recorded_runs())
    )


def _about(run: Mapping[str, Any]) -> str:
    of = run["machine"]
    return (
        f"{run['date']} on {of['cpu']}, {of['cores']} cores, {of['system']}, Python {of['python']}.\n"
        f"Other processes used {run['others']:.0%} of the CPU time of all cores meanwhile."
    )


def loads() -> str:
    results: Mapping[str, Mapping[str, Result]] = _recorded()["loads"]
    rows = []
    for workload in WORKLOADS:
        cells = [f"{workload.what} ({workload.unit})"]
        for of_server in results.values():
            found = of_server.get(workload.name)
            cells.append("" if found is None else f"{shown(found['per_s'])}/s, {shown(found['cpu_us'])} us")
        rows.append(tuple(cells))
    return table(("load", *results), rows)


def parts() -> str:
    """Return the CPU time of a server by part: the floor, the parts that are measured without sockets, and the rest."""
    run = _recorded()
    totals, floors = (run["loads"][server] for server in (FAKEBROKER, ECHO))
    rows = []
    for workload in WORKLOADS:
        if (of_parts := run["parts"].get(workload.name)) is None:
            continue
        total, floor = totals[workload.name]["cpu_us"], floors[workload.name]["cpu_us"]
        rest = total - floor - sum(of_parts.values())
        times = (total, floor, *(of_parts[part] for part in PARTS), max(0.0, rest))
        rows.append((f"{workload.what} ({workload.unit})", *map(shown, times)))
    return table(("load", "server", "floor", *PARTS, "rest"), rows)


def groups() -> str:
    rows = [
        (f"{row['members']:,}", shown(row["us_per_member"]), shown(row["join_us_per_member"]))
        for row in _recorded()["groups"]
    ]
    return table(("members of the group", "us a member", "until all have joined"), rows)


def ratios() -> str:
    """Return the figures of all processors; those of the newest results are first."""
    runs = recorded_runs()
    by_what = [{row["what"]: Figure(**row) for row in run["figures"]} for run in runs]
    rows = []
    for what, newest in by_what[0].items():
        found = [figures.get(what) for figures in by_what]
        cells = ["" if one is None else f"{one.value} {one.unit} {one.verdict.lower()}".strip() for one in found]
        rows.append((what, newest.shown_aim, *cells))
    return table(("measured", "aim", *(run["machine"]["cpu"] for run in runs)), rows)
