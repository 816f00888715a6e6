"""How long a start with a data directory of many groups takes, each with one member and one offset.

    python -m tests.bench.restart [--groups 1000000] [--kill]

Prints one line of JSON: the size of the directory, and until a coordinator answers an OffsetFetch the wall-clock
and CPU time of `fakebroker serve`, and its memory then.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fakebroker import FakeCluster
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tests.bench.processes import resident_bytes
from tests.support.wire_client import WireClient

AT_ONCE = 20_000
OFFSET = 5


class _Address:
    """Where a broker listens."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--kill", action="store_true", help="kill the process that makes the groups")
    parser.add_argument("--make", metavar="DIR", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        _make_groups(arguments.make, arguments.groups, is_killed=arguments.kill)
        return
    with tempfile.TemporaryDirectory() as parent:
        directory = str(Path(parent) / "data")
        kill = ["--kill"] if arguments.kill else []
        made = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.bench.restart",
                "--groups",
                str(arguments.groups),
                "--make",
                directory,
                *kill,
            ],
            check=False,
        )
        assert made.returncode == (-signal.SIGKILL if arguments.kill else 0)
        size_bytes = sum(file.stat().st_size for file in Path(directory).iterdir())
        print(
            json.dumps(
                {"groups": arguments.groups, "directory_bytes": size_bytes, **_start(directory, arguments.groups)}
            )
        )


def _make_groups(directory: str, count: int, *, is_killed: bool) -> None:
    with FakeCluster(topics={"orders": 6}, data_dir=directory) as cluster:
        cluster.topic("orders").produce([b""] * 10, partition=0)
        for start in range(0, count, AT_ONCE):
            cluster.seed_groups(
                [
                    {"group_id": f"group-{n:07}", "members": 1, "topics": ["orders"], "offsets": {"orders-0": OFFSET}}
                    for n in range(start, min(start + AT_ONCE, count))
                ]
            )
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)


def _start(directory: str, count: int) -> dict[str, float]:
    """Start `fakebroker serve` with a directory, and measure until the last group's offset is read."""
    started_s = time.monotonic()
    command = [sys.executable, "-m", "fakebroker", "serve", "--port", "0", "--data-dir", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline().partition("=")[2].partition(",")[0]
            listening_s = time.monotonic() - started_s
            host, _, port = first.rpartition(":")
            _fetch_offset(_Address(host, int(port)), f"group-{count - 1:07}")
            answered_s = time.monotonic() - started_s
            ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            cpu_s = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
            memory_bytes = resident_bytes(process.pid)
        finally:
            process.terminate()
    return {"listening_s": listening_s, "answered_s": answered_s, "cpu_s": cpu_s, "memory_bytes": memory_bytes}


def _fetch_offset(broker: _Address, group_id: str) -> None:
    with WireClient(broker) as wire:
        found = wire.ask(FindCoordinatorRequest(coordinator_keys=[group_id]), FindCoordinatorResponse).coordinators[0]
    request = OffsetFetchRequest(
        group_id=group_id, topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    )
    with WireClient(_Address(found.host, found.port)) as wire:
        response = wire.ask(request, OffsetFetchResponse, 7)
    assert response.error_code == 0
    assert response.topics[0].partitions[0].committed_offset == OFFSET


if __name__ == "__main__":
    main()
