"""Latency of heartbeats during long operations of the control API, with 100,000 groups and a full journal.

    python -m tests.bench.control_pauses [--rounds N]

The server runs on the first core. One client sends heartbeats and another calls the API, both on the second core. A
shared machine sometimes pauses for longer than the latencies to be measured. Therefore heartbeats are also measured
without calls, and the result is the median of the rounds' maximum latencies. `make bench-control` runs this as well.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.load import Load, LoadMember
from tests.bench.processes import pin
from tests.bench.servers import OURS

GROUPS = 100_000
AT_ONCE = 20_000
CALLS = 10_000
"""Number of calls in the journal."""
PERIOD_S = 0.002
TARGET_MS = 50.0
OUT = Path("bench-results/control_pauses.json")
BASE = "/v1/clusters/default"
LISTS = [f"GET {BASE}/groups?limit=1000", f"GET {BASE}/groups?sort=busy&search=7", f"GET {BASE}/group_views"]
OPERATIONS = {
    "nothing": ["sleep"],
    "lists of groups": ["change", *LISTS],
    "metrics": ["change", "GET /metrics"],
    "overview": ["change", f"GET {BASE}"],
    "export of a journal": [f"GET {BASE}/journal.jsonl"],
    "query of a journal": [f"GET {BASE}/journal?api=Heartbeat&error=UNKNOWN_MEMBER_ID&limit=1000"],
    f"seeding of {AT_ONCE:,} groups": ["seed"],
}

Round = dict[str, dict[str, float]]
"""Measurements by operation."""


class ControlClient:
    """Makes calls of the control API, in its own process.

    Args:
        port: Port of the control API.
    """

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._made = 0

    def call(self, what: str) -> None:
        if what == "sleep":
            time.sleep(0.5)
        elif what == "change":  # Invalidates cached counts.
            self._made += 1
            self._ask("POST", f"{BASE}/groups/change-{self._made}/seed", "{}")
        elif what == "seed":
            start = self._made
            self._made += AT_ONCE
            seeds = [
                {"group_id": f"group-{number * 7919 % 10**6:06}", "members": 1} for number in range(start, self._made)
            ]
            self._ask("POST", f"{BASE}/seed_groups", json.dumps({"groups": seeds}, separators=(",", ":")))
        else:
            self._ask(*what.split(" ", 1))

    def _ask(self, method: str, path: str, body: str | None = None) -> None:
        self._connection.request(method, path, body)
        with self._connection.getresponse() as response:
            while response.read(1 << 16):
                pass
            assert response.status < 300, response.status


class Probe(threading.Thread):
    """Sends heartbeats of one member, one after the other, and records their latencies in milliseconds."""

    def __init__(self, member: LoadMember) -> None:
        super().__init__(daemon=True)
        self._member = member
        self._is_over = False
        self.found_ms: list[float] = []

    def run(self) -> None:
        while not self._is_over:
            began_s = time.perf_counter()
            self._member.socket.sendall(self._member.heartbeat)
            self._member.receive()
            self.found_ms.append((time.perf_counter() - began_s) * 1000)
            time.sleep(PERIOD_S)

    def end(self) -> list[float]:
        self._is_over = True
        self.join()
        return sorted(self.found_ms)


@contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """Run a server on the first core; yields its port and that of its control API."""
    process = subprocess.Popen(
        [*OURS, "--control", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: pin(0),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        port, control = (int(process.stdout.readline().strip().rpartition(":")[2]) for _ in range(2))
        yield port, control
    finally:
        process.kill()
        process.communicate()


@contextmanager
def calling(port: int) -> Iterator["subprocess.Popen[str]"]:
    """Run a process that makes the calls in each line of its stdin."""
    command = [sys.executable, "-m", "tests.bench.control_pauses", "--calls", str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: "subprocess.Popen[str]", calls: list[str]) -> float:
    """Let the process make calls; return how many seconds they took."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(calls) + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def one_round() -> Round:
    """Run all operations on a new server."""
    with serving() as (port, control), calling(control) as caller:
        for _ in range(GROUPS // AT_ONCE - 1):
            ask(caller, ["seed"])
        with Load(port, 50) as load:
            load.run(0.5 + CALLS / 20_000)
            member = LoadMember(port, "probe")
            member.send_join()
            member.send_sync()
            member.receive()
            found: Round = {}
            for name, calls in reversed(OPERATIONS.items()):
                probe = Probe(member)
                probe.start()
                seconds = ask(caller, calls)
                latencies = probe.end()
                found[name] = {
                    "seconds": seconds,
                    "p99_ms": latencies[len(latencies) * 99 // 100],
                    "slowest_ms": latencies[-1],
                }
        return found


def measure(rounds: int, console: Console) -> bool:
    """Measure, print and write the results; return whether the target is reached."""
    with console.status("Heartbeats during long operations"):
        results = [one_round() for _ in range(rounds)]
    table = Table(title=f"Heartbeats with {GROUPS:,} groups, {rounds} rounds: ms")
    for column in ("operation", "takes", "p99", "slowest", "least", "most"):
        table.add_column(column, justify="left" if column == "operation" else "right")
    slowest: dict[str, float] = {}
    for name in OPERATIONS:
        of_rounds = [one[name] for one in results]
        rounds_ms = [one["slowest_ms"] for one in of_rounds]
        slowest[name] = statistics.median(rounds_ms)
        takes, p99 = (statistics.median(one[metric] for one in of_rounds) for metric in ("seconds", "p99_ms"))
        shown = (takes * 1000, p99, slowest[name], min(rounds_ms), max(rounds_ms))
        table.add_row(name, *(f"{value:,.1f}" for value in shown))
    console.print(table)
    is_reached = max(slowest.values()) < TARGET_MS
    verdict = "reached" if is_reached else "MISSED"
    console.print(f"slowest heartbeat: {max(slowest.values()):.1f} ms, target below {TARGET_MS:g} ms: {verdict}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(results, indent=2) + "\n")
    return is_reached


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the latency of heartbeats during long operations of the control API."
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, metavar="PORT", help="internal: make the calls on stdin to this port")
    arguments = parser.parse_args()
    if arguments.calls is None:
        pin(1)
        measure(arguments.rounds, Console())
        return
    caller = ControlClient(arguments.calls)
    for line in sys.stdin:
        began_s = time.perf_counter()
        for what in json.loads(line):
            caller.call(what)
        print(time.perf_counter() - began_s, flush=True)


if __name__ == "__main__":
    main()
