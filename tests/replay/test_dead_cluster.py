"""Replays against a cluster whose process dies or hangs while members play: their verdict is FAILED."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakebroker.replay import target_cluster
from fakebroker.replay.commands import replay
from fakebroker.replay.options import FAILED, ReplayOptions
from fakebroker.replay.spark import live_view


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a cluster in another process; yield the process and its bootstrap servers."""
    command = [sys.executable, "-m", "fakebroker", "serve", "--port", "0"]
    command += ["--config", "group.initial.rebalance.delay.ms=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        finally:
            process.kill()


class Output(io.StringIO):
    """Standard output that calls a function when all members have joined."""

    def __init__(self, when_joined: Callable[[], None]) -> None:
        super().__init__()
        self._when_joined = when_joined

    def write(self, text: str) -> int:
        if "6 of 6 members joined" in text:
            self._when_joined()
        return super().write(text)


def workload(directory: Path, name: str) -> Path:
    """Write a workload of two groups for 16 s, which is less than the default session timeout; return its path."""
    file = directory / f"{name}.toml"
    file.write_text(
        'duration_s = 16\ntopics = { orders = 4 }\n[cluster]\nconfig = { "group.initial.rebalance.delay.ms" = 0 }\n'
        '[[groups]]\nname = "g"\ncount = 2\nmembers = 3\nheartbeat_interval_ms = 500\n'
        '[promises]\ncheck = ["one-owner"]\n'
    )
    return file


@pytest.mark.slow
@pytest.mark.usefixtures("replays_on_spark")
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda each: each.name)
def test_a_replay_fails_if_the_cluster_dies_or_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], signal_number: signal.Signals
) -> None:
    """The cluster dies or hangs when all members have joined. No promise is broken, and no response has an error."""
    out, file = tmp_path / "out", workload(tmp_path, "small")
    monkeypatch.setattr(live_view, "_LINE_EVERY_S", 0.5)
    monkeypatch.setattr(target_cluster, "_READY_TIMEOUT_S", 5.0)
    with served() as (cluster, bootstrap), monkeypatch.context() as patch:
        output = Output(lambda: cluster.send_signal(signal_number))
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
