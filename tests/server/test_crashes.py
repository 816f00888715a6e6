"""A process of `fakebroker serve --data-dir` is killed under load: what it acknowledged is there after a restart."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore
from typing import NamedTuple

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.support.crash_loads import (
    RECORDS,
    TRANSACTIONS,
    Commits,
    Load,
    Metadata,
    Records,
    StaticMembers,
    Transactions,
)
from tests.support.crash_setting_loads import ConsumerGroups, Settings
from tests.support.soak import cases, soak
from tests.support.wire_client import TIMEOUT_S, WireClient

pytestmark = pytest.mark.slow

OPTIONS = [
    *("--port", "0", "--brokers", "1", "--topic", f"{RECORDS}:1", "--topic", f"{TRANSACTIONS}:1"),
    *("--config", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    *("--config", "super.users=User:ANONYMOUS"),
    *("--config", "group.initial.rebalance.delay.ms=0"),
    *("--config", "offsets.topic.num.partitions=4"),
    *("--config", "transaction.state.log.num.partitions=4"),
    *("--config", "fakebroker.partition.max.bytes=1000000000"),  # All records are read after each restart.
]
MOST_ACKNOWLEDGED = 1_500
"""The process is killed after at most this number of acknowledged operations."""


class Address(NamedTuple):
    """Where the broker listens."""

    host: str
    port: int


@contextmanager
def served(directory: Path, fsync: str) -> "Iterator[tuple[subprocess.Popen[str], Address]]":
    """Run a cluster with a data directory; it is killed at the end."""
    command = [sys.executable, "-m", "fakebroker", "serve", *OPTIONS, "--data-dir", str(directory), "--fsync", fsync]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline().strip()
            assert line.startswith("bootstrap.servers="), process.stderr.read()
            host, _, port = line.partition("=")[2].rpartition(":")
            yield process, Address(host, int(port))
        finally:
            process.kill()


def run_until_killed(load: Load, address: Address, acknowledged: Semaphore) -> None:
    """Run a load until its connection breaks."""
    try:
        with WireClient(address) as wire:
            while True:
                load.step(wire)
                acknowledged.release()
    except ConnectionError:
        return


def check(loads: Sequence[Load], address: Address) -> None:
    """Check the loads after a restart."""
    with WireClient(address) as wire:
        for key_type in (0, 1):  # As clients do first; it creates the topic of the coordinators.
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            found = wire.ask(request, FindCoordinatorResponse).coordinators[0]
            assert found.error_code == ErrorCode.NONE
        for load in loads:
            load.check(wire)


@soak
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    kinds: list[Callable[[random.Random], Load]] = [
        *(Commits, Records, Transactions, StaticMembers, Metadata, Settings, ConsumerGroups),
    ]
    loads = [kind(random.Random(number)) for number, kind in enumerate(kinds)]
    for seed in cases(3, soak=100):
        fsync = ("always", "interval")[seed % 2]
        with served(directory, fsync) as (process, address), ThreadPoolExecutor(len(loads)) as threads:
            check(loads, address)
            acknowledged = Semaphore(0)
            running = [threads.submit(run_until_killed, load, address, acknowledged) for load in loads]
            try:
                for _ in range(random.Random(seed).randrange(MOST_ACKNOWLEDGED)):
                    assert acknowledged.acquire(timeout=TIMEOUT_S), "no load continues"
            finally:
                process.kill()
            for each in running:
                each.result(TIMEOUT_S)
    with served(directory, "always") as (process, address):
        check(loads, address)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    with served(directory, "always") as (_, address):
        check(loads, address)
