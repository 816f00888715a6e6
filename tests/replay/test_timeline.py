"""Outcomes of the events of a workload, over TCP and in memory."""

import threading

import pytest

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.script.script import Act
from fakebroker.replay.spark.simulation_tasks import timeline_of
from fakebroker.replay.workload.timeline import OVER, performing
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
        ({"at_s": 5, "do": "stop_broker", "node_id": 1}, {0: None}),
        ({"at_s": 5, "do": "force_rebalance", "group_id": HERE}, {0: None}),
        ({"at_s": 5, "do": "evict", "group_id": HERE, "member": "x"}, {0: f"group {HERE!r}: member='x'"}),
        ({"at_s": 5, "do": "force_rebalance", "group_id": OTHER}, {0: f"group_id={OTHER!r}"}),
        ({"at_s": 5, "do": "force_rebalance", "group_id": "elsewhere"}, {}),
        ({"at_s": 29, "do": "rolling_restart"}, {0: OVER}),
    ]
    for event, outcomes in cases:
        with subtests.test(event=event):
            member = script(HERE, 0, Act(0.0, "start"), Act(20_000.0, "leave"))
            simulation, _ = play_in_memory([member], two_broker_settings(events=(event,)))
            found = {number: why and why.partition(": expected")[0] for number, why in simulation.outcomes.items()}
            assert found == outcomes


def test_events_without_an_outcome_were_done_unless_they_need_a_group_of_the_replay() -> None:
    move = {"at_s": 2, "do": "move_offsets_partition", "partition": 7, "to": 2}
    force = {"at_s": 1, "do": "force_rebalance", "group_id": "g"}
    timeline = timeline_of([move, force, force], {1: "no"}, is_complete=True)
    assert [(event["at_s"], event["done"], event["why"]) for event in timeline] == [
        (1, False, "no"),
        (1, False, "group_id='g': expected a group of the replay"),
        (2, True, None),
    ]
    assert [event["why"] for event in timeline_of([move, force], {}, is_complete=False)] == [OVER, OVER]
