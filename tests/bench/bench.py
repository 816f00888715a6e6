"""Compares fakebroker with librdkafka's mock cluster: both in the same run, alternating; prints medians.

    make bench        or    python -m tests.bench.bench [--rounds N] [--seconds S]

Prints a table and writes bench-results/bench.json. The server runs on one core and the load on another.
Absolute numbers depend on the machine; compare the ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fakebroker import FakeCluster
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from tests.bench.load import joined_members
from tests.support.wire_client import WireClient, find_coordinator

CONNECTIONS = 100
MEMBERS = 5_000
TARGET_RATIO = 0.7
OUT = Path("bench-results/bench.json")

OURS = [sys.executable, "-m", "fakebroker", "serve", "--brokers", "1", "--port", "0"]
OURS += ["--config", "group.initial.rebalance.delay.ms=0"]
MOCK = """
import sys
from confluent_kafka.admin import AdminClient
admin = AdminClient({"test.mock.num.brokers": 1, "log_level": 0})
print(f"mock=127.0.0.1:{admin.list_topics(timeout=10).brokers[1].port}", flush=True)
sys.stdin.read()
"""
SERVERS = {"fakebroker": OURS, "librdkafka mock": [sys.executable, "-c", MOCK]}

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def pin(core: int) -> None:
    """Pin this process to a core, if the machine has more than one."""
    if len(CORES) > 1:
        os.sched_setaffinity(0, {CORES[core]})


def load(port: int, seconds: float) -> dict[str, float]:
    """Run the heartbeat load on the second core."""
    command = [sys.executable, "-m", "tests.bench.load", str(port), str(CONNECTIONS), str(seconds)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=lambda: pin(1)).stdout
    result: dict[str, float] = json.loads(out)
    assert result["errors"] == 0, f"{result['errors']:.0f} heartbeats failed"
    return result


@contextmanager
def running(name: str) -> Iterator[tuple[int, int]]:
    """Run a server as a process on the first core; yields its process id and its port."""
    process = subprocess.Popen(
        SERVERS[name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: pin(0),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline().strip().rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def heartbeats(name: str, seconds: float) -> dict[str, float]:
    with running(name) as (_, port):
        return load(port, seconds)


def fake_cluster_start_s() -> float:
    started = time.perf_counter()
    with FakeCluster() as cluster:
        with WireClient(cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        return time.perf_counter() - started


def mock_start_s() -> float:
    from confluent_kafka.admin import AdminClient

    started = time.perf_counter()
    admin = AdminClient({"test.mock.num.brokers": 3, "log_level": 0})
    admin.list_topics(timeout=10)
    return time.perf_counter() - started


def rss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"no VmRSS of process {pid}")


def memory() -> dict[str, float]:
    """Return the memory of fakebroker with many members, which take too long to join the mock cluster."""
    with running("fakebroker") as (pid, port):
        idle = rss_kib(pid)
        members = joined_members(port, MEMBERS)
        full = rss_kib(pid)
        for member in members:
            member.socket.close()
    return {"idle_mib": idle / 1024, "full_mib": full / 1024, "kib_per_member": (full - idle) / MEMBERS}


def against_the_mock(rounds: int, seconds: float, console: Console) -> dict[str, dict[str, float]]:
    """Return the medians of the rounds, by server."""
    beats: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    starts: dict[str, list[float]] = {name: [] for name in SERVERS}
    with console.status("measuring") as status:
        for number in range(rounds):
            for name in SERVERS:
                status.update(f"round {number + 1} of {rounds}: heartbeats at {name}")
                beats[name].append(heartbeats(name, seconds))
            for _ in range(5):
                starts["fakebroker"].append(fake_cluster_start_s())
                starts["librdkafka mock"].append(mock_start_s())
    return {
        name: {
            "heartbeats_per_s": statistics.median(one["requests_per_s"] for one in beats[name]),
            "heartbeat_p50_us": statistics.median(one["p50_us"] for one in beats[name]),
            "heartbeat_p99_us": statistics.median(one["p99_us"] for one in beats[name]),
            "start_ms": statistics.median(starts[name]) * 1000,
        }
        for name in SERVERS
    }


def show(results: dict[str, dict[str, float]], console: Console) -> None:
    ours, mock = results["fakebroker"], results["librdkafka mock"]
    table = Table(title=f"{CONNECTIONS} connections, one heartbeat in flight each")
    for column in ("measured", *results, "ratio"):
        table.add_column(column, justify="left" if column == "measured" else "right")
    for metric in ours:
        table.add_row(metric, f"{ours[metric]:,.1f}", f"{mock[metric]:,.1f}", f"{ours[metric] / mock[metric]:.2f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure fakebroker against librdkafka's mock cluster.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    console = Console()
    results = against_the_mock(arguments.rounds, arguments.seconds, console)
    show(results, console)
    used = memory()
    console.print(
        f"memory: {used['idle_mib']:.0f} MiB idle, {used['full_mib']:.0f} MiB with {MEMBERS} connected members, "
        f"{used['kib_per_member']:.1f} KiB each"
    )
    ratio = results["fakebroker"]["heartbeats_per_s"] / results["librdkafka mock"]["heartbeats_per_s"]
    verdict = "reached" if ratio >= TARGET_RATIO else "MISSED"
    console.print(f"heartbeat ratio {ratio:.2f}, target {TARGET_RATIO}: {verdict}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(
        json.dumps({"ratio": ratio, "target": TARGET_RATIO, "results": results, "memory": used}, indent=2) + "\n"
    )
    console.print(f"written to {OUT}")


if __name__ == "__main__":
    main()
