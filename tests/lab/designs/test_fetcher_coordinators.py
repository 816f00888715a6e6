"""The coordinators of options 1.b and 1.c: registration, failures, and what causes rebalances."""

import pytest

from fakebroker.lab.design import CoordinatorSettings
from fakebroker.lab.designs import design_named
from fakebroker.lab.designs.options.messages import (
    NOT_COORDINATOR,
    SESSION_TIMEOUT_NOT_VALID,
    TOPIC_PARTITION_NOT_VALID,
    UNKNOWN_CONSUMER,
    CoordinatorPingRequest,
    CoordinatorPingResponse,
    PingRequest,
    PingResponse,
    RegisterConsumerResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    from_wire,
    to_wire,
)
from tests.support.lab.fetcher_phases import ALL, FetcherLab
from tests.support.lab.option_coordinators import SESSION_MS
from tests.support.lab.ports import FakeLink


@pytest.fixture(params=["option-1b", "option-1c"])
def lab(request: pytest.FixtureRequest) -> FetcherLab:
    return FetcherLab(design_named(request.param))


def test_a_registration_is_confirmed_at_once(lab: FetcherLab) -> None:
    lab.register("a", version=0)
    assert lab.port.sent == [
        (lab.links["a"], RegisterConsumerResponse(correlation_id=7, group_id="g", consumer_id="a"))
    ]


def test_consumers_are_started_with_ranges_and_offsets() -> None:
    lab = FetcherLab(design_named("option-1b"), offsets={("g", "t", 0): 50, ("g", "t", 1): 60, ("x", "t", 2): 1})
    assert lab.join("b", "a") == {
        "a": {("t", 0): 50, ("t", 1): 60},
        "b": {("t", 2): -1, ("t", 3): -1},
    }
    assert lab.ownership() == {"a": tuple(ALL[:2]), "b": tuple(ALL[2:])}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topics": ["unknown"]}, TOPIC_PARTITION_NOT_VALID),
        ({"partition_ids": [1]}, TOPIC_PARTITION_NOT_VALID),
        ({"session_timeout_ms": 0}, SESSION_TIMEOUT_NOT_VALID),
        ({"session_timeout_ms": 60_001}, SESSION_TIMEOUT_NOT_VALID),
    ],
)
def test_registrations_that_are_not_valid_are_rejected(changes: dict[str, object], error: int) -> None:
    lab = FetcherLab(design_named("option-1b"), CoordinatorSettings(max_session_timeout_ms=60_000))
    lab.join("a")
    lab.register("b", **changes)  # type: ignore[arg-type]  # arguments of one registration
    assert lab.rejection() == error
    lab.port.settle()
    assert lab.port.sent == []


@pytest.mark.parametrize("design", ["option-1b", "option-1c"])
def test_a_broker_is_the_coordinator_of_a_group_when_it_has_loaded_its_partition(design: str) -> None:
    lab = FetcherLab(design_named(design), is_loaded=False)
    assert lab.coordinator.next_deadline() == float("inf")
    lab.register("a")
    assert lab.rejection() == NOT_COORDINATOR
    lab.coordinator.loaded(lab.partition_of("g"), {("g", "t", 0): 4}, 0.0)
    lab.register("b")
    lab.port.sent.clear()
    assert lab.rebalance()["b"]["t", 0] == 4


def test_a_consumer_that_registers_again_gets_its_messages_over_the_new_connection(lab: FetcherLab) -> None:
    lab.join("a")
    old = lab.links["a"]
    lab.register("a", link=FakeLink(50))
    lab.port.settle()
    assert lab.confirmations().keys() == {"a"}  # No rebalance.
    lab.coordinator.disconnected(old, 0.0)
    assert lab.port.removed == []
    lab.register("b")
    lab.port.sent.clear()
    lab.port.settle()
    assert {link for link, _ in lab.port.sent} == {FakeLink(50), lab.links["b"]}


@pytest.mark.parametrize(("left", "partitions"), [("a", ["b", "c"]), ("c", ["a", "b"])])
def test_a_broken_connection_is_a_failure(lab: FetcherLab, left: str, partitions: list[str]) -> None:
    lab.join("a", "b", "c")
    lab.coordinator.disconnected(lab.links[left], 0.0)
    assert lab.port.removed == [("g", left)]
    assert lab.rebalance().keys() == set(partitions)
    lab.coordinator.disconnected(lab.links[left], 0.0)
    lab.port.settle()
    assert lab.port.sent == []


def test_the_last_consumer_to_fail_ends_the_group(lab: FetcherLab) -> None:
    lab.join("a")
    lab.coordinator.disconnected(lab.links["a"], 0.0)
    assert lab.coordinator.next_deadline() == float("inf")
    assert not lab.coordinator.is_steady("g", 0)
    lab.register("b")
    lab.port.sent.clear()
    assert lab.rebalance() == {"b": dict.fromkeys(ALL, -1)}


@pytest.mark.parametrize(("counts", "is_rebalanced"), [({"t": 6}, True), ({"t": 4, "u": 1}, False)])
def test_new_partitions_cause_a_rebalance_of_the_groups_that_subscribe(
    lab: FetcherLab, counts: dict[str, int], is_rebalanced: bool
) -> None:
    lab.join("a")
    lab.port.counts = counts
    lab.coordinator.topics_changed(0.0)
    lab.port.settle()
    assert bool(lab.port.sent) is is_rebalanced


def test_commits_are_stored(lab: FetcherLab) -> None:
    lab.join("a")
    assert lab.commit("a", {("t", 0): 5}) == 0
    assert lab.stored_offsets() == {("t", 0): 5}
    lab.port.leads = False
    assert lab.commit("a", {("t", 0): 6}) == NOT_COORDINATOR
    assert lab.commit("x", {("t", 0): 7}) == UNKNOWN_CONSUMER


def test_responses_of_unknown_consumers_are_ignored(lab: FetcherLab) -> None:
    lab.join("a")
    lab.receive(FakeLink(70), StopFetcherResponse(correlation_id=1, consumer_id="x", consumed_so_far=[]))
    lab.receive(FakeLink(70), CoordinatorPingResponse(correlation_id=1, consumer_id="x", consumed_so_far=[]))
    assert lab.port.sent == []


# Option 1.b


def pinged(lab: FetcherLab, ms: float) -> list[str]:
    """Let time pass, and return the consumers that are pinged; pings stay unanswered."""
    lab.advance(ms)
    return [each.consumer_id for each in lab.port.take_all(CoordinatorPingRequest)]


def answer_ping(lab: FetcherLab, consumer_id: str, offset: int = 0) -> None:
    (request,) = lab.port.take_all(CoordinatorPingRequest)
    assert request.consumer_id == consumer_id
    response = CoordinatorPingResponse(
        correlation_id=request.correlation_id, consumer_id=consumer_id, consumed_so_far=to_wire({("t", 0): offset})
    )
    lab.receive(lab.links[consumer_id], response)


def test_the_coordinator_pings_each_consumer_once_a_session_timeout() -> None:
    lab = FetcherLab(design_named("option-1b"))
    lab.join("a")
    assert pinged(lab, SESSION_MS - 1) == []
    for _ in range(3):
        lab.advance(1)
        assert not lab.coordinator.is_steady("g", 1)
        answer_ping(lab, "a")
        assert lab.coordinator.is_steady("g", 1)
        lab.advance(SESSION_MS - 1)
    assert lab.port.removed == []


@pytest.mark.parametrize("most", [1, 3])
def test_a_consumer_has_failed_after_a_number_of_expired_pings(most: int) -> None:
    lab = FetcherLab(design_named("option-1b"), CoordinatorSettings(expired_heartbeats=most))
    lab.join("a")
    lab.advance(SESSION_MS)
    answer_ping(lab, "a")
    lab.advance(most * SESSION_MS)
    assert len(lab.port.take_all(CoordinatorPingRequest)) == most
    assert lab.port.removed == []
    lab.advance(SESSION_MS)
    assert lab.port.removed == [("g", "a")]
    assert lab.port.closed == [lab.links["a"]]
    assert lab.port.sent == []


def test_a_response_restarts_the_count_of_expired_pings() -> None:
    lab = FetcherLab(design_named("option-1b"), CoordinatorSettings(expired_heartbeats=2))
    lab.join("a")
    for _ in range(3):
        assert pinged(lab, SESSION_MS) == ["a"]
        lab.advance(SESSION_MS)
        answer_ping(lab, "a")
    assert lab.port.removed == []


def test_a_response_to_stop_fetcher_clears_the_expiration_of_pings() -> None:
    lab = FetcherLab(design_named("option-1b"))
    lab.join("a")
    assert pinged(lab, SESSION_MS) == ["a"]
    lab.port.counts = {"t": 5}
    lab.coordinator.topics_changed(lab.now_ms)
    lab.port.settle()
    lab.stopped("a")
    lab.advance(SESSION_MS - 1)
    lab.started("a")
    lab.advance(1)
    assert lab.port.removed == []


def test_the_offsets_in_responses_to_pings_are_recorded_but_not_stored() -> None:
    lab = FetcherLab(design_named("option-1b"))
    lab.join("a")
    lab.advance(SESSION_MS)
    answer_ping(lab, "a", offset=12)
    assert lab.stored_offsets() == {}
    lab.register("b")
    lab.port.sent.clear()
    assert lab.rebalance(consumed={})["a"]["t", 0] == 12


def test_pings_are_suspended_while_a_group_rests() -> None:
    lab = FetcherLab(design_named("option-1b"))
    lab.join("a", "b")
    assert lab.coordinator.next_beats("g") == {lab.links["a"]: SESSION_MS, lab.links["b"]: SESSION_MS}
    lab.coordinator.rest("g")
    assert lab.coordinator.next_deadline() == float("inf")
    lab.coordinator.wake("g", {lab.links["a"]: 50_000.0, lab.links["b"]: 52_000.0})
    lab.port.clock_ms = 53_000
    assert pinged(lab, 6_999) == []
    assert pinged(lab, 1) == ["a"]
    assert pinged(lab, 2_000) == ["b"]


# Option 1.c


def ping(lab: FetcherLab, consumer_id: str) -> int:
    request = PingRequest(correlation_id=5, group_id="g", consumer_id=consumer_id)
    lab.receive(lab.links.get(consumer_id, FakeLink(98)), request)
    response = lab.port.take(PingResponse)
    assert response.correlation_id == 5
    return response.error_code


def test_pings_of_consumers_are_answered() -> None:
    lab = FetcherLab(design_named("option-1c"))
    lab.join("a")
    assert ping(lab, "a") == 0
    assert ping(lab, "x") == UNKNOWN_CONSUMER
    assert lab.coordinator.next_beats("g") == {}
    lab.port.settle()
    assert lab.port.sent == []


@pytest.mark.parametrize("message", ["ping", "commit", "nothing"])
def test_a_silent_consumer_has_failed(message: str) -> None:
    lab = FetcherLab(design_named("option-1c"))
    lab.join("a", "b")
    lab.advance(SESSION_MS - 1)
    ping(lab, "b")
    match message:
        case "ping":
            ping(lab, "a")
        case "commit":
            lab.commit("a", {("t", 0): 1})
    lab.advance(1)
    if message == "nothing":
        assert lab.port.removed == [("g", "a")]
        assert lab.port.closed == [lab.links["a"]]
        assert lab.rebalance() == {"b": dict.fromkeys(ALL, -1)}
    else:
        assert lab.port.removed == []


def test_sessions_are_suspended_while_a_group_rests() -> None:
    lab = FetcherLab(design_named("option-1c"))
    lab.join("a")
    assert lab.coordinator.is_steady("g", 1)
    lab.coordinator.rest("g")
    assert lab.coordinator.next_deadline() == float("inf")
    lab.coordinator.wake("g", {lab.links["a"]: 50_000.0})
    lab.advance(59_999)
    assert lab.port.removed == []
    lab.advance(1)
    assert lab.port.removed == [("g", "a")]


def test_a_group_is_not_steady_during_a_rebalance(lab: FetcherLab) -> None:
    lab.join("a")
    assert lab.coordinator.is_steady("g", 1)
    assert not lab.coordinator.is_steady("g", 2)
    assert not lab.coordinator.is_steady("other", 1)
    lab.port.counts = {"t": 5}
    lab.coordinator.topics_changed(0.0)
    assert not lab.coordinator.is_steady("g", 1)
    lab.port.settle()
    assert not lab.coordinator.is_steady("g", 1)
    assert isinstance(lab.port.sent[0][1], StopFetcherRequest)
    lab.stopped("a")
    assert not lab.coordinator.is_steady("g", 1)
    assert from_wire(lab.started("a").partitions_to_own).keys() == {*ALL, ("t", 4)}
    assert lab.coordinator.is_steady("g", 1)
