"""A fake cluster in a process of its own, for as long as a replay needs one. Knows nothing of Spark."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from fakebroker.errors import FakebrokerError
from fakebroker.replay.workload.workload import Cluster

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.02
_READY = "bootstrap.servers="


class EmbeddedCluster:
    """A fake cluster that runs as a process.

    Attributes:
        bootstrap: Its bootstrap servers.
    """

    def __init__(self, bootstrap: str, process: subprocess.Popen[bytes], stdin: IO[bytes], log: Path) -> None:
        self.bootstrap = bootstrap
        self._process = process
        self._stdin = stdin
        self._log = log
        self._performed = 0

    @property
    def is_there(self) -> bool:
        """Whether its process has not ended."""
        return self._process.poll() is None

    def perform(self, event: Mapping[str, Any]) -> None:
        """Let it do something (see `fakebroker.cluster.events`); its log tells whether it could."""
        self._performed += 1
        with suppress(BrokenPipeError):  # it is gone, and the replay will say so
            self._stdin.write(json.dumps(event).encode() + b"\n")
            self._stdin.flush()

    def outcomes(self) -> list[str | None]:
        """What came of the events, in their order, as far as it is known: None if it was done, else why not."""
        give_up = time.monotonic() + _ANSWER_TIMEOUT_S
        while True:
            is_last_look = not self.is_there or time.monotonic() >= give_up
            found = re.findall(r" event (done|not done): (.*)", self._log.read_text(errors="replace"))
            if is_last_look or len(found) >= self._performed:
                return [None if outcome == "done" else why for outcome, why in found]
            time.sleep(_LOOK_EVERY_S)


@contextmanager
def embedded_cluster(
    cluster: Cluster, seed: int, directory: Path, speed: float = 1.0, host: str = "127.0.0.1"
) -> Iterator[EmbeddedCluster]:
    """Run `fakebroker serve`, and stop it at the end.

    Args:
        cluster: Its size and settings.
        seed: Makes its ids repeat.
        directory: Takes what it prints (`cluster.txt`) and logs (`cluster.log`).
        speed: How many times as fast as real time its clock runs.
        host: The address that it listens on.

    Yields:
        The cluster.

    Raises:
        FakebrokerError: It does not start.
    """
    printed, log = directory / "cluster.txt", directory / "cluster.log"
    command = [
        sys.executable,
        "-m",
        "fakebroker",
        "serve",
        f"--brokers={cluster.brokers}",
        f"--host={host}",
        "--port=0",
        f"--seed={seed}",
        "--events",
        "--until-stdin-ends",
    ]
    command += [f"--config={key}={value}" for key, value in cluster.config.items()]
    command += [f"--proposal={name}" for name in cluster.proposals]
    if cluster.as_version is not None:
        command.append(f"--as-version={cluster.as_version}")
    if speed != 1:
        command.append(f"--speed={speed:g}")
    with printed.open("wb") as stdout, log.open("wb") as stderr:
        # In a session of its own Ctrl-C is not for it: the replay stops it when its members are gone.
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    try:
        yield EmbeddedCluster(_bootstrap_servers(process, printed, log), process, process.stdin, log)
    finally:
        process.stdin.close()
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _bootstrap_servers(process: subprocess.Popen[bytes], printed: Path, log: Path) -> str:
    """Wait for the line that says where the cluster listens."""
    give_up = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < give_up:
        line, newline, _ = printed.read_text().partition("\n")
        if newline and line.startswith(_READY):
            return line.removeprefix(_READY)
        time.sleep(_LOOK_EVERY_S)
    told = log.read_text().strip().splitlines()
    raise FakebrokerError(f"the embedded cluster did not start (see {log}): {told[-1] if told else 'no word from it'}")
