"""Reading workload files: what is taken, and what each mistake is told."""

from pathlib import Path

import pytest

from fakebroker.errors import ConfigError
from fakebroker.replay.workload import Arrival, Groups, load_workload

LEAST = "duration_s = 3\ntopics = { orders = 1 }\n"
EXPECT = '[[expect]]\nmetric = "p99_ms"\ncomparison = "<"\nvalue = 5\n'


def test_the_least_workload_has_the_documented_defaults(tmp_path: Path) -> None:
    (file := tmp_path / "least.toml").write_text(LEAST)
    workload = load_workload(file)
    assert workload.duration_s == 3
    assert workload.subscribed_topics == ("orders",)
    assert workload.groups == Groups(count=200, members=(1, 8), name="group-{}")
    assert workload.arrival == Arrival(kind="all-at-once", over_s=0)


@pytest.mark.parametrize("file", sorted(Path("scenarios/workloads").glob("*.toml")), ids=lambda file: file.stem)
def test_the_workloads_that_come_along_are_right(file: Path) -> None:
    assert load_workload(file).duration_s > 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("topics = { orders = 1 }", "duration_s is missing"),
        ("duration_s = 0\ntopics = { orders = 1 }", "duration_s = 0: expected float > 0.0"),
        ("duration_s = 3\ntopics = {}", "topics: expected at least one topic with its number of partitions"),
        ("duration_s = 3\ntopics = { orders = 0 }", "topics = {'orders': 0}: expected int >= 1"),
        (
            LEAST + "[groups]\ncuont = 5",
            "groups.cuont = 5: no such key; expected one of count, members, name",
        ),
        (
            LEAST + "[[expect]]\nwhat = 5",
            "expect[0].what = 5: no such key; expected one of metric, comparison, value, api",
        ),
        (LEAST + '[groups]\ncount = "many"', "groups.count = 'many': expected int, got str"),
        (LEAST + "[groups]\nmembers = [4]", "groups.members = [4]: expected array of length 2, got 1"),
        (LEAST + "[groups]\nmembers = [0, 4]", "groups.members[0] = 0: expected int >= 1"),
        (LEAST + "[groups]\nmembers = [4, 1]", "groups.members: expected [fewest, most], got [4, 1]"),
        (LEAST + '[groups]\nname = "g"', "groups.name: expected one {} for the number of the group, got 'g'"),
        (LEAST + '[arrival]\nkind = "slow"', "arrival.kind = 'slow': expected one of 'ramp', 'all-at-once'"),
        (LEAST + '[arrival]\nkind = "ramp"', "arrival.over_s: expected more than 0 for a ramp and 0 otherwise, got 0"),
        (
            LEAST + '[arrival]\nkind = "ramp"\nover_s = 3',
            "arrival.over_s: expected less than duration_s, got 3",
        ),
        (
            LEAST + '[[event]]\ndo = "rolling_restart"',
            "event[0].at_s = None: expected seconds, 0 or more and less than 3",
        ),
        (
            LEAST + '[[event]]\nat_s = 3\ndo = "rolling_restart"',
            "event[0].at_s = 3: expected seconds, 0 or more and less than 3",
        ),
        (
            LEAST + '[[event]]\nat_s = 1\ndo = "stop_broker"',
            "event[0]: stop_broker: node_id is missing, expected a whole number",
        ),
        (LEAST + '[members]\ntopics = ["x"]', "members.topics: expected names out of ['orders'], got 'x'"),
        (
            LEAST + "[members]\nsession_timeout_ms = 3000",
            "members.heartbeat_interval_ms: expected less than session_timeout_ms (3000) even with jitter, got 3000",
        ),
        (
            LEAST + EXPECT.replace('"<"', '"=<"'),
            "expect[0].comparison = '=<': expected one of '<', '<=', '==', '>=', '>'",
        ),
        (LEAST + EXPECT + EXPECT.replace("5", "'5'"), "expect[1].value = '5': expected float, got str"),
        (
            LEAST + EXPECT.replace("p99_ms", "rebalances") + 'api = "Heartbeat"',
            "expect[0].api: expected with requests_per_s, p50_ms, p99_ms, p99_9_ms alone, got metric 'rebalances'",
        ),
        (LEAST + "x = ", "Invalid value (at line 3, column 5)"),
    ],
)
def test_a_mistake_names_the_file_the_key_the_value_and_the_expectation(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (file := tmp_path / "wrong.toml").write_text(text + "\n")
    with pytest.raises(ConfigError) as caught:
        load_workload(file)
    assert str(caught.value) == f"{file}: {sentence}"


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file or directory$"):
        load_workload(tmp_path / "none.toml")
