"""The control API: what can be asked, and what is answered."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker import FakeCluster, ListenError
from fakebroker.cluster.commands import COMMANDS
from fakebroker.control import extra
from fakebroker.control.routes.operations import OPERATIONS
from fakebroker.control.server import ControlServer
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.server.journal_files import parse_journal
from tests.support.control.control_server import BASE, TIMEOUT_S, Asking, asking
from tests.support.wire_client import WireClient, find_coordinator


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
    with WireClient(control.cluster.brokers[0]) as wire:
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
    for node_id, zombies in ((old, [to]), (6 - old - to, sorted([old, to]))):
        moved = control.post("/coordinators/move", {"group_id": "g", "to": node_id, "zombie": True})
        found = moved["offsets_partitions"]
        assert (found[partition]["zombies"], found[partition]["groups"]) == (zombies, 1)
        assert not any(row["zombies"] for row in found if row["partition"] != partition)
    found = control.post("/coordinators/stop_zombies")["offsets_partitions"]
    assert found[partition]["zombies"] == []
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
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(HeartbeatRequest(group_id="g1", generation_id=1, member_id="x"), HeartbeatResponse)
    assert [row["group_id"] for row in control.get("/groups?sort=busy")["groups"]][:2] == ["g1", "g3"]


def test_groups_are_counted_as_they_are(control: Asking) -> None:
    seeds = [{"group_id": f"g{number}", "members": number, "topics": ["orders"]} for number in range(4)]
    control.post("/groups/seed", {"groups": seeds}, 201)
    kept = control.post("/snapshots", status=201)["id"]
    to = control.get("/groups/g1/coordinator")["node_id"] % 3 + 1
    for path, body in (
        ("/groups/g2/force_rebalance", {}),
        ("/groups/g3/evict", {"member": "consumer-g3-1"}),
        ("/groups/new/seed", {"offsets": {"orders-0": 1}}),
        ("/coordinators/move", {"group_id": "g1", "to": to, "zombie": True}),
        ("/coordinators/move", {"group_id": "g1", "to": to % 3 + 1, "zombie": True, "load_ms": None}),
        ("/coordinators/finish_loading", {}),
        ("/coordinators/stop_zombies", {}),
        ("/coordinators/move", {"group_id": "g1", "to": None}),
        ("/brokers/1/stop", {}),
        ("/clock/advance", {"seconds": 700}),
        (f"/snapshots/{kept}/restore", {}),
        ("/clock/advance", {"seconds": 700_000}),
        ("/reset", {}),
    ):
        assert control.ask("POST", BASE + path, body).status < 300
        names = sorted({group.group_id for group in control.cluster.groups()})
        there = [view for name in names if (view := control.cluster.group(name)).state != "Dead"]
        found = control.get()
        assert found["groups_by_state"] == dict(Counter(view.state for view in there)), path
        assert found["members"] == sum(len(view.members) for view in there), path
        assert sum(broker["members"] for broker in found["brokers"]) >= found["members"], path
        assert [row["group_id"] for row in control.get("/groups")["groups"]] == [view.group_id for view in there], path


def test_one_group(control: Asking) -> None:
    control.post("/groups/a%2Fb/seed", {"members": ["one", {"client_id": "two"}], "offsets": {"orders-1": 5}}, 201)
    found = control.get("/groups/a%2Fb")
    assert [member["client_id"] for member in found["members"]] == ["one", "two"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in found["offsets"]] == [("orders", 1, 5)]
    assert found["explanation"] == control.get("/groups/a%2Fb/explain")["text"]
    control.post("/groups/a%2Fb/evict", {"member": "one"})
    timeline = control.get("/groups/a%2Fb/timeline")
    assert [moment["state_to"] for moment in timeline["moments"]] == ["Stable", "PreparingRebalance"]
    assert (timeline["text"], timeline["svg"]) == (None, None)
    pictured = control.get("/groups/a%2Fb/timeline?text=true&svg=true&limit=1")
    assert [moment["state_to"] for moment in pictured["moments"]] == ["PreparingRebalance"]
    assert pictured["svg"].startswith("<svg")
    assert "PreparingRebalance" in pictured["text"]
    assert control.ask("DELETE", f"{BASE}/groups/a%2Fb").status == 409
    control.post("/groups/a%2Fb/evict", {"member": "two"})
    control.post("/clock/advance", {"seconds": 400})
    assert control.ask("DELETE", f"{BASE}/groups/a%2Fb").status == 204
    assert control.get("/groups/a%2Fb")["state"] == "Dead"


def test_looking_changes_nothing() -> None:
    with asking(3, {"orders": 4}, clock="manual") as control:
        control.post("/groups/g/seed", {"members": 2, "topics": ["orders"], "offsets": {"orders-1": 5}}, 201)
        control.post("/groups/g/evict", {"member": control.get("/groups/g")["members"][0]["member_id"]})
        fault = control.post("/faults", {"api": "Heartbeat", "drop": True, "nth": 2}, 201)["id"]
        known = {"cluster": "default", "node_id": "1", "topic": "orders", "id": fault, "group_id": "g"}
        unknown = known | {"topic": "none", "group_id": "nobody"}
        looks = [
            (one.method, one.path)
            for one in OPERATIONS
            if one.changes_nothing and one.is_documented and not one.path.endswith("/stream")
        ]
        asked = [(method, path.format_map(names)) for method, path in looks for names in (known, unknown)]
        assert len(looks) > 15
        assert {method for method, _ in looks} == {"GET"}
        before = [control.ask(*one) for one in asked]
        after = [control.ask(*one) for one in reversed(asked)][::-1]
        assert [(one.status, one.body) for one in after] == [(one.status, one.body) for one in before]
        assert {one.status for one in before} == {200, 404}


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
    with WireClient(control.cluster.brokers[0]) as wire:
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
    with WireClient(control.cluster.brokers[0]) as wire:
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
    assert [row["seq"] for row in control.get("/journal?seqs=4,9,1,2,2&api=Heartbeat")["requests"]] == [1, 2]
    assert control.get("/journal?seqs=9") == {"requests": [], "last": 4}
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
    assert answer.json["detail"].startswith("not reached within 0 s: group g in Empty")


@pytest.mark.parametrize(
    ("kind", "wish", "expected"),
    [
        ("state", {"group_id": "g", "state": "Stable", "members": 1}, {"state": "Stable"}),
        ("generation", {"group_id": "g", "above": 4}, {"generation_id": 5}),
        ("commit", {"group_id": "g", "partition": "orders-0", "at_least": 7}, {"offset": 7}),
        ("request", {"api": "FindCoordinator"}, {}),
    ],
)
def test_what_is_waited_for_comes_meanwhile(
    control: Asking, kind: str, wish: dict[str, Any], expected: dict[str, Any]
) -> None:
    watchers = control.cluster.call(lambda: len(control.cluster._server.reactor.watchers))
    found: list[Any] = []
    waiter = threading.Thread(
        target=lambda: found.append(control.post(f"/wait/{kind}", {**wish, "timeout_s": 30})), daemon=True
    )
    waiter.start()
    while control.cluster.call(lambda: len(control.cluster._server.reactor.watchers)) == watchers:
        assert waiter.is_alive()
    seed = {"members": 1, "topics": ["orders"], "generation": 5, "offsets": {"orders-0": 7}}
    control.post("/groups/g/seed", seed, 201)
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
    waiter.join()
    assert found[0].items() >= expected.items()
    if kind == "request":
        assert [row["api"] for row in found[0]["requests"]] == ["FindCoordinator"]


def test_events(control: Asking) -> None:
    result = control.post("/events", {"do": "add_broker", "like": {"as_version": "2.8"}})["result"]
    assert result == {"node_id": 4, "host": "127.0.0.1", "port": control.cluster.brokers[3].port, "up": True}
    assert control.post("/events", {"do": "hold", "group_id": "g", "state": "PreparingRebalance"}) == {"result": None}


def test_a_group_may_be_called_as_a_step_of_a_path(control: Asking) -> None:
    for group_id, written in {"": "", ".": "~2E", "..": "~2E~2E", "~2E": "~7E2E", "x.~": "x.~7E"}.items():
        control.post(f"/groups/{written}/seed", {"offsets": {"orders-0": 1}}, 201)
        assert control.get(f"/groups/{written}")["group_id"] == group_id
        assert control.get(f"/groups/{written}/timeline")["group_id"] == group_id
        assert control.ask("DELETE", f"{BASE}/groups/{written}").status == 204
    assert control.ask("GET", f"{BASE}/topics/").status == 404
    parameters = control.ask("GET", "/openapi.json").json["paths"]["/v1/clusters/{cluster}/groups/{group_id}"]["get"]
    assert "`~2E~2E`" in parameters["parameters"][1]["description"]


def test_the_document_tells_all_events_with_their_arguments(control: Asking) -> None:
    document = control.ask("GET", "/openapi.json").json
    body = document["paths"]["/v1/clusters/{cluster}/events"]["post"]["requestBody"]["content"]["application/json"]
    names = [each["$ref"].rpartition("/")[2] for each in body["schema"]["anyOf"]]
    told = {tuple(document["components"]["schemas"][name]["properties"]["do"]["enum"]): name for name in names}
    assert [name for (name,) in told] == list(COMMANDS)
    assert list(document["components"]["schemas"][told["evict",]]["properties"]) == ["do", "group_id", "member"]


def test_the_document_tells_the_type_and_the_query_of_a_stream(control: Asking) -> None:
    stream = control.ask("GET", "/openapi.json").json["paths"]["/v1/clusters/{cluster}/stream"]["get"]
    assert stream["responses"]["200"]["content"] == {"text/event-stream": {"schema": {"type": "string"}}}
    assert [(each["name"], each["description"], each["schema"]) for each in stream["parameters"][1:]] == [
        ("kinds", "Kinds of events, comma-separated; all by default.", {"type": "string"}),
        ("group", "The id of a group whose moments are sent as `timeline` events.", {"type": "string"}),
    ]


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "html"), ("/docs", "html"), ("/page/page.js", "javascript"), ("/page/style.css", "css")]
)
def test_files_of_text_have_their_charset(control: Asking, path: str, kind: str) -> None:
    assert control.ask("GET", path).headers["content-type"] == f"text/{kind}; charset=utf-8"


def test_a_journal_may_be_off() -> None:
    with asking(1, journal="off") as control:
        answer = control.ask("GET", f"{BASE}/journal")
        assert (answer.status, answer.json["field"], answer.json["value"]) == (422, "journal", "off")


def test_further_clusters_are_where_the_first_one_is() -> None:
    with FakeCluster(1, host="127.0.0.2", advertised_host="localhost") as cluster, ControlServer(cluster) as server:
        control = Asking(cluster, server)
        made = control.ask("POST", "/v1/clusters", {"name": "other", "brokers": 1}).json
        host, _, port = made["bootstrap_servers"].rpartition(":")
        assert host == "localhost"
        socket.create_connection(("127.0.0.2", int(port)), TIMEOUT_S).close()


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
