"""Ctrl-C: everything ends, and what was recorded is kept."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakebroker.replay.spark.interruption import Interruption


def test_nothing_to_end_is_nothing_to_keep() -> None:
    interruption = Interruption()
    assert not interruption.request()
    assert not interruption.requested


def test_why_it_was_ended_first_counts() -> None:
    interruption = Interruption()
    with interruption.ends(lambda: None):
        assert interruption.request()
        assert interruption.request("the disk is full")
    assert (interruption.requested, interruption.why) == (True, "")


def processes_under(pid: int) -> dict[int, str]:
    """All that a process has started, and what that has started: process ids and commands."""
    listed = subprocess.run(["ps", "-axo", "pid=,ppid=,command="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    found = {pid: ""}
    for _ in rows:
        more = {int(row[0]): row[2] for row in rows if int(row[1]) in found and int(row[0]) not in found}
        if not more:
            break
        found |= more
    del found[pid]
    return found


def running() -> set[int]:
    """The process ids of the machine, without those that are dead and only not cleared away."""
    listed = subprocess.run(["ps", "-axo", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    return {int(pid) for pid, state in map(str.split, listed.splitlines()) if not state.startswith("Z")}


_TIMEOUT_S = 240
"""For what takes 20 seconds on a machine that has nothing else to do."""


@pytest.fixture
def replaying(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (file := tmp_path / "long.toml").write_text(
        'duration_s = 120\ntopics = { orders = 4 }\n[[groups]]\nname = "g"\ncount = 4\nmembers = 5\n'
        '[promises]\ncheck = ["answered"]\n'
    )
    command = [sys.executable, "-m", "fakebroker", "replay", str(file), "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "stage", "is_kept"),
    [
        ("Starting Spark\n", "fakebroker serve", False),
        ("Running 20 members for 120 s\n", "pyspark.daemon", True),
    ],
)
def test_ctrl_c_ends_everything(
    replaying: subprocess.Popen[str], tmp_path: Path, line: str, stage: str, is_kept: bool
) -> None:
    """As in a terminal, all of its process group gets the signal. What members recorded until then is kept."""
    assert replaying.stdout is not None
    assert line in iter(replaying.stdout.readline, "")
    started: dict[int, str] = {}
    give_up = time.monotonic() + _TIMEOUT_S
    while not any(stage in command for command in started.values()):
        assert replaying.poll() is None, replaying.communicate()
        assert time.monotonic() < give_up, started
        started |= processes_under(replaying.pid)
    os.killpg(replaying.pid, signal.SIGINT)
    _, errors = replaying.communicate(timeout=_TIMEOUT_S)
    assert (replaying.returncode, errors) == (130, "fakebroker: interrupted\n")
    still_there = running()
    assert {pid: command for pid, command in started.items() if pid in still_there} == {}
    out = tmp_path / "out"
    names = ("events.parquet", "head.json", "summary.json", "report.html")
    assert [(out / name).exists() for name in names] == [is_kept] * 4
    if is_kept:
        summary = json.loads((out / "summary.json").read_text())
        assert not summary["complete"]
        assert summary["span_s"] < 100
        assert "interrupted" in (out / "report.html").read_text()
