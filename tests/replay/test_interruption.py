"""Interruption by Ctrl-C: all processes end, and recorded events are kept."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from fakebroker.replay.spark.interruption import Interruption, wait_for_result


def test_a_request_has_no_effect_while_nothing_runs() -> None:
    interruption = Interruption()
    assert not interruption.request()
    assert not interruption.requested


def test_the_reason_of_the_first_request_is_kept() -> None:
    interruption = Interruption()
    with interruption.running(lambda: None):
        assert interruption.request()
        assert interruption.request("the disk is full")
    assert (interruption.requested, interruption.why) == (True, "")


def test_work_that_was_interrupted_before_it_started_ends_at_once() -> None:
    interruption = Interruption()
    calls: list[str] = []
    with interruption.running(lambda: calls.append("preparation")):
        assert interruption.request()
        with interruption.running(lambda: calls.append("members")):
            assert calls == ["preparation", "members"]
        assert not interruption.request()


def test_ctrl_c_ends_a_wait_although_another_thread_gets_the_signal() -> None:
    begin, end = threading.Event(), threading.Event()

    def interrupt() -> None:
        begin.wait(10)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        end.wait(10)

    def wait_until_interrupted() -> None:
        begin.set()
        wait_for_result(working)

    with ThreadPoolExecutor(1) as thread, ExitStack() as stack:
        stack.callback(end.set)
        working = thread.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            wait_until_interrupted()
        assert not working.done()


def processes_under(pid: int) -> dict[int, str]:
    """Return all descendants of a process: process ids and commands."""
    command = ["ps", "-axww", "-o", "pid=,ppid=,command="]  # -ww: whole lines, also if COLUMNS is set
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
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
    """Return the ids of all processes of the machine, without zombies."""
    listed = subprocess.run(["ps", "-axo", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    return {int(pid) for pid, state in map(str.split, listed.splitlines()) if not state.startswith("Z")}


_TIMEOUT_S = 240
"""Timeout of a test, which takes 20 s on an idle machine."""


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
@pytest.mark.needs("ps")
@pytest.mark.parametrize(
    ("line", "process", "is_kept"),
    [
        ("Starting Spark\n", "fakebroker serve", False),
        ("Running 20 members for 120 s\n", "daemon", True),
    ],
    ids=["while Spark starts", "while members play"],
)
def test_ctrl_c_ends_all_processes(
    replaying: subprocess.Popen[str], tmp_path: Path, line: str, process: str, is_kept: bool
) -> None:
    """As in a terminal, the whole process group gets the signal. Events recorded until then are kept."""
    assert replaying.stdout is not None
    assert line in iter(replaying.stdout.readline, "")
    started: dict[int, str] = {}
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not any(process in command for command in started.values()):
        assert replaying.poll() is None, replaying.communicate()
        assert time.monotonic() < deadline_s, started
        started |= processes_under(replaying.pid)
    os.killpg(replaying.pid, signal.SIGINT)
    _, errors = replaying.communicate(timeout=_TIMEOUT_S)
    assert (replaying.returncode, errors) == (130, "fakebroker: interrupted\n")
    alive = running()
    assert {pid: command for pid, command in started.items() if pid in alive} == {}
    out = tmp_path / "out"
    names = ("events.parquet", "head.json", "summary.json", "report.html")
    assert [(out / name).exists() for name in names] == [is_kept] * 4
    if is_kept:
        summary = json.loads((out / "summary.json").read_text())
        assert not summary["complete"]
        assert summary["span_s"] < 100
        total = summary["total"]
        assert [total[name] for name in ("lost", "unanswered", "unexpected_errors")] == [0, 0, 0]
        assert summary["verdict"]["outcome"] == "inconclusive"
        assert "the replay was interrupted" in summary["verdict"]["reasons"][0]
        assert "interrupted" in (out / "report.html").read_text()
