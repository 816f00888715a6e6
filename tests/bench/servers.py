"""Servers of the benchmark as processes on the first core: fakebroker, librdkafka's mock cluster, the C echo."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.processes import SERVER_CORE, pin

PRODUCED, FETCHED, PARTITIONS = "produced", "fetched", 4
"""Topics, and the number of partitions of each. Four is the default of the mock cluster."""
CONFIG = {"group.initial.rebalance.delay.ms": 0}
OURS = [sys.executable, "-m", "fakebroker", "serve", "--brokers", "1", "--port", "0"]
OURS += [argument for key, value in CONFIG.items() for argument in ("--config", f"{key}={value}")]
OURS += [argument for topic in (PRODUCED, FETCHED) for argument in ("--topic", f"{topic}:{PARTITIONS}")]
_MOCK = """
import sys
from confluent_kafka.admin import AdminClient
admin = AdminClient({"test.mock.num.brokers": 1, "log_level": 0})
print(f"mock=127.0.0.1:{admin.list_topics(timeout=10).brokers[1].port}", flush=True)
sys.stdin.read()
"""
MOCK = [sys.executable, "-c", _MOCK]


@dataclass(frozen=True)
class Server:
    """A running server."""

    pid: int
    port: int


@contextmanager
def running(command: Sequence[str]) -> Iterator[Server]:
    """Run a server that prints a line with its address first.

    Raises:
        RuntimeError: It does not start.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: pin(SERVER_CORE),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"{command}: expected a line with an address, but the process has ended")
        yield Server(process.pid, int(address.rpartition(":")[2]))
    finally:
        process.kill()
        process.communicate()


def python_echo(responses: Path) -> list[str]:
    """Return the command of the echo server in Python."""
    return [sys.executable, "-m", "tests.bench.python_echo", str(responses)]


def echo(program: Path, responses: Path) -> list[str]:
    """Return the command of an echo server with the responses of a file."""
    return [str(program), str(responses)]
