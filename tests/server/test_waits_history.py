"""Waits of FakeCluster see what came and went since the call; they end when the cluster stops."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import trio

from fakebroker import ClusterStopped, ConfigError, FakeCluster, IncompleteHistoryError, MemberSeed, WaitTimeout
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.support.group_requests import commit_request, heartbeat_request, join_request
from tests.support.groups_over_tcp import JOIN_WITHOUT_MEMBER_ID, stable_group
from tests.support.wire_client import TIMEOUT_S, WireClient

Start = Callable[..., "Future[Any]"]


@pytest.fixture
def start(fake_cluster: FakeCluster) -> Iterator[Start]:
    """A function that starts a wait in a thread, and returns its future as soon as the wait is registered."""
    with ThreadPoolExecutor() as pool:

        def waiting(method: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
            known = len(fake_cluster._server.reactor.watchers)
            future = pool.submit(method, *args, timeout_s=TIMEOUT_S, **kwargs)
            while len(fake_cluster._server.reactor.watchers) == known and not future.done():
                fake_cluster.groups()
            return future

        yield waiting
    assert fake_cluster._server.reactor.watchers == []
    assert fake_cluster._server.reactor.observers == []
    assert fake_cluster.cluster.history.listeners == []


def leave_request(member_id: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])


def leave(cluster: FakeCluster, member_id: str) -> None:
    """Leave a group as its only member."""
    with WireClient(cluster.coordinator_of("g")) as wire:
        wire.ask(leave_request(member_id), LeaveGroupResponse)


@pytest.mark.fake_cluster(brokers=1, config={"group.initial.rebalance.delay.ms": 0})
def test_a_state_that_a_single_request_passes_through(fake_cluster: FakeCluster, start: Start) -> None:
    """Without an initial delay, the first JoinGroup takes the group from Empty to CompletingRebalance."""
    waiting = start(fake_cluster.wait_for_state, "g", "PreparingRebalance", members=1)
    empty = start(fake_cluster.wait_for_state, "g", "Empty")
    with WireClient(fake_cluster.brokers[0], "app") as wire:
        joined = wire.ask(join_request("g"), JoinGroupResponse, JOIN_WITHOUT_MEMBER_ID)
    group = waiting.result()
    assert (group.state, group.generation_id, group.leader_id) == ("PreparingRebalance", 0, joined.member_id)
    assert group.protocol_name is None
    assert [(member.member_id, member.client_id) for member in group.members] == [(joined.member_id, "app")]
    assert group.timeline().transitions[-1].state_to == "CompletingRebalance"
    assert (empty.result().state, empty.result().members) == ("Empty", ())
    assert fake_cluster.group("g").state == "CompletingRebalance"


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3}, config={"group.initial.rebalance.delay.ms": 0})
def test_a_state_that_came_and_went_between_two_looks(fake_cluster: FakeCluster, start: Start) -> None:
    """Of two requests that the cluster reads together, the first empties the group, and the second fills it again."""
    member_id = stable_group(fake_cluster)
    empty = start(fake_cluster.wait_for_state, "g", "Empty", members=0)
    stable = start(fake_cluster.wait_for_state, "g", "Stable", members=3)
    generation = start(fake_cluster.wait_for_generation, "g", above=2)
    with WireClient(fake_cluster.brokers[0]) as wire:

        def send() -> None:
            wire.send(leave_request(member_id))
            wire.send(join_request("g"), JOIN_WITHOUT_MEMBER_ID)

        fake_cluster.call(send)
        wire.receive()
        wire.receive()
    group = empty.result()
    assert (group.state, group.generation_id, group.leader_id, group.members) == ("Empty", 2, None, ())
    assert generation.result().state == "CompletingRebalance"
    assert not stable.done()
    fake_cluster.reset()
    fake_cluster.seed_group("g", 3, topics=["orders"])
    assert len(stable.result().members) == 3


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3})
def test_requests_that_arrive_together(fake_cluster: FakeCluster, start: Start) -> None:
    """Several requests of one read: an offset is replaced, and a journal of two requests drops the first."""
    fake_cluster.call(lambda: setattr(fake_cluster.cluster.journal, "max_calls", 2))
    commit = start(fake_cluster.wait_for_commit, "g", "orders-0", at_least=9)
    request = start(fake_cluster.wait_for_request, "OffsetCommit", count=5)
    with WireClient(fake_cluster.brokers[0]) as wire:

        def send() -> None:
            for offset in (1, 9, 2, 3, 4):
                wire.send(commit_request(offset), 2)

        fake_cluster.call(send)  # The cluster reads them together, after this function.
        for _ in range(5):
            wire.receive()
    assert fake_cluster.offsets("g")["orders", 0].offset == 4
    assert commit.result().offset == 9
    assert len(request.result()) == 5
    assert len(fake_cluster.requests()) == 2


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3})
def test_a_group_that_its_last_member_leaves(fake_cluster: FakeCluster, start: Start) -> None:
    member_id = stable_group(fake_cluster)
    waiting = start(fake_cluster.wait_for_state, "g", "Empty", members=0)
    leave(fake_cluster, member_id)
    assert waiting.result().members == ()


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3})
def test_states_before_the_call_do_not_count(fake_cluster: FakeCluster) -> None:
    leave(fake_cluster, stable_group(fake_cluster))
    with pytest.raises(WaitTimeout):
        fake_cluster.wait_for_state("g", "PreparingRebalance", timeout_s=0)


@pytest.mark.fake_cluster(brokers=2, topics={"orders": 3})
def test_states_at_a_zombie_coordinator_do_not_count(fake_cluster: FakeCluster, start: Start) -> None:
    member_id = stable_group(fake_cluster)
    old = fake_cluster.coordinator_of("g")
    fake_cluster.move_coordinator("g", 3 - old.node_id, zombie=True)
    waiting = start(fake_cluster.wait_for_state, "g", "Empty")
    with WireClient(old) as wire:
        wire.ask(leave_request(member_id), LeaveGroupResponse)
    assert "LeaveGroup" in str(fake_cluster.timeline("g"))
    assert not waiting.done()
    leave(fake_cluster, member_id)
    assert waiting.result().members == ()


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3})
def test_waits_go_on_after_a_reset(fake_cluster: FakeCluster, start: Start) -> None:
    state = start(fake_cluster.wait_for_state, "g", "PreparingRebalance")
    request = start(fake_cluster.wait_for_request, "JoinGroup")
    fake_cluster.reset()
    stable_group(fake_cluster)
    assert state.result().state == "PreparingRebalance"
    assert request.result()[0].api.name == "JoinGroup"


def test_a_wait_ends_when_the_cluster_stops(subtests: pytest.Subtests) -> None:
    has_polled = threading.Event()

    def poll() -> int:
        has_polled.set()
        return 1

    def waits(cluster: FakeCluster) -> dict[str, Callable[[], object]]:
        return {
            "group g in Stable": lambda: cluster.wait_for_state("g", "Stable", timeout_s=TIMEOUT_S),
            "group g in a generation above 3": lambda: cluster.wait_for_generation("g", above=3, timeout_s=TIMEOUT_S),
            "group g with at least 1 committed for orders-0": lambda: cluster.wait_for_commit(
                "g", "orders-0", at_least=1, timeout_s=TIMEOUT_S
            ),
            "1 of request": lambda: cluster.wait_for_request(timeout_s=TIMEOUT_S),
            "never": lambda: cluster.wait_until("never", lambda _: None, timeout_s=TIMEOUT_S),
            "polled": lambda: cluster.wait_until("polled", lambda _: None, polling=[poll], timeout_s=TIMEOUT_S),
        }

    with ThreadPoolExecutor() as pool:
        with FakeCluster(brokers=1) as cluster:
            futures = {name: pool.submit(wait) for name, wait in waits(cluster).items()}
            while len(cluster._server.reactor.watchers) < len(futures):
                cluster.groups()
            assert has_polled.wait(TIMEOUT_S)
        for name, future in futures.items():
            with subtests.test(wait=name):
                error = future.exception(TIMEOUT_S)
                assert isinstance(error, ClusterStopped)
                assert str(error).startswith(f"the cluster stopped during a wait for {name}\n")
                assert not isinstance(error, WaitTimeout)
                assert set(error.records) == ({1} if name == "polled" else set())


def test_a_wait_in_a_loop_ends_when_the_cluster_stops(subtests: pytest.Subtests) -> None:
    async def wait(cluster: FakeCluster, errors: list[BaseException]) -> None:
        try:
            await cluster.wait_for_state_async("g", "Stable", timeout_s=TIMEOUT_S)
        except ClusterStopped as error:
            errors.append(error)

    async def with_trio(errors: list[BaseException]) -> None:
        async with trio.open_nursery() as nursery, FakeCluster(brokers=1) as cluster:
            nursery.start_soon(wait, cluster, errors)
            await trio.testing.wait_all_tasks_blocked()

    async def with_asyncio(errors: list[BaseException]) -> None:
        async with FakeCluster(brokers=1) as cluster:
            task = asyncio.create_task(wait(cluster, errors))
            while not cluster._server.reactor.watchers:
                await cluster.call_async(lambda: None)
        await task

    errors: list[BaseException] = []
    with subtests.test(loop="trio"):
        trio.run(with_trio, errors)
        assert len(errors) == 1
    with subtests.test(loop="asyncio"):
        asyncio.run(with_asyncio(errors))
        assert len(errors) == 2


def test_waits_and_calls_under_asyncio() -> None:
    """The loop is never blocked: a task of it causes what the waits wait for."""

    async def main(cluster: FakeCluster) -> None:
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
            waits = [
                tasks.create_task(cluster.wait_for_request_async("Heartbeat")),
                tasks.create_task(cluster.wait_for_state_async("g", "Stable", members=1)),
                tasks.create_task(cluster.wait_for_generation_async("g", above=0)),
                tasks.create_task(cluster.wait_for_commit_async("g", "orders-2", at_least=42)),
                tasks.create_task(cluster.wait_until_async("a topic", lambda core: "x" in core.topics)),
            ]
            assert await cluster.call_async(lambda: cluster.is_cluster_thread)
            with pytest.raises(ZeroDivisionError):
                await cluster.call_async(lambda: 1 // 0)
            with pytest.raises(WaitTimeout):
                await cluster.wait_for_state_async("h", "Stable", timeout_s=0)
            await asyncio.to_thread(stable_group, cluster)
            cluster.create_topic("x")
            with WireClient(cluster.brokers[0]) as wire:
                wire.ask(heartbeat_request("g"), HeartbeatResponse)
        assert [type(wait.result()).__name__ for wait in waits] == [
            "list", "GroupView", "GroupView", "CommittedOffset", "bool",
        ]  # fmt: skip
        task = asyncio.create_task(cluster.wait_for_state_async("g", "Dead"))
        while not cluster._server.reactor.watchers:
            await cluster.call_async(lambda: None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await cluster.call_async(lambda: cluster._server.reactor.watchers) == []

    with FakeCluster(brokers=1, topics={"orders": 3}) as cluster:
        asyncio.run(main(cluster))


def test_a_group_id_must_be_a_string(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    wrong: Any = b"g"
    uses: dict[str, Callable[[], object]] = {
        "group": lambda: fake_cluster.group(wrong),
        "offsets": lambda: fake_cluster.offsets(wrong),
        "timeline": lambda: fake_cluster.timeline(wrong),
        "explain": lambda: fake_cluster.explain(wrong),
        "coordinator_of": lambda: fake_cluster.coordinator_of(wrong),
        "wait_for_state": lambda: fake_cluster.wait_for_state(wrong, "Dead"),
        "wait_for_generation": lambda: fake_cluster.wait_for_generation(wrong, above=0),
        "wait_for_commit": lambda: fake_cluster.wait_for_commit(wrong, "orders-0", at_least=0),
    }
    for name, use in uses.items():
        with subtests.test(method=name), pytest.raises(ConfigError, match=r"^group_id=b'g': expected a string$"):
            use()


@pytest.mark.fake_cluster(topics={"orders": 3})
def test_a_timeout_has_fields(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster)
    with pytest.raises(WaitTimeout) as caught:
        fake_cluster.wait_for_state("g", "Empty", timeout_s=0)
    error = caught.value
    assert (error.condition, error.timeout_s, error.records) == ("group g in Empty", 0, [])
    assert error.state.startswith("g has been in Stable")
    assert str(error) == f"not reached within 0 s: {error.condition}\n{error.state}"


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3}, config={"group.initial.rebalance.delay.ms": 0})
def test_a_wait_that_depends_on_dropped_changes_is_not_decided(fake_cluster: FakeCluster) -> None:
    fake_cluster.seed_group("g", 3, topics=["orders"])
    history = fake_cluster.cluster.history
    history.max_moments_of_one = 2
    seen = history.count_of("g")
    fake_cluster.force_rebalance("g")
    for member in fake_cluster.group("g").members:
        fake_cluster.evict("g", member.member_id)
    assert fake_cluster.group("g").state == "Empty"
    waits = fake_cluster.waits
    stable = waits.group_in_state("g", "Stable", seen_changes=seen)
    dropped = history.dropped_of("g").count
    expected = (
        f"not decided: group g in Stable since its first {seen} changes: {dropped} earlier changes were dropped "
        "from the history, and it is not so now"
    )
    with pytest.raises(IncompleteHistoryError, match=re.escape(expected)):
        waits.wait(stable, 0)
    empty = waits.group_in_state("g", "Empty", seen_changes=seen)
    assert waits.wait(empty, 0).state == "Empty", "the state now decides"
    with pytest.raises(WaitTimeout):
        waits.wait(waits.group_in_state("g", "Stable", seen_changes=history.count_of("g")), 0)


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3}, config={"group.initial.rebalance.delay.ms": 0})
def test_dropped_changes_are_mentioned(fake_cluster: FakeCluster) -> None:
    history = fake_cluster.cluster.history
    history.max_moments_of_one = 1
    fake_cluster.seed_group("g", 3, topics=["orders"])
    fake_cluster.force_rebalance("g")
    first = fake_cluster.group("g").members[0].member_id
    fake_cluster.evict("g", first)
    timeline = fake_cluster.timeline("g")
    assert timeline.dropped == history.dropped_of("g")
    note = f"{timeline.dropped.count} earlier changes were dropped from the history, up to 20"
    assert note in timeline.text()
    assert note in timeline.svg()
    assert note in str(fake_cluster.group("g").timeline())
    unknown = f"The cause is not known: {timeline.dropped.count} earlier changes were dropped from the history."
    assert unknown in fake_cluster.explain("g")
    history.max_moments = 0
    fake_cluster.seed_group("h", 1, topics=["orders"])
    fake_cluster.evict("g", fake_cluster.group("g").members[0].member_id)
    gone = fake_cluster.timeline("g")
    assert gone.moments == ()
    assert str(gone).startswith(f"group g: {gone.dropped.count} earlier changes were dropped from the history, up to")


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 4}, clock="manual")
def test_waits_for_members_of_consumer_groups(fake_cluster: FakeCluster, start: Start) -> None:
    fake_cluster.seed_group("g", [MemberSeed(member_id="a", client_id="app")], topics=["orders"], type="consumer")
    revoking = start(fake_cluster.wait_for_member, "g", "app", "UNREVOKED_PARTITIONS")
    reached = start(fake_cluster.wait_for_member, "g", "a", above=1)
    joined = start(fake_cluster.wait_for_member, "g", "i", "UNRELEASED_PARTITIONS")
    assert fake_cluster.wait_for_member("g", "app", "STABLE", timeout_s=0).type == "consumer"
    topic = fake_cluster.cluster.topics.get("orders")
    assert topic is not None

    def beat(member_id: str, epoch: int, owned: int | None = None, **fields: Any) -> None:
        if owned:
            fields["topic_partitions"] = [HeartbeatTopicPartitions(topic_id=topic.topic_id, partitions=[*range(owned)])]
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        with WireClient(fake_cluster.brokers[0], "app" if member_id == "a" else "b") as wire:
            assert wire.ask(request, ConsumerGroupHeartbeatResponse).error_code == 0

    joining: dict[str, Any] = {
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    beat("b", 0, instance_id="i", **joining)
    beat("a", 1)
    beat("a", 1, 2)
    beat("b", 2)
    assert joined.result().members[1].instance_id == "i"
    assert revoking.result().state == "Reconciling"
    assert [each.member_epoch for each in reached.result().members] == [2, 2]
    with pytest.raises(
        WaitTimeout, match=r"^not reached within 0 s: member a of group g in UNKNOWN in an epoch above 7\ng has been in"
    ):
        fake_cluster.wait_for_member("g", "a", "UNKNOWN", above=7, timeout_s=0)
    with pytest.raises(ConfigError, match="state='Stable': expected one of STABLE"):
        fake_cluster.wait_for_member("g", "a", "Stable")

    async def wait() -> int | None:
        group = await fake_cluster.wait_for_member_async("g", "b", above=1, timeout_s=0)
        return group.assignment_epoch

    assert asyncio.run(wait()) == 2
