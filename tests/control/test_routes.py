"""The operations of the control API over HTTP: their effects on the cluster and their responses."""

import os
import socket
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakebroker import FakeCluster, IncompleteJournalError, ListenError
from fakebroker.cluster.handles.definition import commands
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
from fakebroker.server.fake_cluster import internals
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
    control.post("/groups/g/seed", {"members": 2, "topics": ["orders"]})
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        overview = control.get()
    assert overview["name"] == "default"
    assert overview["bootstrap_servers"] == control.cluster.bootstrap_servers
    assert overview["seed"] == 1
    assert overview["clock"] == {"now_ms": internals(control.cluster).server.clock.now_ms(), "kind": "manual"}
    assert (overview["groups_by_state"], overview["members"]) == ({"Stable": 1}, 2)
    assert (overview["connections"], overview["journal"]) == (1, {"size": 1, "dropped": 0})
    assert [broker["node_id"] for broker in overview["brokers"]] == [1, 2, 3]
    assert sum(len(broker["offsets_partitions"]) for broker in overview["brokers"]) == 50
    assert sum(broker["members"] for broker in overview["brokers"]) == 2


def test_brokers_are_stopped_started_upgraded_added_and_removed(control: ControlHarness) -> None:
    assert control.post("/brokers/1/stop", {"elect": False}, 204) is None
    assert not control.cluster.brokers[0].up
    assert control.get("/brokers/1/describe")["up"] is False
    control.post("/brokers/1/start")
    control.post("/brokers/1/restart", {"load_ms": 5})
    assert control.get("/brokers/1/describe")["up"] is True
    control.post("/brokers/1/upgrade", {"as_version": "2.8"})
    added = control.post("/brokers/add", {"like": {"as_version": "3.0"}}, 200)
    assert (added["node_id"], added["up"]) == (4, True)
    control.post("/brokers/4/set_network", {"accept": "refuse"})
    rows = control.get("/brokers")["brokers"]
    assert [(row["node_id"], row["as_version"]) for row in (rows[0], rows[3])] == [(1, "2.8"), (4, "3.0")]
    control.post("/brokers/4/remove")
    assert [broker["node_id"] for broker in control.get("/brokers/describe")] == [1, 2, 3]


def test_topics_are_created_listed_and_deleted(control: ControlHarness) -> None:
    control.post("/topics/new/create", {"partitions": 2})
    control.post("/topics/new/create_partitions", {"total": 3})
    assert [topic["name"] for topic in control.get("/topics")] == ["orders", "new"]
    partition = control.get("/topics/new/describe")["partitions"][2]
    assert partition == control.get("/topics/new/partitions/2/describe")
    assert partition["log_end_offset"] == 0
    assert sorted(partition["in_sync"]) == sorted(partition["replicas"]) == [1, 2, 3]
    assert partition["adding"] == partition["removing"] == []
    control.post("/topics/new/delete")
    for path in ("/topics/new/describe", "/topics/new/partitions/2/describe"):
        problem = control.request("GET", BASE + path)
        assert (problem.status, problem.json["field"], problem.json["value"]) == (404, "topic", "new")


def test_records_are_produced_and_listed(control: ControlHarness) -> None:
    body = {"values": ["größe", {"base64": "/w=="}, None], "key": "k", "headers": {"h": {"base64": "/w=="}}}
    produced = control.post("/topics/orders/produce", {**body, "partition": 1, "timestamp": 1_000})
    assert produced == [{"partition": 1, "offset": offset} for offset in range(3)]
    event = {"do": "topic.produce", "topic": "orders", "values": ["b"], "partition": 0}
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
        ("POST", "/topics/none/produce", {"values": []}, 404, "topic"),
        ("POST", "/topics/orders/produce", {"values": [5]}, 422, "values[0]"),
        ("POST", "/topics/orders/produce", {"values": [], "key": {"base64": "!"}}, 422, "key.base64"),
    ]
    for method, path, sent, status, field in cases:
        answer = control.request(method, BASE + path, sent)
        assert (answer.status, answer.json["field"]) == (status, field)


def test_members_have_decoded_subscriptions_and_assignments(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": 2, "topics": ["orders"]})
    for group in (control.get("/groups/g"), control.get("/group_views")["groups"][0]):
        assert [each["assigned_partitions"] for each in group["members"]] == [
            ["orders-0", "orders-1"],
            ["orders-2", "orders-3"],
        ]
        first = group["members"][0]
        assert (first["subscribed_topics"], first["owned_partitions"]) == (["orders"], [])
        assert (first["protocol_type"], first["protocol_name"]) == ("consumer", "range")
        assert b64decode(first["assignment"]) == control.cluster.group("g").describe().members[0].assignment


def test_coordinators_are_moved_and_loaded(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]})
    partition = internals(control.cluster).cluster.offsets_partition_of("g").index

    def row() -> dict[str, Any]:
        rows = control.get("/coordinators")["offsets_partitions"]
        assert not any(each["zombies"] for each in rows if each["partition"] != partition)
        found: dict[str, Any] = rows[partition]
        return found

    old = control.get("/groups/g")["coordinator"]
    to = old % 3 + 1
    control.post("/groups/g/move_coordinator", {"to": to, "load_ms": None})
    assert (row()["leader"], row()["is_loading"], row()["groups"]) == (to, True, 0)
    assert "is being loaded" in control.get("/groups/g/explain")
    control.post("/brokers/finish_loading")
    assert (row()["is_loading"], row()["groups"], row()["members"]) == (False, 1, 1)
    for node_id, zombies in ((old, [to]), (6 - old - to, sorted([old, to]))):
        control.post("/groups/g/move_coordinator", {"to": node_id, "zombie": True})
        assert (row()["zombies"], row()["groups"]) == (zombies, 1)
    control.post("/brokers/stop_zombies")
    assert row()["zombies"] == []
    assert control.get("/groups/g/coordinator")["node_id"] == row()["leader"]
    control.post(f"/topics/__consumer_offsets/partitions/{partition}/move_leader", {"to": None})
    assert control.get("/groups/g")["coordinator"] is None
    assert control.request("GET", f"{BASE}/groups/g/coordinator").status == 404


def test_groups_are_listed_searched_and_sorted(control: ControlHarness) -> None:
    seeds = [{"group_id": f"g{number}", "members": number, "topics": ["orders"]} for number in range(4)]
    assert control.post("/seed_groups", {"groups": seeds})["total"] == 4
    control.post("/groups/g2/rebalance")
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
        control.post(f"/groups/{group_id}/seed", {"members": members, "topics": ["orders"]})
    control.post("/groups/calm/seed", {"members": 1, "topics": ["orders"]})
    control.post("/groups/held/hold", {"state": "PreparingRebalance"})
    control.post("/groups/held/rebalance")
    control.post("/advance", {"seconds": 1})
    start_ms = internals(control.cluster).server.clock.now_ms()
    control.post("/groups/g/rebalance")
    member = control.cluster.group("g").describe().members[1]
    with WireClient(control.cluster.group("g").coordinator(), "b") as wire:
        protocols = [JoinGroupRequestProtocol(name=member.protocol_name or "", metadata=member.metadata)]
        wire.send(join_request("g", member.member_id, protocols=protocols))
        control.cluster.wait(control.cluster.requested("JoinGroup"))
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
        (join,) = [each for each in control.get("/deadlines") if each["kind"] == "join"]
        assert (join["group_id"], join["at_ms"], len(join["removes"])) == ("g", start_ms + 60_000, 3)
        assert [row["group_id"] for row in control.get("/blocked_groups?limit=1")["groups"]] == ["held"]
        for name in ("a", "c", "d"):
            control.post("/groups/g/evict", {"member": name})
        (waiting,) = [row for row in control.get("/blocked_groups")["groups"] if row["group_id"] == "g"]
        assert (waiting["state"], waiting["request"]) == ("CompletingRebalance", "SyncGroup")
        assert (waiting["blocking"], waiting["missing"], waiting["sent"], waiting["removes"]) == (["b"], 1, 0, 1)
    static = [{"client_id": "s", "instance_id": "s"}, {"client_id": "t", "instance_id": "t"}]
    control.post("/groups/static/seed", {"members": static, "topics": ["orders"]})
    control.post("/groups/static/rebalance")
    (waiting,) = [row for row in control.get("/blocked_groups")["groups"] if row["group_id"] == "static"]
    assert (waiting["removes"], waiting["restarts"]) == (0, True)


def test_counts_and_lists_of_groups_match_the_cluster_after_every_command(control: ControlHarness) -> None:
    seeds = [{"group_id": f"g{number}", "members": number, "topics": ["orders"]} for number in range(4)]
    control.post("/seed_groups", {"groups": seeds}, 201)
    kept = control.post("/snapshots", status=201)["id"]
    to = control.get("/groups/g1/coordinator")["node_id"] % 3 + 1
    for path, body in (
        ("/groups/g2/rebalance", {}),
        ("/groups/g3/evict", {"member": "consumer-g3-1"}),
        ("/groups/new/seed", {"offsets": {"orders-0": 1}, "lag": {"orders-0": 0}}),
        ("/groups/g1/move_coordinator", {"to": to, "zombie": True}),
        ("/groups/g1/move_coordinator", {"to": to % 3 + 1, "zombie": True, "load_ms": None}),
        ("/brokers/finish_loading", {}),
        ("/brokers/stop_zombies", {}),
        ("/groups/g1/move_coordinator", {"to": None}),
        ("/brokers/1/stop", {}),
        ("/advance", {"seconds": 700}),
        (f"/snapshots/{kept}/restore", {}),
        ("/advance", {"seconds": 700_000}),
        ("/reset", {}),
    ):
        control.post(path, body)
        names = sorted({group.group_id for group in control.cluster.groups()})
        there = [view for name in names if (view := control.cluster.group(name).describe()).state != "Dead"]
        overview = control.get()
        assert overview["groups_by_state"] == dict(Counter(view.state for view in there)), path
        assert overview["members"] == sum(len(view.members) for view in there), path
        assert sum(broker["members"] for broker in overview["brokers"]) >= overview["members"], path
        assert [row["group_id"] for row in control.get("/groups")["groups"]] == [view.group_id for view in there], path


def test_views_and_deletion_of_one_group(control: ControlHarness) -> None:
    offsets = {"offsets": {"orders-1": 5}, "lag": {"orders-1": 2}}
    control.post("/groups/a%2Fb/seed", {"members": ["one", {"client_id": "two"}], **offsets})
    group = control.get("/groups/a%2Fb")
    assert [member["client_id"] for member in group["members"]] == ["one", "two"]
    assert [(row["topic"], row["partition"], row["offset"], row["lag"]) for row in group["offsets"]] == [
        ("orders", 1, 5, 2)
    ]
    assert control.get("/groups/a%2Fb/offsets")["orders-1"]["offset"] == 5
    assert control.get("/groups/a%2Fb/lag") == {"orders-1": 2}
    assert [row["lag"] for row in control.get("/groups")["groups"]] == [2]
    assert group["explanation"] == control.get("/groups/a%2Fb/explain")
    control.post("/groups/a%2Fb/evict", {"member": "one"})
    timeline = control.get("/groups/a%2Fb/timeline")
    assert [moment["state_to"] for moment in timeline["moments"]] == ["Stable", "PreparingRebalance"]
    assert (timeline["text"], timeline["svg"]) == (None, None)
    pictured = control.get("/groups/a%2Fb/timeline?text=true&svg=true&limit=1")
    assert [moment["state_to"] for moment in pictured["moments"]] == ["PreparingRebalance"]
    assert pictured["svg"].startswith("<svg")
    assert "PreparingRebalance" in pictured["text"]
    refused = control.post("/groups/a%2Fb/delete", status=422)
    assert (refused["field"], refused["expected"]) == ("group_id", "a group without members (NON_EMPTY_GROUP)")
    control.post("/groups/a%2Fb/evict", {"member": "two"})
    control.post("/advance", {"seconds": 400})
    control.post("/groups/a%2Fb/delete", status=204)
    assert control.get("/groups/a%2Fb")["state"] == control.get("/groups/a%2Fb/describe")["state"] == "Dead"
    assert control.post("/groups/a%2Fb/delete", status=404)["field"] == "group"


def test_get_operations_do_not_change_the_cluster() -> None:
    with controlled_cluster(3, {"orders": 4}, clock="manual") as control:
        offsets = {"offsets": {"orders-1": 5}, "lag": {"orders-1": 0}}
        control.post("/groups/g/seed", {"members": 2, "topics": ["orders"], **offsets})
        control.post("/groups/g/evict", {"member": control.get("/groups/g")["members"][0]["member_id"]})
        fault = control.post("/inject_fault", {"api": "Heartbeat", "drop": True, "nth": 2, "may_miss": True})["id"]
        assert control.post("/groups/g/fail_append")["id"] == fault, "the id of a fault and of a failure"
        control.post("/transactions/payments/seed", {"records": {"orders-0": 1}})
        existing = {"cluster": "default", "node_id": "1", "topic": "orders", "partition": "0", "id": fault}
        existing |= {"group_id": "g", "transactional_id": "payments"}
        missing = existing | {"topic": "none", "group_id": "none", "transactional_id": "none"}
        missing |= {"node_id": "9", "id": "99"}
        operations = [
            (one.method, one.path)
            for one in OPERATIONS
            if one.is_read_only and one.is_documented and not one.path.endswith("/stream")
        ]
        requests = [(method, path.format_map(names)) for method, path in operations for names in (existing, missing)]
        assert len(operations) > 30
        assert {method for method, _ in operations} == {"GET"}
        before = [control.request(*one) for one in requests]
        after = [control.request(*one) for one in reversed(requests)][::-1]
        assert [(one.status, one.body) for one in after] == [(one.status, one.body) for one in before]
        assert {one.status for one in before[::2]} == {200}
        assert {one.status for one in before} == {200, 404}


def test_a_group_is_held_and_released(control: ControlHarness) -> None:
    control.post("/groups/g/hold", {"state": "PreparingRebalance"}, 204)
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]})
    control.post("/groups/g/rebalance")
    assert "It is held" in control.get("/groups/g/explain")
    control.post("/groups/g/release")
    assert "It is held" not in control.get("/groups/g/explain")
    again = control.post("/groups/g/release", status=422)
    assert (again["field"], again["value"]) == ("group_id", "g"), "the group exists"


def test_a_group_id_may_equal_a_segment_of_a_path(control: ControlHarness) -> None:
    control.post("/groups/seed/seed", {"members": 1, "topics": ["orders"]})
    assert control.get("/groups/seed")["group_id"] == "seed"


def test_faults_are_added_listed_and_removed(control: ControlHarness) -> None:
    rule = {"api": "Heartbeat", "group": "g", "error": "NOT_COORDINATOR"}
    added = control.post("/inject_fault", rule)
    with WireClient(control.cluster.brokers[0]) as wire:
        response = wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
    assert response.error_code == 16
    row = {"id": added["id"], "rule": rule, "hits": 1, "is_over": False, "errors": [], "missed": ""}
    assert control.get("/faults") == [row]
    assert control.get(f"/faults/{added['id']}/describe") == row
    other = control.post("/events", {"do": "inject_fault", "api": None, "drop": True})["result"]
    control.post(f"/faults/{added['id']}/remove")
    assert [row["id"] for row in control.get("/faults")] == [other["id"]]
    assert control.get(f"/faults/{added['id']}/describe") == row, "it was removed, but not forgotten"
    control.post("/clear_faults")
    assert control.get("/faults") == control.get("/action_errors") == []


def test_faults_that_are_over_are_listed_as_such_and_do_not_count(control: ControlHarness) -> None:
    used_up = control.post(
        "/inject_fault", {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE", "times": 1}
    )
    passed = control.post("/inject_fault", {"api": "Heartbeat", "drop": True, "for_s": 10})
    lasting = control.post("/inject_fault", {"api": "Heartbeat", "drop": True})
    assert control.get()["faults"] == 3
    assert not any(row["is_over"] for row in control.get("/faults"))
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
    control.post("/advance", {"seconds": 10})
    over = {row["id"]: row["is_over"] for row in control.get("/faults")}
    assert over == {used_up["id"]: True, passed["id"]: True, lasting["id"]: False}
    assert control.get()["faults"] == 1
    assert 'fakebroker_faults{cluster="default"} 1.0' in control.request("GET", "/metrics").body.decode()


def test_faults_act_on_the_cluster_over_http(control: ControlHarness) -> None:
    rule = {"api": "Heartbeat", "times": 1, "then": [{"do": "topic.create", "topic": "new"}, {"do": "clear_faults"}]}
    fault = control.post("/inject_fault", rule)["id"]
    assert control.get(f"/faults/{fault}/describe")["rule"] == rule
    late = {"api": "Heartbeat", "delay_before_s": 5, "before": {"do": "broker.start", "node_id": 1}}
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="x")
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(heartbeat, HeartbeatResponse)
        assert control.get("/faults") == control.get("/action_errors") == []
        control.post("/events", {"do": "inject_fault", **late})
        wire.send(heartbeat)
        until(lambda: control.cluster.journal.count("Heartbeat") == 2, control.cluster)
        assert control.get("/journal?api=Heartbeat")["requests"][1]["handled_ms"] is None
        control.post("/advance", {"seconds": 5})
        wire.receive()
    row = control.get("/journal?api=Heartbeat")["requests"][1]
    assert row["handled_ms"] - row["received_ms"] == 5_000
    (error,) = row["action_errors"]
    assert error.startswith("broker.start(node_id=1) at <Heartbeat v4 from 'wire' at broker 1>: node_id=1: expected ")
    assert control.get("/action_errors") == control.get("/faults")[0]["errors"] == [error]
    assert control.post("/inject_fault", {"api": "Heartbeat", "then": {"do": "stop"}}, 422)["field"] == "then.do"


def test_failures_of_appends_are_added_counted_and_removed(control: ControlHarness) -> None:
    added = control.post("/groups/g/fail_append", {"error": "NOT_ENOUGH_REPLICAS"}, 200)
    path = f"/append_failures/{added['id']}"
    with WireClient(control.cluster.group("g").coordinator()) as wire:
        wire.ask(commit_request(1), OffsetCommitResponse, 8)
    row = {"id": added["id"], "topic": "__consumer_offsets", "partition": partition_for("g", 50)}
    row |= {"error": "NOT_ENOUGH_REPLICAS", "times": 1, "hits": 1}
    assert control.get(f"{path}/describe") == row
    control.post(f"{path}/remove", status=204)
    assert control.get(f"{path}/describe") == row, "it was removed, but not forgotten"
    control.post("/reset")
    assert control.request("GET", f"{BASE}{path}/describe").status == 404
    control.post("/groups/g/fail_append", {"times": 0}, 422)


def test_the_clock_is_advanced_and_deadlines_are_listed(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": 1, "topics": ["orders"]})
    before = control.get("/clock")["now_ms"]
    control.post("/advance", {"seconds": 1.5}, 204)
    assert control.get("/clock")["now_ms"] == before + 1500
    (first,) = control.get("/deadlines?limit=1")
    assert (first["kind"], first["group_id"], first["in_s"]) == ("session", "g", 43.5)
    assert control.post("/advance_to_next_deadline")[0]["kind"] == "session"
    assert control.get("/groups/g")["members"] == []


def test_snapshots_are_taken_restored_and_deleted(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"offsets": {"orders-0": 7}, "lag": {"orders-0": 0}})
    kept = control.post("/snapshots", status=201)["id"]
    control.post("/groups/g/delete")
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
        with control.cluster.inject_fault("Heartbeat", error="NOT_COORDINATOR"):
            wire.ask(static, HeartbeatResponse, 3)
    apis = {1: "OffsetCommit", 2: "Heartbeat"}
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
            (waited,) = control.post("/look", {"conditions": [{"is": "requested", name: value}]})["found"]
            assert [each["api"] for (calls,) in [waited or [[]]] for each in calls] == [apis[seq] for seq in found]
    row = control.get("/journal?seqs=2")["requests"][0]
    assert (row["instance_ids"], row["fault"]) == (["i"], True)


def test_dropped_changes_of_a_group_are_counted(control: ControlHarness) -> None:
    history = internals(control.cluster).cluster.history
    history.max_moments_of_one = 1
    control.post("/groups/g/seed", {"members": ["a", "b"], "topics": ["orders"]})
    control.post("/groups/g/rebalance")
    timeline = control.get("/groups/g/timeline")
    dropped = history.dropped_of("g")
    assert timeline["dropped"] == {"count": dropped.count, "until_ms": dropped.until_ms, "is_exact": True}
    assert dropped.count > 0
    assert control.get("/group_views")["groups"][0]["dropped"] == timeline["dropped"]


def test_a_group_has_its_deadlines_and_the_requests_that_it_waits_for(control: ControlHarness) -> None:
    control.post("/groups/g/seed", {"members": ["a", "b"], "topics": ["orders"]})
    assert [each["kind"] for each in control.get("/groups/g")["deadlines"]] == ["session", "session"]
    control.post("/groups/g/rebalance")
    group = control.get("/groups/g")
    assert [member["missing_request"] for member in group["members"]] == ["JoinGroup", "JoinGroup"]
    assert {each["group_id"] for each in group["deadlines"]} == {"g"}
    assert all(each["text"].endswith(".") for each in group["deadlines"])
    (row,) = control.get("/groups")["groups"]
    assert [each.at_ms for each in control.cluster.deadlines() if each.kind == "join"] == [row["until_ms"]]


def test_events_return_the_result_of_their_command(control: ControlHarness) -> None:
    result = control.post("/events", {"do": "brokers.add", "like": {"as_version": "2.8"}})["result"]
    port = control.cluster.brokers[3].port
    assert result == {"node_id": 4, "host": "127.0.0.1", "port": port, "up": True, "rack": None}
    assert control.post("/events", {"do": "group.hold", "group_id": "g", "state": "PreparingRebalance"}) == {
        "result": None
    }


def test_group_ids_that_paths_cannot_contain_are_escaped_with_a_tilde(control: ControlHarness) -> None:
    for group_id, escaped in {"": "", ".": "~2E", "..": "~2E~2E", "~2E": "~7E2E", "x.~": "x.~7E"}.items():
        control.post(f"/groups/{escaped}/seed", {"offsets": {"orders-0": 1}, "lag": {"orders-0": 0}})
        assert control.get(f"/groups/{escaped}")["group_id"] == group_id
        assert control.get(f"/groups/{escaped}/timeline")["group_id"] == group_id
        assert control.get(f"/groups/{escaped}/describe")["group_id"] == group_id
        control.post(f"/groups/{escaped}/delete")
    assert control.request("GET", f"{BASE}/topics//describe").status == 404
    parameters = control.request("GET", "/openapi.json").json["paths"]["/v1/clusters/{cluster}/groups/{group_id}"][
        "get"
    ]
    assert "`~2E~2E`" in parameters["parameters"][1]["description"]


def test_the_document_lists_all_events_with_their_arguments(control: ControlHarness) -> None:
    document = control.request("GET", "/openapi.json").json
    body = document["paths"]["/v1/clusters/{cluster}/events"]["post"]["requestBody"]["content"]["application/json"]
    names = [each["$ref"].rpartition("/")[2] for each in body["schema"]["anyOf"]]
    schemas = {tuple(document["components"]["schemas"][name]["properties"]["do"]["enum"]): name for name in names}
    assert [command for (command,) in schemas] == list(commands())
    evict = document["components"]["schemas"][schemas["group.evict",]]
    assert evict["properties"].keys() == {"do", "group_id", "member"}


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
    for path in ("/advance_to_next_deadline", "/reset", "/clear_faults", "/brokers/finish_loading"):
        with subtests.test(path=path):
            problem = control.post(path, {"seconds": 3}, 422)
            assert (problem["field"], problem["expected"]) == ("seconds", "none")
            control.post(path, {})


def test_a_part_of_the_journal_is_exported(control: ControlHarness, subtests: pytest.Subtests) -> None:
    with WireClient(control.cluster.brokers[0], "app") as wire:
        for member, generation in (("a", 1), ("b", 1), ("a", 2)):
            wire.ask(HeartbeatRequest(group_id="g", generation_id=generation, member_id=member), HeartbeatResponse)
        wire.ask(find_coordinator("h"), FindCoordinatorResponse)
        wire.ask(commit_request(1, partition=1), OffsetCommitResponse, 8)
    since = control.cluster.journal.requests()[1].received_ms
    for query in (
        *("api=Heartbeat", "client_id=app", "group=g", "member=a", "instance_id=i", "topic=orders", "fault=false"),
        *("partition=orders-1", "broker=1", "connection=0", "version=4", "error=UNKNOWN_MEMBER_ID", "api=Fetch"),
        *(f"since={since}", f"until={since}", f"since=0&until={since}&group=g"),
    ):
        with subtests.test(query=query):
            rows = control.get(f"/journal?{query}")["requests"]
            lines = control.request("GET", f"{BASE}/journal.jsonl?{query}").body.decode().splitlines()
            part = parse_journal(lines, "the response").view()
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
    assert control.request("POST", "/v1/clusters/other/groups/g/seed", {"members": 1, "topics": ["t"]}).status == 204
    assert control.get("/groups")["total"] == 0
    assert control.request("POST", "/v1/clusters", {"name": "other"}).status == 409
    missed = {"api": "Heartbeat", "drop": True}  # It is applied to no request, which is an error of a test only.
    assert control.request("POST", "/v1/clusters/other/inject_fault", missed).status == 200
    assert control.request("DELETE", "/v1/clusters/other").status == 204
    assert control.request("GET", "/v1/clusters/other").status == 404
    assert control.request("DELETE", "/v1/clusters/default").status == 409


def test_a_cluster_is_created_with_the_first_use_of_kafka(control: ControlHarness) -> None:
    options = {"name": "other", "brokers": 1, "first_use": "kafka", "clock": "manual"}
    assert control.request("POST", "/v1/clusters", options).status == 201
    explained = control.request("GET", "/v1/clusters/other/groups/g/explain").json
    assert "no client has looked for one" in explained
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
        assert [row["name"] for row in control.request("GET", "/v1/clusters/second/topics").json] == ["t"]
        with monkeypatch.context() as full:
            full.setattr(DataDirectory, "reserve", lambda *_: False)
            status, detail = create("third", data_dir="new")
            assert (status, f"data_dir='{tmp_path / 'dirs' / 'new'}': the disk is full" in detail) == (507, True)
            more = control.request("POST", "/v1/clusters/second/topics/u/create", {})
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
