"""The client: the methods of FakeCluster, for a cluster in another process."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker import Broker, ConfigError, FakebrokerError, FakeCluster, GroupSeed, MemberSeed, Scaled, WaitTimeout
from fakebroker.cluster.faults.rule import Fault
from fakebroker.control import Client
from fakebroker.control.client import client as client_module
from fakebroker.control.client.http import Unreachable
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.control.control_server import Asking, asking
from tests.support.wire_client import WireClient, find_coordinator


@pytest.fixture(scope="module")
def control() -> Iterator[Asking]:
    with asking(3, {"orders": 4}, clock="manual", token="secret") as made:
        yield made


@pytest.fixture
def client(control: Asking) -> Client:
    made = Client(control.server.url, "secret")
    made.reset()
    return made


NOT_FOR_CLIENTS = {
    # These are the process's own, or would be several requests under a name that promises one.
    "call", "call_async", "clock", "cluster", "connections", "is_cluster_thread", "journal_dropped", "report",
    "start_task", "wait_until", "watch",
}  # fmt: skip


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


def test_its_methods_are_those_of_the_cluster() -> None:
    names = {name for name in dir(FakeCluster) if not name.startswith("_") and not name.endswith("_async")}
    assert names - NOT_FOR_CLIENTS <= set(dir(Client))
    for name in sorted(names & set(dir(Client))):
        ours, theirs = getattr(Client, name), getattr(FakeCluster, name)
        assert inspect.isfunction(ours) == inspect.isfunction(theirs), name
        if inspect.isfunction(ours):
            assert parameters(ours) == parameters(theirs), name


def test_options_are_sent_with_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    client = Client("http://127.0.0.1:1")

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent.append(body)
        return {"result": None}

    monkeypatch.setattr(client, "post", post)
    client.stop_broker(1, elect=False, load_ms=5, zombie=True)
    client.move_coordinator("g", to=None, lose_tail=3)
    client.rolling_restart(stale_ms=1)
    client.set_broker(2, accept="refuse")
    assert sent == [
        {"do": "stop_broker", "node_id": 1, "elect": False, "load_ms": 5, "zombie": True},
        {"do": "move_coordinator", "group_id": "g", "to": None, "lose_tail": 3},
        {"do": "rolling_restart", "stale_ms": 1},
        {"do": "set_broker", "node_id": 2, "accept": "refuse"},
    ]


def test_views_are_those_of_the_cluster(control: Asking, client: Client) -> None:
    client.seed_group("g", ["a", MemberSeed(instance_id="i")], offsets={("orders", 1): 5}, topics=["orders"])
    cluster = control.cluster
    assert client.brokers == cluster.brokers
    assert client.bootstrap_servers == cluster.bootstrap_servers
    assert client.coordinator_of("g") == cluster.coordinator_of("g")
    assert client.group("g") == cluster.group("g")
    assert client.group("g").timeline() == cluster.group("g").timeline()
    assert client.offsets("g") == cluster.offsets("g")
    assert client.timeline("g") == cluster.timeline("g")
    assert client.explain("g") == cluster.explain("g")
    assert client.pending_deadlines() == cluster.pending_deadlines()
    assert client.group("nobody") == cluster.group("nobody")
    assert client.timeline("nobody").moments == ()
    assert [row["group_id"] for row in client.group_rows(state="Stable")] == ["g"]
    assert client.overview()["members"] == 2


def test_a_group_that_is_not_there_is_what_it_is_in_the_process(control: Asking, client: Client) -> None:
    assert client.coordinator_of("nobody") == control.cluster.coordinator_of("nobody")
    assert client.offsets("nobody") == control.cluster.offsets("nobody") == {}
    assert client.explain("nobody") == control.cluster.explain("nobody")


def test_all_groups_are_told_page_by_page(control: Asking, client: Client) -> None:
    client.seed_groups([GroupSeed(group_id=f"g{number}", members=1, topics=["orders"]) for number in range(250)])
    theirs = sorted(control.cluster.groups(), key=lambda group: group.group_id)
    ours = client.groups()
    assert ours == theirs
    assert [group.timeline() for group in ours] == [group.timeline() for group in theirs]


STRANGE = ["", ".", "..", "...", "~", "~2E", "~7E.", "a~b", "a/b", "%2E", "?x=1", "#", " ", "\n", "日本", "seed"]


@pytest.mark.parametrize("group_id", STRANGE)
def test_a_group_may_be_called_anything(client: Client, group_id: str) -> None:
    client.seed_group(group_id, offsets={"orders-0": 3})
    assert client.group(group_id).group_id == group_id
    assert client.offsets(group_id)["orders", 0].offset == 3
    assert client.timeline(group_id).group_id == group_id
    assert [group.group_id for group in client.groups()] == [group_id]


def test_brokers_topics_and_coordinators(control: Asking, client: Client) -> None:
    client.stop_broker(1, elect=False)
    assert not client.brokers[0].up
    client.start_broker(1)
    client.restart_broker(2, load_ms=0)
    client.rolling_restart()
    client.upgrade_broker(3, "2.8")
    assert client.add_broker(Broker(as_version="3.0")).node_id == 4
    client.set_broker(4, accept="refuse")
    client.remove_broker(4)
    client.create_topic("t", 2)
    client.create_partitions("t", 3)
    client.delete_topic("t")
    client.seed_group("g", 1, topics=["orders"])
    to = client.coordinator_of("g").node_id % 3 + 1
    client.move_coordinator("g", to, load_ms=None)
    client.finish_loading()
    assert client.coordinator_of("g").node_id == to
    client.move_offsets_partition(control.cluster.cluster.offsets_partition_of("g").index, None)
    client.stop_zombies()
    with pytest.raises(ConfigError, match=r"^group_id='g': expected a group that has a coordinator now$"):
        client.coordinator_of("g")


def test_rebalances_by_hand(client: Client) -> None:
    client.seed_groups([GroupSeed(group_id="g", members=["a", MemberSeed(client_id="s", instance_id="i")])])
    with client.hold("g", "PreparingRebalance"):
        client.force_rebalance("g")
        assert client.group("g").state == "PreparingRebalance"
        client.choose_leader("g", "a")
        client.release("g", "PreparingRebalance")
    client.delay_sync("g", "a", 5)
    client.release_sync("g", "a")
    client.fence("g", "i")
    client.evict("g", "i")
    client.expire("g", "a")
    assert client.group("g").members == ()


def test_faults_and_requests(control: Asking, client: Client) -> None:
    with client.fail("Heartbeat", error="NOT_COORDINATOR", group="g") as fault:
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
            wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        assert [(each.id, each.fault) for each in client.faults] == [(fault.id, fault.fault)]
    assert client.faults == []
    assert fault.hits == 1
    fault.remove()
    client.fail(None, drop=True)
    client.clear_faults()
    assert client.faults == []
    kept = client.add_fault(Fault(api="Heartbeat", error=ErrorCode.NOT_COORDINATOR, delay_s=(1, 2)))
    assert client.faults[0].fault == control.cluster.faults[0].fault
    client.remove_fault(kept)
    assert (client.faults, kept.hits) == ([], 0)
    assert client.count("Heartbeat", error="NOT_COORDINATOR") == 1
    client.assert_order("FindCoordinator", "Heartbeat")
    (call,) = client.wait_for_request("Heartbeat", error=ErrorCode.NOT_COORDINATOR)
    assert (call.api.name, call.errors) == ("Heartbeat", (ErrorCode.NOT_COORDINATOR,))
    assert [each.group_ids for each in client.requests("Heartbeat")] == [call.group_ids] == [("g",)]


def test_time_and_snapshots(client: Client) -> None:
    client.seed_group("g", 1, topics=["orders"], lag=0)
    client.advance(1.5)
    kept = client.snapshot()
    happened = client.advance_to_next_deadline()
    assert happened is not None
    assert [deadline.kind for deadline in happened] == ["session"]
    client.restore(kept)
    assert len(client.group("g").members) == 1


def test_waiting(client: Client) -> None:
    client.seed_group("g", 2, topics=["orders"], offsets={"orders-0": 5})
    assert client.wait_for_state("g", "Stable", members=2) == client.group("g")
    assert client.wait_for_generation("g", above=0).generation_id == 1
    assert client.wait_for_commit("g", "orders-0", at_least=5).offset == 5
    with pytest.raises(WaitTimeout, match=r"^not reached within 0 s: group g in Empty"):
        client.wait_for_state("g", "Empty", timeout_s=0)


def test_waiting_goes_on_for_longer_than_the_server_waits_at_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LONGEST_WAIT_S", 0.01)
    with pytest.raises(WaitTimeout, match=r"^not reached within 0\.03 s: group g in Empty\n"):
        client.wait_for_state("g", "Empty", timeout_s=0.03)
    monkeypatch.undo()
    client.seed_group("g", 1, topics=["orders"])
    assert client.wait_for_state("g", "Stable", timeout_s=100).state == "Stable"


def test_other_clusters(client: Client) -> None:
    other = client.create_cluster("other", brokers=[Broker(as_version="2.8")], clock=Scaled(10))
    assert len(other.brokers) == 1
    assert other.overview()["clock"]["kind"] == "scaled"
    other.delete_cluster()
    with pytest.raises(ConfigError, match=r"^no cluster 'other': expected one of default$"):
        other.group("g")
    with pytest.raises(ConfigError, match=r"^no cluster 'other': expected one of default$"):
        other.timeline("g")


def test_what_is_wrong_is_one_sentence(control: Asking, client: Client) -> None:
    with pytest.raises(ConfigError, match=r"^node_id=9: expected one of 1, 2, 3$"):
        client.stop_broker(9)
    with pytest.raises(ConfigError, match=r"^url='localhost': expected an address such as"):
        Client("localhost")
    with pytest.raises(ConfigError, match=r"^token: expected printable characters of Latin-1$"):
        Client(control.server.url, "geheim\N{KEY}")
    with pytest.raises(FakebrokerError, match="wants another token"):
        Client(control.server.url, "wrong").reset()


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with asking(1) as control:
        url = control.server.url
    with pytest.raises(Unreachable, match=rf"^{url} does not answer: Connection refused$"):
        Client(url).reset()
