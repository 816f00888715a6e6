"""A fake cluster in a child process that runs as long as a replay. Does not depend on Spark."""

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
from fakebroker.replay.workload.timeline import actions_of, failed_action
from fakebroker.replay.workload.workload import Cluster

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 5.0
_OUTCOMES_TIMEOUT_S = 5.0
_CHECK_EVERY_S = 0.02
_READY_LINE = "bootstrap.servers="
_NEXT_MESSAGE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ", re.MULTILINE)
"""The beginning of a message in the log of the cluster."""


class EmbeddedCluster:
    """A fake cluster in a child process, controlled by lines of JSON on its standard input.

    `fakebroker serve --events` logs the outcome of each line, in order; `outcomes` parses that log.

    Attributes:
        bootstrap: Its bootstrap servers.
    """

    def __init__(self, bootstrap: str, process: subprocess.Popen[bytes], stdin: IO[bytes], log: Path) -> None:
        self.bootstrap = bootstrap
        self._process = process
        self._stdin = stdin
        self._log = log
        self._sent: list[str] = []

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def perform(self, event: Mapping[str, Any]) -> None:
        """Send an event (see `fakebroker.cluster.handles.definition`). Does not wait for its outcome."""
        line = json.dumps(event)
        self._sent.append(line)
        with suppress(BrokenPipeError):  # the process has ended, which the verdict reports
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()

    def outcomes(self) -> list[str | None]:
        """Return the outcomes of the events sent, in their order: None if the event was done, else an error message.

        Waits up to 5 s until the cluster has logged all outcomes. The list is shorter if the last outcomes are missing.
        """
        deadline_s = time.monotonic() + _OUTCOMES_TIMEOUT_S
        while True:
            is_last_check = not self.is_running or time.monotonic() >= deadline_s
            text = self._log.read_text(errors="replace")
            found = _logged(text, "event (done|failed)")
            if is_last_check or (len(found) >= len(self._sent) and text.endswith("\n")):
                outcomes = [
                    None if outcome == "done" else why.removeprefix(f"{line}: ")
                    for line, (outcome, why) in zip(self._sent, found, strict=False)
                ]
                return self._with_failed_actions(outcomes, text)
            time.sleep(_CHECK_EVERY_S)

    def _with_failed_actions(self, outcomes: list[str | None], log: str) -> list[str | None]:
        """Return the outcomes. If an action of a fault has failed, its error is the outcome of the fault's event."""
        for _, error in _logged(log, "(action failed)"):
            command = error.partition("(")[0]
            for index, (line, outcome) in enumerate(zip(self._sent, outcomes, strict=False)):
                if outcome is None and command in (action["do"] for action in actions_of(json.loads(line))):
                    outcomes[index] = failed_action(error)
                    break
        return outcomes


def _logged(log: str, what: str) -> list[tuple[str, str]]:
    """Return the messages of a log that begin with a pattern, as the text of its group and the rest of the message.

    A message may have several lines, such as the state of a group. Tracebacks are left out.
    """
    messages = re.split(_NEXT_MESSAGE, log)
    found = (re.fullmatch(f"{what}: (.*)", each, re.DOTALL) for each in messages)
    return [(each[1], each[2].partition("\nTraceback (most recent call last):")[0].rstrip()) for each in found if each]


@contextmanager
def embedded_cluster(
    cluster: Cluster, seed: int, directory: Path, speed: float = 1.0, host: str = "127.0.0.1"
) -> Iterator[EmbeddedCluster]:
    """Run `fakebroker serve` in a child process, and stop it when the context ends.

    Args:
        cluster: Number of brokers and settings.
        seed: Seed for reproducible ids.
        directory: Directory for its output (`cluster.txt`) and log (`cluster.log`).
        speed: Speed of its clock, as a multiple of real time.
        host: Address that its brokers listen on.

    Yields:
        The cluster, ready for connections.

    Raises:
        FakebrokerError: The cluster is not ready within 20 s.
    """
    printed, log = directory / "cluster.txt", directory / "cluster.log"
    command = _serve_command(cluster, seed, speed, host)
    with printed.open("wb") as stdout, log.open("wb") as stderr:
        # A new session, so that Ctrl-C does not stop the cluster before the members.
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


def _serve_command(cluster: Cluster, seed: int, speed: float, host: str) -> list[str]:
    """Return the command that runs `fakebroker serve`, with the arguments of `embedded_cluster`."""
    command = [sys.executable, "-m", "fakebroker", "serve", "--events", "--until-stdin-ends"]
    command += [f"--brokers={cluster.brokers}", f"--first-node-id={cluster.first_node_id}", f"--seed={seed}"]
    command += [f"--host={host}", "--port=0"]
    command += [f"--config={key}={value}" for key, value in cluster.config.items()]
    command += [f"--proposal={name}" for name in cluster.proposals]
    if cluster.as_version is not None:
        command.append(f"--as-version={cluster.as_version}")
    if speed != 1:
        command.append(f"--speed={speed:g}")
    return command


def _bootstrap_servers(process: subprocess.Popen[bytes], printed: Path, log: Path) -> str:
    """Wait until the cluster prints its bootstrap servers, and return them."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        line, newline, _ = printed.read_text().partition("\n")
        if newline and line.startswith(_READY_LINE):
            return line.removeprefix(_READY_LINE)
        time.sleep(_CHECK_EVERY_S)
    lines = log.read_text().strip().splitlines()
    raise FakebrokerError(f"the embedded cluster did not start (see {log}): {lines[-1] if lines else 'no output'}")
