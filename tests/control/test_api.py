"""The control API: what can be asked, and what is answered to what cannot be."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker import FakeCluster, ListenError
from fakebroker.control import extra
from fakebroker.control.server import ControlServer
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.server.journaling import parse_journal
from tests.control.asking import BASE, Asking, asking
from tests.server.wire import Wire, find_coordinator


@pytest.fixture(scope="module")
def shared() -> Iterator[Asking]:
    with asking(3, {"orders": 4}, seed=1, clock="manual") as made:
        yield made


@pytest.fixture
def control(shared: Asking) -> Asking:
    """A cluster as new; resetting leaves additional brokers' ports alone."""
    shared.post("/reset")
    return shared


def test_health(control: Asking) -> None:
    assert control.ask("GET", "/healthz").json == {"status": "ok"}


def test_overview(control: Asking) -> None:
    control.post("/groups/g/seed", {"members": 2, "topics": ["orders"]}, 201)
    with Wire(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        found = control.get()
    assert found["name"] == "default"
    assert found["bootstrap_servers"] == control.cluster.bootstrap_servers
    assert found["seed"] == 1
    assert found["clock"] == {"now_ms": control.cluster.clock.now_ms(), "kind": "manual"}
    assert (found["groups_by_state"], found["members"]) == ({"Stable": 1}, 2)
    assert (found["connections"], found["journal"]) == (1, {"size": 1, "dropped": 0})
    assert [broker["node_id"] for broker in found["brokers"]] == [1, 2, 3]
    assert sum(len(broker["offsets_partitions"]) for broker in found["brokers"]) == 50
    assert sum(broker["members"] for broker in found["brokers"]) == 2


def test_a_broker_stops_starts_and_is_upgraded(control: Asking) -> None:
    assert control.post("/brokers/1/stop", {"elect": False})["up"] is False
    assert not control.cluster.brokers[0].up
    assert control.get("/brokers/1")["up"] is False
    assert control.post("/brokers/1/start")["up"] is True
    assert control.post("/brokers/1/restart", {"load_ms": 5})["up"] is True
    assert control.post("/brokers/1/upgrade", {"as_version": "2.8"})["as_version"] == "2.8"
    added = control.post("/brokers", {"as_version": "3.0"}, 201)
    assert (added["node_id"], added["as_version"]) == (4, "3.0")
    assert control.ask("PATCH", f"{BASE}/brokers/4", {"accept": "refuse"}).status == 200
    assert control.ask("DELETE", f"{BASE}/brokers/4").status == 204
    assert [broker["node_id"] for broker in control.get("/brokers")["brokers"]] == [1, 2, 3]


def test_topics(control: Asking) -> None:
    assert len(control.post("/topics", {"name": "new", "partitions": 2}, 201)["partitions"]) == 2
    assert len(control.ask("PATCH", f"{BASE}/topics/new", {"partitions": 3}).json["partitions"]) == 3
    assert [topic["name"] for topic in control.get("/topics")["topics"]] == ["__consumer_offsets", "orders", "new"]
    assert control.get("/topics/new")["partitions"][2]["log_end_offset"] == 0
    assert control.ask("DELETE", f"{BASE}/topics/new").status == 204
    assert control.ask("GET", f"{BASE}/topics/new").status == 404


def test_coordinators_move_and_load(control: Asking) -> None:
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]}, 201)
    partition = control.cluster.cluster.offsets_partition_of("g").index
    old = control.get("/groups/g")["coordinator"]
    to = old % 3 + 1
    found = control.post("/coordinators/move", {"group_id": "g", "to": to, "load_ms": None})["offsets_partitions"]
    assert (found[partition]["leader"], found[partition]["is_loading"], found[partition]["groups"]) == (to, True, 0)
    assert "is being loaded" in control.get("/groups/g/explain")["text"]
    found = control.post("/coordinators/finish_loading")["offsets_partitions"]
    assert (found[partition]["is_loading"], found[partition]["groups"], found[partition]["members"]) == (False, 1, 1)
    control.post("/coordinators/move", {"partition": partition, "to": None})
    assert control.get("/groups/g")["coordinator"] is None


def test_groups_are_listed_searched_and_sorted(control: Asking) -> None:
    seeds = [{"group_id": f"g{number}", "members": number, "topics": ["orders"]} for number in range(4)]
    assert control.post("/groups/seed", {"groups": seeds}, 201)["total"] == 4
    control.post("/groups/g2/force_rebalance")
    found = control.get("/groups?sort=unstable&limit=2")
    assert (found["total"], [row["group_id"] for row in found["groups"]]) == (4, ["g2", "g0"])
    assert found["groups"][0]["state"] == "PreparingRebalance"
    assert found["groups"][0]["why"] == (
        "a rebalance was forced; 0 of 2 have joined, waiting for consumer-g2-1, consumer-g2-2"
    )
    assert [row["group_id"] for row in control.get("/groups?sort=name&offset=3")["groups"]] == ["g3"]
    assert [row["group_id"] for row in control.get("/groups?search=G1")["groups"]] == ["g1"]
    assert [row["group_id"] for row in control.get("/groups?state=Empty")["groups"]] == ["g0"]
    with Wire(control.cluster.brokers[0]) as wire:
        wire.ask(HeartbeatRequest(group_id="g1", generation_id=1, member_id="x"), HeartbeatResponse)
    assert [row["group_id"] for row in control.get("/groups?sort=busy")["groups"]][:2] == ["g1", "g3"]


def test_one_group(control: Asking) -> None:
    control.post("/groups/a%2Fb/seed", {"members": ["one", {"client_id": "two"}], "offsets": {"orders-1": 5}}, 201)
    found = control.get("/groups/a%2Fb")
    assert [member["client_id"] for member in found["members"]] == ["one", "two"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in found["offsets"]] == [("orders", 1, 5)]
    assert found["explanation"] == control.get("/groups/a%2Fb/explain")["text"]
    control.post("/groups/a%2Fb/evict", {"member": "one"})
    timeline = control.get("/groups/a%2Fb/timeline")
    assert [moment["state_to"] for moment in timeline["moments"]] == ["Stable", "PreparingRebalance"]
    assert timeline["svg"].startswith("<svg")
    assert "PreparingRebalance" in timeline["text"]
    assert control.ask("DELETE", f"{BASE}/groups/a%2Fb").status == 409
    control.post("/groups/a%2Fb/evict", {"member": "two"})
    control.post("/clock/advance", {"seconds": 400})
    assert control.ask("DELETE", f"{BASE}/groups/a%2Fb").status == 204
    assert control.get("/groups/a%2Fb")["state"] == "Dead"


def test_a_group_is_held_and_released(control: Asking) -> None:
    control.post("/groups/g/hold", {"state": "PreparingRebalance"})
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]}, 201)
    control.post("/groups/g/force_rebalance")
    assert "It is held" in control.get("/groups/g/explain")["text"]
    control.post("/groups/g/release")
    assert "It is held" not in control.get("/groups/g/explain")["text"]


def test_a_group_may_be_called_as_a_word_of_an_address(control: Asking) -> None:
    control.post("/groups/seed/seed", {"members": 1, "topics": ["orders"]}, 201)
    assert control.get("/groups/seed")["group_id"] == "seed"


def test_faults(control: Asking) -> None:
    made = control.post("/faults", {"api": "Heartbeat", "group": "g", "error": "NOT_COORDINATOR"}, 201)
    with Wire(control.cluster.brokers[0]) as wire:
        answer = wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
    assert answer.error_code == 16
    rule = {"api": "Heartbeat", "group": "g", "error": "NOT_COORDINATOR"}
    assert control.get("/faults") == {"faults": [{"id": made["id"], "rule": rule, "hits": 1}]}
    other = control.post("/events", {"do": "fail", "api": None, "drop": True})["result"]
    assert control.ask("DELETE", f"{BASE}/faults/{made['id']}").status == 204
    assert [row["id"] for row in control.get("/faults")["faults"]] == [other["id"]]
    assert control.ask("DELETE", f"{BASE}/faults").status == 204
    assert control.get("/faults") == {"faults": []}


def test_time(control: Asking) -> None:
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]}, 201)
    before = control.get("/clock")["now_ms"]
    assert control.post("/clock/advance", {"seconds": 1.5})["now_ms"] == before + 1500
    first = control.get("/deadlines")["deadlines"][0]
    assert (first["kind"], first["group_id"], first["in_s"]) == ("session", "g", 43.5)
    assert control.post("/clock/advance_to_next_deadline")["deadlines"][0]["kind"] == "session"
    assert control.get("/groups/g")["members"] == []


def test_snapshots(control: Asking) -> None:
    control.post("/groups/g/seed", {"offsets": {"orders-0": 7}}, 201)
    kept = control.post("/snapshots", status=201)["id"]
    assert control.ask("DELETE", f"{BASE}/groups/g").status == 204
    control.post(f"/snapshots/{kept}/restore")
    assert control.get("/groups/g")["offsets"][0]["offset"] == 7
    assert control.ask("DELETE", f"{BASE}/snapshots/{kept}").status == 204
    assert control.ask("POST", f"{BASE}/snapshots/{kept}/restore").status == 404


def test_the_journal(control: Asking) -> None:
    with Wire(control.cluster.brokers[0]) as wire:
        for number in range(3):
            wire.ask(HeartbeatRequest(group_id=f"g{number}", generation_id=1, member_id="x"), HeartbeatResponse)
        wire.ask(find_coordinator("g1"), FindCoordinatorResponse)
    found = control.get("/journal?group=g1")
    assert found["last"] == 4
    assert [(row["seq"], row["api"]) for row in found["requests"]] == [(2, "Heartbeat"), (4, "FindCoordinator")]
    assert found["requests"][0]["errors"] == ["UNKNOWN_MEMBER_ID"]
    assert found["requests"][0]["request"]["group_id"] == "g1"
    assert [row["seq"] for row in control.get("/journal?limit=1")["requests"]] == [4]
    assert [row["seq"] for row in control.get("/journal?after=1&limit=2")["requests"]] == [2, 3]
    lines = control.ask("GET", f"{BASE}/journal.jsonl").body.decode().splitlines()
    assert parse_journal(lines, "the answer").count("Heartbeat") == 3


def test_waiting(control: Asking) -> None:
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"], "offsets": {"orders-0": 3}}, 201)
    assert control.post("/wait/state", {"group_id": "g", "state": "Stable"})["members"]
    assert control.post("/wait/generation", {"group_id": "g", "above": 0})["generation_id"] == 1
    assert control.post("/wait/commit", {"group_id": "g", "partition": "orders-0", "at_least": 3})["offset"] == 3
    answer = control.ask("POST", f"{BASE}/wait/state", {"group_id": "g", "state": "Empty", "timeout_s": 0.0})
    assert answer.status == 408
    assert answer.json["detail"].startswith("never came, within 0 s: group g in Empty")


def test_what_is_waited_for_comes_meanwhile(control: Asking) -> None:
    found: list[Any] = []
    waiter = threading.Thread(
        target=lambda: found.append(control.post("/wait/request", {"api": "FindCoordinator", "timeout_s": 30}))
    )
    waiter.start()
    with Wire(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
    waiter.join()
    assert [row["api"] for row in found[0]["requests"]] == ["FindCoordinator"]


def test_events(control: Asking) -> None:
    result = control.post("/events", {"do": "add_broker", "like": {"as_version": "2.8"}})["result"]
    assert result == {"node_id": 4, "host": "127.0.0.1", "port": control.cluster.brokers[3].port, "up": True}
    assert control.post("/events", {"do": "hold", "group_id": "g", "state": "PreparingRebalance"}) == {"result": None}


def test_clusters_come_and_go(control: Asking) -> None:
    wanted = {"name": "other", "brokers": [{"as_version": "2.8"}], "topics": {"t": 2}, "clock": {"factor": 10}}
    made = control.ask("POST", "/v1/clusters", wanted)
    assert (made.status, made.json["clock"]["kind"]) == (201, "scaled")
    assert made.json["brokers"][0]["as_version"] == "2.8"
    listed = control.ask("GET", "/v1/clusters").json["clusters"]
    assert [(row["name"], row["brokers"]) for row in listed] == [("default", 3), ("other", 1)]
    assert control.ask("POST", "/v1/clusters/other/groups/g/seed", {"members": 1, "topics": ["t"]}).status == 201
    assert control.get("/groups")["total"] == 0
    assert control.ask("POST", "/v1/clusters", {"name": "other"}).status == 409
    assert control.ask("DELETE", "/v1/clusters/other").status == 204
    assert control.ask("GET", "/v1/clusters/other").status == 404
    assert control.ask("DELETE", "/v1/clusters/default").status == 409


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
    ("POST", f"{BASE}/brokers/1/stop", {"load_ms": -1}, 422, "load_ms", "-1.0", "0 or more"),
    ("POST", f"{BASE}/groups/g/seed", {"members": [{"client_id": 5}]}, 422, "members[0].client_id", 5, "text or null"),
    ("POST", f"{BASE}/groups/g/evict", {}, 422, "member", None, "a value"),
    ("POST", f"{BASE}/topics", {"name": "t", "partitions": 0}, 422, "topic", "'t'", "1 to 100000"),
    ("POST", f"{BASE}/faults", {"api": "Fetch", "nth": 0}, 422, "nth", "0", "a whole number of 1 or more"),
    ("POST", f"{BASE}/coordinators/move", {"partition": 50, "to": 1}, 422, "partition", 50, "0 to 49"),
    ("POST", f"{BASE}/events", {"do": "boil"}, 422, "do", "boil", None),
    ("POST", f"{BASE}/wait/state", {"group_id": "g", "state": "x", "timeout_s": 61}, 422, "timeout_s", 61, "0 to 60"),
    ("GET", f"{BASE}/journal?limit=x", None, 422, "limit", "x", "a whole number"),
    ("GET", f"{BASE}/journal?api=x", None, 422, "API", "'x'", None),
    ("GET", f"{BASE}/stream?kinds=x", None, 422, "kinds", "x", "some of overview, requests, groups"),
    ("POST", f"{BASE}/topics", b"{", 422, "body", None, "JSON"),
    ("POST", f"{BASE}/topics", b"x" * (1024 * 1024 + 1), 413, "body", None, "at most 1048576 bytes"),
    ("POST", "/v1/clusters", {"name": "a b"}, 422, "name", "a b", "1 to 100 of the characters a-z A-Z 0-9 . _ -"),
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


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, FakeCluster(1) as cluster:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"^cannot listen on 127.0.0.1:{port}: the port is in use$"):
            ControlServer(cluster, "127.0.0.1", port)


def test_a_missing_extra_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^--control needs nonesuch: expected pip install 'fakebroker\[control\]'$"):
        extra.check_installed(("json", "nonesuch"))


def test_the_document_and_its_page_need_no_network(control: Asking) -> None:
    document = control.ask("GET", "/openapi.json").json
    assert document["openapi"] == "3.1.0"
    assert document["paths"]["/v1/clusters/{cluster}/brokers/{node_id}/stop"]["post"]["operationId"] == "stop_broker"
    page = control.ask("GET", "/docs").body.decode()
    assert "openapi.json" in page
    assert "http://" not in page
    assert "https://" not in page
