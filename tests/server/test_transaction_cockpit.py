"""What test authors see of transactions in `FakeCluster`: views, waits, timelines, deadlines and reports."""

from collections.abc import Iterator

import pytest

from fakebroker import ClusterStopped, ConfigError, FakeCluster, WaitTimeout
from tests.support.server.pending_waits import pending_waits
from tests.support.trio_runner import in_trio_with_sockets

ID = "payments"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(topics={"orders": 2}, clock="manual", seed=1) as running:
        running.transaction(ID).seed(records={"orders-0": 2}, timeout_ms=30_000)
        yield running


def test_a_wait_sees_states_that_have_ended(cluster: FakeCluster) -> None:
    assert cluster.wait(cluster.transaction(ID).state("Ongoing")).partitions == (("orders", 0),)
    with pending_waits(cluster) as start:
        waiting = start(cluster.wait, cluster.transaction(ID).state("PrepareAbort"))
        cluster.transaction(ID).abort()
    found = waiting.result()
    assert (found.state, found.pending_state, found.producer_epoch) == ("PrepareAbort", None, 1)
    assert cluster.transaction(ID).describe().state == "CompleteAbort"
    assert (
        cluster.wait(cluster.transaction(ID).state("CompleteAbort")).history.transitions[-1].state_from
        == "PrepareAbort"
    )
    cluster.transaction(ID).fence_producer()
    with cluster.transaction(ID).hold("Dead"):
        cluster.advance(609_000)
        assert cluster.wait(cluster.transaction("nothing").state("Dead")).coordinator is None


def test_a_wait_for_a_pending_state(cluster: FakeCluster) -> None:
    with cluster.transaction(ID).hold("PrepareAbort"):
        cluster.transaction(ID).abort()
        found = cluster.wait(cluster.transaction(ID).state(pending="PrepareAbort"))
        assert (found.state, found.is_held) == ("Ongoing", True)
        with pytest.raises(WaitTimeout, match=r"state\(state='PrepareCommit', pending='PrepareAbort'\)"):
            cluster.wait(cluster.transaction(ID).state("PrepareCommit", pending="PrepareAbort"), timeout_s=0)
    assert cluster.wait(cluster.transaction(ID).state("CompleteAbort")).awaited_markers == ()


def test_a_wait_that_times_out_explains_the_transaction(cluster: FakeCluster) -> None:
    cluster.transaction(ID).hold_markers()
    cluster.transaction(ID).abort()
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait(cluster.transaction(ID).state("CompleteAbort"), timeout_s=0)
    text = str(caught.value)
    assert text.startswith("not reached within 0 s: transaction('payments').state(state='CompleteAbort')\npayments has")
    assert "It waits for markers of orders-0, held until release_markers() is called." in text
    assert "O────▸P" in text, "with the timeline"
    with pytest.raises(ConfigError, match=r"state is missing: expected one of Empty, Ongoing, .*, or pending$"):
        cluster.transaction(ID).state()
    with pytest.raises(ConfigError, match="state='Stable': expected one of Empty, Ongoing, PrepareCommit"):
        cluster.transaction(ID).state("Stable")
    with pytest.raises(ConfigError, match="pending='Stable': expected one of Empty, Ongoing, PrepareCommit"):
        cluster.transaction(ID).state(pending="Stable")


@in_trio_with_sockets
async def test_an_async_wait_ends_with_the_cluster() -> None:
    async with FakeCluster(topics={"orders": 1}) as cluster:
        cluster.transaction(ID).seed(state="CompleteCommit")
        assert (await cluster.wait_async(cluster.transaction(ID).state("CompleteCommit"))).state == "CompleteCommit"
    with pytest.raises((ClusterStopped, ConfigError)):
        await cluster.wait_async(cluster.transaction(ID).state("Empty"), timeout_s=1)


def test_the_clock_advances_to_timeouts_of_transactions(cluster: FakeCluster) -> None:
    cluster.transaction("done").seed(state="CompleteCommit")
    (first, second) = [each for each in cluster.deadlines() if each.transactional_id]
    assert (first.kind, first.transactional_id) == ("transaction_timeout", ID)
    assert 30 <= first.in_s <= 40, "the first check after the timeout"
    assert (second.kind, second.transactional_id) == ("transactional_id_expiry", "done")
    assert first.text == "The transaction of payments is aborted, unless it ends before: its timeout has passed."
    reached = cluster.advance_to_next_deadline()
    assert [each.kind for each in reached or ()] == ["transaction_timeout"]
    assert cluster.transaction(ID).describe().state == "CompleteAbort"
    cluster.transaction("held").seed(records={"orders-1": 1})
    cluster.transaction("held").hold("CompleteAbort")
    cluster.transaction("held").abort()
    cluster.transaction("held").fail_append()
    cluster.transaction("held").release()
    assert [each.kind for each in cluster.advance_to_next_deadline() or ()] == ["transaction_end"]
    assert cluster.transaction("held").describe().state == "CompleteAbort"
    cluster.transaction(ID).move_coordinator(3, load_ms=5_000, stale_ms=6_000)
    kinds = [each.kind for each in cluster.deadlines() if each.in_s <= 6]
    assert kinds == ["load", "stale_lookup"]


def test_reports_have_transactions_and_their_timelines(cluster: FakeCluster) -> None:
    assert f"{ID}: Ongoing, producer 0 in epoch 0, partitions orders-0" in cluster.report()
    assert "transaction.seed" in str(cluster.transaction(ID).timeline())
    assert [each.transactional_id for each in cluster.transactions(state="Ongoing")] == [ID]
    assert cluster.transactions(longer_than_s=1) == []
    assert cluster.transaction("other").explain().startswith("other is Dead: there is no such transactional id.")


def test_a_reset_removes_transactions(cluster: FakeCluster) -> None:
    cluster.transaction(ID).hold("PrepareAbort")
    cluster.reset()
    assert cluster.transactions() == []
    assert cluster.transaction(ID).timeline().moments == ()
    cluster.transaction(ID).seed(records={"orders-0": 1})
    assert cluster.wait(cluster.transaction(ID).state("Ongoing")).producer_id == 0
    cluster.transaction(ID).abort()
    assert cluster.transaction(ID).describe().state == "CompleteAbort", "the hold was removed"
