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
    transaction = client.transaction("a.b/~")
    transaction.seed(records={"orders-0": 2, "orders-1": 0}, producer_id=40, epoch=3)
    client.transaction("..").seed(state="CompleteCommit")
    client.topic("orders").partition(3).seed_hanging_transaction(offset=4)
    with transaction.hold_markers("orders-1"):
        transaction.abort()
        for name in ("a.b/~", "..", "never"):
            theirs, ours = client.transaction(name), cluster.transaction(name)
            assert theirs.describe() == ours.describe()
            assert astuple(theirs.describe().history) == astuple(ours.describe().history)
            assert theirs.timeline() == ours.timeline()
            assert theirs.explain() == ours.explain()
        assert transaction.coordinator() == cluster.transaction("a.b/~").coordinator()
        assert client.transactions() == sorted(cluster.transactions(), key=lambda each: each.transactional_id)
        assert "waits for markers of orders-1" in transaction.explain()
    assert client.transactions(state="CompleteAbort", producer_id=40)[0].producer_epoch == 4
    assert client.transactions(longer_than_s=1) == []
    assert client.hanging_transactions() == cluster.hanging_transactions() != []
    assert client.transaction("never").describe().state == "Dead"
    assert client.transaction("never").timeline().moments == ()


def test_commands_of_the_client(client: Client, cluster: FakeCluster) -> None:
    client.transaction("t").seed(records={"orders-2": 1})
    with client.transaction("t").hold("PrepareAbort"):
        client.transaction("t").abort()
        assert client.wait(client.transaction("t").state(pending="PrepareAbort")).is_held
    assert client.wait(client.transaction("t").state("CompleteAbort")) == cluster.transaction("t").describe()
    with pytest.raises(WaitTimeout, match=r"^not reached within 0 s: transaction\('t'\)\.state\(state='Dead'\)\n"):
        client.wait(client.transaction("t").state("Dead"), timeout_s=0)
    client.transaction("t").fence_producer()
    assert client.transaction("t").describe().state == "Empty"
    with client.transaction("t").fail_append(times=None) as failure:
        assert failure.describe().topic == "__transaction_state"
        with pytest.raises(ConfigError, match="COORDINATOR_NOT_AVAILABLE"):
            client.transaction("t").fence_producer()
        assert failure.hits == 1
    new = client.transaction("t").describe().coordinator or 0
    client.transaction("t").move_coordinator(new % 3 + 1)
    assert client.transaction("t").describe().coordinator == new % 3 + 1


def test_routes_of_one_id(control: ControlHarness, client: Client) -> None:
    control.post("/transactions/t/seed", {"records": {"orders-0": 1}, "age_s": 5})
    control.post("/transactions/t/hold_markers", {"partition": "orders-0"})
    control.post("/transactions/t/abort", status=204)
    detail = control.get("/transactions/t")
    row = detail["transaction"]
    assert (row["state"], row["pending_state"], row["partitions"]) == ("PrepareAbort", "CompleteAbort", ["orders-0"])
    reason = "held until release_markers() is called"
    assert row["awaited_markers"] == [{"partition": "orders-0", "reason": reason}]
    assert row["why"] == f"waiting for markers of orders-0, {reason}"
    assert detail["moments"][-1]["cause"] == "transaction.abort"
    described = control.get("/transactions/t/describe")
    assert described.items() >= {name: value for name, value in row.items() if name != "why"}.items()
    timeline = control.get("/transactions/t/timeline?text=true&svg=true&limit=1")
    assert [each["state_to"] for each in timeline["moments"]] == ["PrepareAbort"]
    assert timeline["text"].startswith("transactional id t, since")
    assert timeline["svg"].startswith("<svg")
    control.post("/transactions/t/release_markers", {"partition": "orders-0"})
    control.post("/transactions/t/hold", {"state": "Empty"})
    control.post("/transactions/t/fence_producer")
    row = control.get("/transactions/t")["transaction"]
    assert (row["is_held"], row["why"]) == (True, "Empty is held")
    control.post("/transactions/t/release")
    again = control.post("/transactions/t/release", status=422)
    assert (again["field"], again["value"]) == ("transactional_id", "t"), "the id exists"
    control.post("/transactions/t/move_coordinator", {"to": None})
    assert control.request("GET", "/v1/clusters/default/transactions/t/coordinator").status == 404
    assert control.get("/transactions/t/describe")["state"] == "Dead", "it has no coordinator"
    for path in ("/transactions/none", "/transactions/none/timeline"):
        assert control.request("GET", f"/v1/clusters/default{path}").status == 404
    assert control.post("/transactions/none/abort", status=404)["field"] == "transaction"


def test_lists_of_ids(control: ControlHarness, client: Client) -> None:
    client.transaction("b").seed(age_s=9)
    client.transaction("a").seed(age_s=3)
    client.transaction("done").seed(state="CompleteCommit")

    def names(query: str) -> list[str]:
        return [each["transactional_id"] for each in control.get(f"/transactions?{query}")["transactions"]]

    assert (names(""), names("sort=waiting")) == (["a", "b", "done"], ["b", "a", "done"])
    assert (names("search=DO"), names("state=Ongoing&limit=1&offset=1")) == (["done"], ["b"])
    assert names("longer_than_s=5") == ["b"]
    assert control.get("/transactions?limit=1")["total"] == 3


def test_coordinators_of_transactional_ids(control: ControlHarness, client: Client) -> None:
    assert control.get("/coordinators")["transaction_partitions"] == []
    client.transaction("t").seed()
    leader = client.transaction("t").coordinator().node_id
    client.transaction("t").move_coordinator(leader % 3 + 1, zombie=True)
    (row,) = [each for each in control.get("/coordinators")["transaction_partitions"] if each["transactions"]]
    assert (row["leader"], row["zombies"], row["is_loading"]) == (leader % 3 + 1, [leader], False)
    partition = client.topic("__transaction_state").partition(row["partition"])
    partition.move_leader(leader)
    assert client.transaction("t").coordinator().node_id == partition.describe().leader == leader
