"""Consumer groups (KIP-848) over HTTP: lists of groups of both types, what blocks them, details, metrics."""

from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker.control import Client
from fakebroker.control.client.client import GroupOptions
from fakebroker.control.routes.views.group_rows import why_consumer_group
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.server.fake_cluster import internals
from tests.control.test_metrics import labeled, scrape
from tests.support.control.consumer_members import A, ConsumerMember, reconciling
from tests.support.control.control_server import BASE, ControlHarness, controlled_cluster, next_event
from tests.support.group_requests import heartbeat_request, join_request
from tests.support.wire_client import WireClient


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(3, {"orders": 4}, clock="manual") as harness:
        yield harness


@pytest.fixture
def client(control: ControlHarness) -> Client:
    client = Client(control.server.url)
    client.reset()
    return client


def test_lists_have_groups_of_both_types(control: ControlHarness, client: Client, subtests: pytest.Subtests) -> None:
    for name in ("classic", "empty"):
        client.group(name).seed(int(name == "classic"), topics=["orders"])
    with reconciling(control.cluster, "moving"), reconciling(control.cluster, "shared") as (a, b):
        a.beat(confirms=True)
        b.beat()
        cases: list[tuple[GroupOptions, list[str]]] = [
            ({}, ["classic", "empty", "moving", "shared"]),
            ({"type": "classic"}, ["classic", "empty"]),
            ({"type": "consumer"}, ["moving", "shared"]),
            ({"type": "consumer", "state": "Stable"}, ["shared"]),
            ({"state": "Stable"}, ["classic", "shared"]),
            ({"state": "Reconciling"}, ["moving"]),
            ({"type": "classic", "state": "Reconciling"}, []),
            ({"type": "consumer", "search": "OV"}, ["moving"]),
            ({"sort": "unstable", "limit": 1}, ["moving"]),
        ]
        for filters, expected in cases:
            with subtests.test(**filters):
                assert [row["group_id"] for row in client.group_rows(**filters)] == expected
        overview = client.overview()
        assert overview["groups_by_type"] == {"classic": 2, "consumer": 2}
        assert overview["groups_by_state"] == {"Stable": 2, "Empty": 1, "Reconciling": 1}
        assert (overview["members"], sum(each["groups"] for each in overview["brokers"])) == (5, 4)
        partitions = control.get("/coordinators")["offsets_partitions"]
        assert sum(each["groups"] for each in partitions) == 4
        found = scrape(control)
        assert found["fakebroker_groups"][labeled(protocol="consumer", state="Reconciling")] == 1
        assert found["fakebroker_groups"][labeled(protocol="consumer", state="Assigning")] == 0
        assert found["fakebroker_members"] == {labeled(protocol="classic"): 1, labeled(protocol="consumer"): 4}


def test_rows_say_that_targets_have_an_interval(control: ControlHarness, client: Client) -> None:
    with reconciling(control.cluster) as (a, _):
        a.leave()
        group = next(iter(internals(control.cluster).cluster.brokers[1].coordinator.groups.consumer))
    texts = [why_consumer_group(group, GroupControls(), [], interval_ms) for interval_ms in (0, 1_500)]
    assert texts == [
        "the next heartbeat of a member runs the assignor",
        "the first heartbeat 1.5 s after the last target runs the assignor",
    ]


def test_rows_say_what_a_group_waits_for(control: ControlHarness, client: Client) -> None:
    with reconciling(control.cluster) as (a, b):
        (row,) = client.group_rows()
        assert (row["type"], row["protocol_name"], row["generation_id"]) == ("consumer", "uniform", 3)
        assert row["why"].startswith("waiting for a to give up partitions; 0 of 2 have reached epoch 3")
        assert row["until_ms"] == internals(control.cluster).server.clock.now_ms() + 60_000
        assert client.blocked_groups()["groups"] == [
            {
                "group_id": "g",
                "state": "Reconciling",
                "since_ms": row["since_ms"],
                "request": "ConsumerGroupHeartbeat",
                "blocking": ["a"],
                "missing": 1,
                "partitions": 2,
                "sent": 0,
                "members": 2,
                "is_held": False,
                "until_ms": row["until_ms"],
                "removes": 1,
                "restarts": False,
            }
        ]
        a.beat(confirms=True)
        (row,) = client.group_rows()
        assert row["why"].startswith("waiting for a heartbeat of b; 1 of 2 have reached epoch 3")
        assert row["until_ms"] == internals(control.cluster).server.clock.now_ms() + 45_000, "its session"
        (blocked,) = client.blocked_groups()["groups"]
        assert (blocked["blocking"], blocked["partitions"]) == (["b"], 0)
        b.beat()
        (row,) = client.group_rows()
        assert (row["state"], row["until_ms"], client.blocked_groups()["total"]) == ("Stable", None, 0)
        b.leave()
        (row,) = client.group_rows()
        assert row["state"] == "Assigning"
        assert row["why"] == "the next heartbeat of a member runs the assignor; heartbeat of b, which leaves"
        assert client.blocked_groups()["groups"][0]["missing"] == 0


def test_views_of_the_client_equal_those_of_the_cluster(control: ControlHarness, client: Client) -> None:
    client.group("classic").seed(1, topics=["orders"])
    client.group("seeded").seed(["x", "y"], topics=["orders"], type="consumer")
    with reconciling(control.cluster):
        assert client.group("g").describe() == control.cluster.group("g").describe()
        assert client.groups() == sorted(control.cluster.groups(), key=lambda each: each.group_id)
        assert client.group("g").explain() == control.cluster.group("g").explain()
        b = control.get("/groups/g")["members"][1]
        assert [each["holder_id"] for each in b["awaited"]] == [A, A]


def test_rebalances_start_when_the_epoch_of_a_group_rises(control: ControlHarness, client: Client) -> None:
    before = scrape(control)
    with reconciling(control.cluster) as (a, b):
        client.advance(2)
        a.beat(confirms=True)
        b.beat()
        client.group("g").move_coordinator(to=control.cluster.group("g").coordinator().node_id % 3 + 1)
        assert [row["rebalances"] for row in client.group_rows()] == [0], "loading is no rebalance"
    found = scrape(control)

    def more(name: str, **labels: str) -> float:
        key = labeled(protocol="consumer", **labels)
        return found[f"fakebroker_{name}"][key] - before[f"fakebroker_{name}"][key]

    assert more("rebalances_total") == 2, "a joined, b joined"
    assert more("rebalance_duration_seconds_sum") == 2
    assert more("rebalance_duration_seconds_bucket", le="0") == 1, "a was alone"
    assert more("rebalance_duration_seconds_count") == 2


def test_streams_send_changes_of_consumer_groups(control: ControlHarness, client: Client) -> None:
    with control.stream("/stream?kinds=groups&group=g") as response:
        with reconciling(control.cluster) as (a, b):
            moments: list[dict[str, Any]] = []
            while not moments or moments[-1]["state_to"] != "Reconciling":
                moments += next_event(response, "timeline")["moments"]
            latest = moments[-1]["changes"][-1]
            assert (latest["client_id"], latest["member_epoch"], len(latest["pending_revocation"])) == ("a", 2, 2)
            a.leave()
            b.leave()
        assert control.request("POST", f"{BASE}/groups/g/delete").status == 204
        rows: list[dict[str, Any]] = []
        while not rows or rows[-1]["state"] != "Dead":
            rows += next_event(response, "groups")["groups"]
        assert (rows[-1]["type"], rows[-1]["why"]) == (None, "DeleteGroups")
        assert client.group_rows() == []


def test_a_group_id_can_change_its_type(control: ControlHarness, client: Client) -> None:
    client.group("g").seed(0, topics=["orders"])
    assert [row["type"] for row in client.group_rows()] == ["classic"]
    with reconciling(control.cluster) as (a, b):
        assert [row["type"] for row in client.group_rows()] == ["consumer"]
        assert client.overview()["groups_by_type"] == {"classic": 0, "consumer": 1}
        a.leave()
        b.leave()
    broker = control.cluster.group("g").coordinator()
    with WireClient(broker) as wire:
        wire.ask(join_request("g"), JoinGroupResponse)
        member_id = wire.ask(join_request("g"), JoinGroupResponse).member_id
        assert member_id
    assert [row["type"] for row in client.group_rows()] == ["classic"]
    assert client.overview()["groups_by_type"] == {"classic": 1, "consumer": 0}


def test_a_classic_group_becomes_a_consumer_group_with_members_of_both_protocols(
    control: ControlHarness, client: Client
) -> None:
    client.group("g").seed(["x", "y"], topics=["orders"], generation=7)
    assert client.group_rows()[0]["type"] == "classic"
    before = client.overview()["rebalances"]
    with WireClient(control.cluster.group("g").coordinator()) as wire:
        ConsumerMember(wire, "g", A).beat()
        (row,) = client.group_rows()
        assert (row["type"], row["state"], row["generation_id"], row["members"]) == ("consumer", "Reconciling", 8, 3)
        assert row["why"].startswith("waiting for a heartbeat of x, y; 0 of 3 have reached epoch 8")
        detail = control.get("/groups/g")
        assert [each["type"] for each in detail["members"]] == ["classic", "classic", "consumer"]
        assert [each["missing_request"] for each in detail["members"]] == ["JoinGroup", "JoinGroup", None]
        x = detail["members"][0]["member_id"]
        beat = heartbeat_request("g", x, 7)
        assert wire.ask(beat, HeartbeatResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        found = [each for each in client.deadlines() if each.kind == "join"]
        assert [(each.member_ids, each.in_s, each.text) for each in found] == [
            (
                (x,),
                300,
                "x is removed if it has not rejoined, and the next heartbeat of another member runs the assignor.",
            )
        ]
        assert client.overview()["rebalances"] == before + 1
    assert client.group("g").describe() == control.cluster.group("g").describe()


def test_holds_are_shown_where_they_apply(control: ControlHarness, client: Client) -> None:
    with reconciling(control.cluster) as (a, b), client.group("g").hold("Reconciling", "a"):
        a.beat(confirms=True)
        (row,) = client.group_rows()
        assert row["why"].startswith("waiting for a (held) to give up partitions; 0 of 2 have reached epoch 3")
        (blocked,) = client.blocked_groups()["groups"]
        assert (blocked["is_held"], blocked["until_ms"]) == (True, row["until_ms"]), "its rebalance timer continues"
        detail = control.get("/groups/g")
        assert [each["is_held"] for each in detail["members"]] == [True, False]
        assert detail["held_states"] == []
        client.group("g").release(member="a")
        a.beat()
        b.beat()
        assert client.group_rows()[0]["state"] == "Stable"
        client.group("g").hold("Assigning")
        client.group("g").rebalance()
        a.beat()
        (row,) = client.group_rows()
        assert (row["state"], row["why"]) == ("Assigning", "the assignor is held; an assignment was forced")
        assert control.get("/groups/g")["held_states"] == ["Assigning"]
        assert [each["is_held"] for each in client.blocked_groups()["groups"]] == [True]
        client.group("g").fence_epoch("b")
        assert control.get("/groups/g")["members"][1]["member_epoch"] == 0


def test_commands_for_consumer_groups(control: ControlHarness, client: Client) -> None:
    client.group("g").seed(["a", "b"], topics=["orders"], type="consumer")
    with client.group("g").hold("Reconciling", member="a"), client.group("g").hold("Assigning"):
        client.group("g").rebalance()
        assert "The assignor is held until it is released." in client.group("g").explain()
        client.group("g").release(member="a")
        with pytest.raises(ConfigError, match="member='a': expected a member that is held; there is none"):
            client.group("g").release("Reconciling", "a")
    assert "The next heartbeat of a member runs the assignor." in client.group("g").explain()
    client.group("g").choose_assignment({"a": ["orders-0"]})
    client.group("g").fence_epoch("a")
    assert [member.member_epoch for member in client.group("g").describe().members] == [0, 1]
    client.group("g").evict("b")
    client.group("g").expire("a")
    assert client.group("g").describe() == control.cluster.group("g").describe()
    assert client.group("g").describe().state == "Empty"
