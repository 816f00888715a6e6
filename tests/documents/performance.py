"""The tables of `scenarios/performance.md`, from the results that `make bench` has recorded last."""

import json
from collections.abc import Mapping
from typing import Any

from tests.bench.bench import RECORDED
from tests.bench.figures import Figure, shown
from tests.bench.loads import ECHO, FAKEBROKER, Result
from tests.bench.parts import PARTS
from tests.bench.workloads import WORKLOADS
from tests.documents.markdown import table


def _recorded() -> dict[str, Any]:
    run: dict[str, Any] = json.loads(RECORDED.read_text())
    return run


def machine() -> str:
    """Return date and machine of the results."""
    run = _recorded()
    of = run["machine"]
    return (
        f"Recorded {run['date']} on {of['cpu']}, {of['cores']} cores, {of['system']}, Python {of['python']}.\n"
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
    figures = [Figure(**figure) for figure in _recorded()["figures"]]
    rows = [(one.what, f"{one.value} {one.unit}", one.shown_aim, one.verdict.lower()) for one in figures]
    return table(("measured", "value", "aim", ""), rows)
