"""Scenario files: their keys, their mistakes, the scripts that follow from them, and smaller versions."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import fields

from fakebroker.errors import ConfigError
from fakebroker.lab.design import CoordinatorSettings
from fakebroker.lab.scenario.scale import scaled
from fakebroker.lab.scenario.scenario import Cluster, Scenario, load_scenario
from fakebroker.lab.scenario.script_builder import script_of
from fakebroker.lab.script import BrokerEvent, ClusterPlan, MemberEvent, Script, TopicEvent

SHIPPED = sorted((Path(__file__).parents[2] / "scenarios" / "lab").glob("*.toml"))

SMALL = """
duration_s = 100
topics = { orders = 12, events = 4 }
"""


def scenario(tmp_path: Path, text: str) -> Scenario:
    (file := tmp_path / "scenario.toml").write_text(SMALL + text)
    return load_scenario(file)


def members_that(script: Script, do: str) -> list[MemberEvent]:
    return [event for event in script.events if isinstance(event, MemberEvent) and event.do == do]


def test_each_setting_of_a_run_has_a_key() -> None:
    """`topics` and `coordinator` are tables of their own in a scenario."""
    settings = {field.name for kind in (CoordinatorSettings, ClusterPlan) for field in fields(kind)}
    assert set(Cluster.__struct_fields__) == settings - {"topics", "coordinator"}


def test_keys_have_the_defaults_of_runs() -> None:
    plan = ClusterPlan()
    for name in Cluster.__struct_fields__:
        holder = plan.coordinator if hasattr(plan.coordinator, name) else plan
        assert getattr(Cluster(), name) == getattr(holder, name), name


def test_shipped_scenarios_are_valid_and_say_what_to_look_for(subtests: pytest.Subtests) -> None:
    assert len(SHIPPED) == 6
    for file in SHIPPED:
        with subtests.test(file=file.name):
            about = "".join(re.findall(r"^# .*\n", file.read_text(), re.MULTILINE))
            assert "Look at " in about
            small = scaled(load_scenario(file), 0.0001)
            assert 1 <= small.member_count <= 500
            script = script_of(small, 1)
            assert len(members_that(script, "start")) >= sum(len(group.members) for group in script.groups)


def test_equal_seeds_give_equal_scripts(tmp_path: Path) -> None:
    found = scenario(
        tmp_path,
        """
        [[groups]]
        count = 30
        members = { zipf = 1.2, max = 20 }
        arrival = { poisson_per_s = 10 }
        crash = { share = 0.2, at_s = [20, 30], return_after_s = [5, 10] }
        lose = { every_s = 20 }
        """,
    )
    assert script_of(found, 7) == script_of(found, 7)
    assert script_of(found, 7) != script_of(found, 8)
    sizes = Counter(len(group.members) for group in script_of(found, 7).groups)
    assert sizes[1] == max(sizes.values())
    numbers = [number for group in script_of(found, 7).groups for number in group.members]
    assert numbers == list(range(len(numbers)))


def test_another_behavior_does_not_change_the_others(tmp_path: Path) -> None:
    groups = "[[groups]]\ncount = 20\nmembers = 5\nvanish = { share = 0.3, at_s = [10, 50] }\n"
    alone = script_of(scenario(tmp_path, groups), 1)
    both = script_of(scenario(tmp_path, f"{groups}crash = {{ share = 0.5, at_s = 60 }}"), 1)
    assert members_that(alone, "vanish") == members_that(both, "vanish")
    assert len(members_that(both, "crash")) == 50


def test_members_start_at_once_spread_or_in_groups(tmp_path: Path) -> None:
    def starts_ms(arrival: str) -> list[float]:
        text = f"[[groups]]\ncount = 10\nmembers = 10\narrival = {arrival}"
        return [event.at_ms for event in members_that(script_of(scenario(tmp_path, text), 1), "start")]

    assert set(starts_ms("{ at_s = 2 }")) == {2_000}
    spread = starts_ms("{ at_s = 2, ramp_s = 10 }")
    assert len(set(spread)) == 100
    assert 2_000 <= min(spread) < 3_000 < 11_000 < max(spread) <= 12_000
    assert len(set(starts_ms("{ ramp_s = 10, by = 'group' }"))) == 10
    assert set(starts_ms("{ bursts = 2, every_s = 5 }")) == {0, 5_000}


def test_a_rolling_deploy_restarts_members_one_by_one(tmp_path: Path) -> None:
    text = "[[groups]]\nmembers = 3\nrestart = { at_s = 20, every_s = 5, return_after_s = 2 }"
    script = script_of(scenario(tmp_path, text), 1)
    events = [(event.at_ms, event.member, event.do) for event in script.events if isinstance(event, MemberEvent)]
    assert events[3:] == [
        (20_000, 0, "leave"),
        (22_000, 0, "start"),
        (25_000, 1, "leave"),
        (27_000, 1, "start"),
        (30_000, 2, "leave"),
        (32_000, 2, "start"),
    ]


def test_pauses_are_log_normal(tmp_path: Path) -> None:
    text = "[[groups]]\ncount = 100\nmembers = 10\npause = { every_s = 5, from_s = 10, until_s = 90, median_ms = 200 }"
    pauses = members_that(script_of(scenario(tmp_path, text), 1), "pause")
    durations_ms = sorted(event.for_ms for event in pauses)
    assert 10_000 <= pauses[0].at_ms <= pauses[-1].at_ms < 90_000
    # 80 s a member, one each 5 s and its own duration.
    assert 14_000 < len(pauses) < 16_000
    assert median(durations_ms) == pytest.approx(200, rel=0.05)
    assert durations_ms[round(0.841 * len(durations_ms))] == pytest.approx(200 * 2.718, rel=0.05)
    of_one = [event for event in pauses if event.member == 0]
    assert all(one.at_ms + one.for_ms <= other.at_ms for one, other in pairwise(of_one))


def test_longest_pauses_are_cut(tmp_path: Path) -> None:
    text = "[[groups]]\nmembers = 50\npause = { every_s = 2, median_ms = 200, sigma = 2, max_ms = 250 }"
    assert max(event.for_ms for event in members_that(script_of(scenario(tmp_path, text), 1), "pause")) == 250


def test_slow_periods_cuts_and_losses(tmp_path: Path) -> None:
    text = """
        [[groups]]
        members = 100
        slow = { share = 0.1, at_s = 10, for_s = 20, extra_ms = 500 }
        cut = { share = 0.2, at_s = 15 }
        lose = { share = 0.5, every_s = 10, of = "requests" }
        """
    script = script_of(scenario(tmp_path, text), 1)
    assert {(event.at_ms, event.for_ms, event.extra_ms) for event in members_that(script, "slow")} == {
        (10_000, 20_000, 500)
    }
    assert (len(members_that(script, "slow")), len(members_that(script, "cut"))) == (10, 20)
    assert len({event.member for event in members_that(script, "lose_request")}) <= 50
    assert 400 < len(members_that(script, "lose_request")) < 600
    assert members_that(script, "lose_response") == []


def test_events_of_brokers_and_topics(tmp_path: Path) -> None:
    text = """
        [[groups]]
        [[event]]
        at_s = 50
        do = "vanish_broker"
        node_id = 2
        [[event]]
        at_s = 20
        do = "set_partitions"
        topic = "orders"
        partitions = 16
        """
    events = script_of(scenario(tmp_path, text), 1).events[1:]
    assert events == (TopicEvent(20_000, "orders", 16), BrokerEvent(50_000, 2, "vanish"))


def test_several_mistakes_are_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario(
            tmp_path,
            """
            [cluster]
            broker = 5
            [[groups]]
            member = 3
            crash = { share = 2, at_s = 5 }
            [[event]]
            at_s = 5
            do = "stop_brokr"
            """,
        )
    text = str(caught.value)
    assert "4 errors" in text
    for part in ("did you mean 'brokers'?", "did you mean 'members'?", "crash.share=2", "did you mean 'stop_broker'?"):
        assert part in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steady_s = [50, 20]\n[[groups]]", "steady_s=[50.0, 20.0]: expected [beginning, end] up to duration_s (100)"),
        ("groups = []", "groups=[]: expected at least one [[groups]] table"),
        ("[[groups]]\n[[groups]]", "groups[1].name='group': expected a name that no other population has"),
        ("[[groups]]\ntopics = ['order']", "groups[0].topics[0]='order': expected one of orders, events"),
        (
            "[[groups]]\ncrash = { share = 1, at_s = 100 }",
            "groups[0].crash.at_s=100.0: expected seconds < duration_s (100)",
        ),
        ("[[groups]]\ncrash = { share = 1, at_s = [9, 5] }", "groups[0].crash.at_s=[9.0, 5.0]: expected seconds >= 0"),
        ("[[groups]]\narrival = { ramp_s = 200 }", "groups[0].arrival=200"),
        ("[[groups]]\nheartbeat_interval_ms = 50_000", "expected less than session_timeout_ms (45000)"),
        ("[[groups]]\nsession_timeout_ms = 2_000_000", "expected at most cluster.max_session_timeout_ms (1800000)"),
        (
            "[[groups]]\npause = { every_s = 1, median_ms = 1, from_s = 5, until_s = 5 }",
            "until_s=5.0: expected a number > from_s",
        ),
        (
            "[[groups]]\n[[event]]\nat_s = 1\ndo = 'stop_broker'",
            "event[0].node_id is missing: expected a node id with stop_broker",
        ),
        (
            "[[groups]]\n[[event]]\nat_s = 1\ndo = 'stop_broker'\nnode_id = 4",
            "event[0].node_id=4: expected a node id from 1 to 3",
        ),
        (
            "[[groups]]\n[[event]]\nat_s = 1\ndo = 'set_partitions'\ntopic = 'orders'\npartitions = 12",
            "event[0].partitions=12: expected more than 12",
        ),
        (
            "[[groups]]\n[[event]]\nat_s = 1\ndo = 'start_broker'\nnode_id = 1\ntopic = 'orders'",
            "event[0].topic='orders': expected none with start_broker",
        ),
        (
            "[[groups]]\n[[event]]\nat_s = 100\ndo = 'stop_broker'\nnode_id = 1",
            "event[0].at_s=100.0: expected a number < duration_s",
        ),
    ],
)
def test_rules(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario(tmp_path, text)
    assert expected in str(caught.value)


def test_a_smaller_scenario_has_fewer_groups_then_smaller_ones(tmp_path: Path) -> None:
    found = scenario(tmp_path, "[[groups]]\ncount = 1000\nmembers = 100\narrival = { poisson_per_s = 5000 }")
    assert scaled(found, 1) is found
    (groups,) = scaled(found, 0.5).groups
    assert (groups.count, groups.members, groups.arrival.poisson_per_s) == (500, 100, 2500)
    (groups,) = scaled(found, 0.01).groups
    assert (groups.count, groups.members, groups.arrival.poisson_per_s) == (20, 50, 50)
    with pytest.raises(ConfigError, match="--scale=0: expected"):
        scaled(found, 0)
