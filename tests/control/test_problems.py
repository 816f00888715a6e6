"""What is answered to what cannot be: which field, its value, and what was expected."""

from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker.cluster.events import EVENTS
from fakebroker.control.problems import problem_of
from fakebroker.errors import ConfigError
from tests.control.asking import BASE, Asking, asking


@pytest.fixture(scope="module")
def control() -> Iterator[Asking]:
    with asking(3, {"orders": 4}, seed=1, clock="manual") as made:
        yield made


NAME = "1 to 100 of the characters a-z A-Z 0-9 . _ -, and neither . nor .."
MOVE = {"do": "move_offsets_partition", "to": 1}
ADVANCE_S = "a number from 0 to 1000000000"
STATES = ("CompletingRebalance", "Empty", "PreparingRebalance", "Stable")
IMPOSSIBLE = [
    ("GET", "/v1/clusters/nope", None, 404, "cluster", "nope", "one of default"),
    ("GET", f"{BASE}/brokers/9", None, 404, "broker", 9, "one of 1, 2, 3"),
    ("POST", f"{BASE}/brokers/9/stop", {}, 404, "broker", 9, "one of 1, 2, 3"),
    ("GET", f"{BASE}/brokers/x", None, 404, "node_id", "x", "a number"),
    ("GET", f"{BASE}/groups/g", None, 404, "group", "g", "a group that is there, or was"),
    ("POST", f"{BASE}/groups/g/evict", {"member": "a"}, 404, "group", "g", "a group that is there"),
    ("GET", f"{BASE}/faults/7", None, 404, "fault", "7", "none: no fault is in force"),
    ("GET", f"{BASE}/topics/t", None, 404, "topic", "t", "one of __consumer_offsets, orders"),
    ("GET", "/nope", None, 404, "path", "/nope", "an address of /openapi.json"),
    ("PUT", BASE, None, 405, "method", "PUT", "GET, DELETE"),
    ("POST", f"{BASE}/brokers/1/stop", {"load_ms": "x"}, 422, "load_ms", "x", "a number or null"),
    ("POST", f"{BASE}/brokers/1/stop", {"load": 1}, 422, "load", 1, "no such field"),
    ("POST", f"{BASE}/brokers/1/stop", {"load_ms": -1}, 422, "load_ms", -1.0, "0 to 1000000000000, or None"),
    ("POST", f"{BASE}/groups/g/seed", {"members": [{"client_id": 5}]}, 422, "members[0].client_id", 5, "text or null"),
    ("POST", f"{BASE}/groups/g/evict", {}, 422, "member", None, "a value"),
    ("POST", f"{BASE}/topics", {"name": "t", "partitions": 0}, 422, "partitions", 0, "an integer from 1 to 100000"),
    ("POST", f"{BASE}/faults", {"api": "Fetch", "nth": 0}, 422, "nth", 0, "a whole number of 1 or more"),
    ("POST", f"{BASE}/coordinators/move", {"partition": 50, "to": 1}, 422, "partition", 50, "0 to 49"),
    ("POST", f"{BASE}/events", {"do": "boil"}, 422, "do", "boil", f"one of {', '.join(EVENTS)}"),
    ("POST", f"{BASE}/events", {"do": "evict", "group_id": "g"}, 422, "member", None, "a value"),
    ("POST", f"{BASE}/events", MOVE | {"partition": 99}, 422, "partition", 99, "0 to 49"),
    ("POST", f"{BASE}/events", MOVE | {"partition": -1}, 422, "partition", -1, "0 to 49"),
    ("POST", f"{BASE}/events", MOVE | {"partition": 10**30}, 422, "partition", 10**30, "0 to 49"),
    ("POST", f"{BASE}/events", {"do": "advance", "seconds": 1e300}, 422, "seconds", 1e300, ADVANCE_S),
    ("POST", f"{BASE}/clock/advance", {"seconds": -100}, 422, "seconds", -100.0, ADVANCE_S),
    ("GET", f"{BASE}/groups?limit={10**400}", None, 422, "limit", 10**400, "0 to 1000"),
    ("GET", f"{BASE}/groups?state=", None, 422, "state", "", f"one of {', '.join(STATES)}"),
    ("PATCH", f"{BASE}/brokers/1", {"accept": "x"}, 422, "accept", "x", "one of half_open, normal, refuse, slow"),
    ("GET", f"{BASE}/groups/g/timeline?limit=0", None, 422, "limit", 0, "1 to 256"),
    ("GET", f"{BASE}/journal?seqs=1,x", None, 422, "seqs", "1,x", "1 to 1000 whole numbers with commas"),
    ("POST", f"{BASE}/wait/state", {"group_id": "g", "state": "x", "timeout_s": 61}, 422, "timeout_s", 61, "0 to 60"),
    ("GET", f"{BASE}/journal?limit=x", None, 422, "limit", "x", "a whole number"),
    ("GET", f"{BASE}/journal?api=x", None, 422, "api", "x", None),
    ("GET", f"{BASE}/stream?kinds=x", None, 422, "kinds", "x", "some of overview, requests, groups"),
    ("POST", f"{BASE}/topics", b"{", 422, "body", None, "JSON"),
    ("POST", f"{BASE}/topics", b"x" * (1024 * 1024 + 1), 413, "body", None, "at most 1048576 bytes"),
    ("POST", "/v1/clusters", {"name": "a b"}, 422, "name", "a b", NAME),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field", "value", "expected"),
    IMPOSSIBLE,
    ids=[f"{method} {path[:60]}" for method, path, *_ in IMPOSSIBLE],
)
def test_what_cannot_be_is_told_with_field_value_and_what_was_expected(
    control: Asking, method: str, path: str, body: Any, status: int, field: str, value: Any, expected: str | None
) -> None:
    answer = control.ask(method, path, body)
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert (problem["status"], problem["field"], problem["value"]) == (status, field, value)
    assert problem["expected"] == expected or (expected is None and problem["expected"])
    assert problem["detail"]
    assert control.get("/brokers")["brokers"][0]["up"] is True


def test_an_event_that_cannot_be_changes_nothing(control: Asking) -> None:
    before = control.get("/coordinators")
    control.post("/events", {"do": "move_offsets_partition", "partition": -1, "to": None}, 422)
    control.post("/events", {"do": "advance", "seconds": 1e300}, 422)
    assert control.get("/coordinators") == before
    assert control.post("/clock/advance", {"seconds": 1})["now_ms"] < 1e13


@pytest.mark.parametrize(
    ("sentence", "field", "value", "expected"),
    [
        ("nth=0, expected 1 or more", "nth", 0, "1 or more"),
        ("rate=-1.5e-07: expected more", "rate", -1.5e-07, "more"),
        ("name='it\\'s': expected others", "name", "it's", "others"),
        ("port=9092 with 3 brokers: expected others", "port", 9092, "others"),
        ("journal='off' keeps no requests: expected 'full'", "journal", "off", "'full'"),
        ("delay=None: expected a number", "delay", "None", "a number"),
        ("version=2.8.1: expected another", "version", "2.8.1", "another"),
        ("no broker 9: expected one of 1, 2", "broker", 9, "one of 1, 2"),
        ("it cannot be", None, None, None),
    ],
)
def test_a_sentence_tells_field_value_and_what_was_expected(
    sentence: str, field: str | None, value: Any, expected: str | None
) -> None:
    problem = problem_of(ConfigError(sentence))
    assert (str(problem), problem.field, problem.value, problem.expected) == (sentence, field, value, expected)
