"""The tables of `scenarios/performance.md`, from the results that `make bench` has recorded last."""

import json
from collections.abc import Mapping
from typing import Any

from tests.bench.bench import RECORDED
from tests.bench.figures import Figure, shown
from tests.bench.loads import Result
from tests.bench.workloads import WORKLOADS
from tests.documents.markdown import table


def _recorded() -> dict[str, Any]:
    run: dict[str, Any] = json.loads(RECORDED.read_text())
    return run


def machine() -> str:
    """Return date and machine of the results."""
    run = _recorded()
    of = run["machine"]
    return f"Recorded {run['date']} on {of['cpu']}, {of['cores']} cores, {of['system']}, Python {of['python']}."


def loads() -> str:
    results: Mapping[str, Mapping[str, Result]] = _recorded()["loads"]
    header = ["load", *(f"{server}: {what}" for server in results for what in ("per second", "CPU"))]
    rows = []
    for workload in WORKLOADS:
        cells = [f"{workload.what} ({workload.unit})"]
        for of_server in results.values():
            found = of_server.get(workload.name)
            cells += ["", ""] if found is None else [shown(found["per_s"]), f"{shown(found['cpu_us'])} us"]
        rows.append(tuple(cells))
    return table(tuple(header), rows)


def ratios() -> str:
    figures = [Figure(**figure) for figure in _recorded()["figures"]]
    rows = [(one.what, f"{one.value} {one.unit}", one.shown_aim, one.verdict.lower()) for one in figures]
    return table(("measured", "value", "aim", ""), rows)
