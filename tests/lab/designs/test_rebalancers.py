"""The rebalances of options 1.b and 1.c: when they are necessary, their two phases, failures, and the threads."""

from collections.abc import Mapping

import pytest

from fakebroker.lab.design import CoordinatorSettings
from fakebroker.lab.designs import design_named
from fakebroker.lab.designs.options.messages import (
    UNKNOWN_CONSUMER,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StopFetcherRequest,
    from_wire,
)
from fakebroker.lab.designs.options.rebalancers import TRANSITIONS, RebalanceState
from tests.support.lab.fetcher_phases import ALL, FetcherLab

PHASE_MS = 5_000  # Shorter than a session.


@pytest.fixture
def lab() -> FetcherLab:
    return FetcherLab(
        design_named("option-1c"), CoordinatorSettings(rebalancer_threads=2, rebalance_phase_timeout_ms=PHASE_MS)
    )


def add(lab: FetcherLab, *consumer_ids: str, group_id: str = "g") -> None:
    """Register consumers, and let the rebalance begin."""
    for consumer_id in consumer_ids:
        lab.register(consumer_id, group_id=group_id, version=0)
    lab.port.sent = [each for each in lab.port.sent if not isinstance(each[1], RegisterConsumerResponse)]
    lab.port.settle()


def begin(lab: FetcherLab, *consumer_ids: str) -> None:
    """Make a group of these consumers, and begin a rebalance because of a new partition."""
    lab.join(*consumer_ids)
    lab.port.counts = {"t": 5}
    lab.coordinator.topics_changed(lab.now_ms)
    lab.port.settle()


def stopping(lab: FetcherLab) -> list[str]:
    """Return the consumers whose StopFetcher has not been answered."""
    return [message.consumer_id for _, message in lab.port.sent if isinstance(message, StopFetcherRequest)]


def starting(lab: FetcherLab) -> list[str]:
    """Return the consumers whose StartFetcher has not been answered."""
    return [message.consumer_id for _, message in lab.port.sent if isinstance(message, StartFetcherRequest)]


def test_consumers_are_started_when_all_have_stopped_and_their_offsets_are_stored(lab: FetcherLab) -> None:
    lab.join("a")
    add(lab, "b")
    assert stopping(lab) == ["a", "b"]
    lab.stopped("a", {("t", 0): 5, ("t", 3): 9})
    assert starting(lab) == []
    assert lab.stored_offsets() == {}
    lab.stopped("b")
    assert lab.stored_offsets() == {("t", 0): 5, ("t", 3): 9}
    assert starting(lab) == ["a", "b"]
    assert from_wire(lab.started("a").partitions_to_own) == {("t", 0): 5, ("t", 1): -1}
    assert lab.ownership() == {"a": tuple(ALL)}
    assert from_wire(lab.started("b").partitions_to_own) == {("t", 2): -1, ("t", 3): 9}
    assert lab.ownership() == {"a": tuple(ALL[:2]), "b": tuple(ALL[2:])}


def test_offsets_of_stopped_consumers_replace_higher_ones(lab: FetcherLab) -> None:
    lab.join("a")
    lab.commit("a", {("t", 0): 90})
    add(lab, "b")
    lab.stopped("a", {("t", 0): 70})
    lab.stopped("b")
    assert from_wire(lab.started("a").partitions_to_own)["t", 0] == 70


@pytest.mark.parametrize(
    ("registered", "is_necessary"),
    [
        (None, True),
        ({"a": ALL[:2]}, True),  # Some partitions are not owned.
        ({"a": [*ALL, ("t", 9)]}, True),  # A partition does not exist any longer.
        ({"b": ALL}, True),  # Another ownership than the new one.
        ({"a": ALL, "b": []}, True),
        ({"a": ALL}, False),
    ],
)
def test_rebalances_are_necessary_if_the_registered_ownership_differs(
    lab: FetcherLab, registered: Mapping[str, list[tuple[str, int]]] | None, is_necessary: bool
) -> None:
    if registered is not None:
        lab.port.registry.create("/consumers", {})
        data = {consumer_id: tuple(partitions) for consumer_id, partitions in registered.items()}
        lab.port.registry.create("/consumers/g", data)
    add(lab, "a")
    assert stopping(lab) == (["a"] if is_necessary else [])


def test_group_ids_may_have_slashes(lab: FetcherLab) -> None:
    lab.join("a", group_id="x/y")
    assert lab.ownership("x%2Fy") == {"a": tuple(ALL)}


# Failures


def test_a_rebalance_fails_if_a_consumer_does_not_stop_in_time(lab: FetcherLab) -> None:
    """Nothing happens then: the others stay stopped, their offsets are lost, and nothing is repeated."""
    lab.join("a", "b")
    add(lab, "c")
    lab.stopped("a", {("t", 0): 5})
    lab.stopped("c")
    lab.advance(PHASE_MS - 1)
    assert lab.coordinator.next_deadline() == PHASE_MS
    lab.advance(1)
    assert lab.port.removed == []
    lab.stopped("b", {("t", 3): 9})  # Too late.
    assert lab.port.sent == []
    assert lab.stored_offsets() == {}
    assert lab.ownership() == {"a": tuple(ALL[:2]), "b": tuple(ALL[2:])}
    add(lab, "d")
    assert stopping(lab) == ["a", "b", "c", "d"]


def test_a_rebalance_fails_if_a_consumer_does_not_start_in_time(lab: FetcherLab) -> None:
    begin(lab, "a", "b")
    before = lab.ownership()
    lab.stopped("a")
    lab.stopped("b")
    lab.advance(PHASE_MS - 1)
    lab.started("a")
    lab.advance(1)
    lab.started("b")  # Too late.
    assert lab.ownership() == before
    assert lab.port.sent == []
    assert lab.port.removed == []


def test_after_a_failed_rebalance_the_group_may_look_as_if_it_were_complete(lab: FetcherLab) -> None:
    """The newcomer whose rebalance has failed leaves: the ownership is registered, but nobody fetches."""
    lab.join("a", "b")
    add(lab, "c")
    for consumer_id in ("a", "b"):
        lab.stopped(consumer_id)
    lab.advance(PHASE_MS)
    lab.port.sent.clear()
    lab.coordinator.disconnected(lab.links["c"], lab.now_ms)
    lab.port.settle()
    assert lab.port.sent == []
    assert lab.ownership() == {"a": tuple(ALL[:2]), "b": tuple(ALL[2:])}


@pytest.mark.parametrize("phase", ["stop", "start"])
def test_a_rebalance_fails_if_a_consumer_responds_with_an_error(lab: FetcherLab, phase: str) -> None:
    begin(lab, "a", "b")
    before = lab.ownership()
    if phase == "stop":
        lab.stopped("a", error=UNKNOWN_CONSUMER)
        lab.stopped("b")  # Too late.
    else:
        lab.stopped("a")
        lab.stopped("b")
        lab.started("a", error=UNKNOWN_CONSUMER)
        lab.started("b")  # Too late.
    assert lab.port.sent == []
    assert lab.ownership() == before
    assert lab.coordinator.is_steady("g", 2)  # The thread is free.


def test_a_rebalance_fails_if_the_offsets_cannot_be_stored(lab: FetcherLab) -> None:
    lab.port.leads = False
    add(lab, "a")
    lab.stopped("a", {("t", 0): 5})
    assert lab.port.sent == []
    assert lab.ownership() is None


@pytest.mark.parametrize("phase", ["read", "stop", "commit", "start", "write"])
def test_a_consumer_that_fails_ends_the_rebalance_and_begins_another(lab: FetcherLab, phase: str) -> None:
    for consumer_id in ("a", "b"):
        lab.register(consumer_id, version=0)
    lab.port.sent.clear()
    if phase != "read":
        lab.port.settle()
    if phase in ("commit", "start", "write"):
        lab.stopped("a")
        lab.port.is_held = phase == "commit"
        lab.stopped("b", {("t", 0): 5})
    if phase == "write":
        lab.started("a")
        lab.port.is_held = True
        lab.started("b")
    lab.port.is_held = False
    lab.port.sent.clear()
    lab.coordinator.disconnected(lab.links["b"], lab.now_ms)
    lab.port.settle()
    assert stopping(lab) == ["a"]
    lab.stopped("a")
    assert from_wire(lab.started("a").partitions_to_own).keys() == set(ALL)
    assert lab.ownership() == {"a": tuple(ALL)}
    assert lab.port.sent == []


def test_consumers_that_register_during_a_phase_are_part_of_the_next_rebalance(lab: FetcherLab) -> None:
    add(lab, "a")
    add(lab, "b")
    assert stopping(lab) == ["a"]
    lab.stopped("a")
    assert from_wire(lab.started("a").partitions_to_own).keys() == set(ALL)
    assert stopping(lab) == ["a", "b"]


# The rebalance bit, and the threads


def test_several_causes_make_one_rebalance_until_it_begins(lab: FetcherLab) -> None:
    add(lab, "a", "b")
    for count in (5, 6, 7):
        lab.port.counts = {"t": count}
        lab.coordinator.topics_changed(0.0)
    lab.rebalance()
    assert stopping(lab) == ["a", "b"]
    lab.rebalance()
    assert lab.port.sent == []
    registered = lab.ownership()
    assert isinstance(registered, dict)
    assert sum(map(len, registered.values())) == 7


def test_a_rebalance_that_waits_for_responses_blocks_its_thread(lab: FetcherLab) -> None:
    for number in range(5):
        add(lab, f"c{number}", group_id=f"g{number}")
    assert stopping(lab) == ["c0", "c1"]
    lab.stopped("c1")
    lab.started("c1")
    assert stopping(lab) == ["c0", "c3"]  # The first thread has c2 in its queue.
    lab.advance(PHASE_MS)
    assert lab.ownership("g0") is None
    lab.port.settle()
    assert stopping(lab) == ["c0", "c3", "c2"]


def test_a_thread_is_free_after_a_timeout(lab: FetcherLab) -> None:
    for number in range(3):
        add(lab, f"c{number}", group_id=f"g{number}")
    lab.advance(PHASE_MS)
    lab.port.settle()
    assert stopping(lab) == ["c0", "c1", "c2"]
    lab.stopped("c2")
    lab.started("c2")
    assert lab.ownership("g2") == {"c2": tuple(ALL)}


def test_a_new_rebalance_goes_to_the_thread_with_the_fewest(lab: FetcherLab) -> None:
    for number in range(4):
        add(lab, f"c{number}", group_id=f"g{number}")
    for consumer_id in ("c0", "c2"):
        lab.stopped(consumer_id)
        lab.started(consumer_id)
    add(lab, "c5", group_id="g5")
    assert stopping(lab) == ["c1", "c5"]


def test_rebalances_of_one_group_have_the_same_thread(lab: FetcherLab) -> None:
    add(lab, "a")
    add(lab, "b")  # Waits for the first rebalance of the group, although a thread is free.
    assert stopping(lab) == ["a"]
    add(lab, "x", group_id="other")
    assert stopping(lab) == ["a", "x"]
    lab.stopped("a")
    lab.started("a")
    assert stopping(lab) == ["x", "a", "b"]


def test_a_group_without_consumers_does_not_occupy_a_thread(lab: FetcherLab) -> None:
    add(lab, "a", group_id="ga")
    add(lab, "b", group_id="gb")
    add(lab, "c", group_id="gc")
    lab.coordinator.disconnected(lab.links["c"], 0.0)
    lab.stopped("a")
    lab.started("a")
    assert stopping(lab) == ["b"]
    add(lab, "d", group_id="gc")
    assert stopping(lab) == ["b", "d"]


def test_states_follow_the_table() -> None:
    assert TRANSITIONS.keys() == set(RebalanceState)
    begun = {state for states in TRANSITIONS.values() for state in states}
    assert begun == set(RebalanceState) - {RebalanceState.READING_OWNERSHIP}
