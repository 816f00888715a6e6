"""A replay against a cluster whose process dies, or stops answering, while members play: it never passes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakebroker.replay.options import FAILED

_TIMEOUT_S = 240
"""For what takes 70 seconds on a machine that has nothing else to do."""


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command of fakebroker as a process."""
    command = [sys.executable, "-m", "fakebroker", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def workload(directory: Path, name: str) -> Path:
    """Two groups for 20 s; the default session timeout is longer than that."""
    file = directory / f"{name}.toml"
    file.write_text(
        'duration_s = 20\ntopics = { orders = 4 }\n[cluster]\nconfig = { "group.initial.rebalance.delay.ms" = 0 }\n'
        '[[groups]]\nname = "g"\ncount = 2\nmembers = 3\nheartbeat_interval_ms = 500\n'
        '[promises]\ncheck = ["one-owner"]\n'
    )
    return file


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP], ids=lambda by: by.name)
def test_a_cluster_that_goes_away_fails_the_replay(tmp_path: Path, by: signal.Signals) -> None:
    """It goes away when all members have joined; no promise is broken by that, and no error is answered."""
    out = tmp_path / "out"
    with running("serve", "--port", "0", "--config", "group.initial.rebalance.delay.ms=0") as cluster:
        assert cluster.stdout is not None
        bootstrap = cluster.stdout.readline().strip().removeprefix("bootstrap.servers=")
        file = workload(tmp_path, "small")
        with running("replay", str(file), "--bootstrap", bootstrap, "--out", str(out)) as replay:
            assert replay.stdout is not None
            lines = iter(replay.stdout.readline, "")
            assert any("6 of 6 members joined" in line for line in lines)
            cluster.send_signal(by)
            told, errors = replay.communicate(timeout=_TIMEOUT_S)
    assert (replay.returncode, errors) == (FAILED, "")
    summary = json.loads((out / "summary.json").read_text())
    verdict = summary["verdict"]
    assert verdict["passed"] is False
    failed = {check["name"] for check in verdict["availability"] if not check["passed"]}
    assert failed >= {"reachable", "cluster-answers"}
    assert all(check["kept"] for check in verdict["promises"])
    assert (summary["total"]["unexpected_errors"], summary["cluster"]["reachable"]) == (0, False)
    assert "Verdict: FAILED\n" in told
    assert "6 members of 2 groups waiting" in " ".join(told.split())
    page = (out / "report.html").read_text()
    assert "small.toml: failed" in page
    assert "6 members of 2 groups waiting" in page
