"""What Spark is told to suit a run: few rows are not worth plans and compilers, many need room."""

import pytest
from pyspark.sql import SparkSession

from fakebroker.replay import tuning
from fakebroker.replay.session import MANY_MEMBERS, settings_for
from fakebroker.replay.tuning import as_for

PARTITIONS = "spark.sql.shuffle.partitions"


def test_java_has_its_second_compiler_where_there_is_enough_to_do() -> None:
    few, many = (settings_for("local[2]", members) for members in (MANY_MEMBERS - 1, MANY_MEMBERS))
    assert {name for name in few if few[name] != many.get(name)} == {
        "spark.driver.extraJavaOptions",
        "spark.executor.extraJavaOptions",
    }
    assert not set(many) - set(few)


def test_a_local_session_has_a_part_of_the_memory_and_a_cluster_what_it_is_given() -> None:
    given = settings_for("local[*]", 1)["spark.driver.memory"]
    assert 1024 <= int(given.removesuffix("m")) <= 8192
    assert not {"spark.driver.memory", PARTITIONS} & set(settings_for("spark://somewhere:7077", 1))
    assert "spark.driver.memory" not in settings_for("local-cluster[2,1,1024]", 1)


@pytest.mark.spark
def test_many_rows_are_dealt_out_and_few_are_not(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "spark.sql.codegen.wholeStage" in as_for(spark.range(10))
    monkeypatch.setattr(tuning, "_FEW_ROWS", 9)
    assert as_for(spark.range(10)) == {PARTITIONS: "4"}
    monkeypatch.setattr(tuning, "_ROWS_A_PARTITION", 2)
    assert as_for(spark.range(10)) == {PARTITIONS: "5"}
