"""Interruption by Ctrl-C, kills and full disks: all processes end soon, and recorded events are kept."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fakebroker.replay.commands import report
from fakebroker.replay.options import BAD_INPUT, COULD_NOT_RUN, INCONCLUSIVE
from fakebroker.replay.run_directory import RUN, check_ended, new_directory
from fakebroker.replay.run_summary import LOST_S
from fakebroker.replay.spark.interruption import Interruption, PromptEnd, wait_for_result
from tests.support.soak import soak_only


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
"""Timeout for a step that takes 20 s on an idle machine."""

_END_S = 10 + 5
"""How long a replay may take to end after Ctrl-C, and how much longer a busy machine may take."""

_QUIT_S = 1 + 4
"""The same after a second Ctrl-C."""

WORKLOAD = """\
duration_s = 120
topics = { orders = 4 }
[cluster]
config = { "group.initial.rebalance.delay.ms" = 0 }
[[groups]]
name = "g"
count = 4
members = 5
heartbeat_interval_ms = 300
[promises]
check = ["answered"]
"""


class Replaying:
    """A replay in a child process, which leads a process group.

    Attributes:
        out: Directory for the results.
        lines: The lines that it has printed so far.
        started: Process ids and commands of its descendants, as found by `wait_for_process`.
    """

    def __init__(self, process: subprocess.Popen[str], out: Path) -> None:
        self._process = process
        self.out = out
        self.lines: list[str] = []
        self.started: dict[int, str] = {}

    def wait_for_line(self, text: str) -> None:
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            self.lines.append(line)
            if text in line:
                return
        pytest.fail("".join(self.lines))

    def wait_for_process(self, command: str) -> int:
        """Wait until there is a descendant with this text in its command, and return its process id."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            self.started |= processes_under(self._process.pid)
            if found := [pid for pid, each in self.started.items() if command in each]:
                return found[0]
            assert self._process.poll() is None, self._process.communicate()
            assert time.monotonic() < deadline_s, self.started

    def send(self, number: signal.Signals) -> None:
        """As in a terminal, the whole process group gets the signal."""
        os.killpg(self._process.pid, number)

    def end(self, limit_s: float) -> tuple[int, str]:
        """Wait until it has ended, with all its descendants; return its exit status and errors."""
        self.started |= processes_under(self._process.pid)
        printed, errors = self._process.communicate(timeout=limit_s)
        self.lines += printed.splitlines(keepends=True)
        deadline_s = time.monotonic() + _END_S
        while alive := {pid: command for pid, command in self.started.items() if pid in running()}:
            assert time.monotonic() < deadline_s, alive
        return self._process.returncode, errors


Replays = Callable[..., Replaying]


@pytest.fixture
def replays(tmp_path: Path) -> Iterator[Replays]:
    """A function that starts a replay with options."""
    (file := tmp_path / "long.toml").write_text(WORKLOAD)
    with ExitStack() as stack:

        def start(*options: str) -> Replaying:
            command = [sys.executable, "-m", "fakebroker", "replay", str(file), f"--out={tmp_path / 'out'}", *options]
            pipe = subprocess.PIPE
            process = stack.enter_context(
                subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
            )
            stack.callback(process.kill)
            return Replaying(process, tmp_path / "out")

        yield start


INTERRUPTED = (130, "fakebroker: interrupted\n")
KEPT = "The events until then are kept: `fakebroker report "


@pytest.mark.slow
@pytest.mark.needs("ps")
@pytest.mark.parametrize(
    ("line", "process", "options"),
    [
        ("Starting Spark", "fakebroker serve", []),
        ("Starting Spark", "java", ["--transport=memory"]),
        ("Running 20 members", "daemon", []),
        ("Computing the summary", "java", ["--transport=memory"]),
    ],
    ids=["while the cluster runs", "while Java starts", "while members play", "while the summary is computed"],
)
def test_ctrl_c_ends_all_processes_within_ten_seconds(
    replays: Replays, line: str, process: str, options: list[str]
) -> None:
    replaying = replays(*options)
    replaying.wait_for_line(line)
    replaying.wait_for_process(process)
    replaying.send(signal.SIGINT)
    assert replaying.end(_END_S) == INTERRUPTED
    out = replaying.out
    assert not (out / "running").exists()
    has_events = not line.startswith("Starting")
    assert [(out / name).exists() for name in ("events.parquet", "head.json")] == [has_events] * 2
    assert (out / "summary.json").exists() or [each.startswith(KEPT) for each in replaying.lines].count(
        True
    ) == has_events


@pytest.mark.slow
@pytest.mark.needs("ps")
@pytest.mark.parametrize("line", ["Starting Spark", "Running 20 members"])
def test_a_second_ctrl_c_quits_at_once(replays: Replays, line: str) -> None:
    replaying = replays()
    replaying.wait_for_line(line)
    replaying.wait_for_process("java")
    replaying.send(signal.SIGINT)
    time.sleep(0.5)
    replaying.send(signal.SIGINT)
    status, errors = replaying.end(_QUIT_S)
    assert status in (130, -signal.SIGINT)  # the latter if the first one has ended Python already
    assert errors == INTERRUPTED[1]
    assert not (replaying.out / "running").exists()


def test_a_process_that_does_not_end_after_ctrl_c_is_ended(tmp_path: Path) -> None:
    program = f"""\
import signal, threading, time
from pathlib import Path
from fakebroker.replay.spark import interruption

interruption._END_LIMIT_S = 0.5
with interruption.at_quit(Path({str(tmp_path / "cleaned")!r}).touch), interruption.PromptEnd() as prompt_end:
    prompt_end.handle_signals()
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        threading.Event().wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == INTERRUPTED
    assert (tmp_path / "cleaned").exists()


def test_handlers_of_signals_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with PromptEnd() as prompt_end:
        prompt_end.handle_signals()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_result_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(TimeoutError):
        wait_for_result(Future(), 0.01)


def test_a_run_that_has_not_ended_has_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`fakebroker report` would remove files that the tasks are writing."""
    with new_directory(tmp_path, "small") as out:
        for name in RUN[:3]:
            (out / name).touch()
        assert report(out, "local[*]") == BAD_INPUT
    assert f"according to its file running, process {os.getpid()} runs it" in capsys.readouterr().err
    for content in ("1 another-host", f"{2**22 + 1} {socket.gethostname()}", ""):
        (tmp_path / "running").write_text(content)
        check_ended(tmp_path)


def report_of(out: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any], float]:
    """Recompute the report of a run on a shared session.

    Returns:
        The exit status, the summary, and the time of the last response, in seconds since the Unix epoch.
    """
    monkeypatch.setattr("fakebroker.replay.rebuild.spark_session", lambda *_: nullcontext(spark))
    status = report(out, "local[*]")
    events = pq.read_table(out / "events.parquet").to_pylist()
    last_us = max(event["scheduled_us"] + event["latency_us"] for event in events if event["latency_us"] is not None)
    return status, json.loads((out / "summary.json").read_text()), last_us / 1e6


@pytest.mark.slow
@pytest.mark.needs("ps")
@pytest.mark.parametrize("killed", ["driver", "java"])
def test_a_killed_replay_has_its_events_until_two_seconds_before(
    replays: Replays,
    killed: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    replaying = replays()
    replaying.wait_for_line("Running 20 members")
    java = replaying.wait_for_process("java")
    replaying.wait_for_line("20 of 20 members joined")
    killed_s = time.time()
    if killed == "java":
        os.kill(java, signal.SIGKILL)
    else:
        replaying.send(signal.SIGKILL)
    status, errors = replaying.end(_TIMEOUT_S)
    out = replaying.out
    if killed == "java":
        expected = rf"fakebroker: the replay failed .*: its Java process ended; `fakebroker report {out}` shows .*\n"
        assert status == COULD_NOT_RUN
        assert re.fullmatch(expected, errors)
    else:
        assert (status, errors) == (-signal.SIGKILL, "")
    assert not list((out / "events.parquet").glob("*.parquet"))
    status, summary, last_s = report_of(out, spark, monkeypatch)
    assert (status, summary["verdict"]["outcome"]) == (INCONCLUSIVE, "inconclusive")
    assert killed_s - LOST_S - 1 < last_s < killed_s + 1  # a busy machine may be late by a second
    about = "The run ended early: killed, or failed, after about "
    assert summary["verdict"]["reasons"][0].startswith(about)
    assert summary["metrics"]["members_joined"] == 20
    assert summary["total"]["unexpected_errors"] == 0
    assert summary["total"]["lost"] == 0
    printed = capsys.readouterr().out
    assert f"{about}{summary['span_s']:.0f} s; up to 2 s" in " ".join(printed.split())
    assert about in (out / "report.html").read_text()


@soak_only("other failures of tasks are checked in a second")
@pytest.mark.slow
@pytest.mark.needs("ps")
@pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are set")
def test_a_replay_whose_disk_is_full_has_its_events_until_then(
    replays: Replays, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the size of files has the same effect as a full disk, or a quota."""
    replaying = replays()
    replaying.wait_for_line("20 of 20 members joined")
    replaying.wait_for_process("worker_daemon")
    for pid, command in replaying.started.items():
        if "worker_daemon" in command:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1_000, 1_000))
    status, errors = replaying.end(_TIMEOUT_S)
    assert status == COULD_NOT_RUN
    expected = rf"fakebroker: the replay failed .*File too large.*; `fakebroker report {replaying.out}` shows .*\n"
    assert re.fullmatch(expected, errors)
    status, summary, _ = report_of(replaying.out, spark, monkeypatch)
    assert (status, summary["complete"]) == (INCONCLUSIVE, False)
    assert summary["total"]["requests"] > 100
