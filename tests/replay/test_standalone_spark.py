"""Replays on a Spark cluster of its own, with executors of another version of Java, if the machine has one."""

import subprocess
import sys
from pathlib import Path

import pytest

from fakebroker.replay.options import COULD_NOT_RUN
from tests.replay.test_spark_session import MANY_EVENTS, WORKLOAD, check_against_local_session, written_summary
from tests.support.replay.standalone_spark import standalone_spark
from tests.support.soak import IS_SOAK, soak

pytestmark = [
    pytest.mark.slow,
    soak,
    pytest.mark.skipif(not IS_SOAK, reason="four Java processes on two cores take a minute"),
]


def replayed(directory: Path, master: str, transport: str) -> tuple[int, str, Path]:
    """Replay a workload; return the exit status, stderr, and the directory of the run."""
    (file := directory / f"{transport}.toml").write_text(WORKLOAD if transport == "tcp" else MANY_EVENTS)
    out = directory / transport
    command = [sys.executable, "-m", "fakebroker", "replay", str(file), "--out", str(out)]
    command += ["--master", master, "--transport", transport, "--record", "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, out


def test_replays_over_both_transports_pass(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with standalone_spark(tmp_path) as master:
        for transport in ("tcp", "memory"):
            with subtests.test(transport=transport):
                status, error, out = replayed(tmp_path, master, transport)
                assert (status, error) == (0, "")
                summary = written_summary(out)
                assert (summary["spark"]["master"], summary["verdict"]["outcome"]) == (master, "passed")
                assert summary["metrics"]["members_joined"] == summary["members"]
                if transport == "memory":
                    check_against_local_session(out)


def test_a_worker_that_cannot_start_executors_is_an_error_of_one_line(tmp_path: Path) -> None:
    with standalone_spark(tmp_path, can_start_executors=False) as master:
        status, error, out = replayed(tmp_path, master, "memory")
    why = f"Spark did not start (see {out / 'spark.log'}): Master removed our application: FAILED"
    assert (status, error) == (COULD_NOT_RUN, f"fakebroker: {why}\n")
