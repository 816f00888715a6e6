"""Whole replays, small ones: real Spark, real sockets, a fake cluster at the other end."""

import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from pyspark.sql import SparkSession
from rich.console import Console

from fakebroker.errors import FakebrokerError
from fakebroker.replay.commands import replay, report
from fakebroker.replay.embedded_cluster import EmbeddedCluster, embedded_cluster
from fakebroker.replay.options import BAD_INPUT, COULD_NOT_RUN, FAILED, ReplayOptions
from fakebroker.replay.report.terminal import print_report
from fakebroker.replay.run_summary import Head, Summary, document_of, summary_of
from fakebroker.replay.runner import Run, final_state, plan_for, play_on
from fakebroker.replay.target_cluster import offsets_partitions, ready_topics
from fakebroker.replay.workload.expectations import Expectation
from fakebroker.replay.workload.population import Arrival, Groups, Sizes
from fakebroker.replay.workload.workload import Cluster, Workload
from tests.support.replay.listener import answer_api_versions, listener
from tests.support.replay.summaries import made_up_summary

SMALL = Workload(
    duration_s=3,
    topics={"orders": 4, "payments": 2},
    cluster=Cluster(brokers=3, config={"group.initial.rebalance.delay.ms": 100}),
    groups=(
        Groups(
            name="a",
            count=6,
            members=Sizes(uniform=(1, 3)),
            session_timeout_ms=6_000,
            heartbeat_interval_ms=300,
            commit_interval_ms=400,
            arrival=Arrival(ramp_s=0.5),
        ),
    ),
    event=(
        {"at_s": 1.2, "do": "stop_broker", "node_id": 7},
        {"at_s": 1, "do": "fail", "api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS", "times": 1},
    ),
    expect=(Expectation(metric="requests_per_s", comparison=">", value=10),),
)


def small_run(bootstrap: str, out: Path, cluster: EmbeddedCluster | None = None, **more: Any) -> Run:
    return Run(
        file=Path("a.toml"),
        workload=SMALL,
        seed=11,
        bootstrap=bootstrap,
        cluster=cluster,
        out=out,
        partitions=SMALL.topics,
        **more,
    )


@pytest.mark.slow
def test_a_replay_against_an_embedded_cluster(spark: SparkSession, tmp_path: Path) -> None:
    with embedded_cluster(SMALL.cluster, 11, tmp_path) as cluster:
        trio.run(ready_topics, cluster.bootstrap, SMALL.topics)
        played = play_on(spark, small_run(cluster.bootstrap, tmp_path, cluster), Console(file=io.StringIO()))
        assert trio.run(offsets_partitions, cluster.bootstrap) == 50
    summary = document_of(played)
    assert not summary["verdict"]["passed"]
    assert [check for check in summary["verdict"]["promises"] if not check["kept"]] == []
    assert [check for check in summary["verdict"]["expectations"] if not check["met"]] == [
        {"expectation": "events_done == 2", "met": False, "actual": 1}
    ]
    assert (summary["seed"], summary["groups"], summary["spark"]["tasks"]) == (11, 6, 2)
    assert {row["broker"] for row in summary["brokers"]} <= {1, 2, 3}
    apis = {row["api"]: row["requests"] for row in summary["apis"]}
    members = summary["members"]
    assert apis["LeaveGroup"] == members == summary["metrics"]["members_joined"]
    assert apis["Heartbeat"] > members
    assert apis["OffsetCommit"] > members
    assert {row["name"] for row in summary["errors"]} <= {"MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS"}
    assert summary["rebalances"]["count"] >= 6
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    events = spark.read.parquet(str(tmp_path / "events.parquet"))
    assert events.where("kind = 'request'").count() == summary["total"]["requests"]
    assert spark.read.parquet(str(tmp_path / "members.parquet")).count() == members
    assert all((tmp_path / name).exists() for name in summary["files"])
    assert [(event["do"], event["done"], event["why"]) for event in summary["timeline"]] == [
        ("fail", True, None),
        ("stop_broker", False, "node_id=7: expected one of 1, 2, 3"),
    ]
    assert summary_of(summary) == played
    text = io.StringIO()
    print_report(Console(file=text, width=80), played)
    assert max(map(len, text.getvalue().splitlines())) <= 80 + len(str(tmp_path))
    assert "not done: node_id=7" in text.getvalue()
    assert "MISSED  events_done == 2 (is 1)" in text.getvalue()
    assert "not done: node_id=7" in (tmp_path / "report.html").read_text()
    head = json.loads((tmp_path / "head.json").read_text())
    assert head == {key: json.loads(json.dumps(summary))[key] for key in Head.__struct_fields__}


@pytest.mark.slow
def test_a_replay_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    run = small_run("", tmp_path, transport="memory", record="changes")
    happenings = (
        {"at_s": 1.5, "do": "force_rebalance", "group_id": "nobody's"},
        {"at_s": 1, "do": "stop_broker", "node_id": 1},
    )
    workload = msgspec.structs.replace(SMALL, event=happenings)
    summary = document_of(play_on(spark, replace(run, workload=workload), Console(file=io.StringIO())))
    assert [check for check in summary["verdict"]["promises"] if not check["kept"]] == []
    assert [check["expectation"] for check in summary["verdict"]["expectations"] if not check["met"]] == [
        "events_done == 2"
    ]
    assert (summary["transport"], summary["record"], summary["cluster"]["embedded"]) == ("memory", "changes", True)
    assert [(event["at_s"], event["do"], event["done"]) for event in summary["timeline"]] == [
        (1, "stop_broker", True),
        (1.5, "force_rebalance", False),
    ]
    assert summary["metrics"]["members_joined"] == summary["members"]
    events = spark.read.parquet(str(tmp_path / "events.parquet")).where("kind = 'request'")
    assert events.count() < summary["total"]["requests"] == events.agg({"count": "sum"}).collect()[0][0]


@pytest.mark.slow
def test_a_task_that_cannot_play_says_why(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FakebrokerError) as caught:
        play_on(spark, small_run("127.0.0.1:1", tmp_path, lanes=3), Console(file=io.StringIO()))
    told = str(caught.value)
    assert told.startswith(f"the replay failed (see {tmp_path / 'spark.log'}): ")
    assert "broker 127.0.0.1:1 cannot be reached: " in told
    head = json.loads((tmp_path / "head.json").read_text())
    assert (head["complete"], head["seed"], head["lanes"]) == (False, 11, 3)


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
    file = workload_file(tmp_path)
    assert replay(ReplayOptions(file=file, bootstrap="127.0.0.1:1", out=tmp_path)) == COULD_NOT_RUN
    sentence = capsys.readouterr().err
    assert sentence.startswith("fakebroker: broker 127.0.0.1:1 cannot be reached: ")
    assert sentence.count("\n") == 1


@pytest.mark.parametrize(
    ("serve", "sentence"),
    [
        (answer_api_versions, "no response after ApiVersions (a listener that requires SASL authentication?): "),
        (lambda peer: peer.recv(4096), "no valid response to ApiVersions (a TLS listener, or not Kafka?): "),
    ],
)
def test_a_cluster_that_does_not_talk_in_the_clear_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], serve: Callable[[socket.socket], None], sentence: str
) -> None:
    file = workload_file(tmp_path)
    with listener(serve) as bootstrap:
        assert replay(ReplayOptions(file=file, bootstrap=bootstrap, out=tmp_path)) == COULD_NOT_RUN
    told = capsys.readouterr().err
    assert f"fakebroker: broker {bootstrap} cannot be reached: " in told
    assert sentence in told
    assert told.count("\n") == 1


def test_a_cluster_that_is_gone_in_the_end_is_found_out(tmp_path: Path) -> None:
    assert final_state(small_run("127.0.0.1:1", tmp_path)) == (50, False)
    assert final_state(small_run("", tmp_path, transport="memory")) == (50, True)
    with embedded_cluster(Cluster(brokers=1), 1, tmp_path) as cluster:
        run = small_run(cluster.bootstrap, tmp_path)
        assert final_state(run)[1]
        assert final_state(replace(run, cluster=cluster))[1]
    assert not final_state(replace(run, cluster=cluster))[1]


def test_memory_has_the_settings_that_a_served_cluster_has(tmp_path: Path) -> None:
    delay = "group.initial.rebalance.delay.ms"
    others: dict[str, str | int | float | bool] = {"group.max.size": 9}
    run = small_run("", tmp_path, transport="memory")
    assert plan_for(run, ("", 0)).cluster.config == {delay: 100}
    workload = msgspec.structs.replace(SMALL, cluster=Cluster(config=others))
    assert plan_for(replace(run, workload=workload), ("", 0)).cluster.config == {delay: 3_000} | others


def test_a_bootstrap_that_is_none_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = workload_file(tmp_path)
    assert replay(ReplayOptions(file=file, bootstrap="localhost", out=tmp_path)) == BAD_INPUT
    assert capsys.readouterr().err == (
        "fakebroker: --bootstrap='localhost': expected HOST:PORT, or several with commas\n"
    )


STOP_77 = '[[event]]\nat_s = 0\ndo = "stop_broker"\nnode_id = 77\n'


@pytest.mark.parametrize(
    ("more", "options", "sentence"),
    [
        ("[pacing]\nspeed = 2\n", {"bootstrap": "h:1"}, "[pacing] speed is for an embedded cluster"),
        ('[[event]]\nat_s = 0\ndo = "reset"\n', {"bootstrap": "h:1"}, "[[event]] is for an embedded cluster"),
        ("", {"bootstrap": "h:1", "transport": "memory"}, "--transport memory is for an embedded cluster"),
        ("", {"lanes": 3, "transport": "memory"}, "--lanes=3: expected --transport tcp with it"),
        (STOP_77, {}, "small.toml: event[0].node_id=77: expected one of 1, 2, 3"),
        (STOP_77, {"transport": "memory"}, "small.toml: event[0].node_id=77: expected one of 1, 2, 3"),
        ('[promises]\ncheck = ["all-well"]\n', {}, "promises.check[0]='all-well': expected one of "),
        ("nonsense = 1\n", {}, "small.toml: nonsense=1: unknown field; expected one of "),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, options: dict[str, Any], sentence: str
) -> None:
    file = workload_file(tmp_path, more)
    assert replay(ReplayOptions(file=file, out=tmp_path / "out", **options)) == BAD_INPUT
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_files_that_are_not_what_they_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = workload_file(tmp_path)
    assert replay(ReplayOptions(file=tmp_path / "none.toml")) == BAD_INPUT
    expected = "expected a file that can be read: No such file or directory"
    assert capsys.readouterr().err == f"fakebroker: file={str(tmp_path / 'none.toml')!r}: {expected}\n"
    assert replay(ReplayOptions(file=file, out=file)) == BAD_INPUT
    expected = "expected a directory, or a path where one can be created"
    assert capsys.readouterr().err == f"fakebroker: --out={str(file)!r}: {expected}\n"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}")
    assert replay(ReplayOptions(file=file, out=tmp_path / "run")) == BAD_INPUT
    expected = "expected a directory without a run, it has summary.json"
    assert capsys.readouterr().err == f"fakebroker: --out={str(tmp_path / 'run')!r}: {expected}\n"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["summary.json"]
    assert report(tmp_path, "local[1]") == BAD_INPUT
    expected = "expected the directory of a run, which has events.parquet"
    assert capsys.readouterr().err == f"fakebroker: directory={str(tmp_path)!r}: {expected}\n"


def test_a_report_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is for the main thread, so Spark is talked to in another."""
    summary = made_up_summary(1)
    threads = []

    def summarized(*_: object) -> Summary:
        threads.append(threading.current_thread())
        return summary_of(summary)

    monkeypatch.setattr("fakebroker.replay.rebuild.summarized", summarized)
    monkeypatch.setattr("fakebroker.replay.rebuild.spark_session", lambda *_: nullcontext())
    for name in ("events.parquet", "members.parquet"):
        (tmp_path / name).mkdir()
    path = tmp_path / "head.json"
    head = {key: summary[key] for key in Head.__struct_fields__}
    path.write_text(json.dumps(head))
    assert report(tmp_path, "local") == FAILED
    assert json.loads((tmp_path / "summary.json").read_text())["verdict"] == summary["verdict"]
    assert "Verdict: FAILED" in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()
    assert threads != [threading.main_thread()]
    del head["cluster"]["reachable"]
    for text, sentence in (
        ("[1]", "expected what the events of a run do not tell: "),
        ("{}", "9 errors\n  workload is missing: expected a table\n"),
        (json.dumps(head), "cluster.reachable is missing: expected true or false\n"),
    ):
        path.write_text(text)
        assert report(tmp_path, "local") == BAD_INPUT
        assert f"fakebroker: {path}: {sentence}" in capsys.readouterr().err


def test_an_embedded_cluster_that_does_not_start_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = workload_file(tmp_path)
    monkeypatch.setattr("fakebroker.replay.embedded_cluster.sys.executable", "/bin/false")
    assert replay(ReplayOptions(file=file, out=tmp_path)) == COULD_NOT_RUN
    log = tmp_path / "cluster.log"
    expected = f"fakebroker: the embedded cluster did not start (see {log}): no word from it\n"
    assert capsys.readouterr().err == expected


def test_without_the_extra_the_sentence_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fakebroker.replay.commands.find_spec", lambda name: None if name == "pyspark" else object())
    assert replay(ReplayOptions(file=tmp_path / "any.toml")) == COULD_NOT_RUN
    assert capsys.readouterr().err == (
        "fakebroker: Replaying needs the extra 'spark': pip install 'fakebroker[spark]'\n"
    )


def workload_file(directory: Path, more: str = "") -> Path:
    """A small one."""
    file = directory / "small.toml"
    groups = '[[groups]]\nname = "g"\ncount = 1\nmembers = 1\n'
    top, tables = (more, "") if not more.startswith("[") else ("", more)
    file.write_text(f"duration_s = 1\n{top}topics = {{ orders = 1 }}\n{groups}{tables}")
    return file
