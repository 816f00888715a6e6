"""Measures the replay: its members over TCP, real clients with the same workload, and members in memory.

    make bench-replay        or    python -m tests.bench.replay

Prints a table and writes bench-results/replay.json. Everything is measured in the same run, one after the other, each
in its own process. Absolute numbers depend on the machine; compare the ratios. The exit status does not depend on
results.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from rich.console import Console
from rich.table import Table

from fakebroker.replay.embedded_cluster import embedded_cluster
from fakebroker.replay.target_cluster import ready_topics
from fakebroker.replay.workload.workload import Cluster
from tests.bench.players import COMMIT_MS, GROUP_SIZE, HEAD_START_S, HEARTBEAT_MS, TOPIC

SEED = 1
OUT = Path("bench-results/replay.json")
CLUSTER = Cluster(brokers=2, config={"group.initial.rebalance.delay.ms": 0})
OUR_CLIENTS, REAL_CLIENTS = "swarm", ("confluent-kafka", "aiokafka")
LANES = {"own connections": None, "two lanes": 2}
"""Connections that members in closed loop share, per broker; None for one per member."""

Played = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of the benchmark.

    Attributes:
        swarm: Number of members over TCP in open loop.
        real: Number of real clients.
        closed: Number of members of each process in closed loop.
        simulated: Number of members in memory.
        seconds: How long each member over TCP stays.
        ramp_s: Time in which members over TCP join.
        simulated_s: How long each member in memory stays, in virtual time.
    """

    swarm: int = 8_000
    real: int = 200
    closed: int = 1_000
    simulated: int = 5_000
    seconds: float = 20
    ramp_s: float = 15
    simulated_s: float = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table.

    Attributes:
        aim: Minimum target; None if there is none.
    """

    what: str
    measured: float
    unit: str
    aim: float | None = None

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return ""
        return "reached" if self.measured >= self.aim else "MISSED"


def started(way: str, task: Mapping[str, Any]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.bench.players", way, json.dumps(task)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def finished(process: "subprocess.Popen[str]") -> Played:
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    told: Played = json.loads(out)
    assert not told["errors"], f"{told['errors']:.0f} requests failed: {errors}"
    return told


@contextmanager
def served() -> Iterator[str]:
    """Run a cluster in its own process; yields its bootstrap servers."""
    with (
        tempfile.TemporaryDirectory() as directory,
        embedded_cluster(CLUSTER, SEED, Path(directory)) as cluster,
    ):
        trio.run(ready_topics, cluster.bootstrap, {TOPIC: GROUP_SIZE})
        yield cluster.bootstrap


def in_closed_loop(bootstrap: str, connected: str, size: Size) -> list[Played]:
    """Run two processes whose members send a request as soon as the last one is answered."""
    task = {"bootstrap": bootstrap, "members": size.closed, "seconds": size.seconds / 2, "ramp_s": 1}
    task |= {"closed_loop": True, "lanes": LANES[connected], "waits": True}
    processes = [started(OUR_CLIENTS, {**task, "prefix": f"{connected}-{side}"}) for side in ("a", "b")]
    for process in processes:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said == "ready\n", process.communicate()[1]
    start_s = time.time() + HEAD_START_S
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{start_s}\n")
        process.stdin.flush()
    return [finished(process) for process in processes]


def in_open_loop(bootstrap: str, way: str, members: int, size: Size) -> Played:
    times = {"seconds": size.seconds, "ramp_s": size.ramp_s}
    return finished(started(way, {"bootstrap": bootstrap, "members": members, "prefix": way, **times}))


def in_memory(size: Size) -> Played:
    task = {"members": size.simulated, "seconds": size.simulated_s, "ramp_s": 60, "commit_ms": 60_000}
    return finished(started("simulation", task))


def measure(size: Size, tell: Callable[[str], None]) -> dict[str, list[Played]]:
    """Run all measurements; return the results of their processes, by name."""
    with served() as bootstrap:
        results = {}
        for connected in LANES:
            tell(f"two processes in closed loop, {connected}")
            results[connected] = in_closed_loop(bootstrap, connected, size)
        for way in (OUR_CLIENTS, *REAL_CLIENTS):
            members = size.swarm if way == OUR_CLIENTS else size.real
            tell(f"{members:,} members of {way}")
            results[way] = [in_open_loop(bootstrap, way, members, size)]
    tell(f"{size.simulated:,} members in memory")
    results["memory"] = [in_memory(size)]
    return results


def per_member(played: Played, what: str) -> float:
    return max(played[what], 1e-3) / played["members"]


def of_closed_loop(connected: str, processes: Sequence[Played], aim: float | None) -> list[Figure]:
    requests = sum(played["requests"] for played in processes)
    per_s = sum(played["requests"] / played["seconds"] for played in processes)
    cpu_us = 1e6 * sum(played["cpu_s"] for played in processes) / requests
    return [
        Figure(what=f"recorded in closed loop, {connected}", measured=per_s, unit="requests/s", aim=aim),
        Figure(what="CPU of one of these, without the cluster's", measured=cpu_us, unit="us"),
    ]


def figures(results: Mapping[str, list[Played]]) -> list[Figure]:
    """Return the rows of the table."""
    [ours], [simulated] = results[OUR_CLIENTS], results["memory"]
    lines: list[Figure] = []
    for connected, lanes in LANES.items():
        lines += of_closed_loop(connected, results[connected], None if lanes is None else 40_000)
    per_s = simulated["requests"] / simulated["cpu_s"]
    lines.append(Figure(what="simulated on one core", measured=per_s, unit="requests/s", aim=150_000))
    for way in (OUR_CLIENTS, *REAL_CLIENTS):
        [played] = results[way]
        cpu_s, kib = (per_member(played, what) * 1000 for what in ("cpu_s", "memory_kib"))
        lines.append(Figure(what=f"CPU of 1,000 members: {way}", measured=cpu_s, unit="s"))
        lines.append(Figure(what=f"memory of 1,000 members: {way}", measured=kib / 1024, unit="MiB"))
    for what, unit in (("cpu_s", "CPU"), ("memory_kib", "memory")):
        best = min(per_member(results[way][0], what) for way in REAL_CLIENTS)
        ratio = best / per_member(ours, what)
        lines.append(Figure(what=f"{unit} of the best real client to ours", measured=ratio, unit="times", aim=20))
    return lines


def show(lines: list[Figure], size: Size, console: Console) -> None:
    table = Table(
        title=f"heartbeats every {HEARTBEAT_MS} ms, commits every {COMMIT_MS} ms, {size.seconds:g} s, seed {SEED}",
        caption=f"load of the machine in the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    )
    for column in ("measured", "value", "unit", "aim", ""):
        table.add_column(column, justify="right" if column in ("value", "aim") else "left")
    for line in lines:
        digits = 0 if line.measured >= 1_000 else 2
        aim = "" if line.aim is None else f"{line.aim:,.0f}"
        table.add_row(line.what, f"{line.measured:,.{digits}f}", line.unit, aim, line.verdict)
    console.print(table)


def write(lines: list[Figure], results: Mapping[str, list[Played]], out: Path) -> None:
    told = [
        {"what": line.what, "measured": line.measured, "unit": line.unit, "aim": line.aim, "verdict": line.verdict}
        for line in lines
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"seed": SEED, "figures": told, "played": results}, indent=2) + "\n")


def main(size: Size = Size(), out: Path = OUT) -> None:
    console = Console()
    with console.status("") as status:
        results = measure(size, lambda what: status.update(f"measuring {what}"))
    lines = figures(results)
    show(lines, size, console)
    write(lines, results, out)
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
