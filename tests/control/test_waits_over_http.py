"""Waits over HTTP: for conditions and for spans of time, and waits that are continued after a timeout."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.server.fake_cluster import internals
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.wire_client import WireClient, find_coordinator, until

STABLE = {"is": "group.stable", "group_id": "g"}
REQUESTED = {"is": "requested", "api": "FindCoordinator"}
STOOD_STILL = "The brokers' clock is manual, and stood still during the wait; `advance` moves it."
NO_BROKER = {"is": "broker.up", "node_id": 9}
COMMITTED = {"is": "group.committed", "group_id": "g", "partition": "orders-0", "at_least": 7}
SEED = {"members": 1, "topics": ["orders"], "generation": 5, "offsets": {"orders-0": 7}, "lag": {"orders-0": 2}}


@pytest.fixture(scope="module")
def started() -> Iterator[ControlHarness]:
    with controlled_cluster(3, {"orders": 4}, seed=1, clock="manual") as harness:
        yield harness


@pytest.fixture
def control(started: ControlHarness) -> ControlHarness:
    """The cluster of the module after a reset."""
    started.post("/reset")
    return started


def send_request(control: ControlHarness) -> None:
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)


def pass_through_stable(control: ControlHarness) -> None:
    """Make a group that is Stable for a moment, within one step of the cluster."""
    group = control.cluster.group("g")

    def steps() -> None:
        group.seed(1, topics=["orders"], generation=5)
        group.evict(group.describe().members[0].member_id)

    internals(control.cluster).run(steps)
    assert group.describe().state == "Empty"


def waits(control: ControlHarness) -> int:
    """Return how many waits have begun and not ended."""
    return internals(control.cluster).run(lambda: len(internals(control.cluster).watches))


def during(control: ControlHarness, path: str, body: dict[str, Any], act: Callable[[], object]) -> Any:
    """Start a wait, act as soon as it has begun, and return its response."""
    before, responses = waits(control), list[Any]()
    waiter = threading.Thread(target=lambda: responses.append(control.post(path, body)), daemon=True)
    waiter.start()
    while waits(control) == before:
        assert waiter.is_alive()
    act()
    waiter.join()
    return responses[0]


def test_conditions_that_hold_return_at_once_what_they_have_found(
    control: ControlHarness, subtests: pytest.Subtests
) -> None:
    control.post("/groups/g/seed", SEED)
    control.post("/transactions/t/seed", {"records": {"orders-1": 1}})
    send_request(control)
    stable, committed = control.get("/groups/g/describe"), control.get("/groups/g/offsets")["orders-0"]
    cases: list[tuple[dict[str, Any], Any]] = [
        (STABLE | {"members": 1, "above": 4}, stable),
        ({"is": "group.state", "group_id": "none", "state": "Dead"}, control.get("/groups/none/describe")),
        (COMMITTED, committed),
        (
            {"is": "transaction.state", "transactional_id": "t", "state": "Ongoing"},
            control.get("/transactions/t/describe"),
        ),
        ({"is": "topic.exists", "topic": "orders", "partitions": 4}, control.get("/topics/orders/describe")),
        ({"is": "broker.up", "node_id": 2}, control.get("/brokers/2/describe")),
        ({"all": [STABLE, {"all": [COMMITTED, {"not": NO_BROKER}]}]}, [stable, committed, None]),
        ({"any": [STABLE, NO_BROKER]}, None),
    ]
    for condition, found in cases:
        with subtests.test(condition=condition):
            assert control.post("/wait", {"condition": condition, "timeout_s": 0}) == {"found": found}
    has_records = {"is": "partition.has", "topic": "orders", "partition": 0, "at_least": 1}
    record = control.post("/wait", {"condition": has_records})["found"][0]
    assert (record["topic"], record["partition"], record["offset"]) == ("orders", 0, 0)
    (call,) = control.post("/wait", {"condition": REQUESTED})["found"]
    assert (call["api"], call["client_id"]) == ("FindCoordinator", "wire")


def test_a_wait_that_times_out_describes_the_state(control: ControlHarness) -> None:
    control.post("/groups/g/seed", SEED)
    timeout = control.post("/wait", {"condition": STABLE | {"members": 2}, "timeout_s": 0.01}, 408)
    assert (timeout["condition"], timeout["timeout_s"]) == ("group('g').stable(members=2)", 0.01)
    assert timeout["state"].startswith("g has been in Stable for 0.0 s.")
    assert timeout["state"].endswith("\n\n" + STOOD_STILL)
    assert timeout["detail"] == f"not reached within 0.01 s: {timeout['condition']}\n{timeout['state']}"
    at_once = control.post("/wait", {"condition": COMMITTED | {"at_least": 8}, "timeout_s": 0}, 408)
    assert STOOD_STILL not in at_once["state"]


def test_waits_end_when_their_condition_becomes_true(control: ControlHarness, subtests: pytest.Subtests) -> None:
    def act() -> None:
        control.post("/groups/g/seed", SEED)
        send_request(control)

    for condition in (STABLE, COMMITTED, REQUESTED, {"all": [STABLE, COMMITTED, REQUESTED]}, {"any": [STABLE]}):
        with subtests.test(condition=condition):
            control.post("/reset")
            before = waits(control)
            found = during(control, "/wait", {"condition": condition, "timeout_s": 30}, act)
            assert found == control.post("/wait", {"condition": condition, "timeout_s": 0})
            until(lambda: waits(control) == before, control.cluster)  # noqa: B023  # called now


def test_a_wait_that_is_continued_misses_no_moment(control: ControlHarness) -> None:
    timeout = control.post("/wait", {"condition": STABLE, "timeout_s": 0}, 408)
    pass_through_stable(control)
    assert control.post("/wait", {"condition": STABLE, "timeout_s": 0}, 408)["wait"] != timeout["wait"], "a new wait"
    found = control.post("/wait", {"wait": timeout["wait"], "timeout_s": 0})["found"]
    assert (found["state"], found["generation_id"], len(found["members"])) == ("Stable", 5, 1)


def test_a_wait_can_be_continued_again_under_another_id_each_time(control: ControlHarness) -> None:
    ids = [control.post("/wait", {"condition": STABLE, "timeout_s": 0}, 408)["wait"]]
    for _ in range(3):
        ids.append(control.post("/wait", {"wait": ids[-1], "timeout_s": 0.01}, 408)["wait"])
    assert len(set(ids)) == 4
    pass_through_stable(control)
    assert control.post("/wait", {"wait": ids[-1]})["found"]["state"] == "Stable"
    for wait_id in (*ids, "0", "", "none"):
        unknown = control.post("/wait", {"wait": wait_id}, 404)
        assert (unknown["field"], unknown["value"]) == ("wait", wait_id)


def test_a_wait_that_is_continued_goes_on_after_a_reset(control: ControlHarness) -> None:
    wait_id = control.post("/wait", {"condition": REQUESTED | {"count": 2}, "timeout_s": 0}, 408)["wait"]
    send_request(control)
    wait_id = control.post("/wait", {"wait": wait_id, "timeout_s": 0}, 408)["wait"]
    control.post("/reset")
    send_request(control)
    wait_id = control.post("/wait", {"wait": wait_id, "timeout_s": 0}, 408)["wait"]
    send_request(control)
    assert len(control.post("/wait", {"wait": wait_id})["found"]) == 2


def test_a_wait_belongs_to_its_cluster(control: ControlHarness) -> None:
    assert control.request("POST", "/v1/clusters", {"name": "other", "brokers": 1}).status == 201
    path = "/v1/clusters/other/wait"
    timeout = control.request("POST", path, {"condition": STABLE, "timeout_s": 0})
    assert timeout.status == 408
    assert control.request("DELETE", "/v1/clusters/other").status == 204
    gone = control.request("POST", path, {"wait": timeout.json["wait"]})
    assert (gone.status, gone.json["field"]) == (404, "cluster")


def test_a_client_that_disconnects_ends_its_wait(control: ControlHarness) -> None:
    before = waits(control)
    connection = control.connect()
    connection.request("POST", "/v1/clusters/default/wait", b'{"condition": {"is": "group.stable", "group_id": "g"}}')
    until(lambda: waits(control) == before + 1, control.cluster)
    connection.close()
    until(lambda: waits(control) == before, control.cluster)


def test_a_condition_has_to_hold_for_some_time(control: ControlHarness) -> None:
    before = waits(control)
    control.post("/stays", {"condition": {"not": STABLE}, "for_s": 0.01}, 204)
    failed = control.post("/stays", {"condition": STABLE, "for_s": 60}, 412)
    assert failed["title"] == "Condition not met"
    assert failed["detail"].startswith("it did not hold for 60 s: group('g').stable()\ng is Dead: ")
    assert waits(control) == before


def test_a_moment_in_which_a_condition_does_not_hold_ends_the_time(control: ControlHarness) -> None:
    responses: list[int] = []

    def stay() -> None:
        body = {"condition": {"not": STABLE}, "for_s": 60}
        responses.append(control.request("POST", "/v1/clusters/default/stays", body).status)

    before, waiter = waits(control), threading.Thread(target=stay, daemon=True)
    waiter.start()
    until(lambda: waits(control) > before, control.cluster)
    pass_through_stable(control)
    waiter.join()
    assert responses == [412]


def test_conditions_are_looked_at_once(control: ControlHarness) -> None:
    assert control.post("/holds", {"condition": STABLE}) is False
    failed = control.post("/expect", {"condition": STABLE}, 412)
    assert failed["detail"].startswith("group('g').stable(): it does not hold\ng is Dead")
    assert control.post("/events", {"do": "expect", "condition": STABLE}, 412) == failed
    control.post("/groups/g/seed", SEED)
    assert control.post("/holds", {"condition": {"all": [STABLE, {"not": REQUESTED}]}}) is True
    control.post("/expect", {"condition": STABLE}, 204)
    assert control.post("/events", {"do": "expect", "condition": STABLE}) == {"result": None}
    found = control.post("/look", {"conditions": [STABLE, REQUESTED, COMMITTED]})["found"]
    assert found == [[control.get("/groups/g/describe")], None, [control.get("/groups/g/offsets")["orders-0"]]]
