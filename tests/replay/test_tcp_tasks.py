"""Spark tasks that play members and loads over TCP."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession

from fakebroker.replay.script.script import DDL, Act, Script
from fakebroker.replay.spark.progress import Receiver, Tally, receiving
from fakebroker.replay.spark.session import SPARK_ERRORS, cause_of
from fakebroker.replay.spark.tcp_tasks import TaskPlan, _player, play_scripts
from fakebroker.replay.workload.loads import Load
from fakebroker.server.fake_cluster import FakeCluster
from fakebroker.server.lifecycle import bound
from tests.support.replay.secrets import PASSWORD, check_no_secrets, client_config, processes_at_the_first_heartbeat

GROUPS = [f"group-{number}" for number in range(6)]
TIMEOUT_S = 120
"""Timeout of a replay; only reached if something is broken."""


def scripts() -> list[Script]:
    return [
        Script(
            *("few" if group == GROUPS[0] else "many", group, f"{group}-{index}", None, ("orders",), "range"),
            *(6_000, 6_000, 100, 150, 50.0, (Act(0.0, "start"), Act(1_500.0, "leave"))),
        )
        for group in GROUPS
        for index in range(2)
    ]


def staying(members: list[Script]) -> list[Script]:
    """Return scripts of members that start and stay."""
    return [each._replace(session_timeout_ms=300_000, acts=each.acts[:1]) for each in members]


@contextmanager
def playing(receiver: Receiver[Tally], play: Callable[[], object]) -> Iterator[None]:
    """Play in another thread until the context ends."""
    with ThreadPoolExecutor(1) as thread:
        played = thread.submit(play)
        try:
            yield
        finally:
            receiver.stop_tasks()
        played.result()


@pytest.mark.slow
def test_two_tasks_play_their_members_and_loads(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(scripts(), DDL).repartition(2, "group")
    loads = (Load(kind="list-groups"), Load(kind="describe-groups", groups="many", at_s=1))
    with FakeCluster(brokers=2, topics={"orders": 4}) as cluster, receiving("127.0.0.1", Tally) as receiver:
        plan = TaskPlan(
            bootstrap=cluster.bootstrap_servers,
            report_to=("127.0.0.1", receiver.port),
            directory=tmp_path / "events",
            duration_s=1.5,
            lanes=1,
            loads=loads,
        )
        written = play_scripts(rows, plan)
        tally = receiver.total()
    events = spark.read.parquet(str(tmp_path / "events")).collect()
    assert written == len(events)
    assert len(list((tmp_path / "events").iterdir())) == 2
    requests = [event for event in events if event.kind == "request"]
    assert tally.requests == len(requests)
    assert tally.errors == 0
    assert sum(event.api == "LeaveGroup" for event in events) == 12
    assert sum(event.api == "start" for event in events) == 12
    described = [event.group for event in events if event.api == "DescribeGroups"]
    assert sorted(described) == GROUPS[1:]
    assert [event.broker for event in events if event.api == "ListGroups"] == [1, 2]


@pytest.mark.slow
def test_heartbeats_are_folded_if_only_changes_are_recorded(spark: SparkSession, tmp_path: Path) -> None:
    """The replay ends when each member has sent three heartbeats, however long that takes."""
    # A group of one member has one generation, and thus one row of heartbeats.
    rows = spark.createDataFrame(staying(scripts()[::2]), DDL).repartition(1, "group")
    with FakeCluster(brokers=2, topics={"orders": 4}) as cluster, receiving("127.0.0.1", Tally) as receiver:
        plan = TaskPlan(
            bootstrap=cluster.bootstrap_servers,
            report_to=("127.0.0.1", receiver.port),
            directory=tmp_path / "events",
            duration_s=TIMEOUT_S,
            record="changes",
        )
        with playing(receiver, lambda: play_scripts(rows, plan)):
            for group in GROUPS:
                cluster.wait(cluster.requested("Heartbeat", group=group, count=3), timeout_s=TIMEOUT_S)
    events: list[Row] = spark.read.parquet(str(tmp_path / "events")).collect()
    beats = [event for event in events if event.api == "Heartbeat" and event.error == 0]
    assert sorted(event.group for event in beats) == GROUPS
    # The response to the last heartbeat may be pending at the end.
    assert [event for event in beats if event["count"] < 2] == []


@pytest.mark.slow
def test_an_unreachable_cluster_is_reported_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(scripts(), DDL).repartition(1, "group")
    with bound("127.0.0.1", 0) as deaf:  # Nobody listens on the port.
        port = deaf.getsockname()[1]
        plan = TaskPlan(
            bootstrap=f"127.0.0.1:{port}", report_to=("127.0.0.1", 9), directory=tmp_path / "events", duration_s=1
        )
        with pytest.raises(SPARK_ERRORS) as caught:
            play_scripts(rows, plan)
    assert f"broker 127.0.0.1:{port} cannot be reached: Connection refused" in cause_of(caught.value)


@pytest.mark.slow
def test_spark_has_the_path_of_the_client_settings_only(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(staying(scripts()), DDL).repartition(1, "group")
    with (
        FakeCluster(brokers=2, topics={"orders": 4}, users={"alice": PASSWORD}) as cluster,
        receiving("127.0.0.1", Tally) as receiver,
    ):
        plan = TaskPlan(
            bootstrap=cluster.bootstrap_servers,
            report_to=("127.0.0.1", receiver.port),
            directory=tmp_path / "events",
            duration_s=TIMEOUT_S,
            lanes=1,
            client_config=client_config(tmp_path),
        )
        pickled: bytes = cloudpickle.dumps(_player(plan))  # type: ignore[no-untyped-call]  # Spark ships no types for it
        assert PASSWORD.encode() not in pickled
        with (
            playing(receiver, lambda: play_scripts(rows, plan)),
            processes_at_the_first_heartbeat(cluster) as processes,
        ):
            pass
        assert {call.principal for call in cluster.journal.requests("Heartbeat")} == {"User:alice"}
    check_no_secrets(processes, tmp_path / "events")
