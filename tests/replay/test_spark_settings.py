"""Spark settings that depend on the size of a run and on the machine."""

import math
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession

from fakebroker.errors import FakebrokerError
from fakebroker.replay import runner
from fakebroker.replay.options import ReplayOptions
from fakebroker.replay.spark import query_settings, session
from fakebroker.replay.spark.query_settings import settings_for_count
from fakebroker.replay.spark.session import memory_bytes, settings_for

PARTITIONS = "spark.sql.shuffle.partitions"


def test_the_session_is_started_for_the_number_of_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[float] = []

    def fail(master: str, log: Path, events: float) -> NoReturn:
        counts.append(events)
        raise FakebrokerError("there is no Spark")

    monkeypatch.setattr(runner, "spark_session", fail)
    workload = tmp_path / "w.toml"
    workload.write_text("duration_s = 60\ntopics = { orders = 2 }\n[[groups]]\ncount = 30\nmembers = 400\n")
    with pytest.raises(FakebrokerError, match="no Spark"):
        runner.play(ReplayOptions(file=workload, transport="memory", out=tmp_path / "out"))
    with pytest.raises(FakebrokerError, match="no Spark"):
        runner.play(ReplayOptions(file=workload, transport="memory", record="all", out=tmp_path / "all"))
    assert counts == [12_000 * (10 + 60 / 5), 12_000 * (10 + 60 / 3 + 60 / 5)]


def test_the_driver_memory_is_set_for_local_sessions_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    for memory, given in ((2**31, "1024m"), (20 * 2**30, "5120m"), (2**40, "8192m")):
        monkeypatch.setattr(session, "memory_bytes", lambda memory=memory: memory)
        assert settings_for("local[*]", math.inf)["spark.driver.memory"] == given
        assert settings_for("local[*]", 100_001)["spark.driver.memory"] == given
        assert settings_for("local[*]", 100_000)["spark.driver.memory"] == "512m"
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "3g")
    assert "spark.driver.memory" not in settings_for("local[*]", 1)
    assert not {"spark.driver.memory", PARTITIONS} & set(settings_for("spark://somewhere:7077", 1))
    assert "spark.driver.memory" not in settings_for("local-cluster[2,1,1024]", 1)


def test_the_memory_limit_of_a_container_is_respected(tmp_path: Path) -> None:
    machine = memory_bytes(tmp_path)
    assert machine > 2**28
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes(tmp_path) == machine
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{2**28}\n")
    assert memory_bytes(tmp_path) == 2**28
    (tmp_path / "memory.max").write_text(f"{2**29}\n")
    assert memory_bytes(tmp_path) == min(machine, 2**29)


def test_queries_of_small_runs_are_not_compiled_from_the_start(subtests: pytest.Subtests) -> None:
    few, many = (settings_for("local[2]", events) for events in (20_000, 200_000))
    for name in ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"):
        with subtests.test(name):
            assert (few[name], many.get(name)) == ("false", None)
    assert (few[PARTITIONS], many[PARTITIONS]) == ("1", "4")


@pytest.mark.slow
def test_workers_start_with_the_modules_of_members_and_without_pandas() -> None:
    program = (
        "import os, sys\n"
        "from fakebroker.replay.spark.worker_daemon import preload\n"
        "preload()\n"
        "modules = ('pyarrow', 'fakebroker.replay.simulation.simulation', 'pyspark.worker', 'pandas', 'matplotlib')\n"
        "print([name in sys.modules for name in modules])\n"
        "import pandas\n"  # for functions of other Spark programs
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "[True, True, True, False, False]\n")


@pytest.mark.spark
def test_many_rows_are_repartitioned_and_few_are_not(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_for_count(spark, 10)[PARTITIONS] == "1"
    monkeypatch.setattr(query_settings, "_FEW_ROWS", 9)
    many = settings_for_count(spark, 10)
    assert (many[PARTITIONS], many["spark.sql.adaptive.enabled"]) == ("4", "true")
    monkeypatch.setattr(query_settings, "_ROWS_PER_PARTITION", 2)
    assert settings_for_count(spark, 10)[PARTITIONS] == "5"
