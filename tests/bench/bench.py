"""Measures fakebroker, a C echo of the same frames and librdkafka's mock cluster in the same run, alternating.

    make bench        or    python -m tests.bench.bench [--rounds N] [--seconds S] [--workload NAME ...] [--record]

Servers run on one core and the load on another. Prints tables and writes bench-results/bench.json. Absolute numbers
depend on the machine and on what else it does; compare ratios. The exit status is 1 if a ratio is more than 15 %
below the recorded one, in this run and in the run before. `--record` replaces the recorded results of this processor
by those of this run; then `make rewrite` writes them into scenarios/performance.md.
"""

import argparse
import datetime
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import big_groups, consumer_groups, footprint, simulated
from tests.bench.figures import Figure, shown
from tests.bench.guard import falls
from tests.bench.loads import FAKEBROKER, Result, medians, ratios, running_loads
from tests.bench.machine import OtherLoad, machine
from tests.bench.parts import PARTS
from tests.bench.processes import rows_of
from tests.bench.workloads import HEARTBEATS, WORKLOADS

OUT = Path("bench-results")
RESULTS = OUT / "bench.json"
RECORDED = Path(__file__).parent / "recorded"
"""A file for each processor: C and Python do not gain equally from a faster one, so their ratio depends on it, too."""
MOST_OTHERS = 0.1
"""Share of the CPU time that other processes may use while results are recorded."""
PLOT = Path("scenarios/performance/rebalances.svg")

Run = dict[str, Any]
"""The results of a run, as in bench.json.

`others` is the share of the CPU time of all cores that other processes used. `loads` has results by server and load,
`parts` microseconds by workload, `groups` the rebalances by size, `ratios` what must not fall.
"""


def measure(rounds: int, seconds: float, names: Sequence[str], console: Console) -> Run:
    """Run the loads with some names and return the results; without names all loads, and everything else."""
    workloads = [workload for workload in WORKLOADS if not names or workload.name in names]
    others = OtherLoad()
    with console.status("preparing") as status:
        with running_loads(OUT / "loads", workloads) as loads:
            found = [loads.round(seconds, status.update) for _ in range(rounds)]
        results, figures = medians(found), ratios(found)
        status.update("parts of requests")
        parts = rows_of("tests.bench.parts", *(workload.name for workload in workloads if names))
        groups: list[big_groups.Row] = []
        if not names:
            status.update("rebalances of big groups")
            groups = big_groups.measure()
            heartbeat_us = results[FAKEBROKER][HEARTBEATS.name]["cpu_us"]
            figures += big_groups.figures(groups, heartbeat_us)
            big_groups.plot(groups, OUT / PLOT.name)
            status.update("consumer groups")
            figures += consumer_groups.figures(consumer_groups.measure())
            status.update("imports, starts, memory")
            figures += footprint.figures(footprint.measure())
            status.update("simulation")
            figures += simulated.figures(simulated.measure(), heartbeat_us)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "others": round(others.share(), 3),
        "loads": results,
        "parts": {row.pop("workload"): row for row in parts},
        "groups": groups,
        "figures": [asdict(figure) for figure in figures],
        "ratios": {figure.name: figure.measured for figure in figures if figure.name},
    }


def show(run: Run, console: Console) -> None:
    console.print(_loads_table(run["loads"]))
    console.print(_parts_table(run["parts"]))
    console.print(_figures_table([Figure(**figure) for figure in run["figures"]]))
    console.print(f"Other processes used {run['others']:.0%} of the CPU time of all cores meanwhile.")


def _loads_table(results: Mapping[str, Mapping[str, Result]]) -> Table:
    table = Table(title="units of work per second, and microseconds of the server's CPU time for one")
    table.add_column("load")
    for server in results:
        table.add_column(server, justify="right")
    for workload in WORKLOADS:
        cells = [one.get(workload.name) for one in results.values()]
        if any(cells):
            told = ("" if one is None else f"{shown(one['per_s'])}/s  {shown(one['cpu_us'])} us" for one in cells)
            table.add_row(f"{workload.what} ({workload.unit})", *told)
    return table


def _parts_table(parts: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(title="microseconds of CPU time without sockets, for one unit of work")
    for column in ("load", *PARTS):
        table.add_column(column, justify="left" if column == "load" else "right")
    for workload in WORKLOADS:
        if workload.name in parts:
            table.add_row(workload.what, *(shown(parts[workload.name][part]) for part in PARTS))
    return table


def _figures_table(figures: Sequence[Figure]) -> Table:
    table = Table()
    for column in ("measured", "value", "unit", "aim", ""):
        table.add_column(column, justify="right" if column in ("value", "aim") else "left")
    for one in figures:
        table.add_row(one.what, one.value, one.unit, one.shown_aim, one.verdict)
    return table


def check(run: Run, before: Run, recorded: Run, console: Console) -> bool:
    """Print ratios that have fallen; return whether one has in two runs in a row.

    Args:
        run: The results of this run.
        before: Those of the run before; empty if there are none.
        recorded: Those that were recorded on this processor; empty if there are none.
        console: Where to print.
    """
    if not recorded:
        console.print(
            f"[bold red]NOT COMPARED[/] No results are recorded for this processor, {run['machine']['cpu']}, and "
            "ratios depend on it: record them with --record."
        )
        return False
    found = falls(run["ratios"], before.get("ratios", {}), recorded["ratios"])
    regressions = [fall for fall in found if fall.is_regression]
    for title, lines in (("FAILED", regressions), ("WARNING", [fall for fall in found if fall not in regressions])):
        for line in lines:
            console.print(f"[bold red]{title}[/] {line}")
    if found:
        told = f"Other processes used {run['others']:.0%} of the CPU time now, {recorded['others']:.0%} when recorded."
        console.print(f"{told} If that differs much, repeat it on an idle machine.")
    if found and run["machine"] != recorded["machine"]:
        console.print(f"The ratios were recorded on {recorded['date']} on another machine: {recorded['machine']}")
    return bool(regressions)


def recorded_file(cpu: str) -> Path:
    """Return the file with the results that were recorded on a processor."""
    return RECORDED / f"{re.sub('[^a-z0-9]+', '-', cpu.lower()).strip('-')}.json"


def recorded_runs() -> list[Run]:
    """Return the recorded results of all processors, the newest first."""
    return sorted(map(_read, sorted(RECORDED.glob("*.json"))), key=lambda run: str(run["date"]), reverse=True)


def _read(path: Path) -> Run:
    run: Run = json.loads(path.read_text()) if path.exists() else {}
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure fakebroker, an echo in C and librdkafka's mock cluster.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.7, help="of each load in a round")
    parser.add_argument(
        "--workload", action="append", choices=[workload.name for workload in WORKLOADS], help="only these; repeatable"
    )
    parser.add_argument("--record", action="store_true", help="replace the recorded results of this processor")
    arguments = parser.parse_args()
    if arguments.record and arguments.workload:
        parser.error("--record: expected no --workload, because all results are recorded")
    console = Console()
    try:
        run = measure(arguments.rounds, arguments.seconds, arguments.workload or [], console)
    except RuntimeError as error:
        raise SystemExit(str(error)) from error
    show(run, console)
    before, path = _read(RESULTS), recorded_file(run["machine"]["cpu"])
    if arguments.record:
        if run["others"] > MOST_OTHERS:
            console.print("[bold red]WARNING[/] recorded on a busy machine: record again when it is idle")
        path.write_text(json.dumps(run, indent=1) + "\n")
        PLOT.parent.mkdir(exist_ok=True)
        shutil.copy(OUT / PLOT.name, PLOT)
        console.print(f"written to {path}; `make rewrite` updates scenarios/performance.md")
        has_failed = False
    else:
        has_failed = check(run, before, _read(path), console)
    RESULTS.write_text(json.dumps(run | {"ratios": before.get("ratios", {}) | run["ratios"]}, indent=1) + "\n")
    console.print(f"written to {RESULTS}")
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
