"""The coordinator of option 1.a: registration, pings, rebalances, offsets."""

import pytest

from fakebroker.lab.design import CoordinatorSettings
from fakebroker.lab.designs.option_1a import DESIGN, TRANSITIONS, GroupState
from fakebroker.lab.designs.options.messages import (
    NOT_COORDINATOR,
    REBALANCE,
    SESSION_TIMEOUT_NOT_VALID,
    TOPIC_PARTITION_NOT_VALID,
    UNKNOWN_CONSUMER,
    PingRequest,
    PingResponse,
)
from tests.support.lab.option_coordinators import SESSION_MS, OptionCoordinator
from tests.support.lab.ports import FakeLink

ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


@pytest.fixture
def lab() -> OptionCoordinator:
    return OptionCoordinator(DESIGN)


def ping(lab: OptionCoordinator, consumer_id: str, group_id: str = "g") -> int:
    request = PingRequest(correlation_id=5, group_id=group_id, consumer_id=consumer_id)
    lab.receive(lab.links.get(consumer_id, FakeLink(98)), request)
    response = lab.port.take(PingResponse)
    assert response.correlation_id == 5
    return response.error_code


def join(lab: OptionCoordinator, *consumer_ids: str) -> None:
    """Make a steady group of these consumers."""
    for consumer_id in consumer_ids:
        lab.register(consumer_id)
    lab.port.settle()
    for consumer_id in consumer_ids[:-1]:
        lab.register(consumer_id)
    lab.port.settle()
    lab.port.sent.clear()
    assert [ping(lab, consumer_id) for consumer_id in consumer_ids] == [0] * len(consumer_ids)


def test_the_first_consumer_gets_all_partitions_once_its_ownership_is_recorded(lab: OptionCoordinator) -> None:
    lab.register("a")
    assert lab.port.sent == []
    lab.port.settle()
    assert lab.confirmations() == {"a": dict.fromkeys(ALL, -1)}
    assert lab.ownership() == {"a": tuple(ALL)}


def test_a_new_consumer_is_confirmed_when_the_others_have_registered_again(lab: OptionCoordinator) -> None:
    join(lab, "a")
    lab.register("b")
    lab.port.settle()
    assert lab.port.sent == []
    assert ping(lab, "a") == REBALANCE
    lab.register("a")
    lab.port.settle()
    assert lab.confirmations() == {"a": dict.fromkeys(ALL[:2], -1), "b": dict.fromkeys(ALL[2:], -1)}
    assert lab.ownership() == {"a": tuple(ALL[:2]), "b": tuple(ALL[2:])}
    assert [ping(lab, "a"), ping(lab, "b")] == [0, 0]


def test_offsets_are_the_maximum_of_those_consumed_and_those_stored() -> None:
    lab = OptionCoordinator(DESIGN, offsets={("g", "t", 0): 50, ("g", "t", 1): 50, ("other", "t", 2): 9})
    lab.register("a", {("t", 0): 40, ("t", 1): 60})
    lab.port.settle()
    assert lab.confirmations() == {"a": {("t", 0): 50, ("t", 1): 60, ("t", 2): -1, ("t", 3): -1}}
    assert lab.stored_offsets() == {("t", 1): 60}
    lab.register("b", {("t", 1): 55, ("t", 2): 20})
    lab.register("a", {("t", 1): 61, ("t", 2): 10})
    lab.port.settle()
    assert lab.confirmations() == {"a": {("t", 0): 50, ("t", 1): 61}, "b": {("t", 2): 20, ("t", 3): -1}}
    assert lab.stored_offsets() == {("t", 1): 61, ("t", 2): 20}


def test_a_silent_consumer_expires_and_the_others_have_to_register_again(lab: OptionCoordinator) -> None:
    join(lab, "a", "b")
    lab.advance(SESSION_MS - 1)
    assert ping(lab, "a") == 0
    lab.advance(1)
    assert lab.port.removed == [("g", "b")]
    assert ping(lab, "a") == REBALANCE
    lab.register("a")
    lab.port.settle()
    assert lab.confirmations() == {"a": dict.fromkeys(ALL, -1)}


def test_the_last_consumer_to_expire_ends_the_group(lab: OptionCoordinator) -> None:
    join(lab, "a")
    lab.advance(SESSION_MS)
    assert lab.port.removed == [("g", "a")]
    assert lab.coordinator.next_deadline() == float("inf")
    assert ping(lab, "a") == UNKNOWN_CONSUMER
    lab.register("b")
    lab.port.settle()
    assert lab.confirmations() == {"b": dict.fromkeys(ALL, -1)}


def test_a_consumer_that_does_not_register_again_expires_and_ends_the_wait(lab: OptionCoordinator) -> None:
    join(lab, "a", "b")
    lab.advance(4_000)
    assert ping(lab, "b") == 0
    lab.register("c")
    lab.register("a")
    lab.port.settle()
    lab.advance(SESSION_MS - 1)
    assert lab.port.sent == []
    lab.advance(1)
    assert lab.port.removed == [("g", "b")]
    lab.port.settle()
    assert lab.confirmations().keys() == {"a", "c"}


def test_consumers_that_wait_for_their_confirmation_do_not_expire(lab: OptionCoordinator) -> None:
    join(lab, "a")
    lab.register("b")
    for _ in range(5):
        lab.advance(SESSION_MS - 1)
        assert ping(lab, "a") == REBALANCE
    assert lab.port.removed == []
    lab.register("a")
    lab.port.settle()
    lab.advance(SESSION_MS - 1)
    assert lab.port.removed == []
    lab.advance(1)
    assert lab.port.removed == [("g", "b"), ("g", "a")]


def test_commits_keep_a_session_alive(lab: OptionCoordinator) -> None:
    join(lab, "a")
    lab.advance(SESSION_MS - 1)
    assert lab.commit("a", {("t", 0): 3}) == 0
    lab.advance(SESSION_MS - 1)
    assert lab.port.removed == []


def test_a_consumer_that_registers_during_recording_waits_for_the_next_rebalance(lab: OptionCoordinator) -> None:
    lab.register("a")
    lab.register("b")
    lab.port.settle()
    assert lab.confirmations() == {"a": dict.fromkeys(ALL, -1)}
    assert ping(lab, "a") == REBALANCE
    lab.register("a")
    lab.port.settle()
    assert lab.confirmations().keys() == {"a", "b"}


def test_a_consumer_that_registers_again_during_recording_is_confirmed_once(lab: OptionCoordinator) -> None:
    lab.register("a")
    lab.register("a", link=FakeLink(5))
    lab.port.settle()
    assert lab.port.sent[0][0] == FakeLink(5)
    assert lab.confirmations() == {"a": dict.fromkeys(ALL, -1)}
    assert ping(lab, "a") == 0


def test_the_ping_of_an_unknown_consumer_causes_a_rebalance(lab: OptionCoordinator) -> None:
    assert ping(lab, "x") == UNKNOWN_CONSUMER
    join(lab, "a")
    assert ping(lab, "x") == UNKNOWN_CONSUMER
    assert ping(lab, "a") == REBALANCE


@pytest.mark.parametrize("counts", [{"t": 6}, {"t": 4, "u": 1}])
def test_new_partitions_cause_a_rebalance_of_the_groups_that_subscribe(
    lab: OptionCoordinator, counts: dict[str, int]
) -> None:
    join(lab, "a")
    lab.port.counts = counts
    lab.coordinator.topics_changed(0.0)
    assert ping(lab, "a") == (REBALANCE if counts["t"] == 6 else 0)


def test_partitions_that_are_added_during_recording_are_assigned_next(lab: OptionCoordinator) -> None:
    lab.register("a")
    lab.port.settle_one()
    lab.port.counts = {"t": 5}
    lab.coordinator.topics_changed(0.0)
    lab.port.settle()
    assert lab.confirmations() == {"a": dict.fromkeys(ALL, -1)}
    assert ping(lab, "a") == REBALANCE
    lab.register("a")
    lab.port.settle()
    assert len(lab.confirmations()["a"]) == 5
    assert ping(lab, "a") == 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topics": ["unknown"]}, TOPIC_PARTITION_NOT_VALID),
        ({"partition_ids": [0]}, TOPIC_PARTITION_NOT_VALID),
        ({"session_timeout_ms": 0}, SESSION_TIMEOUT_NOT_VALID),
        ({"session_timeout_ms": 60_001}, SESSION_TIMEOUT_NOT_VALID),
    ],
)
def test_registrations_that_are_not_valid_are_rejected(changes: dict[str, object], error: int) -> None:
    lab = OptionCoordinator(DESIGN, CoordinatorSettings(max_session_timeout_ms=60_000))
    join(lab, "a")
    lab.register("b", **changes)  # type: ignore[arg-type]  # arguments of one registration
    assert lab.rejection() == error
    assert ping(lab, "a") == 0


def test_a_broker_is_the_coordinator_of_a_group_when_it_has_loaded_its_partition() -> None:
    lab = OptionCoordinator(DESIGN, is_loaded=False)
    assert ping(lab, "a") == NOT_COORDINATOR
    assert lab.commit("a", {("t", 0): 1}) == UNKNOWN_CONSUMER
    lab.register("a")
    assert lab.rejection() == NOT_COORDINATOR
    lab.coordinator.loaded(lab.partition_of("g"), {}, 0.0)
    lab.register("a")
    lab.port.settle()
    assert lab.confirmations().keys() == {"a"}
    assert lab.port.removed == []


def test_registrations_are_rejected_if_offsets_cannot_be_stored(lab: OptionCoordinator) -> None:
    lab.port.leads = False
    lab.register("a", {("t", 0): 5})
    lab.port.settle()
    assert lab.rejection() == NOT_COORDINATOR
    assert lab.ownership() is None


def test_commits_are_stored(lab: OptionCoordinator) -> None:
    join(lab, "a")
    assert lab.commit("a", {("t", 0): 5}) == 0
    assert lab.stored_offsets() == {("t", 0): 5}
    lab.port.leads = False
    assert lab.commit("a", {("t", 0): 6}) == NOT_COORDINATOR
    assert lab.commit("x", {("t", 0): 7}) == UNKNOWN_CONSUMER
    lab.register("a")
    lab.port.settle()
    assert lab.confirmations()["a"]["t", 0] == 5


def test_a_broken_connection_is_not_a_failure(lab: OptionCoordinator) -> None:
    join(lab, "a")
    lab.coordinator.disconnected(lab.links["a"], 0.0)
    assert lab.port.removed == []
    assert ping(lab, "a") == 0


def test_sessions_are_suspended_while_a_group_rests(lab: OptionCoordinator) -> None:
    join(lab, "a", "b")
    assert lab.coordinator.is_steady("g", 2)
    assert not lab.coordinator.is_steady("g", 3)
    assert lab.coordinator.next_beats("g") == {}
    lab.coordinator.rest("g")
    assert lab.coordinator.next_deadline() == float("inf")
    lab.coordinator.wake("g", {lab.links["a"]: 50_000.0, lab.links["b"]: 52_000.0})
    lab.advance(59_999)
    assert lab.port.removed == []
    lab.advance(1)
    assert lab.port.removed == [("g", "a")]
    assert not lab.coordinator.is_steady("g", 1)


def test_states_follow_the_table() -> None:
    assert TRANSITIONS.keys() == set(GroupState)
    reached = {state for states in TRANSITIONS.values() for state in states}
    assert reached == set(GroupState)
