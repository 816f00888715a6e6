"""Small replays from the workload to the report, with Spark and an embedded cluster; and errors of the commands."""

import io
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from msgspec.structs import replace
from pyspark.sql import SparkSession
from rich.console import Console

from fakebroker import Admin, FakeCluster
from fakebroker.errors import FakebrokerError
from fakebroker.replay import run_directory
from fakebroker.replay.commands import replay, report
from fakebroker.replay.embedded_cluster import EmbeddedCluster, embedded_cluster
from fakebroker.replay.options import BAD_INPUT, COULD_NOT_RUN, FAILED, ReplayOptions
from fakebroker.replay.report.terminal import print_report
from fakebroker.replay.run_directory import new_directory, write_results
from fakebroker.replay.run_summary import RUN_FORMAT, Head, Summary, document_of, summary_of
from fakebroker.replay.runner import PreparedReplay, final_state, plan_for, play_on
from fakebroker.replay.target_cluster import check_answers, offsets_partitions, ready_topics
from fakebroker.replay.workload.expectations import Expectation
from fakebroker.replay.workload.population import Arrival, Groups, Sizes
from fakebroker.replay.workload.workload import Cluster, Workload
from tests.replay.conftest import CommandLine
from tests.support.ipv6 import needs_ipv6
from tests.support.replay.listener import answer_api_versions, listener
from tests.support.replay.summaries import summary_document

SMALL = Workload(
    duration_s=3,
    topics={"orders": 4, "payments": 2},
    cluster=Cluster(
        brokers=3,
        config={"group.initial.rebalance.delay.ms": 100, "group.consumer.heartbeat.interval.ms": 300},
    ),
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
        Groups(
            name="c",
            count=2,
            members=Sizes(uniform=(2, 3)),
            protocol="consumer",
            commit_interval_ms=400,
            arrival=Arrival(ramp_s=0.5),
        ),
    ),
    event=(
        {"at_s": 1.2, "do": "broker.stop", "node_id": 7},
        {"at_s": 1, "do": "inject_fault", "api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS", "times": 1},
        {"at_s": 2.2, "do": "expect", "condition": {"is": "broker.up", "node_id": 3}},
        {"at_s": 2.3, "do": "expect", "condition": {"is": "group.state", "group_id": "c-0", "state": "Dead"}},
    ),
    expect=(Expectation(metric="requests_per_s", comparison=">", value=10),),
)


def small_run(bootstrap: str, out: Path, cluster: EmbeddedCluster | None = None, **more: Any) -> PreparedReplay:
    return PreparedReplay(
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
        played = write_results(
            tmp_path,
            play_on(spark, small_run(cluster.bootstrap, tmp_path, cluster), Console(file=io.StringIO())),
        )
        assert trio.run(offsets_partitions, cluster.bootstrap) == 50
    summary = document_of(played)
    assert summary["verdict"]["outcome"] == "failed"
    assert [check for check in summary["verdict"]["promises"] if check["outcome"] == "broken"] == []
    assert [check for check in summary["verdict"]["expectations"] if not check["met"]] == [
        {"expectation": "events_done == 4", "met": False, "actual": 2, "doubt": ""}
    ]
    assert (summary["seed"], summary["groups"], summary["spark"]["tasks"]) == (11, 8, 2)
    assert {row["broker"] for row in summary["brokers"]} <= {1, 2, 3}
    apis = {row["api"]: row["requests"] for row in summary["apis"]}
    members = summary["members"]
    assert members == summary["metrics"]["members_joined"]
    assert 6 <= apis["LeaveGroup"] <= members - 4
    assert {"Heartbeat", "ConsumerGroupHeartbeat", "OffsetCommit"} <= apis.keys()
    assert {row["name"] for row in summary["errors"]} <= {
        *("MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"),
    }
    assert summary["rebalances"]["count"] >= 8
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    events = spark.read.parquet(str(tmp_path / "events.parquet"))
    assert events.where("kind = 'request'").count() == summary["total"]["requests"]
    assert spark.read.parquet(str(tmp_path / "members.parquet")).count() == members
    assert all((tmp_path / name).exists() for name in summary["files"])
    assert [(event["do"], event["done"], event["why"]) for event in summary["timeline"][:3]] == [
        ("inject_fault", True, None),
        ("broker.stop", False, "node_id=7: expected one of 1, 2, 3"),
        ("expect", True, None),
    ]
    not_dead = summary["timeline"][3]
    assert (not_dead["condition"], not_dead["done"]) == (
        {"is": "group.state", "group_id": "c-0", "state": "Dead"},
        False,
    )
    assert not_dead["why"].startswith("group('c-0').state(state='Dead'): it does not hold\nc-0 has been in ")
    assert "\ngroup c-0, since " in not_dead["why"]
    assert summary_of(summary) == played
    text = io.StringIO()
    print_report(Console(file=text, width=80), played)
    assert max(map(len, text.getvalue().splitlines())) <= 80 + len(str(tmp_path))
    assert "not done: node_id=7" in text.getvalue()
    assert "done: group('c-0').state(state='Dead'): it does not hold" in " ".join(text.getvalue().split())
    assert "group c-0, since" not in text.getvalue(), "the timeline is in summary.json only"
    assert re.search(r"MISSED +events_done == 4 \(actual: 2\)", text.getvalue())
    assert "not done: node_id=7" in (tmp_path / "report.html").read_text()
    head = json.loads((tmp_path / "head.json").read_text())
    assert head == {key: json.loads(json.dumps(summary))[key] for key in Head.__struct_fields__}


MOST_JOBS = 120
"""Maximum number of Spark jobs of a small replay. About 60 store rows, so that tasks that read them are small."""


def jobs_of(spark: SparkSession) -> int:
    """Return the number of jobs that a session has started."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


@pytest.mark.slow
def test_a_replay_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    run = small_run("", tmp_path, transport="memory", record="changes")
    cluster_events = (
        {"at_s": 1.5, "do": "group.rebalance", "group_id": "unknown"},
        {"at_s": 1, "do": "broker.stop", "node_id": 1},
        {"at_s": 2, "do": "expect", "condition": {"not": {"is": "broker.up", "node_id": 1}}},
        {"at_s": 2.2, "do": "expect", "condition": {"not": {"is": "group.state", "group_id": "c-0", "state": "Dead"}}},
        {"at_s": 2.3, "do": "expect", "condition": {"is": "group.state", "group_id": "a-0", "state": "Dead"}},
        {"at_s": 2.4, "do": "expect", "condition": {"is": "group.stable", "group_id": "unknown"}},
        {"at_s": 2.5, "do": "expect", "condition": {"is": "group.state", "group_id": "unknown", "state": "Dead"}},
    )
    workload = msgspec.structs.replace(SMALL, event=cluster_events)
    before = jobs_of(spark)
    summary = document_of(play_on(spark, replace(run, workload=workload), Console(file=io.StringIO())))
    assert jobs_of(spark) - before <= MOST_JOBS
    assert [check for check in summary["verdict"]["promises"] if check["outcome"] == "broken"] == []
    assert [check["expectation"] for check in summary["verdict"]["expectations"] if not check["met"]] == [
        "events_done == 7"
    ]
    assert (summary["transport"], summary["record"], summary["cluster"]["embedded"]) == ("memory", "changes", True)
    assert [(event["at_s"], event["do"], event["done"]) for event in summary["timeline"]] == [
        (1, "broker.stop", True),
        (1.5, "group.rebalance", False),
        (2, "expect", True),
        (2.2, "expect", True),
        (2.3, "expect", False),
        (2.4, "expect", False),
        (2.5, "expect", True),
    ]
    assert "it does not hold\na-0 has been in " in summary["timeline"][4]["why"]
    assert "it does not hold\nunknown is Dead: there is no such group." in summary["timeline"][5]["why"]
    assert summary["metrics"]["members_joined"] == summary["members"]
    assert spark.read.parquet(str(tmp_path / "violations.parquet")).count() == 0
    events = spark.read.parquet(str(tmp_path / "events.parquet")).where("kind = 'request'")
    assert events.count() < summary["total"]["requests"] == events.agg({"count": "sum"}).collect()[0][0]


@pytest.mark.slow
def test_a_failed_task_is_reported_with_its_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FakebrokerError) as caught:
        play_on(spark, small_run("127.0.0.1:1", tmp_path, lanes=3), Console(file=io.StringIO()))
    message = str(caught.value)
    assert message.startswith(f"the replay failed (see {tmp_path / 'spark.log'}): ")
    assert "broker 127.0.0.1:1 cannot be reached: " in message
    head = json.loads((tmp_path / "head.json").read_text())
    assert (head["complete"], head["seed"], head["lanes"]) == (False, 11, 3)


@pytest.mark.slow
@pytest.mark.needs("bash")  # Spark's launcher
def test_a_failed_start_of_spark_is_reported_with_its_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fakebroker", "replay", "scenarios/workloads/steady-state.toml"]
    command += ["--master", "nonsense", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"fakebroker: Spark did not start (see {tmp_path / 'spark.log'}): "
        'Exception in thread "main" org.apache.spark.SparkException: '
        "Master must either be yarn or start with spark, k8s, or local\n",
    )


def test_an_unreachable_cluster_is_an_error_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = workload_file(tmp_path)
    assert replay(ReplayOptions(file=file, bootstrap="127.0.0.1:1", out=tmp_path)) == COULD_NOT_RUN
    message = capsys.readouterr().err
    assert message.startswith("fakebroker: broker 127.0.0.1:1 cannot be reached: ")
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("serve", "error"),
    [
        (answer_api_versions, "no response after ApiVersions (a listener that requires SASL authentication?): "),
        (lambda peer: peer.recv(4096), "no valid response to ApiVersions (a TLS listener, or not Kafka?): "),
    ],
)
def test_a_cluster_with_tls_or_authentication_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], serve: Callable[[socket.socket], None], error: str
) -> None:
    file = workload_file(tmp_path)
    with listener(serve) as bootstrap:
        assert replay(ReplayOptions(file=file, bootstrap=bootstrap, out=tmp_path)) == COULD_NOT_RUN
    message = capsys.readouterr().err
    assert f"fakebroker: broker {bootstrap} cannot be reached: " in message
    assert error in message
    assert message.count("\n") == 1


def test_the_final_state_of_an_unreachable_cluster_and_of_a_simulated_one(tmp_path: Path) -> None:
    assert final_state(small_run("127.0.0.1:1", tmp_path)) == (50, False)
    assert final_state(small_run("", tmp_path, transport="memory")) == (50, True)


def test_an_embedded_cluster_returns_outcomes_of_events_and_is_reachable_until_it_stops(tmp_path: Path) -> None:
    with embedded_cluster(Cluster(brokers=1), 1, tmp_path) as cluster:
        assert cluster.outcomes() == []
        cluster.perform({"do": "clear_faults"})
        cluster.perform({"do": "broker.stop", "node_id": 7})
        start = {"do": "broker.start", "node_id": 1}
        cluster.perform({"do": "inject_fault", "api": "Metadata", "times": 1, "then": start})
        outcomes = cluster.outcomes()
        assert outcomes == [None, "node_id=7: expected one of 1", None]
        run = small_run(cluster.bootstrap, tmp_path)
        assert final_state(run)[1]
        assert final_state(replace(run, cluster=cluster))[1]
        failed = "an action of the fault failed: broker.start(node_id=1) at <Metadata v"
        assert (cluster.outcomes()[2] or "").startswith(failed)
    assert not final_state(replace(run, cluster=cluster))[1]


def test_the_outcome_of_a_condition_that_does_not_hold_has_the_state(tmp_path: Path) -> None:
    stable, dead = ({"is": "group.state", "group_id": "g", "state": state} for state in ("Stable", "Dead"))
    with embedded_cluster(Cluster(brokers=1), 1, tmp_path) as cluster:
        cluster.perform({"do": "topic.create", "topic": "orders"})
        cluster.perform({"do": "expect", "condition": stable})
        cluster.perform({"do": "group.seed", "group_id": "g", "members": 2, "topics": ["orders"]})
        cluster.perform({"do": "expect", "condition": {"all": [stable, {"is": "broker.up", "node_id": 1}]}})
        cluster.perform(
            {"do": "inject_fault", "api": "Metadata", "times": 1, "then": {"do": "expect", "condition": dead}}
        )
        cluster.perform({"do": "expect", "condition": {"is": "group.stabel", "group_id": "g"}})
        cluster.perform({"do": "expect", "condition": {"is": "requested", "api": "Metadata", "count": 9}})
        assert len(cluster.outcomes()) == 7
        assert final_state(small_run(cluster.bootstrap, tmp_path))[1]
        cluster.perform({"do": "clear_faults"})
        created, not_stable, seeded, both, failed, invalid, requested, cleared = cluster.outcomes()
    assert [created, seeded, both, cleared] == [None] * 4
    assert (not_stable or "").startswith(
        "group('g').state(state='Stable'): it does not hold\ng is Dead: there is no such "
    )
    assert (not_stable or "").endswith("\ncommitted by g: nothing")
    assert (failed or "").startswith(
        "an action of the fault failed: expect(condition=<group('g').state(state='Dead')>) "
    )
    assert "state='Dead'): it does not hold\ng has been in Stable for " in (failed or "")
    assert "group g, since " in (failed or ""), "its timeline"
    assert (invalid or "").startswith("condition.is='group.stabel': expected one of ")
    assert (requested or "").startswith("requested(api='Metadata', count=9): it does not hold\nthe last ")
    assert "Traceback" not in (failed or "")


@needs_ipv6
def test_an_embedded_cluster_can_have_ipv6_addresses(tmp_path: Path) -> None:
    with embedded_cluster(Cluster(brokers=2), 1, tmp_path, host="::1") as cluster:
        assert re.fullmatch(r"\[::1\]:\d+,\[::1\]:\d+", cluster.bootstrap)
        check_answers(cluster.bootstrap)
        assert trio.run(ready_topics, cluster.bootstrap, {"orders": 3}) == {"orders": 3}
        assert final_state(small_run(cluster.bootstrap, tmp_path))[1]


def test_a_cluster_without_the_consumer_protocol_is_named_before_anything_starts(tmp_path: Path) -> None:
    for as_version in ("3.9", None):
        with embedded_cluster(Cluster(brokers=1, as_version=as_version), 1, tmp_path) as cluster:
            check_answers(cluster.bootstrap)
            if as_version is None:
                check_answers(cluster.bootstrap, has_consumer_members=True)
                continue
            with pytest.raises(FakebrokerError) as caught:
                check_answers(cluster.bootstrap, has_consumer_members=True)
            assert str(caught.value) == (
                f"cluster {cluster.bootstrap} does not have group.version=1: members of the protocol 'consumer' need "
                "Kafka 4.0 or later"
            )


def test_a_simulated_cluster_has_the_default_settings_of_kafka(tmp_path: Path) -> None:
    defaults = {"group.initial.rebalance.delay.ms": 3_000, "group.consumer.assignment.interval.ms": 1_000}
    others: dict[str, str | int | float | bool] = {"group.max.size": 9}
    run = small_run("", tmp_path, transport="memory")
    assert plan_for(run, ("", 0)).cluster.config == defaults | SMALL.cluster.config
    workload = msgspec.structs.replace(SMALL, cluster=Cluster(config=others))
    assert plan_for(replace(run, workload=workload), ("", 0)).cluster.config == defaults | others


def test_an_invalid_bootstrap_address_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = workload_file(tmp_path)
    assert replay(ReplayOptions(file=file, bootstrap="localhost", out=tmp_path)) == BAD_INPUT
    assert capsys.readouterr().err == (
        "fakebroker: --bootstrap='localhost': expected HOST:PORT, or several with commas\n"
    )


STOP_77 = '[[event]]\nat_s = 0\ndo = "broker.stop"\nnode_id = 77\n'


def test_options_that_contradict_the_workload_are_errors_of_one_line(
    subtests: pytest.Subtests, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("[pacing]\nspeed = 2\n", {"bootstrap": "h:1"}, "none with [pacing] speed, which requires the embedded"),
        ('[[event]]\nat_s = 0\ndo = "reset"\n', {"bootstrap": "h:1"}, "none with [[event]], which requires the"),
        ("", {"bootstrap": "h:1", "transport": "memory"}, "none with --transport memory, which requires the embedded"),
        ("", {"allow_existing": True}, "--allow-existing=True: expected --bootstrap with it; an embedded cluster"),
        ("", {"lanes": 3, "transport": "memory"}, "--lanes=3: expected --transport tcp; in memory"),
        (STOP_77, {}, "small.toml: event[0].node_id=77: expected one of 1, 2, 3"),
        (STOP_77, {"transport": "memory"}, "small.toml: event[0].node_id=77: expected one of 1, 2, 3"),
        ('[promises]\ncheck = ["all-well"]\n', {}, "promises.check[0]='all-well': expected one of "),
        ("nonsense = 1\n", {}, "small.toml: nonsense=1: unknown field; expected one of "),
    ]
    for more, options, error in cases:
        with subtests.test(workload=more, options=options):
            file = workload_file(tmp_path, more)
            assert replay(ReplayOptions(file=file, out=tmp_path / "out", **options)) == BAD_INPUT
            message = capsys.readouterr().err
            assert error in message
            assert message.count("\n") == 1
            assert not (tmp_path / "out").exists()


def test_errors_of_missing_files_and_of_existing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    expected = "expected a directory without a run; this one contains summary.json"
    assert capsys.readouterr().err == f"fakebroker: --out={str(tmp_path / 'run')!r}: {expected}\n"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["summary.json"]
    assert report(tmp_path, "local[1]") == BAD_INPUT
    expected = "expected the directory of a run, which contains events.parquet"
    assert capsys.readouterr().err == f"fakebroker: directory={str(tmp_path)!r}: {expected}\n"


def test_a_replay_does_not_start_in_the_directory_of_a_run_that_has_not_ended(
    tmp_path: Path, command_line: CommandLine
) -> None:
    out = tmp_path / "run"
    command = ("replay", workload_file(tmp_path), "--bootstrap=127.0.0.1:1", f"--out={out}")
    with new_directory(out, "small"):
        status, _, error = command_line(*command)
        assert (status, error) == (
            BAD_INPUT,
            f"fakebroker: --out={str(out)!r}: expected a directory without a run; this one contains running: its run "
            "has not ended, or was killed\n",
        )
        assert [path.name for path in out.iterdir()] == ["running"]
    assert command_line(*command)[0] == COULD_NOT_RUN
    assert [path.name for path in out.iterdir()] == ["workload.toml"]


def test_runs_that_begin_in_the_same_second_have_directories_of_their_own(
    tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Stopped":
            return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)

    monkeypatch.setattr(run_directory, "datetime", Stopped)
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        assert command_line("replay", workload_file(tmp_path), "--bootstrap=127.0.0.1:1")[0] == COULD_NOT_RUN
    names = ["small-20260102-030405", "small-20260102-030405-2", "small-20260102-030405-3"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == names


def test_a_report_is_recomputed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = document_of(summary_of(summary_document(1)))  # with the defaults
    threads = []

    def summarize(*_: object) -> Summary:
        threads.append(threading.current_thread())
        return summary_of(summary)

    monkeypatch.setattr("fakebroker.replay.rebuild.summarize", summarize)
    monkeypatch.setattr("fakebroker.replay.rebuild.spark_session", lambda *_: nullcontext())
    monkeypatch.setattr("fakebroker.replay.run_directory.page", lambda _: "the page")  # test_report.py renders a page.
    for name in ("events.parquet", "members.parquet"):
        (tmp_path / name).mkdir()
    path = tmp_path / "head.json"
    head = {key: summary[key] for key in Head.__struct_fields__}
    path.write_text(json.dumps(head))
    assert report(tmp_path, "local") == FAILED
    assert json.loads((tmp_path / "summary.json").read_text())["verdict"] == summary["verdict"]
    assert "Verdict: FAILED" in capsys.readouterr().out
    assert (tmp_path / "report.html").read_text() == "the page"
    assert threads != [threading.main_thread()]  # Ctrl-C interrupts the main thread, which must not call Spark
    del head["cluster"]["reachable"]
    for text, error in (
        ("[1]", "expected the settings of a run as a JSON object: "),
        ("{}", "9 errors\n  workload is missing: expected a table\n"),
        (json.dumps(head), "cluster.reachable is missing: expected true or false or none\n"),
    ):
        path.write_text(text)
        assert report(tmp_path, "local") == BAD_INPUT
        assert f"fakebroker: {path}: {error}" in capsys.readouterr().err
    path.write_text(json.dumps(head | {"format": 7}))
    assert report(tmp_path, "local") == BAD_INPUT
    assert f"has a run of format 7, and this fakebroker reads format {RUN_FORMAT}" in capsys.readouterr().err


def started(*_: object) -> None:
    """Replace the start of Spark, which comes after the checks of the cluster."""
    raise FakebrokerError("the replay started")


def test_topics_and_groups_that_exist_are_refused(
    subtests: pytest.Subtests, tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = '[[groups]]\nname = "h"\ncount = 12\npattern = "team.{}-app"\nmembers = 1\n'
    tables += '[[groups]]\nname = "hot"\nhot_partitions = [3]\nmembers = 1\n'
    (tmp_path / "names.csv").write_text("group\nlisted\n")
    tables += '[[groups]]\nname = "f"\nfrom_file = "names.csv"\nmembers = 1\n'
    file = workload_file(tmp_path, tables)
    # No group has these numbers, lengths of numbers, or characters.
    others = ("team.12-app", "team.1-app", "team.001-app", "teamx01-app", "g-1", "g-0-0", "hot-0-", "other", "group")

    monkeypatch.setattr("fakebroker.replay.runner.spark_session", started)

    async def commit(bootstrap: str, groups: Iterable[str]) -> None:
        async with Admin(bootstrap) as admin:
            offsets = {("other", 0): 1}
            (await admin.alter_group_offsets(dict.fromkeys(groups, offsets))).all()

    for topics, groups, options, status, error in (
        ((), (), (), COULD_NOT_RUN, "the replay started"),
        (("orders",), ("g-0",), ("--allow-existing",), COULD_NOT_RUN, "the replay started"),
        (("orders",), (), (), BAD_INPUT, "the topic orders"),
        ((), ("g-0", "hot-0-17"), (), BAD_INPUT, "the groups g-0, hot-0-17"),
        (("orders",), ("listed",), (), BAD_INPUT, "the topic orders and the group listed"),
        (
            (),
            tuple(f"team.{number:02}-app" for number in range(12)),
            (),
            BAD_INPUT,
            "the groups team.00-app, team.01-app, team.02-app and 9 more",
        ),
    ):
        with (
            subtests.test(topics=topics, groups=groups, options=options),
            FakeCluster(brokers=2, topics={"other": 1} | dict.fromkeys(topics, 1)) as cluster,
        ):
            servers = cluster.bootstrap_servers
            trio.run(commit, servers, others + groups)
            command = ("replay", file, f"--bootstrap={servers}", f"--out={tmp_path / 'out'}", *options)
            expected = error
            if status == BAD_INPUT:
                expected = (
                    f"--bootstrap={servers!r}: expected a cluster without topics and groups of the workload, or "
                    f"--allow-existing; it has {error}"
                )
            assert command_line(*command)[::2] == (status, f"fakebroker: {expected}\n")
            has_topic = "orders" in trio.run(topics_of, servers)
            assert has_topic == (status == COULD_NOT_RUN or "orders" in topics)


async def topics_of(bootstrap: str) -> Collection[str]:
    async with Admin(bootstrap) as admin:
        return await admin.list_topics()


def test_a_broker_that_does_not_list_its_groups_is_an_error_unless_they_may_exist(
    tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fakebroker.replay.runner.spark_session", started)
    file = workload_file(tmp_path)
    with FakeCluster(brokers=2) as cluster:
        cluster.inject_fault("ListGroups", error="GROUP_AUTHORIZATION_FAILED")
        servers = cluster.bootstrap_servers
        command = ("replay", file, f"--bootstrap={servers}", f"--out={tmp_path}")
        status, _, error = command_line(*command)
        assert command_line(*command, "--allow-existing")[2] == "fakebroker: the replay started\n"
    assert status == COULD_NOT_RUN
    assert error.startswith(f"fakebroker: cluster {servers}: whether groups of the workload exist is not known (")
    assert "GROUP_AUTHORIZATION_FAILED" in error
    assert error.endswith("); --allow-existing skips this check\n")


def test_a_failed_start_of_the_embedded_cluster_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = workload_file(tmp_path)
    monkeypatch.setattr("fakebroker.replay.embedded_cluster.sys.executable", "/bin/false")
    assert replay(ReplayOptions(file=file, out=tmp_path)) == COULD_NOT_RUN
    log = tmp_path / "cluster.log"
    expected = f"fakebroker: the embedded cluster did not start (see {log}): no output\n"
    assert capsys.readouterr().err == expected


def test_a_missing_extra_is_an_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fakebroker.replay.commands.find_spec", lambda name: None if name == "pyspark" else object())
    assert replay(ReplayOptions(file=tmp_path / "any.toml")) == COULD_NOT_RUN
    assert capsys.readouterr().err == (
        "fakebroker: this command requires the extra 'spark': pip install 'fakebroker[spark]'\n"
    )


def workload_file(directory: Path, more: str = "") -> Path:
    """Write a workload with one member; `more` is a top-level key or further tables."""
    file = directory / "small.toml"
    groups = '[[groups]]\nname = "g"\ncount = 1\nmembers = 1\n'
    top, tables = (more, "") if not more.startswith("[") else ("", more)
    file.write_text(f"duration_s = 1\n{top}topics = {{ orders = 1 }}\n{groups}{tables}")
    return file
