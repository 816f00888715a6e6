"""Consumer groups (KIP-848) over HTTP: lists of groups of both types, what blocks them, details, metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fakebroker import FakeCluster
from fakebroker.control import Client
from fakebroker.control.client.client import GroupOptions
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from tests.control.test_metrics import labeled, scrape
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.wire_client import WireClient

A, B = "el9mNceSSfKFkY8RUIuaQA", "kujuwsAcRhq9Bz8fo29K6Q"
"""Member ids as clients make them."""


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(3, {"orders": 4}, clock="manual") as harness:
        yield harness


@pytest.fixture
def client(control: ControlHarness) -> Client:
    client = Client(control.server.url)
    client.reset()
    return client


class Consumer:
    """A member of a consumer group, which sends heartbeats when it is told to."""

    def __init__(self, cluster: FakeCluster, group_id: str, member_id: str, wire: WireClient) -> None:
        self._topic_id = cluster.cluster.topics.get("orders").topic_id  # type: ignore[union-attr]  # it exists
        self._group_id, self._member_id, self._wire = group_id, member_id, wire
        self.epoch = 0

    def beat(self, owned: set[int] | None = None) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, which joins at first, and reports which partitions of topic orders the member owns."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self.epoch
        )
        if not self.epoch:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 60_000, ["orders"]
            request.topic_partitions = []
        if owned is not None:
            partitions = HeartbeatTopicPartitions(topic_id=self._topic_id, partitions=sorted(owned))
            request.topic_partitions = [partitions]
        response = self._wire.ask(request, ConsumerGroupHeartbeatResponse)
        assert not response.error_code
        self.epoch = response.member_epoch
        return response


@contextmanager
def reconciling(cluster: FakeCluster, group_id: str = "g") -> Iterator[tuple[Consumer, Consumer]]:
    """Yield members with the client ids a and b. The group waits for a to give up two of its four partitions."""
    broker = cluster.coordinator_of(group_id)
    with WireClient(broker, "a") as one, WireClient(broker, "b") as other:
        a, b = Consumer(cluster, group_id, A, one), Consumer(cluster, group_id, B, other)
        a.beat()
        b.beat()
        a.beat()
        yield a, b


def test_lists_have_groups_of_both_types(control: ControlHarness, client: Client, subtests: pytest.Subtests) -> None:
    for name in ("classic", "empty"):
        client.seed_group(name, int(name == "classic"), topics=["orders"])
    with reconciling(control.cluster, "moving"), reconciling(control.cluster, "shared") as (a, b):
        a.beat({0, 1})
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


def test_rows_say_what_a_group_waits_for(control: ControlHarness, client: Client) -> None:
    with reconciling(control.cluster) as (a, b):
        (row,) = client.group_rows()
        assert (row["type"], row["protocol_name"], row["generation_id"]) == ("consumer", "uniform", 2)
        assert row["why"].startswith("waiting for a to give up partitions; 0 of 2 have reached epoch 2")
        assert row["until_ms"] == control.cluster.clock.now_ms() + 60_000
        assert client.blocked_groups()["groups"] == [
            {
                "group_id": "g",
                "state": "Reconciling",
                "since_ms": row["since_ms"],
                "request": "ConsumerGroupHeartbeat",
                "blocking": ["a"],
                "missing": 1,
                "sent": 0,
                "members": 2,
                "is_held": False,
                "until_ms": row["until_ms"],
                "removes": 1,
                "restarts": False,
            }
        ]
        a.beat({0, 1})
        (row,) = client.group_rows()
        assert row["why"].startswith("waiting for a heartbeat of b; 1 of 2 have reached epoch 2")
        assert row["until_ms"] == control.cluster.clock.now_ms() + 45_000, "its session"
        assert client.blocked_groups()["groups"][0]["blocking"] == ["b"]
        b.beat()
        (row,) = client.group_rows()
        assert (row["state"], row["until_ms"], client.blocked_groups()["total"]) == ("Stable", None, 0)
        b.epoch = -1
        b.beat()
        (row,) = client.group_rows()
        assert row["state"] == "Assigning"
        assert row["why"].startswith("the next heartbeat of a member runs the assignor")
        assert client.blocked_groups()["groups"][0]["missing"] == 0


def test_views_of_the_client_equal_those_of_the_cluster(control: ControlHarness, client: Client) -> None:
    client.seed_group("classic", 1, topics=["orders"])
    with reconciling(control.cluster):
        assert client.group("g") == control.cluster.group("g")
        assert client.groups() == sorted(control.cluster.groups(), key=lambda each: each.group_id)
        assert client.explain("g") == control.cluster.explain("g")
        b = control.get("/groups/g")["members"][1]
        assert [each["holder_id"] for each in b["awaited"]] == [A, A]
