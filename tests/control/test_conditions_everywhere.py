"""Every condition has the same result in the cluster's process, over HTTP, and in a workload."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from fakebroker import Admin, Condition, FakeCluster, WaitTimeout
from fakebroker.cluster.handles import ClusterHandle
from fakebroker.cluster.handles.definition import DEFINITIONS, perform
from fakebroker.cluster.handles.faults import FaultHandle
from fakebroker.control import Client
from fakebroker.control.server import ControlServer
from fakebroker.replay.embedded_cluster import embedded_cluster
from fakebroker.replay.simulation.rehearsal import rehearse
from fakebroker.replay.workload.timeline import performing
from fakebroker.replay.workload.workload import Cluster

STATE: tuple[dict[str, Any], ...] = (
    {"do": "topic.create", "topic": "orders", "partitions": 2},
    {"do": "topic.produce", "topic": "orders", "values": ["a", "b"], "partition": 1},
    {"do": "group.seed", "group_id": "billing", "members": 2, "topics": ["orders"], "offsets": {"orders-1": 1}},
    {"do": "group.seed", "group_id": "modern", "members": ["one"], "topics": ["orders"], "type": "consumer"},
    {"do": "transaction.seed", "transactional_id": "payments"},
    {"do": "broker.stop", "node_id": 3},
    {"do": "inject_fault", "api": "Metadata", "delay_s": 0.001, "may_miss": True},
)

Make = Callable[[ClusterHandle], Condition[Any]]

HOLD: tuple[Make, ...] = (
    lambda c: c.group("billing").stable(),
    lambda c: c.group("billing").stable(members=2, above=0),
    lambda c: c.group("billing").state("Stable", members=2),
    lambda c: c.group("nobody").state("Dead"),
    lambda c: c.group("modern").member("one", "STABLE"),
    lambda c: c.group("billing").committed("orders-1", at_least=1),
    lambda c: c.transaction("payments").state("Ongoing"),
    lambda c: c.topic("orders").has(2),
    lambda c: c.topic("orders").exists(partitions=2),
    lambda c: c.topic("orders").partition(1).has(2),
    lambda c: c.broker(1).up(),
    lambda c: c.requested("Metadata", client_id="admin"),
    lambda c: FaultHandle(c._owner, "1").hit(),
    lambda c: c.group("billing").stable() & c.topic("orders").has(1) & ~c.broker(3).up(),
    lambda c: c.broker(3).up() | c.broker(1).up(),
)

DO_NOT_HOLD: tuple[Make, ...] = (
    lambda c: c.group("billing").stable(members=3),
    lambda c: c.group("billing").state("Empty"),
    lambda c: c.group("billing").state(above=1),
    lambda c: c.group("modern").member("one", "UNREVOKED_PARTITIONS"),
    lambda c: c.group("billing").committed("orders-0", at_least=0),
    lambda c: c.transaction("payments").state(pending="PrepareCommit"),
    lambda c: c.topic("orders").has(3),
    lambda c: c.topic("payments").exists(),
    lambda c: c.topic("orders").partition(0).has(1),
    lambda c: c.broker(3).up(),
    lambda c: c.requested("Metadata", client_id="admin", count=100),
    lambda c: FaultHandle(c._owner, "1").hit(100),
    lambda c: c.group("billing").stable() & c.broker(3).up(),
    lambda c: ~c.broker(1).up() | ~c.broker(2).up(),
)


async def ask(bootstrap: str) -> None:
    async with Admin(bootstrap, client_id="admin") as admin:
        await admin.describe_cluster()


def test_all_conditions_are_among_them(fake_cluster: FakeCluster) -> None:
    names = {name for name, each in DEFINITIONS.items() if each.kind == "condition"}
    for makes in (HOLD, DO_NOT_HOLD):
        leaves = [leaf for make in makes for leaf in make(fake_cluster).leaves()]
        assert {leaf.plain()["is"] for leaf in leaves} == names


@pytest.mark.slow
def test_conditions_in_the_process_and_over_http(fake_cluster: FakeCluster) -> None:
    for event in STATE:
        perform(fake_cluster, event)
    trio.run(ask, fake_cluster.bootstrap_servers)
    with ControlServer(fake_cluster) as server:
        client = Client(server.url, server.token)
        for make in HOLD:
            here, there = make(fake_cluster), make(client)
            assert here.plain() == there.plain()
            assert fake_cluster.holds(here)
            assert client.holds(there)
            assert comparable(fake_cluster.wait(here, 0)) == comparable(client.wait(there, 0)), here
        for make in DO_NOT_HOLD:
            here, there = make(fake_cluster), make(client)
            assert not fake_cluster.holds(here)
            assert not client.holds(there)
            errors = []
            for cluster, condition in ((fake_cluster, here), (client, there)):
                with pytest.raises(WaitTimeout) as raised:
                    cluster.wait(condition, 0)
                errors.append((raised.value.condition, raised.value.timeout_s))
            assert errors[0] == errors[1]


def comparable(found: Any) -> Any:
    """Return what a wait has found without the identities of calls."""
    if isinstance(found, list | tuple):
        return [comparable(each) for each in found]
    return repr(found) if type(found).__name__ == "Call" else found


@pytest.mark.slow
def test_conditions_in_a_workload(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    conditions = [(make(fake_cluster).plain(), True) for make in HOLD]
    conditions += [(make(fake_cluster).plain(), False) for make in DO_NOT_HOLD]
    settings = Cluster(brokers=3)
    expected = [{"at_s": 0.5, "do": "expect", "condition": condition} for condition, _ in conditions]
    rehearse(settings, {}, [*({**event, "at_s": 0} for event in STATE), *expected], in_memory=False)
    with embedded_cluster(settings, 1, tmp_path) as cluster:
        for event in STATE:
            cluster.perform(event)
        assert cluster.outcomes() == [None] * len(STATE)
        trio.run(ask, cluster.bootstrap)
        left, all_sent = list(expected), threading.Event()

        def send(event: Mapping[str, Any]) -> None:
            cluster.perform(event)
            left.pop()
            if not left:
                all_sent.set()

        with performing(expected, lambda: 1_000.0, send) as timeline:
            assert all_sent.wait(20)
        outcomes = timeline.with_outcomes(cluster.outcomes()[len(STATE) :])
    assert [(each["condition"], each["done"]) for each in outcomes] == conditions
    assert all("it does not hold" in each["why"] for each in outcomes if not each["done"])
