"""Error responses (RFC 9457): status, field, value and expectation."""

from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker.cluster.handles.definition import commands
from fakebroker.control.problems import problem_of
from fakebroker.errors import ConfigError
from tests.support.control.control_server import BASE, ControlHarness, controlled_cluster


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(3, {"orders": 4}, seed=1, clock="manual") as harness:
        yield harness


NAME = "1 to 100 of the characters a-z A-Z 0-9 . _ -, and neither . nor .."
INDEX = "an integer from 0 to 49"
NO_GROUP = "an existing group; its coordinator has none"
NO_WAIT = "none, because there is a condition"
NO_ID = "a transactional id that has a coordinator now"
LEAVES = "conditions without all, any and not"
STABLE = {"is": "group.stable", "group_id": "g"}
PARTITIONS = f"{BASE}/topics/__consumer_offsets/partitions"
MOVE = {"do": "partition.move_leader", "topic": "__consumer_offsets", "to": 1}
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable")
DURATION = "a number from 0 to 1000000000000 or none"
SECONDS = "a number from 0 to 1000000000"
TEXT = "a string or none"
DELAY = "seconds >= 0, or a range of them"
ACCEPT = "one of normal, slow, half_open, refuse or none"
# Method, path, body; status, field, value, what was expected (None: any text).
INVALID: list[tuple[str, str, Any, int, str, Any, str | None]] = [
    ("GET", "/v1/clusters/nope", None, 404, "cluster", "nope", "one of default"),
    ("GET", f"{BASE}/brokers/9/describe", None, 404, "broker", 9, "one of 1, 2, 3"),
    ("POST", f"{BASE}/brokers/9/stop", {}, 404, "broker", 9, "one of 1, 2, 3"),
    ("GET", f"{BASE}/brokers/x/describe", None, 404, "node_id", "x", "a number"),
    ("GET", f"{BASE}/groups/g", None, 404, "group", "g", "a group that exists or has a history"),
    ("POST", f"{BASE}/groups/g/evict", {"member": "a"}, 404, "group", "g", NO_GROUP),
    ("POST", f"{BASE}/groups/g/release", {}, 404, "group", "g", "a group that is held, but there is none"),
    ("POST", f"{BASE}/transactions/t/abort", {}, 404, "transaction", "t", NO_ID),
    ("GET", f"{BASE}/faults/7/describe", None, 404, "fault", "7", "a fault: there is none"),
    ("POST", f"{BASE}/append_failures/7/remove", {}, 404, "append_failure", "7", "a failure: there is none"),
    ("GET", f"{BASE}/topics/t/describe", None, 404, "topic", "t", "one of orders"),
    ("POST", f"{BASE}/topics/t/delete", {}, 404, "topic", "t", "a topic that is not internal, one of orders"),
    ("GET", f"{BASE}/topics/orders/partitions/4/describe", None, 404, "partition", 4, "an integer from 0 to 3"),
    ("POST", f"{PARTITIONS}/50/move_leader", {"to": 1}, 404, "partition", 50, INDEX),
    ("POST", f"{PARTITIONS}/-1/move_leader", {"to": 1}, 404, "partition", -1, "an integer >= 0"),
    ("POST", f"{BASE}/topics/t/partitions/0/seed_hanging_transaction", {}, 404, "topic", "t", None),
    ("GET", "/nope", None, 404, "path", "/nope", "a path of /openapi.json"),
    ("PUT", BASE, None, 405, "method", "PUT", "GET, DELETE"),
    ("POST", f"{BASE}/brokers/1/stop", {"load_ms": "x"}, 422, "load_ms", "x", DURATION),
    ("POST", f"{BASE}/brokers/1/stop", {"load": 1}, 422, "load", 1, None),
    ("POST", f"{BASE}/brokers/1/stop", {"load_ms": -1}, 422, "load_ms", -1, DURATION),
    ("POST", f"{BASE}/groups/g/seed", {"members": [{"client_id": 5}]}, 422, "members[0].client_id", 5, TEXT),
    ("POST", f"{BASE}/groups/g/evict", {}, 422, "member", None, "a string"),
    ("POST", f"{BASE}/topics/t/create", {"partitions": 0}, 422, "partitions", 0, "an integer from 1 to 100000"),
    ("POST", f"{BASE}/inject_fault", {"api": "Fetch", "nth": 0}, 422, "nth", 0, "an integer >= 1 or none"),
    ("POST", f"{BASE}/inject_fault", {"api": "Fetch", "for_s": 3}, 422, "fault", {"api": "Fetch", "for_s": 3.0}, None),
    ("POST", f"{BASE}/inject_fault", {"api": "Fetch", "delay_s": [3, 1]}, 422, "delay_s", [3, 1], DELAY),
    ("POST", f"{BASE}/inject_fault", {"api": "Fetch", "drop": True, "twice": True}, 422, "twice", True, None),
    ("POST", f"{BASE}/inject_fault", {"api": "Fetch", "then": {"do": "boil"}}, 422, "then.do", "boil", None),
    ("POST", f"{BASE}/inject_fault", {"api": "Fetch", "then": {"do": "advance"}}, 422, "then.seconds", None, SECONDS),
    ("POST", f"{BASE}/inject_fault", [], 422, "body", [], None),
    ("POST", f"{BASE}/advance", {}, 422, "seconds", None, SECONDS),
    ("POST", f"{BASE}/advance", {"seconds": "x"}, 422, "seconds", "x", SECONDS),
    ("POST", f"{BASE}/advance", {"second": 1}, 422, "second", 1, None),
    ("POST", f"{BASE}/brokers/1/start", {}, 422, "node_id", 1, "a broker that is down: there is none"),
    ("POST", f"{BASE}/topics/orders/create", {}, 422, "topic", "orders", "a topic that does not exist yet"),
    ("POST", f"{BASE}/topics/orders/partitions/0/move_leader", {"to": 1}, 422, "topic", "orders", None),
    ("POST", f"{BASE}/events", {"do": "boil"}, 422, "do", "boil", f"one of {', '.join(commands())}"),
    ("POST", f"{BASE}/events", {"do": {}}, 422, "do", {}, f"one of {', '.join(commands())}"),
    ("POST", f"{BASE}/events", {"do": "group.evict", "group_id": "g"}, 422, "member", None, "a string"),
    ("POST", f"{BASE}/events", MOVE | {"partition": 99}, 422, "partition", 99, INDEX),
    ("POST", f"{BASE}/events", MOVE | {"partition": -1}, 422, "partition", -1, "an integer >= 0"),
    ("POST", f"{BASE}/events", MOVE | {"partition": 10**30}, 422, "partition", 10**30, INDEX),
    ("POST", f"{BASE}/events", {"do": "advance", "seconds": 1e300}, 422, "seconds", 1e300, SECONDS),
    ("POST", f"{BASE}/advance", {"seconds": -100}, 422, "seconds", -100, SECONDS),
    ("GET", f"{BASE}/groups?limit={10**400}", None, 422, "limit", 10**400, "0 to 1000"),
    ("GET", f"{BASE}/groups?state=", None, 422, "state", "", f"one of {', '.join(STATES)} or none"),
    ("POST", f"{BASE}/brokers/1/set_network", {"accept": "x"}, 422, "accept", "x", ACCEPT),
    ("GET", f"{BASE}/groups/g/timeline?limit=0", None, 422, "limit", 0, "1 to 256"),
    ("GET", f"{BASE}/journal?seqs=1,x", None, 422, "seqs", "1,x", "1 to 1000 comma-separated integers"),
    ("GET", f"{BASE}/deadlines?limit=0", None, 422, "limit", "0", "an integer >= 1 or none"),
    ("POST", f"{BASE}/wait", {"condition": STABLE, "timeout_s": 61}, 422, "timeout_s", 61, "0 to 60"),
    ("POST", f"{BASE}/wait", {"condition": STABLE, "timeout_s": -1}, 422, "timeout_s", -1, "0 to 60"),
    ("POST", f"{BASE}/wait", {"condition": STABLE, "polling": []}, 422, "polling", [], None),
    ("POST", f"{BASE}/wait", {}, 422, "condition", None, "a condition, or wait to continue one"),
    ("POST", f"{BASE}/wait", {"condition": STABLE, "wait": "1"}, 422, "wait", "1", NO_WAIT),
    ("POST", f"{BASE}/wait", {"condition": {"is": "group.calm"}}, 422, "condition.is", "group.calm", None),
    ("POST", f"{BASE}/wait", {"condition": {"is": "group.stable"}}, 422, "group_id", None, "a string"),
    ("POST", f"{BASE}/wait", {"condition": {"all": []}}, 422, "condition", {"all": []}, None),
    ("POST", f"{BASE}/stays", {"condition": STABLE, "for_s": 61}, 422, "for_s", 61, "0 to 60"),
    ("POST", f"{BASE}/stays", {"condition": STABLE}, 422, "for_s", None, "a number"),
    ("POST", f"{BASE}/look", {"conditions": [{"not": STABLE}]}, 422, "conditions", [{"not": STABLE}], LEAVES),
    ("POST", f"{BASE}/holds", {"condition": 5}, 422, "condition", 5, None),
    ("GET", f"{BASE}/journal?limit=x", None, 422, "limit", "x", "an integer"),
    ("GET", f"{BASE}/journal?api=x", None, 422, "api", "x", None),
    ("GET", f"{BASE}/stream?kinds=x", None, 422, "kinds", "x", "some of overview, requests, groups"),
    ("POST", f"{BASE}/topics/t/create", b"{", 422, "body", None, "JSON"),
    ("POST", f"{BASE}/topics/t/create", b"x" * (1024 * 1024 + 1), 413, "body", None, "at most 1048576 bytes"),
    ("POST", "/v1/clusters", {"name": "a b"}, 422, "name", "a b", NAME),
]  # fmt: skip


def test_invalid_requests_are_rejected_with_field_value_and_expectation(
    control: ControlHarness, subtests: pytest.Subtests
) -> None:
    for method, path, body, status, field, value, expected in INVALID:
        with subtests.test(method=method, path=path[:60], body=body if isinstance(body, dict) else None):
            response = control.request(method, path, body)
            assert response.status == status, response
            assert response.headers["content-type"] == "application/problem+json"
            problem = response.json
            assert (problem["status"], problem["field"], problem["value"]) == (status, field, value)
            assert problem["expected"] == expected or (expected is None and problem["expected"])
            assert problem["detail"]
            assert control.get("/brokers")["brokers"][0]["up"] is True


def test_only_a_manual_clock_can_be_advanced(subtests: pytest.Subtests) -> None:
    with controlled_cluster(1) as control:
        for path, body in (("/advance", {"seconds": 1}), ("/events", {"do": "advance", "seconds": 1})):
            with subtests.test(path=path):
                problem = control.post(path, body, 422)
                assert (problem["field"], problem["value"]) == ("clock", "real")
                assert problem["expected"] == "'manual': other clocks cannot be advanced"
        assert control.post("/advance_to_next_deadline", status=422)["field"] == "clock"


def test_an_invalid_event_changes_nothing(control: ControlHarness) -> None:
    before = control.get("/coordinators")
    control.post(
        "/events", {"do": "partition.move_leader", "topic": "__consumer_offsets", "partition": -1, "to": None}, 422
    )
    control.post("/events", {"do": "advance", "seconds": 1e300}, 422)
    assert control.get("/coordinators") == before
    control.post("/advance", {"seconds": 1})
    assert control.get("/clock")["now_ms"] < 1e13


def test_a_problem_has_the_attributes_of_the_error() -> None:
    problem = problem_of(ConfigError.of("nth", 0, "an integer >= 1", where="fault"))
    assert (problem.status, problem.field, problem.value, problem.expected) == (422, "nth", 0, "an integer >= 1")
    assert str(problem) == "fault: nth=0: expected an integer >= 1"
    assert "field" not in problem_of(ConfigError("no field")).body()


def test_all_errors_of_a_body_are_reported_at_once(control: ControlHarness) -> None:
    problem = control.post("/inject_fault", {"api": "Fetch", "nth": 0, "times": -1, "dorp": True}, 422)
    assert (problem["field"], problem["value"]) == ("nth", 0)
    assert [each["field"] for each in problem["errors"]] == ["nth", "times", "dorp"]
    assert problem["errors"][2]["detail"].endswith("did you mean 'drop'?")
