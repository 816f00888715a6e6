"""Closing a consumer: pending commits, leaving the group, and the timeout."""

import pytest
import trio

from fakebroker import FakeCluster
from tests.support.client.consumer_over_tcp import DEADLINE_S, P0, committed, consumer, produce, read
from tests.support.trio_runner import in_trio_with_sockets


@pytest.mark.parametrize("subscribes", [True, False], ids=["subscribe", "assign"])
@in_trio_with_sockets
async def test_a_pending_commit_is_completed_before_the_consumer_is_closed(subscribes: bool) -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        async with consumer(cluster) as reader:
            if subscribes:
                reader.subscribe(["orders"])
                await reader.assignment()
            else:
                reader.assign({P0: 0})
            fault = cluster.inject_fault("OffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
            cluster.inject_fault("LeaveGroup", delay_s=0.05, may_miss=True)  # "assign" has no group to leave
            await reader.commit({P0: 7}, wait=False)
        assert (committed(cluster, P0), fault.hits) == (7, 2)


@in_trio_with_sockets
async def test_manually_assigned_partitions_are_committed_at_the_end() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        produce(cluster, P0, b"a")
        async with consumer(cluster, commit_interval_ms=60_000) as reader:
            reader.assign({P0: 0})
            await read(reader, 1)
        assert committed(cluster, P0) == 1


@in_trio_with_sockets
async def test_closing_ends_after_its_timeout_without_a_coordinator() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        cluster.inject_fault("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE")
        with trio.fail_after(DEADLINE_S):
            async with consumer(cluster, close_timeout_ms=50) as reader:
                reader.assign({P0: 0})
                await reader.commit({P0: 7}, wait=False)
        assert committed(cluster, P0) is None


@in_trio_with_sockets
async def test_a_cancelled_consumer_leaves_its_group() -> None:
    with FakeCluster(1, {"orders": 1}) as cluster:
        with trio.CancelScope() as scope:
            async with consumer(cluster, close_timeout_ms=60_000) as reader:
                reader.subscribe(["orders"], on_assigned=lambda _: scope.cancel())
                await reader.poll(DEADLINE_S)
        assert scope.cancelled_caught
        assert cluster.journal.count("LeaveGroup") == 1
        assert not cluster.group("g").describe().members


@in_trio_with_sockets
async def test_a_consumer_cannot_be_opened_twice() -> None:
    with FakeCluster(1) as cluster:
        reader = consumer(cluster)
        async with reader:
            pass
        with pytest.raises(
            trio.ClosedResourceError, match="the consumer was opened before and cannot be reopened: create another one"
        ):
            async with reader:
                raise AssertionError("opened")
