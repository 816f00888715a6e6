"""Scripts that are generated in Spark from a workload and a seed."""

import math
from collections import Counter, defaultdict
from functools import reduce
from itertools import pairwise
from pathlib import Path
from statistics import mean

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as f

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.script.generator import by_offsets_partition, member_scripts, offsets_partition
from fakebroker.replay.script.script import DDL, Act, Script, script_of
from fakebroker.replay.workload.behavior import Crash, Grow, Leave, Pause, Restart, Slow, Zombie
from fakebroker.replay.workload.population import Arrival, Groups, Sizes
from fakebroker.replay.workload.transaction import Transaction
from fakebroker.replay.workload.workload import Pacing, Workload, load_workload
from tests.support.soak import sampled, soak

pytestmark = pytest.mark.slow

TOPICS = {"orders": 6, "payments": 2}
SHOPS = Groups(
    name="shops",
    pattern="shop-{}-eu",
    count=101,
    members=Sizes(uniform=(2, 5)),
    topics=("orders",),
    heartbeat_interval_ms=1000,
    commit_interval_ms=0,
    jitter=0.2,
    arrival=Arrival(ramp_s=4),
    static=0.5,
    leave=Leave(share=0.4, at_s=(10, 20), return_after_s=(1, 2)),
    restart=Restart(at_s=30, every_s=2, return_after_s=0.5),
    hot_partitions=(3, 9),
    hot_share=0.7,
)
TILLS = Groups(name="tills", count=40, members=3, arrival=Arrival(poisson_per_s=60), static=0.25)


def workload_of(*populations: Groups, pacing: Pacing | None = None) -> Workload:
    return Workload(duration_s=100, topics=TOPICS, groups=populations, pacing=pacing or Pacing())


def scripts_of(spark: SparkSession, workload: Workload, seed: int = 5, tasks: int = 2) -> list[Script]:
    rows = member_scripts(spark, workload, seed, tasks).collect()
    return sorted(script_of(row.asDict(recursive=True)) for row in rows)


def starts_of(scripts: list[Script], population: str) -> list[float]:
    return sorted(script.acts[0].at_ms for script in scripts if script.population == population)


def test_scripts_do_not_depend_on_tasks_or_other_populations(spark: SparkSession) -> None:
    shops, both = workload_of(SHOPS), workload_of(TILLS, SHOPS)
    alone = scripts_of(spark, shops)
    assert alone == scripts_of(spark, shops, tasks=7)
    assert alone == [script for script in scripts_of(spark, both, tasks=3) if script.population == "shops"]


def test_scripts_depend_on_the_seed_but_not_on_other_groups(spark: SparkSession) -> None:
    fewer = workload_of(SHOPS)
    more = scripts_of(spark, with_groups(fewer, 120))
    assert set(scripts_of(spark, fewer)) < set(more)
    assert not set(scripts_of(spark, fewer, seed=6)) & set(more)


def test_groups_are_distributed_evenly_among_tasks(spark: SparkSession) -> None:
    scripts = member_scripts(spark, workload_of(SHOPS, TILLS), 5, 7)
    assert [(field.name, field.dataType.simpleString()) for field in scripts.schema] == [
        (field.name, field.dataType.simpleString()) for field in spark.createDataFrame([], DDL).schema
    ]
    parts = scripts.selectExpr("population", "group", "spark_partition_id() part").distinct().collect()
    assert len(parts) == 141
    for population in ("shops", "tills"):
        distributed = Counter(row["part"] for row in parts if row["population"] == population)
        assert len(distributed) == 7
        assert max(distributed.values()) - min(distributed.values()) <= 1


def test_scripts_follow_the_workload(spark: SparkSession) -> None:
    scripts = scripts_of(spark, workload_of(SHOPS, TILLS))
    groups = defaultdict(list)
    for script in scripts:
        groups[script.group].append(script)
    tills = groups["tills-07"]
    assert [script.member for script in tills] == ["tills-07-0", "tills-07-1", "tills-07-2"]
    assert tills[0].topics == ("orders", "payments")
    shops = [script for script in scripts if script.population == "shops"]
    assert {len(members) for members in groups.values()} == {2, 3, 4, 5}
    for script in shops:
        assert 800 <= script.heartbeat_interval_ms <= 1200
        assert (script.commit_interval_ms, script.topics, script.session_timeout_ms) == (0, ("orders",), 45_000)
        assert script.instance_id in (None, f"instance-{script.member.rpartition('-')[2]}")
        assert [act.at_ms for act in script.acts] == sorted(act.at_ms for act in script.acts)
        assert script.acts[0].action == "start"
        assert 0 <= script.acts[0].at_ms < 4_000
        assert script.acts[-1].action == "leave"
        assert 90_000 < script.acts[-1].at_ms <= 100_000
        assert_restarted(script.acts[-3:-1], int(script.member.rpartition("-")[2]))
        assert_left(script.acts[1:-3])
    for members in groups.values():
        assert len({script.acts[-1] for script in members}) == 1
    assert len({script.heartbeat_interval_ms for script in scripts}) > 100
    assert mean(script.instance_id is not None for script in shops) == pytest.approx(0.5, abs=0.1)
    assert mean(len(script.acts) == 6 for script in shops) == pytest.approx(0.4, abs=0.1)
    is_hot = [partition_for(group, 50) in (3, 9) for group in groups if group.startswith("shop-")]
    assert mean(is_hot) == pytest.approx(0.7 + 0.3 * 2 / 50, abs=0.12)


def test_members_of_a_group_migrate_one_after_the_other(spark: SparkSession) -> None:
    population = Groups(name="shops", count=5, members=3, protocol="consumer", migrate_at_s=(20, 30))
    scripts = scripts_of(spark, workload_of(population))
    assert {script.protocol for script in scripts} == {"consumer"}
    firsts = {script.group: script.acts[1].at_ms for script in scripts if script.member.endswith("-0")}
    assert len(set(firsts.values())) == 5
    for script in scripts:
        at_ms = firsts[script.group] + 1_000 * int(script.member.rpartition("-")[2])
        assert 20_000 <= firsts[script.group] <= 30_000
        assert script.acts[1:3] == (Act(at_ms, "migrate"), Act(at_ms + 1_000, "start"))


def assert_restarted(acts: tuple[Act, ...], index: int) -> None:
    at_ms = 30_000 + 2_000 * index
    assert acts == (Act(at_ms, "leave"), Act(at_ms + 500, "start"))


def assert_left(acts: tuple[Act, ...]) -> None:
    if acts:
        left, back = acts
        assert (left.action, back.action) == ("leave", "start")
        assert 10_000 <= left.at_ms <= 20_000
        assert 1_000 <= back.at_ms - left.at_ms <= 2_000


SIZES = {
    "zipf": Sizes(zipf=1.5, max=30),
    "histogram": Sizes(histogram={"1": 70, "4": 30, "9": 0}),
    "uniform": Sizes(uniform=(3, 9)),
}


def test_group_sizes_and_arrivals_follow_their_distributions(spark: SparkSession) -> None:
    arrivals = {
        "zipf": Arrival(at_s=3, bursts=4, every_s=5),
        "histogram": Arrival(poisson_per_s=190),
        "uniform": Arrival(at_s=2, ramp_s=10, by="group"),
    }
    populations = [
        Groups(name=name, count=1000, members=sizes, arrival=arrivals[name]) for name, sizes in SIZES.items()
    ]
    scripts = scripts_of(spark, workload_of(*populations))
    for population in populations:
        counts = Counter(Counter(script.group for script in scripts if script.population == population.name).values())
        weights = SIZES[population.name].weights
        assert set(counts) <= set(weights)
        for size, weight in weights.items():
            share = weight / sum(weights.values())
            assert counts[size] / 1000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 1000))
        expected = population.member_count
        assert sum(size * count for size, count in counts.items()) == pytest.approx(expected, rel=0.1)
    assert set(starts_of(scripts, "zipf")) == {3000, 8000, 13000, 18000}
    assert mean(starts_of(scripts, "uniform")) == pytest.approx(7000, rel=0.05)
    assert len(set(starts_of(scripts, "uniform"))) <= 1000 < len(starts_of(scripts, "uniform"))
    assert_poisson(starts_of(scripts, "histogram"))


def assert_poisson(starts: list[float]) -> None:
    """Check for 190 starts per second whose gaps have the variance of an exponential distribution."""
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert mean(gaps) == pytest.approx(1000 / 190, rel=0.05)
    assert mean(gap**2 for gap in gaps) == pytest.approx(2 * mean(gaps) ** 2, rel=0.15)


def test_behaviors_growth_and_pacing_become_acts(spark: SparkSession) -> None:
    odd = Groups(
        name="odd",
        count=500,
        members=2,
        session_timeout_ms=10_000,
        timeout_jitter=0.1,
        crash=Crash(share=0.25, at_s=10),
        pause=Pause(share=0.25, at_s=20, for_s=(1, 2)),
        slow=Slow(share=0.25, at_s=30, for_s=3),
        zombie=Zombie(share=0.25, at_s=40, for_s=4),
    )
    growing = Groups(name="growing", members=3, grow=Grow(instances=4, at_s=50, every_s=0.25, how="static"))
    scripts = scripts_of(spark, workload_of(odd, growing, pacing=Pacing(rate_per_s=200.6)))
    grown = [script for script in scripts if script.population == "growing"]
    assert [(script.instance_id, script.acts[0]) for script in grown] == [
        *[(None, Act(0, "start"))] * 3,
        *((f"instance-{index + 3}", Act(50_000 + 250 * index, "start")) for index in range(4)),
    ]
    actions = Counter(script.acts[1].action for script in scripts if script.population == "odd")
    assert sum(actions.values()) == 1000
    assert actions == pytest.approx({"crash": 250, "pause": 250, "slow": 250, "zombie": 250}, abs=60)
    for script in scripts:
        assert 4_500 <= script.heartbeat_interval_ms <= 5_500
    odd_acts = {script.acts[1] for script in scripts if script.population == "odd"}
    assert {act for act in odd_acts if act.action != "pause"} == {
        Act(10_000, "crash"),
        Act(30_000, "slow", 3_000),
        Act(40_000, "zombie", 4_000),
    }
    pauses = [act.for_ms for act in odd_acts if act.action == "pause"]
    assert 1_000 <= min(pauses) < 1_100 < 1_900 < max(pauses) <= 2_000


def test_scripts_have_the_transactions_of_their_population(spark: SparkSession) -> None:
    made = Transaction(to="payments", records=9, timeout_ms=7_000, abort=0.1, crash=0.2, return_after_s=(1, 30))
    population = Groups(members=3, transactional=True, transaction=made, commit_interval_ms=2_000, jitter=0.1)
    found = scripts_of(spark, workload_of(population, TILLS))
    members = [script for script in found if script.transactions is not None]
    assert {script.population for script in members} == {"group"}
    assert {script.topics for script in members} == {("orders",)}
    transactions = [script.transactions for script in members if script.transactions is not None]
    assert {each[:2] + each[3:7] for each in transactions} == {("payments", 9, 7_000, 0.1, 0.2, (1_000.0, 30_000.0))}
    assert {1_800 <= each.interval_ms <= 2_200 for each in transactions} == {True}
    assert len({each.seed for each in transactions}) == len({each.interval_ms for each in transactions}) == 3
    assert {script.commit_interval_ms for script in members} == {0}


def test_group_names_are_read_from_a_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("id\n" + "".join(f"ü{number}\n" for number in range(9)))
    (file := tmp_path / "w.toml").write_text(
        'duration_s = 100\ntopics = { orders = 1 }\n[[groups]]\nname = "a"\ncount = 3\nmembers = 2\n'
        '[[groups]]\nname = "b"\nfrom_file = "g.csv"\nfrom_column = "id"\ncount = 8\n'
    )
    scripts = scripts_of(spark, load_workload(file))
    assert [script.group for script in scripts if script.population == "a"] == [
        "a-0",
        "a-0",
        "a-1",
        "a-1",
        "a-2",
        "a-2",
    ]
    assert [script.group for script in scripts if script.population == "b"] == [f"ü{number}" for number in range(8)]


def test_groups_of_an_offsets_partition_share_a_spark_partition(spark: SparkSession) -> None:
    scripts = member_scripts(spark, workload_of(SHOPS, TILLS), 5, 2)
    distributed = by_offsets_partition(scripts, 10, 3)
    assert distributed.rdd.getNumPartitions() == 3
    rows = distributed.selectExpr("group", "member", "offsets_partition", "spark_partition_id() part").collect()
    assert all(row["offsets_partition"] == partition_for(row["group"], 10) for row in rows)
    parts = defaultdict(set)
    for row in rows:
        parts[row["offsets_partition"]].add(row["part"])
    assert {len(tasks) for tasks in parts.values()} == {1}
    orders = [(row["part"], row["offsets_partition"], row["group"], row["member"]) for row in rows]
    assert orders == sorted(orders)


def test_the_offsets_partition_in_sql_is_that_of_kafka(spark: SparkSession) -> None:
    groups = ["", "a", "shops-0001", "ü", "グループ", "😀-1", "x😀😀", "polygenelubricants", "~" * 40, "g.h i\u200b"]
    table = spark.createDataFrame(pa.table({"group": groups}))
    for count in (1, 50, 7):
        rows = table.select("group", offsets_partition(f.col("group"), count).alias("n")).collect()
        assert [(group, n) for group, n in rows] == [(group, partition_for(group, count)) for group in groups]


@soak
def test_scripts_of_all_example_workloads(spark: SparkSession) -> None:
    files = sampled(sorted(Path("scenarios/workloads").glob("*.toml")), 3)
    workloads = {file.stem: load_workload(file) for file in files}
    scripts = {name: member_scripts(spark, workload, 5, 2) for name, workload in workloads.items()}
    assert len({frame.schema.simpleString() for frame in scripts.values()}) == 1
    odd = {"crash-storm", "hot-partition", "scale-out"} & set(workloads)
    counted = [
        scripts[name].groupBy("population").agg(f.count_distinct("group"), f.count("*")).select(f.lit(name), "*")
        for name in odd
    ]
    rows = {(name, population): rest for name, population, *rest in reduce(DataFrame.unionAll, counted).collect()}
    for name in odd:
        for population in workloads[name].groups:
            grown = population.grow.instances if population.grow else 0
            count = population.group_count
            assert rows.pop((name, population.name)) == [count, population.member_count + grown * count]
    assert not rows


def with_groups(workload: Workload, count: int) -> Workload:
    (population,) = workload.groups
    return msgspec.structs.replace(workload, groups=(msgspec.structs.replace(population, count=count),))
