"""Reading workload files: the values of valid ones, the errors of invalid ones."""

import json
import math
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from fakebroker.errors import MAX_MISTAKES, ConfigError
from fakebroker.replay.workload.behavior import Crash, Grow, Leave, Pause, Restart, Slow, Zombie
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import Arrival, Groups, Sizes
from fakebroker.replay.workload.workload import Cluster, Pacing, load_workload
from tests.support.replay.workload_files import ADDED, ALL_KEYS, BATCH_JOIN, EXPECT, INVALID, MINIMAL


def workload_file(directory: Path, text: str) -> Path:
    (file := directory / "workload.toml").write_text(text + "\n")
    return file


@pytest.mark.parametrize("part", INVALID)
def test_an_error_has_the_file_the_key_the_value_and_the_expectation(
    subtests: pytest.Subtests, tmp_path: Path, part: str
) -> None:
    for text, expected in INVALID[part].items():
        with subtests.test(workload=text):
            file = workload_file(tmp_path, text)
            with pytest.raises(ConfigError) as caught:
                load_workload(file)
            message = str(caught.value).removeprefix(f"{file}: ")
            if expected.endswith(" "):  # a long list of choices follows
                message = message[: len(expected)]
            assert message == expected


def test_mistakes_of_types_and_of_events_are_reported_together(tmp_path: Path) -> None:
    event = '[[event]]\nat_s = 300\ndo = "rest"\n'
    invalid = f'{MINIMAL}count = "x"\njitter = 2\n[pacing]\nspeed = 0\n[cluster]\nload_ms = nan\n{event}'
    file = workload_file(tmp_path, invalid)
    with pytest.raises(ConfigError) as caught:
        load_workload(file)
    assert [mistake.field for mistake in caught.value.mistakes][:5] == [
        "groups[0].count",
        "groups[0].jitter",
        "pacing.speed",
        "cluster.load_ms",
        "event[0].at_s",
    ]
    assert str(caught.value).startswith(f"{file}: 6 errors\n  groups[0].count='x': expected an integer from 1 to ")


def test_mistakes_across_tables_and_of_events_are_reported_together(tmp_path: Path) -> None:
    keys = "topics = ['a', 'orders', 'b']\nhot_partitions = [70]\ncrash = { share = 1, at_s = 95 }\n"
    event = '[[event]]\nat_s = 300\ndo = "rest"\n'
    expect = '[[expect]]\nmetric = "generations"\ncomparison = "<"\nvalue = 5\ngroups = "goup"\n'
    with pytest.raises(ConfigError) as caught:
        load_workload(workload_file(tmp_path, f"{MINIMAL}{keys}{event}{expect}[pacing]\nrate_per_s = 200\n"))
    assert [mistake.field for mistake in caught.value.mistakes][:7] == [
        "pacing.rate_per_s",
        "groups[0].topics[0]",
        "groups[0].topics[2]",
        "groups[0].hot_partitions[0]",
        "groups[0].crash",
        "expect[0].groups",
        "event[0].at_s",
    ]


MISTYPED = """
duration_s = 100
topics = { orders = 4 }
clutser = { brokers = 3 }
[cluster]
brokres = 3
config = { "group.initial.rebalance.delay" = 3 }
[[groups]]
name = "shops"
cuont = 5
topics = ["order"]
crash = { shaer = 0.3, at_s = "ten" }
[[load]]
kind = "find-coordinator"
groups = "shop"
[[event]]
at_s = 5
do = "broker.stopp"
[[event]]
at_s = 5
do = "inject_fault"
api = "Heartbeat"
erorr = "NOT_COORDINATOR"
[[event]]
at_s = 5
do = "inject_fault"
api = "Hearbeat"
error = "NOT_COORDINATOR"
[[expect]]
metric = "p98_ms"
comparison = "=<"
value = 5
[[expect]]
metric = "errors.NOT_CORDINATOR"
api = "Heartbeet"
comparison = "<"
value = 1
[[expect]]
metric = "generations"
groups = "shosp"
comparison = "<"
value = 1
[promises]
check = ["one-ower"]
"""

NEAREST = {
    "clutser": "cluster",
    "cluster.brokres": "brokers",
    "cluster.config.group.initial.rebalance.delay": "group.initial.rebalance.delay.ms",
    "groups[0].cuont": "count",
    "groups[0].topics[0]": "orders",
    "groups[0].crash.shaer": "share",
    "load[0].kind": "find-coordinators",
    "load[0].groups": "shops",
    "event[0].do": "broker.stop",
    "event[1].erorr": "error",
    "event[2].api": "Heartbeat",
    "expect[0].metric": "p99_ms",
    "expect[0].comparison": "<",
    "expect[1].metric": "errors.NOT_COORDINATOR",
    "expect[1].api": "Heartbeat",
    "expect[2].groups": "shops",
    "promises.check[0]": "one-owner",
}
"""The mistyped keys and names in `MISTYPED`, and the names that are suggested."""


def test_all_mistyped_names_are_found_at_once_with_the_nearest_name(
    subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that rules find, for example about names in other tables, although these have mistakes, too."""
    monkeypatch.setattr("fakebroker.errors.MAX_MISTAKES", 100)
    with pytest.raises(ConfigError) as caught:
        load_workload(workload_file(tmp_path, MISTYPED))
    found = {mistake.field: str(mistake) for mistake in caught.value.mistakes}
    missing_or_of_a_wrong_type = {"groups[0].crash.share", "groups[0].crash.at_s"}
    assert set(found) == {*NEAREST, *missing_or_of_a_wrong_type}
    for field, name in NEAREST.items():
        with subtests.test(field=field):
            assert found[field].endswith(f"; did you mean {name!r}?")


FORMER_NAMES = {
    "stop_broker": "broker.stop",
    "add_broker": "brokers.add",
    "rolling_restart": "brokers.rolling_restart",
    "move_coordinator": "group.move_coordinator",
    "move_offsets_partition": "partition.move_leader",
    "force_rebalance": "group.rebalance",
    "fence": "group.fence_instance",
    "fence_epoch": "group.fence_epoch",
    "fail": "inject_fault",
    "fence_producer": "transaction.fence_producer",
    "hold": "group.hold or transaction.hold",
    "create_topic": "topic.create",
    "seed_transaction": "transaction.seed",
    "remove_acl": "acls.remove",
    "deny": "acls.deny",
}
"""Names of commands in version 0.1.0, and what they have become."""


def test_an_event_with_a_former_name_is_refused_with_the_new_one(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for former, name in FORMER_NAMES.items():
        with subtests.test(former=former):
            file = workload_file(tmp_path, f'{MINIMAL}[[event]]\nat_s = 1\ndo = "{former}"\nnode_id = 1')
            with pytest.raises(ConfigError) as caught:
                load_workload(file)
            expected = f"{name}, which is the new name: see CHANGES.md"
            assert str(caught.value) == f"{file}: event[0].do={former!r}: expected {expected}"
    then = 'do = "inject_fault"\napi = "Heartbeat"\nthen = { do = "stop_broker", node_id = 1 }'
    file = workload_file(tmp_path, f"{MINIMAL}[[event]]\nat_s = 1\n{then}")
    assert load_workload(file).event[0]["then"]["do"] == "stop_broker", "actions are checked before the replay starts"


def test_mistakes_beyond_the_tenth_are_counted(tmp_path: Path) -> None:
    file = workload_file(tmp_path, MISTYPED)
    with pytest.raises(ConfigError) as caught:
        load_workload(file)
    first, *lines = str(caught.value).split("\n")
    assert first == f"{file}: the first 10 errors of {len(NEAREST) + 2}"
    assert len(lines) == len(caught.value.mistakes) == MAX_MISTAKES


def test_a_mistake_has_no_consequences_in_the_message(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """Keys that depend on a mistyped one are not reported, nor what is missing because of it."""
    behavior = "crash = { shaer = 0.3, at_s = 10 }"
    for text, fields in (
        (f"{MINIMAL}sesion_timeout_ms = 60_000\nheartbeat_interval_ms = 50_000", ["groups[0].sesion_timeout_ms"]),
        (f"{MINIMAL}{behavior}", ["groups[0].crash.shaer", "groups[0].crash.share"]),
        (f"{MINIMAL}arrival = {{ brusts = 3, every_s = 2 }}", ["groups[0].arrival.brusts"]),
        (BATCH_JOIN.replace('["batch-join"]', '["batch-jion"]') + ADDED, ["cluster.proposals[0]"]),
        (MINIMAL + EXPECT.replace("metric", "metrik") + 'api = "Heartbeat"', ["expect[0].metrik", "expect[0].metric"]),
        (f'{MINIMAL}[[load]]\nkind = "add-member"\ngroups = "group"\ninstances = 3', ["load[0].kind"]),
        (f"event = [5]\nexpect = [5]\nload = [5]\n{MINIMAL}", ["event[0]", "expect[0]", "load[0]"]),
    ):
        with subtests.test(workload=text):
            with pytest.raises(ConfigError) as caught:
                load_workload(workload_file(tmp_path, text))
            assert [mistake.field for mistake in caught.value.mistakes] == fields


def test_at_most_ten_mistakes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the first 10 errors of 12") as caught:
        load_workload(workload_file(tmp_path, MINIMAL + '[[event]]\nat_s = -1\ndo = "reset"\n' * 12))
    assert [mistake.value for mistake in caught.value.mistakes] == [-1] * MAX_MISTAKES


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml': expected a file that can be read: No such file or directory$"):
        load_workload(tmp_path / "none.toml")


def test_a_minimal_workload_has_the_documented_defaults(tmp_path: Path) -> None:
    workload = load_workload(workload_file(tmp_path, MINIMAL))
    (population,) = workload.groups
    assert population == Groups(name="group", members=1, arrival=Arrival(at_s=0))
    assert (population.name_pattern, population.group_count, population.arrived_s) == ("group-{}", 1, 0)
    assert workload.topics_of(population) == ("orders",)
    assert (workload.cluster, workload.pacing, workload.promises.check) == (Cluster(), Pacing(), None)
    assert (workload.offsets_partitions, workload.events, workload.load) == (50, (), ())


def test_all_keys_are_read(tmp_path: Path) -> None:
    workload = load_workload(workload_file(tmp_path, ALL_KEYS))
    shops, tills = workload.groups
    assert shops.members == Sizes(zipf=1.2, max=50)
    assert shops.arrival == Arrival(at_s=1, bursts=3, every_s=2, by="group")
    assert (shops.arrived_s, shops.max_members, tills.max_members, tills.member_count) == (5, 50, 5, 2)
    assert shops.behaviors == {
        "leave": Leave(share=0.1, at_s=(10, 20), return_after_s=3),
        "crash": Crash(share=0.1, at_s=10),
        "pause": Pause(share=0.1, at_s=10, for_s=(1, 12)),
        "slow": Slow(share=0.1, at_s=10, for_s=70),
        "zombie": Zombie(share=0.1, at_s=10, for_s=2),
    }
    assert shops.restart == Restart(at_s=90, every_s=0.5, return_after_s=2)
    assert shops.grow == Grow(instances=4, at_s=100, every_s=0.1, how="static")
    assert workload.load[0] == Load(kind="add-members", groups="shops", instances=4, at_s=90)
    assert workload.pacing == Pacing(rate_per_s=100, speed=10)
    assert list(map(str, workload.expect)) == [
        "generations of shops per group <= 25",
        "requests of OffsetFetch from load > 0",
        "errors.UNKNOWN_MEMBER_ID > 0",
    ]
    assert (workload.promises.check, workload.offsets_partitions, workload.group_count) == (
        ("answered", "one-owner"),
        10,
        21,
    )
    assert [event.get("load_ms") for event in workload.events] == [200, 5, None]
    members = shops.member_count + tills.member_count
    assert workload.heartbeat_interval_ms(tills) == pytest.approx(10 * members)
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(workload))), type(workload)) == workload


def test_the_workloads_in_the_repository_are_valid(subtests: pytest.Subtests) -> None:
    for file in sorted(Path("scenarios/workloads").glob("*.toml")):
        with subtests.test(workload=file.stem):
            assert load_workload(file).duration_s > 0
            assert file.read_text().startswith("# ")


def test_the_number_of_events_is_estimated(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """For 4 members in 60 s: 10 requests each to join, 20 heartbeats and 12 commits."""
    groups, load = "[[groups]]\ncount = 4\nmembers = 1\n", "[[load]]\nkind = 'list-groups'\n"
    cases: dict[str, float] = {
        groups: 4 * (10 + 20 + 12),
        groups + "commit_interval_ms = 0": 4 * (10 + 20),
        groups + load: 4 * (10 + 20 + 12) + 4,
        groups + load + "for_s = 30\nrate_per_s = 5": 4 * (10 + 20 + 12) + 5 * 30,
        groups + load + "for_s = 1": math.inf,
        "pacing = { rate_per_s = 4 }\n" + groups: 4 * (10 + 60 + 12),
        "pacing = { closed_loop = true }\n" + groups: math.inf,
    }
    for text, expected in cases.items():
        with subtests.test(workload=text):
            file = workload_file(tmp_path, "duration_s = 60\ntopics = { orders = 2 }\n" + text)
            workload = load_workload(file)
            assert workload.event_count(folds=False) == pytest.approx(expected)
            assert workload.event_count(folds=True) == pytest.approx(expected - (80 if "pacing" not in text else 240))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_names_of_groups_are_read_from_a_file(tmp_path: Path, suffix: str) -> None:
    names = ["b", "a", "ü"]
    (tmp_path / "g.csv").write_text("id,n\n" + "".join(f"{name},1\n" for name in names))
    parquet.write_table(pa.table({"id": names, "n": [1, 1, 1]}), tmp_path / "g.parquet")
    text = f'{MINIMAL}from_file = "g.{suffix}"\nfrom_column = "id"\n'
    (population,) = load_workload(workload_file(tmp_path, text)).groups
    assert (population.group_count, population.from_file) == (3, str(tmp_path / f"g.{suffix}"))
    for count, groups in ((2, 2), (7, 3)):
        (population,) = load_workload(workload_file(tmp_path, f"{text}count = {count}")).groups
        assert population.group_count == groups


def test_errors_of_files_with_names_of_groups(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for name, text, expected in (
        ("none.csv", None, "expected a file that can be read: No such file or directory"),
        ("g.csv", "", "expected a CSV file: Empty CSV file"),
        ("g.csv", "group\na,b\n", "expected a CSV file: CSV parse error: Expected 1 columns, got 2: a,b"),
        ("g.csv", "id,n\na,1\n", "from_column='group': expected a column of "),
        ("g.csv", "group\n", "expected at least one row"),
        ("g.csv", "group,n\na,1\n,2\n", "expected a name in each row; row 2 has none"),
        ("g.csv", "group\na\nb\na\n", "expected unique names; 'a' is repeated"),
        ("g.parquet", "no parquet", "expected a Parquet file: Parquet magic bytes not found in footer"),
    ):
        with subtests.test(file=name, text=text):
            if text is not None:
                (tmp_path / name).write_text(text)
            file = workload_file(tmp_path, f'{MINIMAL}from_file = "{name}"')
            with pytest.raises(ConfigError) as caught:
                load_workload(file)
            message = str(caught.value)
            assert message.startswith(f"{file}: groups[0].from_")
            assert repr(str(tmp_path / name)) in message
            assert expected in message


def test_the_number_of_names_in_a_file_is_checked_against_the_workload(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("group\n" + "\n".join(map(str, range(200))))
    text = f'{MINIMAL}from_file = "g.csv"\narrival.poisson_per_s = 1'
    with pytest.raises(ConfigError, match=r"groups\[0\]\.arrival ends at 200 s: expected an end before"):
        load_workload(workload_file(tmp_path, text))


def test_names_from_a_file_must_not_be_names_of_another_population(subtests: pytest.Subtests, tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("group\ng-7-1\ng-70\nalone\ng-a\n")
    (tmp_path / "h.csv").write_text("group\nb\nalone\n")
    for other, error in (
        ('pattern = "g-{}"\ncount = 2', r"groups\[1\] may also have 'g-70'"),
        ('pattern = "g-{}"\ncount = 2\nhot_partitions = [1]', r"groups\[1\] may also have 'g-7-1'"),
        ('pattern = "alone"', r"groups\[1\] may also have 'alone'"),
        ('from_file = "h.csv"', r"groups\[1\].from_file=.*: expected .*; groups\[0\] may also have 'alone'"),
        ('from_file = "h.csv"\ncount = 1', None),
        ('pattern = "g{}"\ncount = 2', None),
    ):
        with subtests.test(other=other):
            text = f'{MINIMAL}from_file = "g.csv"\n[[groups]]\nname = "others"\n{other}\n'
            file = workload_file(tmp_path, text)
            if error is None:
                assert len(load_workload(file).groups) == 2
                continue
            with pytest.raises(ConfigError, match=error):
                load_workload(file)
