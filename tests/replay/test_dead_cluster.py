"""Replays over TCP against a cluster that dies, hangs or fails in part while members play: none passes."""

import io
import json
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakebroker.replay import target_cluster
from fakebroker.replay.commands import replay
from fakebroker.replay.options import FAILED, INCONCLUSIVE, ReplayOptions
from fakebroker.replay.spark import live_view
from tests.replay.conftest import CommandLine
from tests.support.soak import sampled, soak, soak_only


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a cluster in another process; yield the process and its bootstrap servers."""
    command = [sys.executable, "-m", "fakebroker", "serve", "--port", "0"]
    command += ["--config", "group.initial.rebalance.delay.ms=0", "--events"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        finally:
            process.kill()


class Output(io.StringIO):
    """Standard output that calls a function when all members have joined and some further lines were printed.

    Args:
        then: The function.
        lines: Number of these lines; there are two per second.
    """

    def __init__(self, then: Callable[[], object], lines: int = 0) -> None:
        super().__init__()
        self._then, self._lines = then, lines

    def write(self, text: str) -> int:
        if "6 of 6 members joined" in text:
            if self._lines == 0:
                self._then()
            self._lines -= 1
        return super().write(text)


def workload(directory: Path, name: str, more: str = "") -> Path:
    """Write a workload of two groups for 20 s, which is less than the default session timeout; return its path."""
    file = directory / f"{name}.toml"
    file.write_text(
        'duration_s = 20\ntopics = { orders = 4 }\n[cluster]\nconfig = { "group.initial.rebalance.delay.ms" = 0 }\n'
        '[[groups]]\nname = "g"\ncount = 2\nmembers = 3\nheartbeat_interval_ms = 500\n'
        f"{more}\n"
        '[promises]\ncheck = ["one-owner"]\n'
    )
    return file


@pytest.mark.slow
@pytest.mark.usefixtures("replays_on_spark")
@soak_only("the same failure is checked in memory")
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda each: each.name)
def test_a_replay_fails_if_the_cluster_dies_or_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], signal_number: signal.Signals
) -> None:
    """The cluster dies or hangs at a random moment, when all members have joined. No response has an error."""
    lines = random.Random(signal_number).randint(0, 4)
    print(f"{signal_number.name} after {lines} half seconds")
    out, file = tmp_path / "out", workload(tmp_path, "small")
    monkeypatch.setattr(live_view, "_LINE_EVERY_S", 0.5)
    monkeypatch.setattr(target_cluster, "_READY_TIMEOUT_S", 5.0)
    with served() as (cluster, bootstrap), monkeypatch.context() as patch:
        output = Output(lambda: cluster.send_signal(signal_number), lines)
        patch.setattr(sys, "stdout", output)
        status = replay(ReplayOptions(file=file, bootstrap=bootstrap, out=out))
    printed = output.getvalue()
    assert (status, capsys.readouterr().err) == (FAILED, "")
    summary = json.loads((out / "summary.json").read_text())
    verdict = summary["verdict"]
    assert verdict["outcome"] == "failed"
    failed = {check["name"] for check in verdict["availability"] if check["outcome"] == "failed"}
    assert failed >= {"reachable", "cluster-answers"}
    assert all(check["outcome"] == "kept" for check in verdict["promises"])
    assert (summary["total"]["unexpected_errors"], summary["cluster"]["reachable"]) == (0, False)
    assert "Verdict: FAILED\n" in printed
    assert "6 members of 2 groups waiting" in " ".join(printed.split())
    page = (out / "report.html").read_text()
    assert "small.toml: failed" in page
    assert "6 members of 2 groups waiting" in page


def _fails(
    directory: Path, monkeypatch: pytest.MonkeyPatch, event: dict[str, Any], *, before: bool = False
) -> dict[str, Any]:
    """Return the verdict on a replay against three brokers with a failure; it must not pass.

    Args:
        directory: Directory for the files.
        monkeypatch: Pytest's fixture.
        event: The failure.
        before: Whether it happens before the members start, instead of when all have joined.
    """
    file = workload(directory, "partly", "session_timeout_ms = 6_000\nrebalance_timeout_ms = 6_000")
    monkeypatch.setattr(live_view, "_LINE_EVERY_S", 0.5)
    monkeypatch.setattr(target_cluster, "_READY_TIMEOUT_S", 5.0)
    with served() as (cluster, bootstrap), monkeypatch.context() as patch:
        assert cluster.stdin is not None

        def fail() -> None:
            print(json.dumps(event), file=cluster.stdin, flush=True)

        if before:
            fail()
        patch.setattr(sys, "stdout", Output((lambda: None) if before else fail))
        # A broker that is silent does not list its groups.
        status = replay(ReplayOptions(file=file, bootstrap=bootstrap, allow_existing=before, out=directory / "out"))
    verdict: dict[str, Any] = json.loads((directory / "out" / "summary.json").read_text())["verdict"]
    assert status == {"failed": FAILED, "inconclusive": INCONCLUSIVE}[verdict["outcome"]]
    return verdict


@pytest.mark.slow
@soak_only("the same failure is checked in memory")
@pytest.mark.usefixtures("replays_on_spark")
def test_a_replay_fails_if_one_of_three_brokers_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other brokers take over its groups."""
    verdict = _fails(tmp_path, monkeypatch, {"do": "broker.stop", "node_id": 2})
    assert "broker 2 could not be reached after the last member had left" in " ".join(verdict["reasons"])


@pytest.mark.slow
@soak_only("the same failure is checked in memory")
@pytest.mark.usefixtures("replays_on_spark")
def test_a_replay_does_not_pass_if_one_of_three_brokers_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = _fails(tmp_path, monkeypatch, {"do": "inject_fault", "api": None, "broker": 1, "silent": True})
    assert "broker 1" in " ".join(verdict["reasons"])


@pytest.mark.slow
@soak_only("the same failure is checked in memory")
@pytest.mark.usefixtures("replays_on_spark")
def test_a_replay_does_not_pass_if_sync_groups_of_a_group_are_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = {"do": "inject_fault", "api": "SyncGroup", "group": "g-1", "silent": True}
    verdict = _fails(tmp_path, monkeypatch, event, before=True)
    reasons = " ".join(verdict["reasons"])
    assert "g-1" in reasons
    assert "g-0" not in reasons


STALLS = """\
duration_s = 24
topics = { orders = 6, payments = 3 }
[cluster]
brokers = 3
config = { "group.initial.rebalance.delay.ms" = 0 }
[[groups]]
name = "billing"
count = 2
members = 2
topics = ["orders"]
commit_interval_ms = 1_000
transactional = true
transaction = { to = "payments", records = 12, timeout_ms = 60_000 }
[[event]]
at_s = 4
do = "broker.stop"
node_id = 1
elect = false
[[event]]
at_s = 21
do = "broker.start"
node_id = 1
[promises]
check = ["one-owner"]
"""


@pytest.mark.slow
@pytest.mark.usefixtures("replays_on_spark")
@soak
@pytest.mark.parametrize("transport", sampled(["memory", "tcp"], 2))
def test_a_replay_whose_producers_stall_is_inconclusive(
    tmp_path: Path, command_line: CommandLine, transport: str
) -> None:
    """A broker is stopped for most of the run, as the workload plans. It leads a third of the partitions."""
    pacing = "[pacing]\nspeed = 4\n" if transport == "tcp" else ""
    (file := tmp_path / "stalls.toml").write_text(STALLS + pacing)
    status, printed, _ = command_line("replay", file, f"--out={tmp_path / 'out'}", f"--transport={transport}")
    verdict = json.loads((tmp_path / "out" / "summary.json").read_text())["verdict"]
    assert (status, verdict["outcome"]) == (INCONCLUSIVE, "inconclusive")
    (reason,) = verdict["reasons"]
    what = r"population billing sent (\d+) of (\d+) planned transactions"
    assert (found := re.fullmatch(rf"Availability check observed: {what}\.", reason))
    assert 0 < int(found[1]) < int(found[2]) / 2
    assert re.search(what, " ".join(printed.split()))
