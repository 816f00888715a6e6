"""The operations of the control API over HTTP: their effects on the cluster and their responses."""

import os
import socket
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakebroker import FakeCluster, IncompleteJournalError, ListenError
from fakebroker.cluster.commands.cluster_commands import COMMANDS
from fakebroker.control import dependencies
from fakebroker.control.routes.operations import OPERATIONS
from fakebroker.control.server import ControlServer
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import FakebrokerError
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequestProtocol
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.server.data_directory.directory import DataDirectory
from fakebroker.server.journal_files import parse_journal
from tests.support.control.control_server import BASE, TIMEOUT_S, ControlHarness, controlled_cluster
from tests.support.group_requests import commit_request, join_request
from tests.support.wire_client import WireClient, find_coordinator, until


@pytest.fixture(scope="module")
def started() -> Iterator[ControlHarness]:
    with controlled_cluster(3, {"orders": 4}, seed=1, clock="manual") as harness:
        yield harness


@pytest.fixture
def control(started: ControlHarness) -> ControlHarness:
    """The cluster of the module after a reset."""
    started.post("/reset")
    return started


def test_health_is_ok(control: ControlHarness) -> None:
    assert control.request("GET", "/healthz").json == {"status": "ok"}


def test_the_overview_describes_the_cluster(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": 2, "topics": ["orders"]}, 201)
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        overview = control.get()
    assert overview["name"] == "default"
    assert overview["bootstrap_servers"] == control.cluster.bootstrap_servers
    assert overview["seed"] == 1
    assert overview["clock"] == {"now_ms": control.cluster.clock.now_ms(), "kind": "manual"}
    assert (overview["groups_by_state"], overview["members"]) == ({"Stable": 1}, 2)
    assert (overview["connections"], overview["journal"]) == (1, {"size": 1, "dropped": 0})
    assert [broker["node_id"] for broker in overview["brokers"]] == [1, 2, 3]
    assert sum(len(broker["offsets_partitions"]) for broker in overview["brokers"]) == 50
    assert sum(broker["members"] for broker in overview["brokers"]) == 2


def test_brokers_are_stopped_started_upgraded_added_and_removed(control: ControlHarness) -> None:
    assert control.post("/brokers/1/stop", {"elect": False})["up"] is False
    assert not control.cluster.brokers[0].up
    assert control.get("/brokers/1")["up"] is False
    assert control.post("/brokers/1/start")["up"] is True
    assert control.post("/brokers/1/restart", {"load_ms": 5})["up"] is True
    assert control.post("/brokers/1/upgrade", {"as_version": "2.8"})["as_version"] == "2.8"
    added = control.post("/brokers", {"as_version": "3.0"}, 201)
    assert (added["node_id"], added["as_version"]) == (4, "3.0")
    assert control.request("PATCH", f"{BASE}/brokers/4", {"accept": "refuse"}).status == 200
    assert control.request("DELETE", f"{BASE}/brokers/4").status == 204
    assert [broker["node_id"] for broker in control.get("/brokers")["brokers"]] == [1, 2, 3]


def test_topics_are_created_listed_and_deleted(control: ControlHarness) -> None:
    assert len(control.post("/topics", {"name": "new", "partitions": 2}, 201)["partitions"]) == 2
    assert len(control.request("PATCH", f"{BASE}/topics/new", {"partitions": 3}).json["partitions"]) == 3
    assert [topic["name"] for topic in control.get("/topics")["topics"]] == ["orders", "new"]
    partition = control.get("/topics/new")["partitions"][2]
    assert partition["log_end_offset"] == 0
    assert sorted(partition["in_sync"]) == sorted(partition["replicas"]) == [1, 2, 3]
    assert partition["adding"] == partition["removing"] == []
    assert control.request("DELETE", f"{BASE}/topics/new").status == 204
    assert control.request("GET", f"{BASE}/topics/new").status == 404


def test_records_are_produced_and_listed(control: ControlHarness) -> None:
    body = {"values": ["größe", {"base64": "/w=="}, None], "key": "k", "headers": {"h": {"base64": "/w=="}}}
    produced = control.post("/topics/orders/records", {**body, "partition": 1, "timestamp": 1_000}, 201)
    assert produced == {"records": [{"partition": 1, "offset": offset} for offset in range(3)]}
    event = {"do": "produce", "topic": "orders", "values": ["b"], "partition": 0}
    assert control.post("/events", event) == {"result": [{"partition": 0, "offset": 0}]}
    rows = control.get("/topics/orders/records")["records"]
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        (0, 0, "b"),
        (1, 0, "größe"),
        (1, 1, {"base64": "/w=="}),
        (1, 2, None),
    ]
    assert (rows[1]["key"], rows[1]["timestamp"], rows[1]["headers"]) == ("k", 1_000, [["h", {"base64": "/w=="}]])
    assert rows[0]["key"] is None
    page = control.get("/topics/orders/records?partition=1&offset=1&limit=1")
    assert (page["is_complete"], [row["offset"] for row in page["records"]]) == (False, [1])
    page = control.get("/topics/orders/records?partition=1&offset=2")
    assert (page["is_complete"], [row["offset"] for row in page["records"]]) == (True, [2])
    cases: list[tuple[str, str, dict[str, Any] | None, int, str]] = [
        ("GET", "/topics/none/records", None, 404, "topic"),
        ("GET", "/topics/orders/records?partition=4", None, 422, "partition"),
        ("GET", "/topics/orders/records?limit=0", None, 422, "limit"),
        ("POST", "/topics/none/records", {"values": []}, 404, "topic"),
        ("POST", "/topics/orders/records", {"values": [5]}, 422, "values[0]"),
        ("POST", "/topics/orders/records", {"values": [], "key": {"base64": "!"}}, 422, "key.base64"),
    ]
    for method, path, sent, status, field in cases:
        answer = control.request(method, BASE + path, sent)
        assert (answer.status, answer.json["field"]) == (status, field)


def test_members_have_decoded_subscriptions_and_assignments(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": 2, "topics": ["orders"]}, 201)
    for group in (control.get("/groups/g"), control.get("/group_views")["groups"][0]):
        assert [each["assigned_partitions"] for each in group["members"]] == [
            ["orders-0", "orders-1"],
            ["orders-2", "orders-3"],
        ]
        first = group["members"][0]
        assert (first["subscribed_topics"], first["owned_partitions"]) == (["orders"], [])
        assert (first["protocol_type"], first["protocol_name"]) == ("consumer", "range")
        assert b64decode(first["assignment"]) == control.cluster.group("g").members[0].assignment


def test_coordinators_are_moved_and_loaded(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]}, 201)
    partition = control.cluster.cluster.offsets_partition_of("g").index
    old = control.get("/groups/g")["coordinator"]
    to = old % 3 + 1
    partitions = control.post("/coordinators/move", {"group_id": "g", "to": to, "load_ms": None})["offsets_partitions"]
    assert (partitions[partition]["leader"], partitions[partition]["is_loading"], partitions[partition]["groups"]) == (
        to,
        True,
        0,
    )
    assert "is being loaded" in control.get("/groups/g/explain")["text"]
    partitions = control.post("/coordinators/finish_loading")["offsets_partitions"]
    assert (partitions[partition]["is_loading"], partitions[partition]["groups"], partitions[partition]["members"]) == (
        False,
        1,
        1,
    )
    for node_id, zombies in ((old, [to]), (6 - old - to, sorted([old, to]))):
        moved = control.post("/coordinators/move", {"group_id": "g", "to": node_id, "zombie": True})
        partitions = moved["offsets_partitions"]
        assert (partitions[partition]["zombies"], partitions[partition]["groups"]) == (zombies, 1)
        assert not any(row["zombies"] for row in partitions if row["partition"] != partition)
    partitions = control.post("/coordinators/stop_zombies")["offsets_partitions"]
    assert partitions[partition]["zombies"] == []
    control.post("/coordinators/move", {"partition": partition, "to": None})
    assert control.get("/groups/g")["coordinator"] is None


def test_groups_are_listed_searched_and_sorted(control: ControlHarness) -> None:
    seeds = [{"group_id": f"g{number}", "members": number, "topics": ["orders"]} for number in range(4)]
    assert control.post("/groups/seed", {"groups": seeds}, 201)["total"] == 4
    control.post("/groups/g2/force_rebalance")
    listed = control.get("/groups?sort=unstable&limit=2")
    assert (listed["total"], [row["group_id"] for row in listed["groups"]]) == (4, ["g2", "g0"])
    assert listed["groups"][0]["state"] == "PreparingRebalance"
    assert listed["groups"][0]["why"] == (
        "waiting for consumer-g2-1, consumer-g2-2; 0 of 2 have joined; a rebalance was forced"
    )
    assert [row["group_id"] for row in control.get("/groups?sort=name&offset=3")["groups"]] == ["g3"]
    assert [row["group_id"] for row in control.get("/groups?search=G1")["groups"]] == ["g1"]
    assert [row["group_id"] for row in control.get("/groups?state=Empty")["groups"]] == ["g0"]
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(HeartbeatRequest(group_id="g1", generation_id=1, member_id="x"), HeartbeatResponse)
    assert [row["group_id"] for row in control.get("/groups?sort=busy")["groups"]][:2] == ["g1", "g3"]


def test_blocked_groups_have_the_members_that_block_them_and_until_when(control: ControlHarness) -> None:
    assert control.get("/blocked_groups") == {"total": 0, "groups": []}
    members = [{"client_id": name, "rebalance_timeout_ms": 60_000} for name in ("a", "b", "c", "d")]
    for group_id in ("g", "held"):
        control.post(f"/groups/{group_id}/seed", {"members": members, "topics": ["orders"]}, 201)
    control.post("/groups/calm/seed", {"members": 1, "topics": ["orders"]}, 201)
    control.post("/groups/held/hold", {"state": "PreparingRebalance"})
    control.post("/groups/held/force_rebalance")
    control.post("/clock/advance", {"seconds": 1})
    start_ms = control.cluster.clock.now_ms()
    control.post("/groups/g/force_rebalance")
    member = control.cluster.group("g").members[1]
    with WireClient(control.cluster.coordinator_of("g"), "b") as wire:
        protocols = [JoinGroupRequestProtocol(name=member.protocol_name or "", metadata=member.metadata)]
        wire.send(join_request("g", member.member_id, protocols=protocols))
        control.cluster.wait_for_request("JoinGroup")
        blocked = control.get("/blocked_groups")
        held, waiting = blocked["groups"]
        assert (blocked["total"], held["group_id"], held["is_held"], held["until_ms"]) == (2, "held", True, None)
        assert waiting == {
            "group_id": "g",
            "state": "PreparingRebalance",
            "since_ms": start_ms,
            "request": "JoinGroup",
            "blocking": ["a", "c", "d"],
            "missing": 3,
            "partitions": 0,
            "sent": 1,
            "members": 4,
            "is_held": False,
            "until_ms": start_ms + 60_000,
            "removes": 3,
            "restarts": False,
        }
        (join,) = [each for each in control.get("/deadlines")["deadlines"] if each["kind"] == "join"]
        assert (join["group_id"], join["at_ms"], len(join["removes"])) == ("g", start_ms + 60_000, 3)
        assert [row["group_id"] for row in control.get("/blocked_groups?limit=1")["groups"]] == ["held"]
        for name in ("a", "c", "d"):
            control.post("/groups/g/evict", {"member": name})
        (waiting,) = [row for row in control.get("/blocked_groups")["groups"] if row["group_id"] == "g"]
        assert (waiting["state"], waiting["request"]) == ("CompletingRebalance", "SyncGroup")
        assert (waiting["blocking"], waiting["missing"], waiting["sent"], waiting["removes"]) == (["b"], 1, 0, 1)
    static = [{"client_id": "s", "instance_id": "s"}, {"client_id": "t", "instance_id": "t"}]
    control.post("/groups/static/seed", {"members": static, "topics": ["orders"]}, 201)
    control.post("/groups/static/force_rebalance")
    (waiting,) = [row for row in control.get("/blocked_groups")["groups"] if row["group_id"] == "static"]
    assert (waiting["removes"], waiting["restarts"]) == (0, True)


def test_counts_and_lists_of_groups_match_the_cluster_after_every_command(control: ControlHarness) -> None:
    seeds = [{"group_id": f"g{number}", "members": number, "topics": ["orders"]} for number in range(4)]
    control.post("/groups/seed", {"groups": seeds}, 201)
    kept = control.post("/snapshots", status=201)["id"]
    to = control.get("/groups/g1/coordinator")["node_id"] % 3 + 1
    for path, body in (
        ("/groups/g2/force_rebalance", {}),
        ("/groups/g3/evict", {"member": "consumer-g3-1"}),
        ("/groups/new/seed", {"offsets": {"orders-0": 1}, "lag": {"orders-0": 0}}),
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
        assert control.request("POST", BASE + path, body).status < 300
        names = sorted({group.group_id for group in control.cluster.groups()})
        there = [view for name in names if (view := control.cluster.group(name)).state != "Dead"]
        overview = control.get()
        assert overview["groups_by_state"] == dict(Counter(view.state for view in there)), path
        assert overview["members"] == sum(len(view.members) for view in there), path
        assert sum(broker["members"] for broker in overview["brokers"]) >= overview["members"], path
        assert [row["group_id"] for row in control.get("/groups")["groups"]] == [view.group_id for view in there], path


def test_views_and_deletion_of_one_group(control: ControlHarness) -> None:
    control.post(
        "/groups/a%2Fb/seed",
        {"members": ["one", {"client_id": "two"}], "offsets": {"orders-1": 5}, "lag": {"orders-1": 0}},
        201,
    )
    group = control.get("/groups/a%2Fb")
    assert [member["client_id"] for member in group["members"]] == ["one", "two"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in group["offsets"]] == [("orders", 1, 5)]
    assert group["explanation"] == control.get("/groups/a%2Fb/explain")["text"]
    control.post("/groups/a%2Fb/evict", {"member": "one"})
    timeline = control.get("/groups/a%2Fb/timeline")
    assert [moment["state_to"] for moment in timeline["moments"]] == ["Stable", "PreparingRebalance"]
    assert (timeline["text"], timeline["svg"]) == (None, None)
    pictured = control.get("/groups/a%2Fb/timeline?text=true&svg=true&limit=1")
    assert [moment["state_to"] for moment in pictured["moments"]] == ["PreparingRebalance"]
    assert pictured["svg"].startswith("<svg")
    assert "PreparingRebalance" in pictured["text"]
    assert control.request("DELETE", f"{BASE}/groups/a%2Fb").status == 409
    control.post("/groups/a%2Fb/evict", {"member": "two"})
    control.post("/clock/advance", {"seconds": 400})
    assert control.request("DELETE", f"{BASE}/groups/a%2Fb").status == 204
    assert control.get("/groups/a%2Fb")["state"] == "Dead"


def test_get_operations_do_not_change_the_cluster() -> None:
    with controlled_cluster(3, {"orders": 4}, clock="manual") as control:
        control.post(
            "/groups/g/seed",
            {"members": 2, "topics": ["orders"], "offsets": {"orders-1": 5}, "lag": {"orders-1": 0}},
            201,
        )
        control.post("/groups/g/evict", {"member": control.get("/groups/g")["members"][0]["member_id"]})
        fault = control.post("/faults", {"api": "Heartbeat", "drop": True, "nth": 2}, 201)["id"]
        existing = {"cluster": "default", "node_id": "1", "topic": "orders", "id": fault, "group_id": "g"}
        control.post("/transactions/payments/seed", {"records": {"orders-0": 1}}, 201)
        existing["transactional_id"] = "payments"
        missing = existing | {"topic": "none", "group_id": "none", "transactional_id": "none"}
        operations = [
            (one.method, one.path)
            for one in OPERATIONS
            if one.is_read_only and one.is_documented and not one.path.endswith("/stream")
        ]
        requests = [(method, path.format_map(names)) for method, path in operations for names in (existing, missing)]
        assert len(operations) > 15
        assert {method for method, _ in operations} == {"GET"}
        before = [control.request(*one) for one in requests]
        after = [control.request(*one) for one in reversed(requests)][::-1]
        assert [(one.status, one.body) for one in after] == [(one.status, one.body) for one in before]
        assert {one.status for one in before} == {200, 404}


def test_a_group_is_held_and_released(control: ControlHarness) -> None:
    control.post("/groups/g/hold", {"state": "PreparingRebalance"})
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]}, 201)
    control.post("/groups/g/force_rebalance")
    assert "It is held" in control.get("/groups/g/explain")["text"]
    control.post("/groups/g/release")
    assert "It is held" not in control.get("/groups/g/explain")["text"]


def test_a_group_id_may_equal_a_segment_of_a_path(control: ControlHarness) -> None:
    control.post("/groups/seed/seed", {"members": 1, "topics": ["orders"]}, 201)
    assert control.get("/groups/seed")["group_id"] == "seed"


def test_faults_are_added_listed_and_removed(control: ControlHarness) -> None:
    added = control.post("/faults", {"api": "Heartbeat", "group": "g", "error": "NOT_COORDINATOR"}, 201)
    with WireClient(control.cluster.brokers[0]) as wire:
        response = wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
    assert response.error_code == 16
    rule = {"api": "Heartbeat", "group": "g", "error": "NOT_COORDINATOR"}
    row = {"id": added["id"], "rule": rule, "hits": 1, "is_over": False, "errors": []}
    assert control.get("/faults") == {"faults": [row], "action_errors": []}
    other = control.post("/events", {"do": "fail", "api": None, "drop": True})["result"]
    assert control.request("DELETE", f"{BASE}/faults/{added['id']}").status == 204
    assert [row["id"] for row in control.get("/faults")["faults"]] == [other["id"]]
    assert control.request("DELETE", f"{BASE}/faults").status == 204
    assert control.get("/faults") == {"faults": [], "action_errors": []}


def test_faults_that_are_over_are_listed_as_such_and_do_not_count(control: ControlHarness) -> None:
    used_up = control.post("/faults", {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE", "times": 1}, 201)
    passed = control.post("/faults", {"api": "Heartbeat", "drop": True, "for_s": 10}, 201)
    lasting = control.post("/faults", {"api": "Heartbeat", "drop": True}, 201)
    assert control.get()["faults"] == 3
    assert not any(row["is_over"] for row in control.get("/faults")["faults"])
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
    control.post("/clock/advance", {"seconds": 10})
    over = {row["id"]: row["is_over"] for row in control.get("/faults")["faults"]}
    assert over == {used_up["id"]: True, passed["id"]: True, lasting["id"]: False}
    assert control.get()["faults"] == 1
    assert 'fakebroker_faults{cluster="default"} 1.0' in control.request("GET", "/metrics").body.decode()


def test_faults_act_on_the_cluster_over_http(control: ControlHarness) -> None:
    rule = {"api": "Heartbeat", "times": 1, "then": [{"do": "create_topic", "name": "new"}, {"do": "clear_faults"}]}
    assert control.post("/faults", rule, 201)["rule"] == rule
    late = {"api": "Heartbeat", "delay_before_s": 5, "before": {"do": "start_broker", "node_id": 1}}
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="x")
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(heartbeat, HeartbeatResponse)
        assert control.get("/faults") == {"faults": [], "action_errors": []}
        control.post("/events", {"do": "fail", **late})
        wire.send(heartbeat)
        until(lambda: control.cluster.count("Heartbeat") == 2, control.cluster)
        assert control.get("/journal?api=Heartbeat")["requests"][1]["handled_ms"] is None
        control.post("/clock/advance", {"seconds": 5})
        wire.receive()
    row = control.get("/journal?api=Heartbeat")["requests"][1]
    assert row["handled_ms"] - row["received_ms"] == 5_000
    (error,) = row["action_errors"]
    assert error.startswith("start_broker(node_id=1) at <Heartbeat v4 from 'wire' at broker 1>: node_id=1: expected ")
    assert control.get("/faults")["action_errors"] == control.get("/faults")["faults"][0]["errors"] == [error]
    assert control.post("/faults", {"api": "Heartbeat", "then": {"do": "stop"}}, 422)["field"] == "then.do"


def test_failures_of_appends_are_added_listed_and_removed(control: ControlHarness) -> None:
    added = control.post("/events", {"do": "fail_append", "group_id": "g"})["result"]
    row = {"id": added["id"], "error": "NOT_ENOUGH_REPLICAS", "times": 1, "hits": 0}
    assert control.get(f"/append_failures/{added['id']}") == {
        **row,
        "topic": "__consumer_offsets",
        "partition": partition_for("g", 50),
    }
    assert [each["id"] for each in control.get("/append_failures")["append_failures"]] == [added["id"]]
    assert control.request("DELETE", f"{BASE}/append_failures/{added['id']}").status == 204
    assert control.get("/append_failures") == {"append_failures": []}
    assert control.request("GET", f"{BASE}/append_failures/{added['id']}").status == 404
    control.post("/events", {"do": "fail_append", "group_id": "g", "times": 0}, 422)


def test_the_clock_is_advanced_and_deadlines_are_listed(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]}, 201)
    before = control.get("/clock")["now_ms"]
    assert control.post("/clock/advance", {"seconds": 1.5})["now_ms"] == before + 1500
    first = control.get("/deadlines")["deadlines"][0]
    assert (first["kind"], first["group_id"], first["in_s"]) == ("session", "g", 43.5)
    assert control.post("/clock/advance_to_next_deadline")["deadlines"][0]["kind"] == "session"
    assert control.get("/groups/g")["members"] == []


def test_snapshots_are_taken_restored_and_deleted(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"offsets": {"orders-0": 7}, "lag": {"orders-0": 0}}, 201)
    kept = control.post("/snapshots", status=201)["id"]
    assert control.request("DELETE", f"{BASE}/groups/g").status == 204
    control.post(f"/snapshots/{kept}/restore")
    assert control.get("/groups/g")["offsets"][0]["offset"] == 7
    assert control.request("DELETE", f"{BASE}/snapshots/{kept}").status == 204
    assert control.request("POST", f"{BASE}/snapshots/{kept}/restore").status == 404


def test_the_journal_is_filtered_and_downloaded(control: ControlHarness) -> None:
    with WireClient(control.cluster.brokers[0]) as wire:
        for number in range(3):
            wire.ask(HeartbeatRequest(group_id=f"g{number}", generation_id=1, member_id="x"), HeartbeatResponse)
        wire.ask(find_coordinator("g1"), FindCoordinatorResponse)
    journal = control.get("/journal?group=g1")
    assert journal["last"] == 4
    assert [(row["seq"], row["api"]) for row in journal["requests"]] == [(2, "Heartbeat"), (4, "FindCoordinator")]
    assert journal["requests"][0]["errors"] == ["UNKNOWN_MEMBER_ID"]
    assert journal["requests"][0]["request"]["group_id"] == "g1"
    assert [row["seq"] for row in control.get("/journal?limit=1")["requests"]] == [4]
    assert [row["seq"] for row in control.get("/journal?after=1&limit=2")["requests"]] == [2, 3]
    assert [row["seq"] for row in control.get("/journal?seqs=4,9,1,2,2&api=Heartbeat")["requests"]] == [1, 2]
    assert control.get("/journal?seqs=9") == {"requests": [], "last": 4, "dropped": 0}
    assert [row["seq"] for row in control.get("/journal?after=1&limit=2")["requests"]] == [2, 3]
    lines = control.request("GET", f"{BASE}/journal.jsonl").body.decode().splitlines()
    assert parse_journal(lines, "the response").count("Heartbeat") == 3


def test_the_journal_is_filtered_by_topic_partition_member_version_and_fault(
    control: ControlHarness, subtests: pytest.Subtests
) -> None:
    with WireClient(control.cluster.brokers[0], "app") as wire:
        wire.ask(commit_request(1, partition=1), OffsetCommitResponse, 8)
        static = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
        with control.cluster.fail("Heartbeat", error="NOT_COORDINATOR"):
            wire.ask(static, HeartbeatResponse, 3)
    filters: list[tuple[str, Any, list[int]]] = [
        ("topic", "orders", [1]),
        ("topic", "news", []),
        ("partition", "orders-1", [1]),
        ("partition", 1, [1]),
        ("partition", 0, []),
        ("member", "i", [2]),
        ("member", "app", [2]),
        ("instance_id", "i", [2]),
        ("version", 3, [2]),
        ("fault", True, [2]),
        ("fault", False, [1]),
    ]
    for name, value, found in filters:
        with subtests.test(**{name: value}):
            text = str(value).lower() if isinstance(value, bool) else value
            assert [row["seq"] for row in control.get(f"/journal?{name}={text}")["requests"]] == found
            if found:
                waited = control.post("/wait/request", {name: value, "timeout_s": 0})
                assert [row["seq"] for row in waited["requests"]] == found
    row = control.get("/journal?seqs=2")["requests"][0]
    assert (row["instance_ids"], row["fault"]) == (["i"], True)


def test_waits_return_at_once_or_time_out(control: ControlHarness) -> None:
    control.post(
        "/groups/g/seed", {"members": 1, "topics": ["orders"], "offsets": {"orders-0": 3}, "lag": {"orders-0": 0}}, 201
    )
    assert control.post("/wait/state", {"group_id": "g", "state": "Stable"})["members"]
    assert control.post("/wait/generation", {"group_id": "g", "above": 0})["generation_id"] == 1
    assert control.post("/wait/commit", {"group_id": "g", "partition": "orders-0", "at_least": 3})["offset"] == 3
    response = control.request("POST", f"{BASE}/wait/state", {"group_id": "g", "state": "Empty", "timeout_s": 0.0})
    assert response.status == 408
    assert response.json["detail"].startswith("not reached within 0 s: group g in Empty")


def test_waits_end_when_their_condition_becomes_true(control: ControlHarness, subtests: pytest.Subtests) -> None:
    for kind, condition, expected in (
        ("state", {"group_id": "g", "state": "Stable", "members": 1}, {"state": "Stable"}),
        ("generation", {"group_id": "g", "above": 4}, {"generation_id": 5}),
        ("commit", {"group_id": "g", "partition": "orders-0", "at_least": 7}, {"offset": 7}),
        ("request", {"api": "FindCoordinator"}, {}),
    ):
        with subtests.test(kind=kind):
            control.post("/reset")
            result = wait_for(control, kind, condition)
            assert result.items() >= expected.items()
            if kind == "request":
                assert [row["api"] for row in result["requests"]] == ["FindCoordinator"]


def test_a_wait_continues_one_that_timed_out(control: ControlHarness) -> None:
    body = {"group_id": "g", "state": "Stable", "timeout_s": 0}
    timeout = control.post("/wait/state", body, 408)
    assert (timeout["condition"], timeout["timeout_s"], timeout["changes"]) == ("group g in Stable", 0, 0)
    assert timeout["detail"] == f"not reached within 0 s: {timeout['condition']}\n{timeout['state']}"
    control.post("/groups/g/seed", {"members": ["a"], "topics": ["orders"]}, 201)
    (member,) = control.get("/groups/g")["members"]
    control.post("/events", {"do": "evict", "group_id": "g", "member": member["member_id"]})
    assert control.post("/wait/state", body, 408)["changes"] > 0
    reached = control.post("/wait/state", {**body, "seen_changes": timeout["changes"]})
    assert (reached["state"], [each["member_id"] for each in reached["members"]]) == ("Stable", [member["member_id"]])
    assert reached["coordinator"] is not None
    past = control.post("/wait/generation", {"group_id": "g", "above": 0, "seen_changes": 0})
    assert past["generation_id"] == 1
    wrong = control.post("/wait/state", {**body, "seen_changes": -1}, 422)
    assert (wrong["field"], wrong["expected"]) == ("seen_changes", "an integer >= 0")
    commit = {"group_id": "g", "partition": "orders-0", "at_least": 1, "timeout_s": 0}
    assert "changes" not in control.post("/wait/commit", commit, 408)
    assert control.post("/wait/state", {**body, "polling": []}, 422)["field"] == "polling"


def test_dropped_changes_of_a_group_are_counted_and_make_waits_undecided(control: ControlHarness) -> None:
    control.cluster.cluster.history.max_moments_of_one = 1
    control.post("/groups/g/seed", {"members": ["a", "b"], "topics": ["orders"]}, 201)
    control.post("/groups/g/force_rebalance")
    timeline = control.get("/groups/g/timeline")
    dropped = control.cluster.cluster.history.dropped_of("g")
    assert timeline["dropped"] == {"count": dropped.count, "until_ms": dropped.until_ms, "is_exact": True}
    assert dropped.count > 0
    assert control.get("/group_views")["groups"][0]["dropped"] == timeline["dropped"]
    body = {"group_id": "g", "state": "Stable", "timeout_s": 0, "seen_changes": 0}
    undecided = control.post("/wait/state", body, 410)
    assert undecided["title"] == "No longer known"
    assert undecided["detail"].startswith("not decided: group g in Stable since its first 0 changes: ")


def test_a_group_has_its_deadlines_and_the_requests_that_it_waits_for(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": ["a", "b"], "topics": ["orders"]}, 201)
    assert [each["kind"] for each in control.get("/groups/g")["deadlines"]] == ["session", "session"]
    control.post("/groups/g/force_rebalance")
    group = control.get("/groups/g")
    assert [member["missing_request"] for member in group["members"]] == ["JoinGroup", "JoinGroup"]
    assert {each["group_id"] for each in group["deadlines"]} == {"g"}
    assert all(each["text"].endswith(".") for each in group["deadlines"])
    (row,) = control.get("/groups")["groups"]
    assert [each.at_ms for each in control.cluster.pending_deadlines() if each.kind == "join"] == [row["until_ms"]]


def wait_for(control: ControlHarness, kind: str, condition: dict[str, Any]) -> Any:
    """Start a wait, then seed the group and send a FindCoordinator; return the response to the wait."""
    waits = control.cluster.call(lambda: len(control.cluster._server.reactor.watchers))
    results: list[Any] = []
    waiter = threading.Thread(
        target=lambda: results.append(control.post(f"/wait/{kind}", {**condition, "timeout_s": 30})), daemon=True
    )
    waiter.start()
    while control.cluster.call(lambda: len(control.cluster._server.reactor.watchers)) == waits:
        assert waiter.is_alive()
    seed = {"members": 1, "topics": ["orders"], "generation": 5, "offsets": {"orders-0": 7}, "lag": {"orders-0": 0}}
    control.post("/groups/g/seed", seed, 201)
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
    waiter.join()
    return results[0]


def test_events_return_the_result_of_their_command(control: ControlHarness) -> None:
    result = control.post("/events", {"do": "add_broker", "like": {"as_version": "2.8"}})["result"]
    port = control.cluster.brokers[3].port
    assert result == {"node_id": 4, "host": "127.0.0.1", "port": port, "up": True, "rack": None}
    assert control.post("/events", {"do": "hold", "group_id": "g", "state": "PreparingRebalance"}) == {"result": None}


def test_group_ids_that_paths_cannot_contain_are_escaped_with_a_tilde(control: ControlHarness) -> None:
    for group_id, escaped in {"": "", ".": "~2E", "..": "~2E~2E", "~2E": "~7E2E", "x.~": "x.~7E"}.items():
        control.post(f"/groups/{escaped}/seed", {"offsets": {"orders-0": 1}, "lag": {"orders-0": 0}}, 201)
        assert control.get(f"/groups/{escaped}")["group_id"] == group_id
        assert control.get(f"/groups/{escaped}/timeline")["group_id"] == group_id
        assert control.request("DELETE", f"{BASE}/groups/{escaped}").status == 204
    assert control.request("GET", f"{BASE}/topics/").status == 404
    parameters = control.request("GET", "/openapi.json").json["paths"]["/v1/clusters/{cluster}/groups/{group_id}"][
        "get"
    ]
    assert "`~2E~2E`" in parameters["parameters"][1]["description"]


def test_the_document_lists_all_events_with_their_arguments(control: ControlHarness) -> None:
    document = control.request("GET", "/openapi.json").json
    body = document["paths"]["/v1/clusters/{cluster}/events"]["post"]["requestBody"]["content"]["application/json"]
    names = [each["$ref"].rpartition("/")[2] for each in body["schema"]["anyOf"]]
    schemas = {tuple(document["components"]["schemas"][name]["properties"]["do"]["enum"]): name for name in names}
    assert [command for (command,) in schemas] == list(COMMANDS)
    assert list(document["components"]["schemas"][schemas["evict",]]["properties"]) == ["do", "group_id", "member"]


def test_the_document_describes_the_type_and_the_query_of_a_stream(control: ControlHarness) -> None:
    stream = control.request("GET", "/openapi.json").json["paths"]["/v1/clusters/{cluster}/stream"]["get"]
    assert stream["responses"]["200"]["content"] == {"text/event-stream": {"schema": {"type": "string"}}}
    assert [(each["name"], each["description"], each["schema"]) for each in stream["parameters"][1:]] == [
        ("kinds", "Kinds of events, comma-separated; all by default.", {"type": "string"}),
        ("group", "The id of a group whose moments are sent as `timeline` events.", {"type": "string"}),
    ]


def test_text_files_have_their_type_and_charset(control: ControlHarness) -> None:
    for path, kind in {"/": "html", "/docs": "html", "/page/page.js": "javascript", "/page/style.css": "css"}.items():
        assert control.request("GET", path).headers["content-type"] == f"text/{kind}; charset=utf-8", path


def test_no_route_ignores_a_query_parameter_that_it_does_not_know(
    control: ControlHarness, subtests: pytest.Subtests
) -> None:
    documented = control.request("GET", "/openapi.json").json["paths"]
    assert {(each.method.lower(), each.path) for each in OPERATIONS if each.is_documented} == {
        (method, path) for path, methods in documented.items() for method in methods
    }
    values = {"cluster": "default", "node_id": "1", "topic": "orders", "group_id": "g", "name": "style.css"}
    for operation in OPERATIONS:
        path = operation.path.format_map({name: values.get(name, "1") for name in operation.names})
        known = [] if operation.query is None else [field.name for field in msgspec.structs.fields(operation.query)]
        for given, near in [("nonesuch", None), *((f"{name}x", name) for name in known)]:
            with subtests.test(operation=operation.name, given=given):
                response = control.request(operation.method, f"{path}?{given}=5")
                problem = response.json
                assert (response.status, problem["field"], problem["value"]) == (422, given, "5")
                expected = f"one of {', '.join(known)}" if known else "none"
                assert problem["expected"].startswith(expected)
                assert near is None or problem["expected"].endswith("; did you mean '" + near + "'?")
    response = control.request("GET", f"{BASE}/groups?limit=1&limit=2")
    assert (response.status, response.json["detail"]) == (422, "limit='2': expected one value: limit is given twice")


def test_a_body_for_an_operation_that_takes_none_is_rejected(
    control: ControlHarness, subtests: pytest.Subtests
) -> None:
    for method, path in (("POST", "/clock/advance_to_next_deadline"), ("POST", "/reset"), ("DELETE", "/faults")):
        with subtests.test(path=path):
            problem = control.request(method, BASE + path, {"seconds": 3})
            assert (problem.status, problem.json["field"], problem.json["expected"]) == (422, "seconds", "none")
            assert control.request(method, BASE + path, {}).status in (200, 204, 422 if "clock" in path else 200)


def test_a_part_of_the_journal_is_exported(control: ControlHarness, subtests: pytest.Subtests) -> None:
    with WireClient(control.cluster.brokers[0], "app") as wire:
        for member, generation in (("a", 1), ("b", 1), ("a", 2)):
            wire.ask(HeartbeatRequest(group_id="g", generation_id=generation, member_id=member), HeartbeatResponse)
        wire.ask(find_coordinator("h"), FindCoordinatorResponse)
        wire.ask(commit_request(1, partition=1), OffsetCommitResponse, 8)
    since = control.cluster.requests()[1].received_ms
    for query in (
        *("api=Heartbeat", "client_id=app", "group=g", "member=a", "instance_id=i", "topic=orders", "fault=false"),
        *("partition=orders-1", "broker=1", "connection=0", "version=4", "error=UNKNOWN_MEMBER_ID", "api=Fetch"),
        *(f"since={since}", f"until={since}", f"since=0&until={since}&group=g"),
    ):
        with subtests.test(query=query):
            rows = control.get(f"/journal?{query}")["requests"]
            lines = control.request("GET", f"{BASE}/journal.jsonl?{query}").body.decode().splitlines()
            part = parse_journal(lines, "the response").journal_view()
            assert [number for number, _ in part.numbered()] == [row["seq"] for row in rows]
            assert [call.api.name for call in part.calls] == [row["api"] for row in rows]
    for wrong in ("groop=g", "api=Heartbeats", "limit=x", "since=x", "until=-1"):
        assert control.request("GET", f"{BASE}/journal.jsonl?{wrong}").status == 422, wrong


def test_queries_on_a_part_of_a_journal_do_not_forget_what_is_left_out(control: ControlHarness) -> None:
    with WireClient(control.cluster.brokers[0]) as wire:
        for group in ("g", "h"):
            wire.ask(HeartbeatRequest(group_id=group, generation_id=1, member_id="x"), HeartbeatResponse)
            wire.ask(find_coordinator(group), FindCoordinatorResponse)
    exported = control.request("GET", f"{BASE}/journal.jsonl?api=Heartbeat&error=UNKNOWN_MEMBER_ID&group=g")
    part = parse_journal(exported.body.decode().splitlines(), "the response")
    assert part.count("Heartbeat", group="g", error="UNKNOWN_MEMBER_ID") == 1
    assert part.count("Fetch") == part.count(group="other") == 0
    part.assert_never("JoinGroup")
    part.assert_order("Heartbeat", group="g", error="UNKNOWN_MEMBER_ID")
    only = "this part of the journal has only Heartbeat with group='g', error='UNKNOWN_MEMBER_ID'"
    for query in (
        lambda: part.count("Heartbeat"),
        lambda: part.assert_never("FindCoordinator"),
        lambda: part.assert_order("Heartbeat", "FindCoordinator"),
    ):
        with pytest.raises(IncompleteJournalError, match=f"that may match (was|were) left out: {only}$"):
            query()


def test_reading_a_disabled_journal_is_an_error() -> None:
    with controlled_cluster(1, journal="off") as control:
        response = control.request("GET", f"{BASE}/journal")
        assert (response.status, response.json["field"], response.json["value"]) == (422, "journal", "off")


def test_further_clusters_listen_on_the_host_of_the_first_one() -> None:
    with FakeCluster(1, host="127.0.0.2", advertised_host="localhost") as cluster, ControlServer(cluster) as server:
        control = ControlHarness(cluster, server)
        response = control.request("POST", "/v1/clusters", {"name": "other", "brokers": 1}).json
        host, _, port = response["bootstrap_servers"].rpartition(":")
        assert host == "localhost"
        socket.create_connection(("127.0.0.2", int(port)), TIMEOUT_S).close()


def test_clusters_are_created_listed_and_deleted(control: ControlHarness) -> None:
    brokers = [{"as_version": "2.8", "rack": "a"}]
    options = {"name": "other", "brokers": brokers, "first_node_id": 0, "topics": {"t": 2}, "clock": {"factor": 10}}
    created = control.request("POST", "/v1/clusters", options)
    assert (created.status, created.json["clock"]["kind"]) == (201, "scaled")
    broker = created.json["brokers"][0]
    assert (broker["node_id"], broker["rack"], broker["as_version"]) == (0, "a", "2.8")
    listed = control.request("GET", "/v1/clusters").json["clusters"]
    assert [(row["name"], row["brokers"]) for row in listed] == [("default", 3), ("other", 1)]
    assert control.request("POST", "/v1/clusters/other/groups/g/seed", {"members": 1, "topics": ["t"]}).status == 201
    assert control.get("/groups")["total"] == 0
    assert control.request("POST", "/v1/clusters", {"name": "other"}).status == 409
    assert control.request("DELETE", "/v1/clusters/other").status == 204
    assert control.request("GET", "/v1/clusters/other").status == 404
    assert control.request("DELETE", "/v1/clusters/default").status == 409


def test_a_cluster_is_created_with_the_first_use_of_kafka(control: ControlHarness) -> None:
    options = {"name": "other", "brokers": 1, "first_use": "kafka", "clock": "manual"}
    assert control.request("POST", "/v1/clusters", options).status == 201
    explained = control.request("GET", "/v1/clusters/other/groups/g/explain").json
    assert "no client has looked for one" in str(explained)
    refused = control.request("POST", "/v1/clusters", options | {"name": "third", "first_use": "slow"})
    assert (refused.status, "first_use='slow': expected one of ready, kafka" in refused.json["detail"]) == (422, True)
    assert control.request("DELETE", "/v1/clusters/other").status == 204


def test_clusters_have_data_directories_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster(1) as cluster, ControlServer(cluster, data_dirs=str(tmp_path / "dirs")) as server:
        control = ControlHarness(cluster, server)

        def create(name: str, **arguments: object) -> tuple[int, Any]:
            made = control.request("POST", "/v1/clusters", {"name": name, "brokers": 1, "data_dir": "kept"} | arguments)
            return made.status, made.json.get("detail")

        assert create("first", fsync="always", topics={"t": 2})[0] == 201
        path = tmp_path / "dirs" / "kept"
        assert create("second") == (
            409,
            f"data_dir='{path}': in use by process {os.getpid()}: expected a directory that no other cluster uses",
        )
        assert control.request("DELETE", "/v1/clusters/first").status == 204
        assert create("second")[0] == 201
        assert [row["name"] for row in control.request("GET", "/v1/clusters/second/topics").json["topics"]] == ["t"]
        with monkeypatch.context() as full:
            full.setattr(DataDirectory, "reserve", lambda *_: False)
            status, detail = create("third", data_dir="new")
            assert (status, f"data_dir='{tmp_path / 'dirs' / 'new'}': the disk is full" in detail) == (507, True)
            more = control.request("POST", "/v1/clusters/second/topics", {"name": "u"})
            assert (more.status, more.json["title"]) == (507, "Disk full")
        assert control.request("DELETE", "/v1/clusters/second").status == 204
        (path / "format").write_text("fakebroker data directory, format 99\n")
        status, detail = create("second")
        assert (status, "has format 99: expected format" in detail) == (409, True)
        for name in ("..", "a/b", "/tmp/a", "", "a\0b"):
            status, detail = create("second", data_dir=name)
            assert (status, f"data_dir={name!r}: expected the name of a directory" in detail) == (422, True)
    assert {each.name for each in (tmp_path / "dirs").iterdir()} == {"kept", "new"}


def test_clusters_have_no_data_directory_unless_the_process_allows_it(control: ControlHarness) -> None:
    refused = control.request("POST", "/v1/clusters", {"name": "other", "data_dir": "kept"})
    assert (refused.status, refused.json["detail"]) == (
        422,
        "data_dir='kept': expected none: the process was started without --control-data-dirs",
    )


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, FakeCluster(1) as cluster:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"^cannot listen on 127.0.0.1:{port}: the port is in use$"):
            ControlServer(cluster, "127.0.0.1", port)


def test_a_missing_package_is_an_error_that_names_the_extra() -> None:
    with pytest.raises(
        FakebrokerError, match=r"^--control needs nonesuch: expected pip install 'fakebroker\[control\]'$"
    ):
        dependencies.check_installed(("json", "nonesuch"))
