"""What test authors see of transactions in `FakeCluster`: views, waits, timelines, deadlines and reports."""

import threading
from collections.abc import Iterator

import pytest

from fakebroker import ClusterStopped, ConfigError, FakeCluster, WaitTimeout
from tests.support.trio_runner import in_trio_with_sockets

ID = "payments"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(topics={"orders": 2}, clock="manual", seed=1) as running:
        running.seed_transaction(ID, records={"orders-0": 2}, timeout_ms=30_000)
        yield running


def test_a_wait_sees_states_that_have_ended(cluster: FakeCluster) -> None:
    assert cluster.wait_for_transaction(ID, "Ongoing").partitions == (("orders", 0),)
    aborting = threading.Timer(0, cluster.abort_transaction, [ID])
    condition = cluster.waits.transaction_in_state(ID, "PrepareAbort", seen_changes=1)
    aborting.start()
    found = cluster.waits.wait(condition, 10)
    aborting.join()
    assert (found.state, found.pending_state, found.producer_epoch) == ("PrepareAbort", None, 1)
    assert cluster.transaction(ID).state == "CompleteAbort"
    assert cluster.wait_for_transaction(ID, "CompleteAbort").history.transitions[-1].state_from == "PrepareAbort"
    cluster.fence_producer(ID)
    with cluster.hold(ID, "Dead"):
        cluster.advance(609_000)
        assert cluster.wait_for_transaction("nothing", "Dead").coordinator is None


def test_a_wait_for_a_pending_state(cluster: FakeCluster) -> None:
    with cluster.hold(ID, "PrepareAbort"):
        cluster.abort_transaction(ID)
        found = cluster.wait_for_transaction(ID, pending_state="PrepareAbort")
        assert (found.state, found.is_held) == ("Ongoing", True)
        with pytest.raises(WaitTimeout, match="in PrepareCommit with PrepareAbort pending"):
            cluster.wait_for_transaction(ID, "PrepareCommit", pending_state="PrepareAbort", timeout_s=0)
    assert cluster.wait_for_transaction(ID, "CompleteAbort").awaited_markers == ()


def test_a_wait_that_times_out_explains_the_transaction(cluster: FakeCluster) -> None:
    cluster.hold_markers(ID)
    cluster.abort_transaction(ID)
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait_for_transaction(ID, "CompleteAbort", timeout_s=0)
    text = str(caught.value)
    assert "transactional id payments in CompleteAbort" in text
    assert "It waits for markers of orders-0, held until release_markers() is called." in text
    assert "O────▸P" in text, "with the timeline"
    for state in (None, "Stable"):
        with pytest.raises(ConfigError, match="expected one of Empty, Ongoing, PrepareCommit"):
            cluster.wait_for_transaction(ID, state)


@in_trio_with_sockets
async def test_an_async_wait_ends_with_the_cluster() -> None:
    async with FakeCluster(topics={"orders": 1}) as cluster:
        cluster.seed_transaction(ID, state="CompleteCommit")
        assert (await cluster.wait_for_transaction_async(ID, "CompleteCommit")).state == "CompleteCommit"
    with pytest.raises((ClusterStopped, ConfigError)):
        await cluster.wait_for_transaction_async(ID, "Empty", timeout_s=1)


def test_the_clock_advances_to_timeouts_of_transactions(cluster: FakeCluster) -> None:
    cluster.seed_transaction("done", state="CompleteCommit")
    (first, second) = [each for each in cluster.pending_deadlines() if each.transactional_id]
    assert (first.kind, first.transactional_id) == ("transaction_timeout", ID)
    assert 30 <= first.in_s <= 40, "the first check after the timeout"
    assert (second.kind, second.transactional_id) == ("transactional_id_expiry", "done")
    assert first.text == "The transaction of payments is aborted, unless it ends before: its timeout has passed."
    reached = cluster.advance_to_next_deadline()
    assert [each.kind for each in reached or ()] == ["transaction_timeout"]
    assert cluster.transaction(ID).state == "CompleteAbort"
    cluster.seed_transaction("held", records={"orders-1": 1})
    cluster.hold("held", "CompleteAbort")
    cluster.abort_transaction("held")
    cluster.fail_transaction_append("held")
    cluster.release("held")
    assert [each.kind for each in cluster.advance_to_next_deadline() or ()] == ["transaction_end"]
    assert cluster.transaction("held").state == "CompleteAbort"
    cluster.move_transaction_coordinator(ID, 3, load_ms=5_000, stale_ms=6_000)
    kinds = [each.kind for each in cluster.pending_deadlines() if each.in_s <= 6]
    assert kinds == ["load", "stale_lookup"]


def test_reports_have_transactions_and_their_timelines(cluster: FakeCluster) -> None:
    assert f"{ID}: Ongoing, producer 0 in epoch 0, partitions orders-0" in cluster.report()
    assert "seed_transaction" in str(cluster.transaction_timeline(ID))
    assert [each.transactional_id for each in cluster.transactions(state="Ongoing")] == [ID]
    assert cluster.transactions(longer_than_s=1) == []
    assert cluster.explain_transaction("other").startswith("other is Dead: there is no such transactional id.")


def test_a_reset_removes_transactions(cluster: FakeCluster) -> None:
    cluster.hold(ID, "PrepareAbort")
    cluster.reset()
    assert cluster.transactions() == []
    assert cluster.transaction_timeline(ID).moments == ()
    cluster.seed_transaction(ID, records={"orders-0": 1})
    assert cluster.wait_for_transaction(ID, "Ongoing").producer_id == 0
    cluster.abort_transaction(ID)
    assert cluster.transaction(ID).state == "CompleteAbort", "the hold was removed"
