"""Waits of FakeCluster for states, generations, commits, requests and predicates; their errors; waits in trio tasks."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import trio

from fakebroker import ConfigError, FakebrokerError, FakeCluster, WaitTimeout
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from tests.support.group_requests import heartbeat_request, join_request
from tests.support.groups_over_tcp import heartbeat, stable_group
from tests.support.wire_client import TIMEOUT_S, WireClient

Start = Callable[..., "Future[Any]"]


@pytest.fixture
def start(fake_cluster: FakeCluster) -> Iterator[Start]:
    """A function that starts a wait in a thread, and returns its future as soon as the wait is registered."""
    with ThreadPoolExecutor() as pool:

        def waiting(method: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
            future = pool.submit(method, *args, timeout_s=TIMEOUT_S, **kwargs)
            while not fake_cluster._server.reactor.watchers and not future.done():
                fake_cluster.groups()
            return future

        yield waiting
    assert fake_cluster._server.reactor.watchers == []


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_wait_for_a_state(fake_cluster: FakeCluster, start: Start) -> None:
    waiting = start(fake_cluster.wait_for_state, "g", "Stable", members=1)
    member_id = stable_group(fake_cluster, "g")
    group = waiting.result()
    assert (group.state, group.leader_id) == ("Stable", member_id)
    # The conditions hold already.
    assert fake_cluster.wait_for_state("g", "Stable", timeout_s=0) == group
    assert fake_cluster.wait_for_state("other", "Dead", members=0, timeout_s=0).members == ()


@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual")
def test_wait_for_a_state_that_the_clock_causes(fake_cluster: FakeCluster, start: Start) -> None:
    stable_group(fake_cluster, "g")
    waiting = start(fake_cluster.wait_for_state, "g", "Empty")
    fake_cluster.clock.advance(29)
    assert not waiting.done()
    fake_cluster.clock.advance(1)
    assert waiting.result().members == ()


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_wait_for_an_unknown_group_names_the_others(fake_cluster: FakeCluster) -> None:
    def error_of_wait(group_id: str) -> str:
        with pytest.raises(WaitTimeout) as caught:
            fake_cluster.wait_for_state(group_id, "Stable", timeout_s=0)
        return str(caught.value)

    assert "other groups" not in error_of_wait("biling")
    fake_cluster.seed_group("billing", topics=["orders"])
    fake_cluster.seed_group("shipping", topics=["orders"])
    assert error_of_wait("biling").endswith("\nother groups: shipping, billing; did you mean 'billing'?")
    assert error_of_wait("x").endswith("\nother groups: shipping, billing")
    with pytest.raises(WaitTimeout) as caught:
        fake_cluster.wait_for_generation("billing", above=10, timeout_s=0)
    assert "other groups" not in str(caught.value)
    fake_cluster.seed_transaction("payments")
    with pytest.raises(WaitTimeout) as caught:
        fake_cluster.wait_for_transaction("payment", "CompleteCommit", timeout_s=0)
    assert str(caught.value).endswith("\nother transactional ids: payments; did you mean 'payments'?")


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_wait_for_a_generation(fake_cluster: FakeCluster, start: Start) -> None:
    stable_group(fake_cluster, "g")
    waiting = start(fake_cluster.wait_for_generation, "g", above=1)
    with WireClient(fake_cluster.coordinator_of("g")) as wire:
        wire.ask(join_request("g", fake_cluster.group("g").members[0].member_id), JoinGroupResponse)
    assert waiting.result().generation_id == 2


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_wait_for_a_commit(fake_cluster: FakeCluster, start: Start) -> None:
    waiting = start(fake_cluster.wait_for_commit, "g", "orders-2", at_least=42)
    stable_group(fake_cluster, "g")
    assert waiting.result().offset == 42
    with pytest.raises(WaitTimeout, match="43 committed for orders-2\ncommitted: 42\n"):
        fake_cluster.wait_for_commit("g", "orders-2", at_least=43, timeout_s=0)
    with pytest.raises(WaitTimeout, match="committed: nothing"):
        fake_cluster.wait_for_commit("g", "orders-1", at_least=0, timeout_s=0)


def test_wait_for_requests(fake_cluster: FakeCluster, start: Start) -> None:
    with WireClient(fake_cluster.brokers[0], "a") as wire, WireClient(fake_cluster.brokers[1], "b") as other:
        wire.ask(heartbeat_request("g"), HeartbeatResponse)
        waiting = start(fake_cluster.wait_for_request, "Heartbeat", client_id="a", group="g", count=2)
        other.ask(heartbeat_request("g"), HeartbeatResponse)
        wire.ask(heartbeat_request("h"), HeartbeatResponse)
        assert not waiting.done()
        wire.ask(heartbeat_request("g"), HeartbeatResponse)
        assert [call.client_id for call in waiting.result()] == ["a", "a"]
    assert len(fake_cluster.wait_for_request(count=4, timeout_s=0)) == 4


@pytest.mark.fake_cluster(brokers=1, config={"group.initial.rebalance.delay.ms": 60_000}, clock="manual")
def test_wait_for_a_request_with_a_certain_response(fake_cluster: FakeCluster, start: Start) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        waiting = start(fake_cluster.wait_for_request, "JoinGroup", error="NONE")
        member_id = wire.ask(join_request("g"), JoinGroupResponse).member_id
        wire.send(join_request("g", member_id))
        fake_cluster.wait_for_state("g", "PreparingRebalance", members=1)
        assert not waiting.done()
        fake_cluster.clock.advance(60)
        (call,) = waiting.result()
    assert call.response.generation_id == 1


@pytest.mark.fake_cluster(brokers=2)
def test_wait_for_a_predicate(fake_cluster: FakeCluster, start: Start) -> None:
    waiting = start(fake_cluster.wait_until, "a third broker", lambda cluster: list(cluster.brokers)[2:])
    # Predicates may also use the methods of FakeCluster.
    by_method = start(fake_cluster.wait_until, "the same", lambda cluster: len(fake_cluster.brokers) == 3)
    also = start(fake_cluster.wait_until, "a group", lambda cluster: fake_cluster.group("g").state == "Dead")
    assert also.result()
    fake_cluster.add_broker()
    assert (waiting.result(), by_method.result()) == ([3], True)


def test_an_exception_of_a_predicate_is_raised_by_the_wait(fake_cluster: FakeCluster, start: Start) -> None:
    def fails_later(cluster: Cluster) -> bool:
        return "x" in cluster.topics and bool(1 // 0)

    waiting = start(fake_cluster.wait_until, "nothing", fails_later)
    fake_cluster.create_topic("x")
    with pytest.raises(ZeroDivisionError):
        waiting.result()
    # The cluster still serves requests.
    with WireClient(fake_cluster.brokers[0]) as wire:
        assert wire.ask(heartbeat_request(), HeartbeatResponse).error_code in (16, 25)


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_timeout_shows_the_state_of_the_cluster(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    with pytest.raises(WaitTimeout) as caught:
        fake_cluster.wait_for_state("g", "Stable", members=3, timeout_s=0)
    lines = str(caught.value).splitlines()
    assert lines[0] == "not reached within 0 s: group g in Stable with 3 members"
    assert lines[1].startswith("g has been in Stable for ")
    assert any(line.endswith("SyncGroup of the leader app") for line in lines)
    assert isinstance(caught.value, FakebrokerError)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(WaitTimeout, match="2 of SyncGroup with client_id='app'\nreceived: 1; the last 4 of 4 requests"):
        fake_cluster.wait_for_request("SyncGroup", "app", count=2, timeout_s=0)
    with pytest.raises(WaitTimeout, match="never\ngroup g, since"):
        fake_cluster.wait_until("never", lambda cluster: None, timeout_s=0)
    with pytest.raises(WaitTimeout, match="group g with at least 1 committed for orders-0\n"):
        fake_cluster.wait_for_commit("g", ("orders", 0), at_least=1, timeout_s=0)  # type: ignore[call-overload]  # Pairs are accepted as well.
    with pytest.raises(WaitTimeout, match="group g in a generation above 1\n"):
        fake_cluster.wait_for_generation("g", above=1, timeout_s=0)


def test_invalid_conditions_are_rejected(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match="state='Steady': expected one of Empty, PreparingRebalance"):
        fake_cluster.wait_for_state("g", "Steady")
    with pytest.raises(ConfigError, match="partition='orders': expected a topic and a number"):
        fake_cluster.wait_for_commit("g", "orders", at_least=1)
    with pytest.raises(ConfigError, match="api='Join': expected one of Produce, "):
        fake_cluster.wait_for_request("Join")
    with pytest.raises(ConfigError, match="count=0: expected an integer >= 1"):
        fake_cluster.wait_for_request(count=0)


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_stopped_cluster_only_satisfies_conditions_that_hold() -> None:
    with FakeCluster(topics={"orders": 6}) as cluster:
        stable_group(cluster, "g")
    assert cluster.wait_for_state("g", "Stable").generation_id == 1
    with pytest.raises(ConfigError, match="waiting for group g in Empty: expected a running cluster"):
        cluster.wait_for_state("g", "Empty")


def heartbeat_later(broker: BrokerView) -> threading.Thread:
    """Send a heartbeat from another thread."""

    def send() -> None:
        with WireClient(broker, "other") as wire:
            heartbeat(wire, member_id="")

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("has_thread", [False, True])
def test_waits_in_a_trio_task(has_thread: bool) -> None:
    async def main(cluster: FakeCluster) -> None:
        thread = heartbeat_later(cluster.brokers[0])
        (call,) = await cluster.wait_for_request_async("Heartbeat", "other", timeout_s=TIMEOUT_S)
        assert call.client_id == "other"
        assert (await cluster.wait_for_state_async("g", "Dead")).state == "Dead"
        assert await cluster.wait_until_async("brokers", lambda cluster: len(cluster.brokers)) == 3
        with pytest.raises(WaitTimeout):
            await cluster.wait_for_commit_async("g", "orders-0", at_least=1, timeout_s=0)
        with pytest.raises(WaitTimeout):
            await cluster.wait_for_generation_async("g", above=0, timeout_s=0)
        with trio.move_on_after(0):
            await cluster.wait_for_state_async("g", "Stable", timeout_s=TIMEOUT_S)
        with trio.move_on_after(0) as scope:  # The condition holds, but a wait is always a checkpoint.
            await cluster.wait_for_state_async("g", "Dead")
        assert scope.cancelled_caught
        # In the cluster's thread, after the end of the canceled waits, which they do not await.
        assert await cluster.call_async(lambda: list(cluster._server.reactor.watchers)) == []
        await trio.to_thread.run_sync(thread.join)

    async def inside() -> None:
        async with FakeCluster() as cluster:
            with pytest.raises(ConfigError, match="in the cluster's thread: expected an _async method"):
                cluster.wait_for_state("g", "Dead")
            await main(cluster)

    async def outside() -> None:
        with FakeCluster() as cluster:
            await main(cluster)

    trio.run(outside if has_thread else inside)
