"""Transactions over HTTP: the control client has the same results as `FakeCluster`; routes, lists and timelines."""

from collections.abc import Iterator

import pytest
from msgspec.structs import astuple

from fakebroker import ConfigError, FakeCluster, WaitTimeout
from fakebroker.control import Client
from tests.support.control.control_server import ControlHarness, controlled_cluster


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(3, {"orders": 4}, clock="manual") as harness:
        yield harness


@pytest.fixture
def client(control: ControlHarness) -> Client:
    client = Client(control.server.url)
    client.reset()
    return client


@pytest.fixture
def cluster(control: ControlHarness) -> FakeCluster:
    return control.cluster


def test_the_client_has_the_views_of_the_cluster(client: Client, cluster: FakeCluster) -> None:
    client.seed_transaction("a.b/~", records={"orders-0": 2, "orders-1": 0}, producer_id=40, epoch=3)
    client.seed_transaction("..", state="CompleteCommit")
    client.seed_hanging_transaction("orders-3", offset=4)
    with client.hold_markers("a.b/~", "orders-1"):
        client.abort_transaction("a.b/~")
        for name in ("a.b/~", ".."):
            theirs, ours = client.transaction(name), cluster.transaction(name)
            assert theirs == ours
            assert astuple(theirs.history) == astuple(ours.history)
        assert client.transactions() == sorted(cluster.transactions(), key=lambda each: each.transactional_id)
        assert client.explain_transaction("a.b/~") == cluster.explain_transaction("a.b/~")
        assert "waits for markers of orders-1" in client.explain_transaction("a.b/~")
    assert client.transactions(state="CompleteAbort", producer_id=40)[0].producer_epoch == 4
    assert client.transactions(longer_than_s=1) == []
    assert client.hanging_transactions() == cluster.hanging_transactions() != []
    assert client.transaction_timeline("never").moments == ()
    with pytest.raises(ConfigError, match=r"transactional_id='a.b': expected one of .*; did you mean 'a.b/~'"):
        client.transaction("a.b")


def test_commands_of_the_client(client: Client, cluster: FakeCluster) -> None:
    client.seed_transaction("t", records={"orders-2": 1})
    with client.hold("t", "PrepareAbort"):
        client.abort_transaction("t")
        assert client.wait_for_transaction("t", pending_state="PrepareAbort").is_held
    assert client.wait_for_transaction("t", "CompleteAbort") == cluster.transaction("t")
    with pytest.raises(WaitTimeout, match="transactional id t in Dead"):
        client.wait_for_transaction("t", "Dead", timeout_s=0)
    client.fence_producer("t")
    assert client.transaction("t").state == "Empty"
    with client.fail_transaction_append("t", times=None) as failure:
        assert client.get(f"append_failures/{failure.id}")["topic"] == "__transaction_state"
        with pytest.raises(ConfigError, match="COORDINATOR_NOT_AVAILABLE"):
            client.fence_producer("t")
        assert failure.hits == 1
    new = client.transaction("t").coordinator or 0
    client.move_transaction_coordinator("t", new % 3 + 1)
    assert client.transaction("t").coordinator == new % 3 + 1


def test_routes_of_one_id(control: ControlHarness, client: Client) -> None:
    control.post("/transactions/t/seed", {"records": {"orders-0": 1}, "age_s": 5}, 201)
    control.post("/transactions/t/hold_markers", {"partition": "orders-0"})
    row = control.post("/transactions/t/abort")["transaction"]
    assert (row["state"], row["pending_state"], row["partitions"]) == ("PrepareAbort", "CompleteAbort", ["orders-0"])
    reason = "held until release_markers() is called"
    assert row["awaited_markers"] == [{"partition": "orders-0", "reason": reason}]
    assert row["why"] == f"waiting for markers of orders-0, {reason}"
    detail = control.get("/transactions/t")
    assert (detail["transaction"], detail["moments"][-1]["cause"]) == (row, "abort_transaction")
    timeline = control.get("/transactions/t/timeline?text=true&svg=true&limit=1")
    assert [each["state_to"] for each in timeline["moments"]] == ["PrepareAbort"]
    assert timeline["text"].startswith("transactional id t, since")
    assert timeline["svg"].startswith("<svg")
    control.post("/transactions/t/release_markers", {"partition": "orders-0"})
    control.post("/transactions/t/hold", {"state": "Empty"})
    row = control.post("/transactions/t/fence")["transaction"]
    assert (row["is_held"], row["why"]) == (True, "Empty is held")
    control.post("/transactions/t/release")
    assert control.post("/transactions/t/move", {"to": None}) == {"transaction": None}
    for path in ("/transactions/none", "/transactions/none/timeline"):
        assert control.request("GET", f"/v1/clusters/default{path}").status == 404
    assert control.request("POST", "/v1/clusters/default/transactions/none/abort").status == 404


def test_lists_of_ids(control: ControlHarness, client: Client) -> None:
    client.seed_transaction("b", age_s=9)
    client.seed_transaction("a", age_s=3)
    client.seed_transaction("done", state="CompleteCommit")

    def names(query: str) -> list[str]:
        return [each["transactional_id"] for each in control.get(f"/transactions?{query}")["transactions"]]

    assert (names(""), names("sort=waiting")) == (["a", "b", "done"], ["b", "a", "done"])
    assert (names("search=DO"), names("state=Ongoing&limit=1&offset=1")) == (["done"], ["b"])
    assert names("longer_than_s=5") == ["b"]
    assert control.get("/transactions?limit=1")["total"] == 3


def test_coordinators_of_transactional_ids(control: ControlHarness, client: Client) -> None:
    assert control.get("/coordinators")["transaction_partitions"] == []
    client.seed_transaction("t")
    leader = client.transaction("t").coordinator or 0
    moved = control.post("/coordinators/move", {"transactional_id": "t", "to": leader % 3 + 1, "zombie": True})
    (row,) = [each for each in moved["transaction_partitions"] if each["transactions"]]
    assert (row["leader"], row["zombies"], row["is_loading"]) == (leader % 3 + 1, [leader], False)
    response = control.request(
        "POST", "/v1/clusters/default/coordinators/move", {"transactional_id": "t", "group_id": "g", "to": 1}
    )
    assert (response.status, response.json["expected"]) == (422, "one of group_id, transactional_id, partition")
