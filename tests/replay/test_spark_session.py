"""Spark sessions: executors in other processes, addresses for them, and the cause of Spark's errors."""

import _thread
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import TaskContext
from pyspark.sql import SparkSession

from fakebroker.errors import FakebrokerError
from fakebroker.replay import run_directory
from fakebroker.replay.options import COULD_NOT_RUN
from fakebroker.replay.run_directory import recorded_events, write_results
from fakebroker.replay.run_summary import summary_of
from fakebroker.replay.spark import session
from fakebroker.replay.spark.session import address_for, cause_of, is_local, spark_errors
from tests.replay.conftest import CommandLine
from tests.support.replay.listener import listener
from tests.support.replay.summaries import summary_document
from tests.support.soak import soak_only

WORKLOAD = """\
duration_s = 2
topics = { orders = 2 }
[cluster]
config = { "group.initial.rebalance.delay.ms" = 0 }
[[groups]]
name = "g"
count = 4
members = 2
heartbeat_interval_ms = 300
[promises]
check = ["one-owner"]
"""

MANY_EVENTS = WORKLOAD.replace("duration_s = 2", "duration_s = 12").replace("count = 4", "count = 1_600")
"""In memory with all requests recorded, this has so many events that Spark's tasks divide them by group."""


def written_summary(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


def check_against_local_session(run: Path) -> None:
    """Check that the tasks of a local session compute the same summary."""
    assert recorded_events(run) > 100_000
    found = written_summary(run)
    subprocess.run([sys.executable, "-m", "fakebroker", "report", str(run)], capture_output=True, check=True)
    assert written_summary(run) == found


def test_ctrl_c_while_java_is_being_started_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def start_and_interrupt(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*args, **options))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        session._started([sys.executable, "-c", "input()"], {})
    assert started[0].returncode == -signal.SIGKILL


def test_ctrl_c_before_the_thread_that_starts_java_begins_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Callable[[], None]] = []

    def interrupted(start: Callable[[], None], args: tuple[()]) -> None:
        late.append(start)
        raise KeyboardInterrupt

    monkeypatch.setattr(_thread, "start_new_thread", interrupted)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("Java was started"))
    with pytest.raises(KeyboardInterrupt):
        session._started([sys.executable, "-c", "input()"], {})
    late[0]()


def test_a_java_that_cannot_be_started_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-java"):
        session._started(["/no-such-java"], {})


_STARTS = 50


def test_interrupted_starts_leave_no_process(tmp_path: Path) -> None:
    """In a process of its own, Ctrl-C at random times of the start, most of them within its first milliseconds."""
    (file := tmp_path / "starts.py").write_text(_INTERRUPTED_STARTS)
    seed = Random().getrandbits(32)
    found = subprocess.run(
        [sys.executable, str(file), str(seed), str(_STARTS)], capture_output=True, text=True, timeout=240, check=False
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{_STARTS}\n", ""), f"seed={seed}"


_INTERRUPTED_STARTS = """\
import random, signal, subprocess, sys
from fakebroker.replay.spark import session

signal.signal(signal.SIGALRM, signal.default_int_handler)
chance, interrupted, processes, start = random.Random(int(sys.argv[1])), 0, [], subprocess.Popen

def recorded(*args, **options):
    processes.append(start(*args, **options))
    return processes[-1]

subprocess.Popen = recorded
for _ in range(int(sys.argv[2])):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.choice([0.001, 0.004, 0.02]) * (0.05 + chance.random()))
        session._started([sys.executable, "-c", "import time; time.sleep(600)"], {"start_new_session": True})
    except KeyboardInterrupt:
        interrupted += 1
print(interrupted)
alive = [process for process in processes if process.poll() is None]
for process in alive:
    process.kill()
sys.exit(f"{len(alive)} processes are left" if alive else 0)
"""


@pytest.mark.slow
@soak_only("three Java processes on two cores take a minute")
@pytest.mark.parametrize("transport", ["tcp", "memory"])
def test_executors_in_other_processes_get_the_package(tmp_path: Path, transport: str) -> None:
    (file := tmp_path / "small.toml").write_text(WORKLOAD if transport == "tcp" else MANY_EVENTS)
    command = [sys.executable, "-m", "fakebroker", "replay", str(file), "--out", str(run := tmp_path / "out")]
    command += ["--master", "local-cluster[2,1,1024]", "--transport", transport, "--record", "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    summary = written_summary(run)
    assert summary["spark"]["master"] == "local-cluster[2,1,1024]"
    assert summary["metrics"]["members_joined"] == summary["members"]
    if transport == "memory":
        check_against_local_session(run)
    else:
        assert summary["spark"]["tasks"] == 2


@pytest.mark.slow
def test_output_of_finished_tasks_is_kept_when_another_task_fails(spark: SparkSession, tmp_path: Path) -> None:
    """Two tasks run at a time, so at least two are done when the last of four fails: its disk is full."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if (context := TaskContext.get()) and context.partitionId() == 3:
            Path("/dev/full").write_text("x")

    rows = spark.range(0, 40, 1, 4).mapInArrow(write, "id long")
    with (
        pytest.raises(FakebrokerError, match=r"the replay failed .*No space left on device"),
        spark_errors(tmp_path / "spark.log"),
    ):
        rows.write.parquet(str(tmp_path / "events.parquet"))
    kept = spark.read.schema("id long").parquet(str(tmp_path / "events.parquet")).collect()
    assert len(kept) in (20, 30)


def test_a_full_disk_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "page", lambda summary: "")  # The page takes seconds to draw.
    (tmp_path / "summary.json").symlink_to("/dev/full")
    with pytest.raises(FakebrokerError) as caught:
        write_results(tmp_path, summary_of(summary_document(1)))
    assert str(caught.value) == f"{tmp_path / 'summary.json'}: cannot be written: No space left on device"


def test_the_cause_of_a_spark_error_is_that_of_the_failed_write() -> None:
    error = Exception(
        "An error occurred while calling o48.parquet.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b(C)\n"
        "Caused by: org.apache.spark.SparkException: Task failed\n\tat a.b(C)\n"
        "Caused by: java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream"
    )
    assert cause_of(error) == "No space left on device"


def test_the_cause_of_an_error_whose_java_process_has_ended() -> None:
    class UnknownError(Exception):
        def __str__(self) -> str:
            raise Py4JNetworkError

    assert cause_of(UnknownError()) == "its Java process ended"


def test_a_master_that_gives_up_during_a_replay_is_the_cause_of_its_errors(tmp_path: Path) -> None:
    (log := tmp_path / "spark.log").write_text(
        "26/11/28 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: Master removed it: FAILED\n"
    )
    with pytest.raises(FakebrokerError, match=r": Master removed it: FAILED$"), spark_errors(log):
        raise Py4JError("Cannot call methods on a stopped SparkContext.")


@pytest.mark.parametrize("kind", ["spark://", "k8s://", "k8s://https://"])
def test_a_master_that_cannot_be_reached_is_an_error_before_anything_starts(
    tmp_path: Path, command_line: CommandLine, kind: str
) -> None:
    (file := tmp_path / "small.toml").write_text(WORKLOAD)
    master = f"{kind}127.0.0.1:1"
    status, _, error = command_line("replay", file, f"--master={master}", f"--out={tmp_path / 'out'}")
    assert (status, error) == (
        COULD_NOT_RUN,
        f"fakebroker: Spark did not start: --master={master!r} cannot be reached: Connection refused\n",
    )
    assert not (tmp_path / "out").exists()


def test_a_master_that_accepts_the_connection_and_is_silent_is_an_error_before_anything_starts(
    tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "small.toml").write_text(WORKLOAD)
    monkeypatch.setattr(session, "_MASTER_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        status, _, error = command_line("replay", file, f"--master={master}", f"--out={tmp_path / 'out'}")
    assert (status, error) == (
        COULD_NOT_RUN,
        f"fakebroker: Spark did not start: --master={master!r} cannot be reached: no answer\n",
    )
    assert not (tmp_path / "out").exists()


def test_one_of_the_masters_has_to_be_reachable() -> None:
    with listener(lambda peer: None) as address:
        session.check_master(f"spark://127.0.0.1:1,{address}")
    for other in ("local[2]", "yarn", "spark://nonsense", "k8s://example.com"):
        session.check_master(other)


def test_masters_that_do_not_answer_have_ten_seconds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s: list[float] = []

    def wait_in_vain(address: tuple[str, int], timeout_s: float) -> None:
        limits_s.append(timeout_s)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", wait_in_vain)
    with pytest.raises(FakebrokerError, match=r"--master='spark://a:1,b:1' cannot be reached: timed out"):
        session.check_master("spark://a:1,b:1")
    assert limits_s == [5.0, 5.0]


def test_the_driver_address_depends_on_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert [is_local(master) for master in ("local", "local[*]", "local-cluster[1,1,1]", "yarn")] == [
        True,
        True,
        False,
        False,
    ]
    assert address_for("local[2]") == address_for("local-cluster[2,1,1024]") == "127.0.0.1"
    assert address_for("spark://127.0.0.1:7077") == "127.0.0.1"
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.1.2.3")
    assert address_for("yarn") == "10.1.2.3"
    monkeypatch.setenv("SPARK_LOCAL_IP", "[::1]")
    assert address_for("yarn") == "::1"
