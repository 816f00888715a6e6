"""Cost of the control API for brokers with many groups: heartbeats without it, with it, and while it is used.

    python -m tests.bench.control [--rounds N] [--seconds S]

Brokers and control API run on the first core, all load on the second one. The speed of a shared machine varies by
more than the difference to be measured. So rounds are short and contain every setting, the result is the median of
the rounds, and rounds in which other virtual machines took CPU time (steal time) are discarded. `control_pauses`
measures the latency of single heartbeats during long operations. `make bench-control` runs both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tests.bench.load import Load
from tests.bench.processes import pin
from tests.bench.servers import OURS
from tests.support.wire_client import WireClient

CALLS_PER_S = 20
CONNECTIONS = 100
GROUPS = 10_000
MEMBERS = [{"session_timeout_ms": 1_800_000}] * 2
"""Members of each group; they send nothing, and have long sessions."""
STREAMS = 5
MOST_LOST = 0.1
OUT = Path("bench-results/control.json")
MOST_STOLEN = 0.02
MOST_ATTEMPTS = 3
"""Maximum number of attempts per round."""
PROCESSES = 2
"""Pairs of servers: memory layout and hash seeds differ between processes, and affect the speed."""
START_S = 0.3
"""Time after which the control load has started."""
SETTINGS = ("without control", "with control", "controlled")
Round = dict[str, dict[str, float]]
"""Measurements by setting."""


@contextmanager
def serving(*, with_control: bool) -> Iterator[tuple[int, int]]:
    """Run a server; yields its port, and that of its control API or 0."""
    command = [*OURS, "--events", *(["--control", "127.0.0.1:0"] if with_control else [])]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, preexec_fn=lambda: pin(0)
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        ports = [int(process.stdout.readline().strip().rpartition(":")[2]) for _ in range(1 + with_control)]
        _seed(process.stdin, ports[0])
        yield ports[0], ports[1] if with_control else 0
    finally:
        process.terminate()
        process.communicate()


def _seed(events: IO[str], port: int) -> None:
    """Seed groups, which make listing and sorting expensive."""
    for number in range(GROUPS):
        event = {"do": "group.seed", "group_id": f"group-{number:05}", "members": MEMBERS}
        events.write(json.dumps(event) + "\n")
    events.flush()
    last = DescribeGroupsRequest(groups=[f"group-{GROUPS - 1:05}"])
    with WireClient(BrokerView(1, "127.0.0.1", port, up=True)) as wire:
        while wire.ask(last, DescribeGroupsResponse).groups[0].group_state == "Dead":
            time.sleep(0.05)


class LoadProcess:
    """A process on the second core that produces load for the number of seconds in each line of its stdin.

    Args:
        arguments: Arguments of the Python interpreter.
    """

    def __init__(self, *arguments: str) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, *arguments], stdin=pipe, stdout=pipe, text=True)

    def begin(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        """Wait until it has finished, and return its measurements."""
        assert self._process.stdout is not None
        result: dict[str, float] = json.loads(self._process.stdout.readline())
        return result

    def __enter__(self) -> "LoadProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def measure(seconds: float, load: Load, other: LoadProcess | None) -> dict[str, float]:
    """Measure heartbeats, while another process produces load or not."""
    if other is not None:
        other.begin(START_S + seconds)
    load.run(START_S)
    stolen_s = _stolen_s()
    found = load.run(seconds)
    found["stolen"] = (_stolen_s() - stolen_s) / seconds / (os.cpu_count() or 1)
    assert found.pop("errors") == 0, "heartbeats failed"
    return found | (other.end() if other is not None else {})


def _stolen_s() -> float:
    """Return the steal time since boot: seconds that other virtual machines used; 0 if it is unknown."""
    try:
        with open("/proc/stat") as stat:
            return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def rounds_of(count: int, seconds: float, progress: Progress) -> list[Round]:
    """Run rounds with two servers; each has all settings, in rotating order."""
    task = progress.task_ids[0]
    found: list[Round] = []
    with ExitStack() as stack:
        port, _ = stack.enter_context(serving(with_control=False))
        controlled_port, control_port = stack.enter_context(serving(with_control=True))
        plain = stack.enter_context(Load(port, CONNECTIONS))
        controlled = stack.enter_context(Load(controlled_port, CONNECTIONS))
        asking = stack.enter_context(
            LoadProcess("-m", "tests.bench.control_load", *map(str, (control_port, CALLS_PER_S, STREAMS)))
        )
        work = [(plain, None), (controlled, None), (controlled, asking)]
        settings = dict(zip(SETTINGS, work, strict=True))
        for attempt in range(count * MOST_ATTEMPTS):
            first = attempt % len(SETTINGS)
            order = SETTINGS[first:] + SETTINGS[:first]
            one = {setting: measure(seconds, *settings[setting]) for setting in order}
            if max(result["stolen"] for result in one.values()) <= MOST_STOLEN:
                found.append(one)
                progress.advance(task)
            if len(found) == count:
                break
    return found


class Lost(NamedTuple):
    """Share of heartbeats that is lost: the median of the rounds with its 95 % confidence interval."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, results: list[Round], setting: str) -> "Lost":
        losses = sorted(1 - one[setting]["requests_per_s"] / one[SETTINGS[0]]["requests_per_s"] for one in results)
        # The number of rounds below the true median has a binomial distribution.
        apart = round(0.98 * len(losses) ** 0.5)
        middle = len(losses) // 2
        return cls(
            losses[max(0, middle - apart)], statistics.median(losses), losses[min(middle + apart, len(losses) - 1)]
        )

    def __str__(self) -> str:
        return f"{self.median:.1%} ({self.least:.1%} to {self.most:.1%})"


def show(results: list[Round], console: Console) -> None:
    title = f"heartbeats beside {GROUPS:,} groups; control answers {CALLS_PER_S} calls/s and feeds {STREAMS} streams"
    table = Table(title=f"{title}; medians of {len(results)} rounds")
    table.add_column("measured", no_wrap=True)
    for setting in SETTINGS:
        table.add_column(setting, justify="right")
    for metric in results[0]["controlled"]:
        form = ".1%" if metric == "stolen" else ",.1f"
        table.add_row(metric, *(_median(results, setting, metric, form) for setting in SETTINGS))
    table.add_row("lost", "", *(str(Lost.of(results, setting)) for setting in SETTINGS[1:]))
    console.print(table)
    lost = Lost.of(results, "controlled")
    was_asked = all(one["controlled"]["calls_per_s"] > 0.95 * CALLS_PER_S for one in results)
    verdict = "reached" if lost.median < MOST_LOST and was_asked else "MISSED"
    console.print(f"heartbeats lost to control: {lost}, target below {MOST_LOST:.0%}: {verdict}")


def _median(results: list[Round], setting: str, metric: str, form: str) -> str:
    values = [one[setting][metric] for one in results if metric in one[setting]]
    return format(statistics.median(values), form) if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what control over HTTP costs the brokers.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.7)
    arguments = parser.parse_args()
    pin(1)
    console = Console()
    with Progress(console=console) as progress:
        progress.add_task("heartbeats in all settings", total=arguments.rounds)
        counts = [(arguments.rounds + each) // PROCESSES for each in range(PROCESSES)]
        results = [one for count in counts if count for one in rounds_of(count, arguments.seconds, progress)]
    if not results:
        raise SystemExit("nothing was measured: other machines on this hardware disturbed every round")
    show(results, console)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"written to {OUT}")


if __name__ == "__main__":
    main()
