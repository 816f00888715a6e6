"""The endurance run: a server process, processes with clients, disturbances, and samples of the server.

    python -m tests.endurance.run SECONDS [--rate RATE] [--seed SEED] [--report FILE]

Exits with 1 if a promise is broken, or memory or descriptors grow.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import linear_regression, mean
from typing import Any
from urllib.error import HTTPError

from fakebroker import __version__
from tests.bench.processes import resident_bytes
from tests.endurance.load import GROUPS, PROCESSES, TOPICS
from tests.support.control.serve_process import ServeProcess, serve_process

BROKERS = 3
SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    "default.replication.factor": BROKERS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # Logs and producers that are full early, so that memory does not grow later.
    "fakebroker.partition.max.bytes": 32 * 1024,
    "producer.id.expiration.ms": 60_000,
    # The newest 512 records of each partition are not compacted: few partitions, so that all soon have as many.
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}

MAX_JOURNAL_CALLS = 10_000
MAX_GROWTH = 0.05
"""How much memory may grow between the end of the warm-up and the end of the run, as a share of it."""

MAX_NEW_DESCRIPTORS = 10.0
_WARM_UP = 1 / 2
"""The share of the run after which journal, logs and histories have to be full."""

_READ_PERIOD_S = 0.25
_MIN_DISTURBANCE_S, _MAX_DISTURBANCE_S = 1.0, 20.0
_TIMEOUT_S = 60.0
_READS = (
    "",
    "/groups",
    "/journal?limit=100",
    "/deadlines",
    "/blocked_groups",
    "/transactions",
    "/coordinators",
    "/topics",
)
_GROUP_READS = ("", "/timeline", "/explain", "/coordinator")


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of the server.

    Attributes:
        at_s: Seconds since the start.
        memory_bytes: Its resident memory.
        descriptors: Its open descriptors.
        journal_calls: The calls in its journal.
    """

    at_s: float
    memory_bytes: int
    descriptors: int
    journal_calls: int


@dataclass
class Result:
    """The result of a run.

    Attributes:
        seconds, seed: As given.
        samples: Samples of the server, in the order of time.
        loads: What the processes with clients have seen.
        disturbances: How many disturbances there were, by kind.
        reads: How many HTTP requests were answered.
        failed_reads: HTTP requests that failed.
        log: What the server has logged about internal errors.
    """

    seconds: float
    seed: int
    samples: list[Sample] = field(default_factory=list)
    loads: list[dict[str, Any]] = field(default_factory=list)
    disturbances: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    failed_reads: list[str] = field(default_factory=list)
    log: str = ""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.total("requests") / self.seconds

    def total(self, name: str) -> int:
        """Return a number, summed over the processes with clients."""
        return sum(each[name] for each in self.loads)

    @property
    def checks(self) -> Counter[str]:
        """How often each promise was checked."""
        return sum((Counter(each["checks"]) for each in self.loads), Counter())

    def _after_warm_up(self) -> list[Sample]:
        return [each for each in self.samples if each.at_s >= self.seconds * _WARM_UP]

    def growth(self, attribute: str) -> float:
        """Return by how much a number has grown since the warm-up: the slope of a line through its samples."""
        samples = self._after_warm_up()
        times, values = [each.at_s for each in samples], [getattr(each, attribute) for each in samples]
        return linear_regression(times, values).slope * (times[-1] - times[0])

    @property
    def memory_bytes(self) -> float:
        """The mean of the server's memory since the warm-up."""
        return mean(each.memory_bytes for each in self._after_warm_up())

    def faults(self, *, checks_growth: bool = True) -> list[str]:
        """Return what is wrong; empty if nothing is."""
        found = [text for each in self.loads for text in each["broken"]] + self.failed_reads
        if self.log:
            found.append(f"the server has logged an error:\n{self.log}")
        most = max(each.journal_calls for each in self.samples)
        if most > MAX_JOURNAL_CALLS:
            found.append(f"journal: {most} calls, expected at most {MAX_JOURNAL_CALLS}")
        if checks_growth:
            grown = self.growth("memory_bytes") / self.memory_bytes
            if grown > MAX_GROWTH:
                found.append(f"memory: grows by {grown:.1%} after the warm-up, expected at most {MAX_GROWTH:.0%}")
            more = self.growth("descriptors")
            if more > MAX_NEW_DESCRIPTORS:
                found.append(
                    f"descriptors: {more:.0f} more after the warm-up, expected at most {MAX_NEW_DESCRIPTORS:.0f}"
                )
        return found


class Run:
    """A run against a server.

    Args:
        server: The server.
        result: Gets what happens.
    """

    def __init__(self, server: ServeProcess, result: Result) -> None:
        self._server, self.result = server, result
        self._random = Random(f"{result.seed} run")
        self._started_s = time.monotonic()
        self._stop = threading.Event()

    def request(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Send a request to the control API and return its JSON; None for a 4xx error."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._server.control}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                content = response.read()
        except HTTPError as error:
            if error.code >= 500:
                self.result.failed_reads.append(f"{path}: {error.code}: {error.read()[:200]!r}")
            return None
        except OSError as error:
            self.result.failed_reads.append(f"{path}: {error}")
            return None
        self.result.reads += 1
        return json.loads(content) if content.startswith((b"{", b"[")) else None

    def watch(self) -> None:
        """Read the API and sample the server, until `end`."""
        pid, cluster, groups = self._server.process.pid, "/v1/clusters/default", ["classic-0-0"]
        while not self._stop.wait(_READ_PERIOD_S):
            path = self._random.choice(_READS)
            answer = self.request(cluster + path)
            if path == "/groups" and answer is not None:
                groups = [each["group_id"] for each in answer["groups"]] or groups
            group = self._random.choice(groups)
            self.request(f"{cluster}/groups/{group}{self._random.choice(_GROUP_READS)}")
            self.request("/metrics")
            journal = self.request(f"{cluster}/journal?limit=1") or {"last": 0, "dropped": 0}
            sample = Sample(
                time.monotonic() - self._started_s,
                resident_bytes(pid),
                len(os.listdir(f"/proc/{pid}/fd")),
                journal["last"] - journal["dropped"],
            )
            self.result.samples.append(sample)

    def disturb(self) -> None:
        """Stop brokers, move coordinators and add faults, until `end`."""
        period_s = min(_MAX_DISTURBANCE_S, max(_MIN_DISTURBANCE_S, self.result.seconds / 30))
        while not self._stop.wait(period_s):
            kind, events = self._disturbance()
            self.result.disturbances[kind] += 1
            for event, pause_s in events:
                self.request("/v1/clusters/default/events", event)
                if self._stop.wait(pause_s):
                    break
            self.request("/v1/clusters/default/clear_faults", {})

    def _disturbance(self) -> tuple[str, list[tuple[dict[str, Any], float]]]:
        """Return a random disturbance: events, and the seconds to wait after each."""
        random, node_id = self._random, self._random.randint(1, BROKERS)
        group = f"{random.choice(('classic', 'consumer'))}-0-{random.randrange(GROUPS)}"
        match random.randrange(6):
            case 0:
                stop = {"do": "broker.stop", "node_id": node_id}
                return "a broker stops", [(stop, 0.5), ({"do": "broker.start", "node_id": node_id}, 0)]
            case 1:
                return "a broker restarts", [({"do": "broker.restart", "node_id": node_id}, 0)]
            case 2:
                move = {
                    "do": "group.move_coordinator",
                    "group_id": group,
                    "to": node_id,
                    "load_ms": random.choice((0, 200)),
                }
                return "a coordinator moves", [(move, 0.3)]
            case 3:
                move = {"do": "transaction.move_coordinator", "transactional_id": "payments-0-0", "to": node_id}
                return "a transaction coordinator moves", [(move, 0)]
            case 4:
                api = random.choice(("Heartbeat", "OffsetCommit", "JoinGroup", "Produce", "EndTxn", "OffsetFetch"))
                fault = {"api": api, "drop": True, "handles": random.random() < 0.5, "times": random.randint(1, 50)}
                return "responses are lost", [({"do": "inject_fault", **fault}, 0.5)]
            case _:
                api = random.choice(("Heartbeat", "OffsetCommit", "SyncGroup", "ConsumerGroupHeartbeat"))
                fault = {"api": api, "error": "NOT_COORDINATOR", "times": random.randint(1, 50)}
                return "requests get errors", [({"do": "inject_fault", **fault}, 0.5)]

    @contextmanager
    def accompanied(self) -> Iterator[None]:
        """Watch and disturb the server during the context."""
        threads = [threading.Thread(target=each) for each in (self.watch, self.disturb)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


def endure(seconds: float, rate: float, seed: int, processes: int = PROCESSES) -> Result:
    """Run a server and clients for some seconds.

    Args:
        seconds: How long clients send requests.
        rate: How many requests all clients send per second, if the server answers as many.
        seed: The seed of the server and of all clients.
        processes: The number of processes with clients, 1 to `PROCESSES`.
    """
    result = Result(seconds, seed)
    options = [option for name, count in TOPICS.items() for option in ("--topic", f"{name}:{count}")]
    options += [option for name, value in SETTINGS.items() for option in ("--config", f"{name}={value}")]
    with serve_process("--brokers", str(BROKERS), "--seed", str(seed), *options) as server:
        loads = [_start_load(server, number, seed, seconds, rate / processes) for number in range(processes)]
        with Run(server, result).accompanied():
            outputs = [load.communicate() for load in loads]
        for load, (output, errors) in zip(loads, outputs, strict=True):
            if load.returncode:
                raise RuntimeError(f"a process with clients has failed:\n{errors}")
            result.loads.append(json.loads(output))
        server.log.seek(0)
        result.log = _internal_errors(server.log.read())
    return result


def _start_load(server: ServeProcess, number: int, seed: int, seconds: float, rate: float) -> "subprocess.Popen[str]":
    arguments = [server.bootstrap_servers, number, seed, seconds, rate]
    command = [sys.executable, "-m", "tests.endurance.load", *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _internal_errors(log: str) -> str:
    """Return what a log has about internal errors, shortened."""
    start = min((at for text in ("ERROR", "Traceback") if (at := log.find(text)) >= 0), default=-1)
    return "" if start < 0 else log[start : start + 3_000]


def report(result: Result, *, checks_growth: bool = True) -> Iterator[str]:
    """Yield the lines of the report, as Markdown."""
    faults = result.faults(checks_growth=checks_growth)
    samples, megabyte = result.samples, 1024 * 1024
    yield "# Endurance run"
    yield ""
    yield "`make soak` runs everything that clients do against one cluster for half an hour, while brokers stop,"
    yield "coordinators move, responses are lost, and the HTTP API is read; and writes this file (`tests/endurance/`)."
    yield ""
    yield f"- date: {datetime.now(UTC):%Y-%m-%d}"
    yield f"- version: fakebroker {__version__}, Python {platform.python_version()}"
    yield f"- machine: {os.cpu_count()} cores"
    yield f"- seed: {result.seed}"
    yield f"- duration: {result.seconds:g} s, of which the first {_WARM_UP:.0%} are the warm-up"
    yield f"- requests: {result.total('requests'):,}, {result.rate:,.0f} per second"
    yield f"- lost requests: {result.total('lost'):,}, of which {result.total('late'):,} waited too long"
    yield f"- HTTP requests: {result.reads:,}"
    yield (
        f"- memory: {samples[0].memory_bytes / megabyte:.0f} MiB at first, "
        f"{result.memory_bytes / megabyte:.0f} MiB after the warm-up, "
        f"growth since then {result.growth('memory_bytes') / megabyte:+.1f} MiB"
    )
    yield (
        f"- descriptors: {samples[0].descriptors} at first, {samples[-1].descriptors} at the end, "
        f"growth since the warm-up {result.growth('descriptors'):+.1f}"
    )
    yield f"- journal: at most {max(each.journal_calls for each in samples):,} calls"
    yield f"- result: {'failed' if faults else 'passed'}"
    yield from _table("promise", "checks", result.checks)
    yield from _table("disturbance", "number", result.disturbances)
    if faults:
        yield from ("", "## Faults", "")
        yield from (f"- {fault}" for fault in faults)


def _table(name: str, number: str, counts: Counter[str]) -> Iterator[str]:
    yield from ("", f"| {name} | {number} |", "|---|--:|")
    yield from (f"| {key} | {counts[key]:,} |" for key in sorted(counts))


def main(arguments: Sequence[str]) -> int:
    """Run, print the report and write it. Return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("--rate", type=float, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    given = parser.parse_args(arguments)
    print(f"endurance run of {given.seconds:g} s, seed {given.seed}", flush=True)
    result = endure(given.seconds, given.rate, given.seed)
    text = "".join(f"{line}\n" for line in report(result))
    print(text)
    if given.report is not None:
        given.report.write_text(text, encoding="utf-8")
    return 1 if result.faults() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
