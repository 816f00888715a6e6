"""Member scripts: the same for the same seed, however Spark cuts them up."""

from collections import Counter, defaultdict

import pytest
from pyspark.sql import Row, SparkSession

from fakebroker.replay.player import Script
from fakebroker.replay.scripts import member_scripts
from fakebroker.replay.workload import Arrival, Groups, Members, Workload

pytestmark = pytest.mark.slow

WORKLOAD = Workload(
    duration_s=20,
    topics={"orders": 6, "payments": 2},
    groups=Groups(count=120, members=(2, 5), name="shop-{}-eu"),
    members=Members(topics=("orders",), heartbeat_interval_ms=1000, commit_interval_ms=0, jitter=0.2),
    arrival=Arrival(kind="ramp", over_s=4),
)


def rows(spark: SparkSession, seed: int, partitions: int, workload: Workload = WORKLOAD) -> list[Row]:
    return sorted(member_scripts(spark, workload, seed, partitions).collect())


@pytest.mark.parametrize("partitions", [2, 7, 120])
def test_partitions_do_not_matter(spark: SparkSession, partitions: int) -> None:
    assert rows(spark, 5, partitions) == rows(spark, 5, 1)


def test_the_seed_does(spark: SparkSession) -> None:
    assert rows(spark, 5, 2) != rows(spark, 6, 2)


def test_a_member_does_the_same_with_more_groups_beside_it(spark: SparkSession) -> None:
    fewer = Workload(**{**{name: getattr(WORKLOAD, name) for name in WORKLOAD.__struct_fields__}, "groups": FEWER})
    assert set(map(str, rows(spark, 5, 2, fewer))) < set(map(str, rows(spark, 5, 2)))


FEWER = Groups(count=101, members=(2, 5), name="shop-{}-eu")


def test_the_members_of_a_group_share_a_partition(spark: SparkSession) -> None:
    parts = member_scripts(spark, WORKLOAD, 5, 7).selectExpr("group", "spark_partition_id() part").distinct().collect()
    assert len(parts) == WORKLOAD.groups.count
    per_partition = Counter(row["part"] for row in parts)
    assert max(per_partition.values()) - min(per_partition.values()) <= 1


def test_rows_are_what_the_workload_says(spark: SparkSession) -> None:
    scripts = [Script(**row.asDict()) for row in rows(spark, 5, 2)]
    groups = defaultdict(list)
    for script in scripts:
        groups[script.group].append(script)
    assert next(iter(groups)) == "shop-000-eu"
    assert {len(members) for members in groups.values()} == {2, 3, 4, 5}
    assert groups["shop-007-eu"][1].member == "shop-007-eu-1"
    for script in scripts:
        assert 0 <= script.arrive_ms < 4_000
        assert 18_000 < script.leave_ms <= 20_000
        assert 800 <= script.heartbeat_interval_ms <= 1200
        assert (script.commit_interval_ms, list(script.topics)) == (0, ["orders"])
    assert all(len({script.leave_ms for script in members}) == 1 for members in groups.values())
    assert len({script.heartbeat_interval_ms for script in scripts}) > 100
