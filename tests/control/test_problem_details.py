"""Error responses (RFC 9457): status, field, value and expectation."""

from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker.cluster.commands.cluster_commands import COMMANDS
from fakebroker.control.problems import problem_of
from fakebroker.errors import ConfigError
from tests.support.control.control_server import BASE, ControlHarness, controlled_cluster


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(3, {"orders": 4}, seed=1, clock="manual") as harness:
        yield harness


NAME = "1 to 100 of the characters a-z A-Z 0-9 . _ -, and neither . nor .."
MOVE = {"do": "move_offsets_partition", "to": 1}
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable")
DURATION = "a number from 0 to 1000000000000 or none"
SECONDS = "a number from 0 to 1000000000"
TEXT = "a string or none"
DELAY = "seconds >= 0, or a range of them"
ACCEPT = "one of normal, slow, half_open, refuse or none"
# Method, path, body; status, field, value, what was expected (None: any text).
INVALID: list[tuple[str, str, Any, int, str, Any, str | None]] = [
    ("GET", "/v1/clusters/nope", None, 404, "cluster", "nope", "one of default"),
    ("GET", f"{BASE}/brokers/9", None, 404, "broker", 9, "one of 1, 2, 3"),
    ("POST", f"{BASE}/brokers/9/stop", {}, 404, "broker", 9, "one of 1, 2, 3"),
    ("GET", f"{BASE}/brokers/x", None, 404, "node_id", "x", "a number"),
    ("GET", f"{BASE}/groups/g", None, 404, "group", "g", "a group that exists or has a history"),
    ("POST", f"{BASE}/groups/g/evict", {"member": "a"}, 404, "group", "g", "an existing group"),
    ("GET", f"{BASE}/faults/7", None, 404, "fault", "7", "none: there are no faults"),
    ("GET", f"{BASE}/topics/t", None, 404, "topic", "t", "one of orders"),
    ("GET", "/nope", None, 404, "path", "/nope", "a path of /openapi.json"),
    ("PUT", BASE, None, 405, "method", "PUT", "GET, DELETE"),
    ("POST", f"{BASE}/brokers/1/stop", {"load_ms": "x"}, 422, "load_ms", "x", DURATION),
    ("POST", f"{BASE}/brokers/1/stop", {"load": 1}, 422, "load", 1, None),
    ("POST", f"{BASE}/brokers/1/stop", {"load_ms": -1}, 422, "load_ms", -1, DURATION),
    ("POST", f"{BASE}/groups/g/seed", {"members": [{"client_id": 5}]}, 422, "members[0].client_id", 5, TEXT),
    ("POST", f"{BASE}/groups/g/evict", {}, 422, "member", None, "a string"),
    ("POST", f"{BASE}/topics", {"name": "t", "partitions": 0}, 422, "partitions", 0, "an integer from 1 to 100000"),
    ("POST", f"{BASE}/faults", {"api": "Fetch", "nth": 0}, 422, "nth", 0, "an integer >= 1 or none"),
    ("POST", f"{BASE}/faults", {"api": "Fetch", "for_s": 3}, 422, "fault", {"api": "Fetch", "for_s": 3.0}, None),
    ("POST", f"{BASE}/faults", {"api": "Fetch", "delay_s": [3, 1]}, 422, "delay_s", [3, 1], DELAY),
    ("POST", f"{BASE}/faults", {"api": "Fetch", "drop": True, "twice": True}, 422, "twice", True, None),
    ("POST", f"{BASE}/faults", {"api": "Fetch", "then": {"do": "boil"}}, 422, "then.do", "boil", None),
    ("POST", f"{BASE}/faults", {"api": "Fetch", "then": {"do": "advance"}}, 422, "then.seconds", None, SECONDS),
    ("POST", f"{BASE}/faults", [], 422, "body", [], None),
    ("POST", f"{BASE}/clock/advance", {}, 422, "seconds", None, "a number"),
    ("POST", f"{BASE}/clock/advance", {"seconds": "x"}, 422, "seconds", "x", "a number"),
    ("POST", f"{BASE}/clock/advance", {"second": 1}, 422, "second", 1, None),
    ("POST", f"{BASE}/coordinators/move", {"partition": 50, "to": 1}, 422, "partition", 50, "0 to 49"),
    ("POST", f"{BASE}/events", {"do": "boil"}, 422, "do", "boil", f"one of {', '.join(COMMANDS)}"),
    ("POST", f"{BASE}/events", {"do": {}}, 422, "do", {}, f"one of {', '.join(COMMANDS)}"),
    ("POST", f"{BASE}/events", {"do": "evict", "group_id": "g"}, 422, "member", None, "a string"),
    ("POST", f"{BASE}/events", MOVE | {"partition": 99}, 422, "partition", 99, "0 to 49"),
    ("POST", f"{BASE}/events", MOVE | {"partition": -1}, 422, "partition", -1, "0 to 49"),
    ("POST", f"{BASE}/events", MOVE | {"partition": 10**30}, 422, "partition", 10**30, "0 to 49"),
    ("POST", f"{BASE}/events", {"do": "advance", "seconds": 1e300}, 422, "seconds", 1e300, SECONDS),
    ("POST", f"{BASE}/clock/advance", {"seconds": -100}, 422, "seconds", -100, SECONDS),
    ("GET", f"{BASE}/groups?limit={10**400}", None, 422, "limit", 10**400, "0 to 1000"),
    ("GET", f"{BASE}/groups?state=", None, 422, "state", "", f"one of {', '.join(STATES)} or none"),
    ("PATCH", f"{BASE}/brokers/1", {"accept": "x"}, 422, "accept", "x", ACCEPT),
    ("GET", f"{BASE}/groups/g/timeline?limit=0", None, 422, "limit", 0, "1 to 256"),
    ("GET", f"{BASE}/journal?seqs=1,x", None, 422, "seqs", "1,x", "1 to 1000 comma-separated integers"),
    ("POST", f"{BASE}/wait/state", {"group_id": "g", "state": "x", "timeout_s": 61}, 422, "timeout_s", 61, "0 to 60"),
    ("GET", f"{BASE}/journal?limit=x", None, 422, "limit", "x", "an integer"),
    ("GET", f"{BASE}/journal?api=x", None, 422, "api", "x", None),
    ("GET", f"{BASE}/stream?kinds=x", None, 422, "kinds", "x", "some of overview, requests, groups"),
    ("POST", f"{BASE}/topics", b"{", 422, "body", None, "JSON"),
    ("POST", f"{BASE}/topics", b"x" * (1024 * 1024 + 1), 413, "body", None, "at most 1048576 bytes"),
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
        for path, body in (("/clock/advance", {"seconds": 1}), ("/events", {"do": "advance", "seconds": 1})):
            with subtests.test(path=path):
                problem = control.post(path, body, 422)
                assert (problem["field"], problem["value"]) == ("clock", "real")
                assert problem["expected"] == "'manual': other clocks cannot be advanced"
        assert control.post("/clock/advance_to_next_deadline", status=422)["field"] == "clock"


def test_an_invalid_event_changes_nothing(control: ControlHarness) -> None:
    before = control.get("/coordinators")
    control.post("/events", {"do": "move_offsets_partition", "partition": -1, "to": None}, 422)
    control.post("/events", {"do": "advance", "seconds": 1e300}, 422)
    assert control.get("/coordinators") == before
    assert control.post("/clock/advance", {"seconds": 1})["now_ms"] < 1e13


def test_a_problem_has_the_attributes_of_the_error() -> None:
    problem = problem_of(ConfigError.of("nth", 0, "an integer >= 1", where="fault"))
    assert (problem.status, problem.field, problem.value, problem.expected) == (422, "nth", 0, "an integer >= 1")
    assert str(problem) == "fault: nth=0: expected an integer >= 1"
    assert "field" not in problem_of(ConfigError("no field")).body()


def test_all_errors_of_a_body_are_reported_at_once(control: ControlHarness) -> None:
    problem = control.post("/faults", {"api": "Fetch", "nth": 0, "times": -1, "dorp": True}, 422)
    assert (problem["field"], problem["value"]) == ("nth", 0)
    assert [each["field"] for each in problem["errors"]] == ["nth", "times", "dorp"]
    assert problem["errors"][2]["detail"].endswith("did you mean 'drop'?")
