"""Whole replays, small ones: real Spark, real sockets, a fake cluster at the other end."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from pyspark.sql import SparkSession
from rich.console import Console

from fakebroker.errors import FakebrokerError
from fakebroker.replay.embedded import EmbeddedCluster, embedded_cluster
from fakebroker.replay.play import Run, play_on
from fakebroker.replay.report import print_report
from fakebroker.replay.run import ReplayOptions, replay
from fakebroker.replay.topics import ready_topics
from fakebroker.replay.workload import Arrival, Cluster, Expectation, Groups, Members, Workload
from fakebroker.server.fake_cluster import FakeCluster

SMALL = Workload(
    duration_s=3,
    topics={"orders": 4, "payments": 2},
    cluster=Cluster(brokers=3, config={"group.initial.rebalance.delay.ms": 100}),
    groups=Groups(count=6, members=(1, 3)),
    members=Members(session_timeout_ms=6_000, heartbeat_interval_ms=300, commit_interval_ms=400),
    arrival=Arrival(kind="ramp", over_s=0.5),
    event=(
        {"at_s": 1.2, "do": "stop_broker", "node_id": 7},
        {"at_s": 1, "do": "fail", "api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS", "times": 1},
    ),
    expect=(Expectation(metric="requests_per_s", comparison=">", value=10),),
)
AT_ONCE = Workload(
    duration_s=2,
    topics=SMALL.topics,
    groups=Groups(count=6, members=(3, 3)),
    members=Members(heartbeat_interval_ms=300, assignor="cooperative-sticky"),
)


def small_run(bootstrap: str, out: Path, workload: Workload = SMALL, cluster: EmbeddedCluster | None = None) -> Run:
    return Run(file=Path("a.toml"), workload=workload, seed=11, bootstrap=bootstrap, cluster=cluster, out=out)


@pytest.mark.slow
def test_a_replay_against_an_embedded_cluster(spark: SparkSession, tmp_path: Path) -> None:
    text = io.StringIO()
    console = Console(file=text, width=80)
    with embedded_cluster(SMALL.cluster, 11, tmp_path) as cluster:
        partitions = trio.run(ready_topics, cluster.bootstrap, SMALL.topics)
        summary = play_on(spark, small_run(cluster.bootstrap, tmp_path, cluster=cluster), partitions, console)
    assert summary["verdict"]["passed"], summary["verdict"]
    assert (summary["seed"], summary["groups"], summary["spark"]["tasks"]) == (11, 6, 2)
    assert {row["broker"] for row in summary["brokers"]} <= {1, 2, 3}
    apis = {row["api"]: row["requests"] for row in summary["apis"]}
    members = summary["members"]
    assert apis["LeaveGroup"] == members
    assert apis["Heartbeat"] > members
    assert apis["OffsetCommit"] > members
    assert {row["name"] for row in summary["errors"]} <= {"MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS"}
    assert summary["rebalances"]["count"] >= SMALL.groups.count
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert spark.read.parquet(str(tmp_path / "events.parquet")).count() == summary["total"]["requests"]
    assert all((tmp_path / name).exists() for name in summary["files"] if name != "spark.log")
    log = (tmp_path / "cluster.log").read_text()
    assert 'event done: {"do": "fail", "api": "Heartbeat"' in log
    assert "event not done: no broker 7: expected one of 1, 2, 3" in log
    print_report(console, summary)
    assert max(map(len, text.getvalue().splitlines())) <= 80 + len(str(tmp_path))


@pytest.mark.slow
def test_members_who_come_at_once_look_their_coordinators_up_together(spark: SparkSession, tmp_path: Path) -> None:
    with FakeCluster(brokers=2, topics={"orders": 5}) as cluster:
        partitions = trio.run(ready_topics, cluster.bootstrap_servers, AT_ONCE.topics)
        assert partitions == {"orders": 5, "payments": 2}
        run = small_run(cluster.bootstrap_servers, tmp_path, AT_ONCE)
        summary = play_on(spark, run, partitions, Console(file=io.StringIO()))
        asked = cluster.requests("FindCoordinator")
    assert summary["verdict"]["passed"], summary["verdict"]
    found = summary["find_coordinator"]
    assert (found["requests"], found["lookups"], found["most_in_one_request"]) == (2, 6, 3)
    assert len(asked) == 2


@pytest.mark.slow
def test_a_task_that_cannot_play_says_why(spark: SparkSession, tmp_path: Path) -> None:
    run = small_run("127.0.0.1:1", tmp_path)
    with pytest.raises(FakebrokerError) as caught:
        play_on(spark, run, SMALL.topics, Console(file=io.StringIO()))
    assert str(caught.value).startswith(
        f"the replay broke off (see {tmp_path / 'spark.log'}): "
        "fakebroker.client.connection.BrokerUnreachable: broker 127.0.0.1:1 cannot be reached: "
    )


@pytest.mark.slow
def test_a_spark_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fakebroker", "replay", "scenarios/workloads/steady-state.toml"]
    command += ["--master", "nonsense", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"fakebroker: Spark did not start (see {tmp_path / 'spark.log'}): "
        'Exception in thread "main" org.apache.spark.SparkException: '
        "Master must either be yarn or start with spark, k8s, or local\n",
    )


def test_a_cluster_that_cannot_be_reached_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "small.toml").write_text("duration_s = 1\ntopics = { orders = 1 }\n")
    assert replay(ReplayOptions(file=file, bootstrap="127.0.0.1:1", out=tmp_path)) == 1
    sentence = capsys.readouterr().err
    assert sentence.startswith("fakebroker: broker 127.0.0.1:1 cannot be reached: ")
    assert sentence.count("\n") == 1


def test_a_bootstrap_that_is_none_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "small.toml").write_text("duration_s = 1\ntopics = { orders = 1 }\n")
    assert replay(ReplayOptions(file=file, bootstrap="localhost", out=tmp_path)) == 1
    assert capsys.readouterr().err == (
        "fakebroker: --bootstrap localhost: expected HOST:PORT, or several with commas\n"
    )


def test_an_embedded_cluster_that_does_not_start_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "small.toml").write_text(
        'duration_s = 1\ntopics = { orders = 1 }\n[cluster]\nconfig = { "no.such.setting" = 1 }\n'
    )
    assert replay(ReplayOptions(file=file, out=tmp_path)) == 1
    sentence = capsys.readouterr().err
    assert "the embedded cluster did not start" in sentence
    assert "no.such.setting" in sentence


def test_without_the_extra_the_sentence_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fakebroker.replay.run.find_spec", lambda name: None if name == "pyspark" else object())
    assert replay(ReplayOptions(file=tmp_path / "any.toml")) == 1
    assert capsys.readouterr().err == (
        "fakebroker: Replaying needs the extra 'spark': pip install 'fakebroker[spark]'\n"
    )


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


@pytest.fixture
def replaying(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (file := tmp_path / "long.toml").write_text(
        "duration_s = 120\ntopics = { orders = 4 }\n[groups]\ncount = 4\nmembers = [5, 5]\n"
    )
    command = [sys.executable, "-m", "fakebroker", "replay", str(file), "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "stage"), [("Starting Spark\n", "fakebroker serve"), ("Playing 20 members for 120 s\n", "pyspark.daemon")]
)
def test_ctrl_c_ends_everything(replaying: subprocess.Popen[str], line: str, stage: str) -> None:
    """As in a terminal, all of its process group gets the signal."""
    assert replaying.stdout is not None
    assert line in iter(replaying.stdout.readline, "")
    started: dict[int, str] = {}
    while not any(stage in command for command in started.values()):
        assert replaying.poll() is None, replaying.communicate()
        started |= processes_under(replaying.pid)
    os.killpg(replaying.pid, signal.SIGINT)
    _, errors = replaying.communicate(timeout=60)
    assert (replaying.returncode, errors) == (130, "fakebroker: interrupted\n")
    still_there = running()
    assert {pid: command for pid, command in started.items() if pid in still_there} == {}
