"""Outcomes of the events of a workload, over TCP and in memory."""

import threading
from pathlib import Path

import pytest

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.script.script import Act
from fakebroker.replay.spark.simulation_tasks import timeline_of, with_other_outcomes
from fakebroker.replay.spark.tcp_tasks import TaskPlan
from fakebroker.replay.workload.timeline import OVER, performing
from fakebroker.replay.workload.workload import Cluster
from tests.support.replay.simulated_replays import Row, play_in_memory, script, two_broker_settings

TIMEOUT_S = 20.0
HERE, OTHER = [name for name in map("g{}".format, range(500)) if partition_for(name, 50) == 0][:2]
"""Names of groups on offsets partition 0."""


def test_events_that_are_not_due_before_the_end_have_that_outcome() -> None:
    first, second, third = ({"at_s": at_s, "do": "clear_faults"} for at_s in (1, 2, 3))
    is_done = threading.Event()
    with performing([third, second, first], lambda: 1_500.0, lambda event: is_done.set()) as timeline:
        assert is_done.wait(TIMEOUT_S)
    assert timeline.with_outcomes([None]) == [
        {"at_s": 1.5, "do": "clear_faults", "done": True, "why": None},
        {"at_s": 2, "do": "clear_faults", "done": False, "why": OVER},
        {"at_s": 3, "do": "clear_faults", "done": False, "why": OVER},
    ]
    assert [event["why"] for event in timeline.with_outcomes([])] == ["no result from the cluster", OVER, OVER]


def test_a_simulation_has_outcomes_of_the_events_that_affect_its_offsets_partition(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Row, dict[int, str | None]]] = [
        ({"at_s": 5, "do": "broker.stop", "node_id": 1}, {0: None}),
        ({"at_s": 5, "do": "group.rebalance", "group_id": HERE}, {0: None}),
        ({"at_s": 5, "do": "group.evict", "group_id": HERE, "member": "x"}, {0: f"group {HERE!r}: member='x'"}),
        ({"at_s": 5, "do": "group.rebalance", "group_id": OTHER}, {0: f"group_id={OTHER!r}"}),
        ({"at_s": 5, "do": "group.rebalance", "group_id": "elsewhere"}, {}),
        ({"at_s": 29, "do": "brokers.rolling_restart"}, {0: OVER}),
    ]
    for event, outcomes in cases:
        with subtests.test(event=event):
            member = script(HERE, 0, Act(0.0, "start"), Act(20_000.0, "leave"))
            simulation, _ = play_in_memory([member], two_broker_settings(events=(event,)))
            found = {number: why and why.partition(": expected")[0] for number, why in simulation.outcomes.items()}
            assert found == outcomes


def expect(condition: Row, at_s: float = 12.0) -> Row:
    return {"at_s": at_s, "do": "expect", "condition": condition}


def test_an_expectation_fails_unless_its_condition_holds_at_its_time(subtests: pytest.Subtests) -> None:
    stable, of_two = ({"is": "group.stable", "group_id": HERE} | more for more in ({}, {"members": 2}))
    committed = {"is": "group.committed", "group_id": HERE, "partition": "orders-0"}
    members = [
        script(HERE, 0, Act(0.0, "start"), Act(20_000.0, "leave")),
        script(HERE, 1, Act(8_200.0, "start"), Act(20_000.0, "leave")),
    ]
    cases: list[tuple[Row, str | None]] = [
        (expect(stable), None),
        (expect(of_two), None),
        (
            expect(stable, 8.5),
            f"group({HERE!r}).stable(): it does not hold\n{HERE} has been in PreparingRebalance for ",
        ),
        (expect(of_two, 6), f"group({HERE!r}).stable(members=2): it does not hold\n{HERE} has been in Stable for "),
        (expect({"not": of_two}, 6), None),
        (expect({"all": [stable, {"is": "broker.up", "node_id": 1}]}), None),
        (
            expect({"is": "broker.up", "node_id": 3}),
            "broker(3).up(): it does not hold\nno broker 3; expected one of 1, 2",
        ),
        (expect({"is": "topic.exists", "topic": "orders", "partitions": 4}), None),
        (
            expect({"is": "topic.exists", "topic": "paper"}),
            "topic('paper').exists(): it does not hold\nno topic `paper`",
        ),
        (expect({**committed, "at_least": 800}), None),
        (expect({**committed, "at_least": 1_200}), f"group({HERE!r}).committed(partition='orders-0', at_least=1200): "),
        (expect({"is": "group.state", "group_id": OTHER, "state": "Dead"}), None),
        (
            expect({"is": "group.stable", "group_id": OTHER}),
            f"group({OTHER!r}).stable(): it does not hold\n{OTHER} is Dead",
        ),
    ]
    for event, why in cases:
        with subtests.test(event=event):
            simulation, _ = play_in_memory(members, two_broker_settings(events=(event,)))
            assert (simulation.outcomes[0] or "").startswith(why or "")
            assert (simulation.outcomes[0] is None) is (why is None)


def test_a_failed_expectation_of_a_fault_is_the_outcome_of_the_fault() -> None:
    then = {"do": "expect", "condition": {"is": "group.stable", "group_id": HERE, "members": 5}}
    fault = {"at_s": 5, "do": "inject_fault", "api": "Heartbeat", "group": HERE, "nth": 2, "then": then}
    simulation, _ = play_in_memory([script(HERE, 0)], two_broker_settings(events=(fault,)))
    why = simulation.outcomes[0] or ""
    assert why.startswith(f"an action of the fault failed: expect(condition=<group({HERE!r}).stable(members=5)>) at ")
    assert f"it does not hold\n{HERE} has been in Stable for " in why


def test_conditions_are_evaluated_after_the_members_have_left() -> None:
    events = (
        expect({"is": "group.state", "group_id": HERE, "state": "Empty"}, 29),
        {"at_s": 29.5, "do": "clear_faults"},
    )
    member = script(HERE, 0, Act(0.0, "start"), Act(5_000.0, "leave"))
    simulation, rows = play_in_memory([member], two_broker_settings(events=events))
    assert simulation.outcomes == {0: None, 1: OVER}
    assert rows == play_in_memory([member], two_broker_settings())[1]


def test_conditions_of_groups_whose_offsets_partition_has_no_members_are_evaluated() -> None:
    seed = {"at_s": 1, "do": "group.seed", "group_id": HERE, "members": 2, "topics": ["orders"]}
    elsewhere = next(name for name in map("g{}".format, range(500)) if partition_for(name, 50) == 1)
    stable, dead = ({"is": "group.stable", "group_id": name} for name in (HERE, elsewhere))
    events = (seed, expect(stable, 5), expect(stable, 58), expect(dead), expect({"not": dead}), expect(dead, 2))
    plan = TaskPlan(
        bootstrap="",
        report_to=("", 0),
        seed=1,
        events=events,
        cluster=Cluster(brokers=2),
        topics={"orders": 4},
        duration_s=60,
        directory=Path("unused"),
    )
    outcomes = with_other_outcomes({0: None, 5: "known"}, plan)
    assert [outcomes[number] is None for number in range(6)] == [True, True, False, False, True, False]
    assert f"{HERE} has been in Empty for " in (outcomes[2] or ""), "the sessions of its members have expired"
    assert f"{elsewhere} is Dead: there is no such group" in (outcomes[3] or "")
    assert outcomes[5] == "known"
    timeline = timeline_of(events, outcomes, is_complete=True)
    assert [event["done"] for event in timeline if event["do"] == "expect"] == [False, True, False, True, False]


def test_events_without_an_outcome_were_done_unless_they_need_a_group_of_the_replay() -> None:
    move = {"at_s": 2, "do": "partition.move_leader", "topic": "__consumer_offsets", "partition": 7, "to": 2}
    force = {"at_s": 1, "do": "group.rebalance", "group_id": "g"}
    timeline = timeline_of([move, force, force], {1: "no"}, is_complete=True)
    assert [(event["at_s"], event["done"], event["why"]) for event in timeline] == [
        (1, False, "no"),
        (1, False, "group_id='g': expected a group of the replay"),
        (2, True, None),
    ]
    assert [event["why"] for event in timeline_of([move, force], {}, is_complete=False)] == [OVER, OVER]
