"""What came of the events of a workload, over TCP and in memory."""

import threading
from pathlib import Path

import pytest

from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.replay.embedded_cluster import embedded_cluster
from fakebroker.replay.script.script import Act
from fakebroker.replay.spark.simulation_tasks import timeline_of
from fakebroker.replay.workload.timeline import OVER, performing
from fakebroker.replay.workload.workload import Cluster
from tests.support.replay.simulated_replays import Row, play_in_memory, script, two_broker_settings

TIMEOUT_S = 20.0
HERE, OTHER = [name for name in map("g{}".format, range(500)) if partition_for(name, 50) == 0][:2]
"""Groups of offsets partition 0."""


def test_events_that_are_still_to_come_in_the_end_are_told() -> None:
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


def test_an_embedded_cluster_tells_what_came_of_events(tmp_path: Path) -> None:
    with embedded_cluster(Cluster(brokers=1), 1, tmp_path) as cluster:
        assert cluster.outcomes() == []
        cluster.perform({"do": "clear_faults"})
        cluster.perform({"do": "stop_broker", "node_id": 7})
        assert cluster.outcomes() == [None, "node_id=7: expected one of 1"]


@pytest.mark.parametrize(
    ("event", "outcomes"),
    [
        ({"at_s": 5, "do": "stop_broker", "node_id": 1}, {0: None}),
        ({"at_s": 5, "do": "force_rebalance", "group_id": HERE}, {0: None}),
        ({"at_s": 5, "do": "evict", "group_id": HERE, "member": "x"}, {0: f"group {HERE!r}: member='x'"}),
        ({"at_s": 5, "do": "force_rebalance", "group_id": OTHER}, {0: f"group_id={OTHER!r}"}),
        ({"at_s": 5, "do": "force_rebalance", "group_id": "elsewhere"}, {}),
        ({"at_s": 29, "do": "rolling_restart"}, {0: OVER}),
    ],
    ids=str,
)
def test_each_offsets_partition_tells_what_came_of_what_is_about_it(
    event: Row, outcomes: dict[int, str | None]
) -> None:
    member = script(HERE, 0, Act(0.0, "start"), Act(20_000.0, "leave"))
    simulation, _ = play_in_memory([member], two_broker_settings(events=(event,)))
    assert {number: why and why.partition(": expected")[0] for number, why in simulation.outcomes.items()} == outcomes


def test_what_nobody_saw_was_done_unless_it_needs_a_group() -> None:
    move = {"at_s": 2, "do": "move_offsets_partition", "partition": 7, "to": 2}
    force = {"at_s": 1, "do": "force_rebalance", "group_id": "g"}
    told = timeline_of([move, force, force], {1: "no"}, is_complete=True)
    assert [(event["at_s"], event["done"], event["why"]) for event in told] == [
        (1, False, "no"),
        (1, False, "group_id='g': expected a group of the replay"),
        (2, True, None),
    ]
    assert [event["why"] for event in timeline_of([move, force], {}, is_complete=False)] == [OVER, OVER]
