"""Waits of FakeCluster see what lasted only a moment since the call; `stays`; waits end when the cluster stops."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio

from fakebroker import (
    ClusterStopped,
    Condition,
    ConditionNotMet,
    FakebrokerError,
    FakeCluster,
    MemberSeed,
    WaitTimeout,
    predicate,
)
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import commit_request, heartbeat_request, join_request
from tests.support.groups_over_tcp import JOIN_WITHOUT_MEMBER_ID, stable_group
from tests.support.server.pending_waits import Start, pending_waits, remains_of_waits
from tests.support.wire_client import TIMEOUT_S, WireClient


@pytest.fixture
def start(fake_cluster: FakeCluster) -> Iterator[Start]:
    """A function that starts a wait in a thread, and returns its future as soon as the wait is registered."""
    with pending_waits(fake_cluster) as function:
        yield function


def leave_request(member_id: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])


def leave(cluster: FakeCluster, member_id: str) -> None:
    """Leave a group as its only member."""
    with WireClient(cluster.group("g").coordinator()) as wire:
        wire.ask(leave_request(member_id), LeaveGroupResponse)


def rebalance(cluster: FakeCluster) -> None:
    """Let the only member of group "g" join again, in one request that ends in CompletingRebalance."""
    (member,) = cluster.group("g").describe().members
    with WireClient(cluster.group("g").coordinator()) as wire:
        wire.ask(join_request("g", member.member_id), JoinGroupResponse)


@pytest.mark.fake_cluster(brokers=1, config={"group.initial.rebalance.delay.ms": 0})
def test_a_state_that_a_single_request_passes_through(fake_cluster: FakeCluster, start: Start) -> None:
    """Without an initial delay, the first JoinGroup takes the group from Empty to CompletingRebalance."""
    waiting = start(fake_cluster.wait, fake_cluster.group("g").state("PreparingRebalance", members=1))
    empty = start(fake_cluster.wait, fake_cluster.group("g").state("Empty"))
    with WireClient(fake_cluster.brokers[0], "app") as wire:
        joined = wire.ask(join_request("g"), JoinGroupResponse, JOIN_WITHOUT_MEMBER_ID)
    group = waiting.result()
    assert (group.state, group.generation_id, group.leader_id) == ("PreparingRebalance", 0, joined.member_id)
    assert group.protocol_name is None
    assert [(member.member_id, member.client_id) for member in group.members] == [(joined.member_id, "app")]
    assert group.timeline().transitions[-1].state_to == "CompletingRebalance"
    assert (empty.result().state, empty.result().members) == ("Empty", ())
    assert fake_cluster.group("g").describe().state == "CompletingRebalance"


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3}, config={"group.initial.rebalance.delay.ms": 0})
def test_a_state_that_came_and_went_between_two_looks(fake_cluster: FakeCluster, start: Start) -> None:
    """Of two requests that the cluster reads together, the first empties the group, and the second fills it again."""
    member_id = stable_group(fake_cluster)
    empty = start(fake_cluster.wait, fake_cluster.group("g").state("Empty", members=0))
    stable = start(fake_cluster.wait, fake_cluster.group("g").stable(members=3))
    generation = start(fake_cluster.wait, fake_cluster.group("g").state(above=2))
    with WireClient(fake_cluster.brokers[0]) as wire:

        def send() -> None:
            wire.send(leave_request(member_id))
            wire.send(join_request("g"), JOIN_WITHOUT_MEMBER_ID)

        internals(fake_cluster).run(send)
        wire.receive()
        wire.receive()
    group = empty.result()
    assert (group.state, group.generation_id, group.leader_id, group.members) == ("Empty", 2, None, ())
    assert generation.result().state == "CompletingRebalance"
    assert not stable.done()
    fake_cluster.reset()
    fake_cluster.group("g").seed(3, topics=["orders"])
    assert len(stable.result().members) == 3


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3}, config={"group.initial.rebalance.delay.ms": 0})
def test_a_moment_in_which_something_else_holds_too(fake_cluster: FakeCluster, start: Start) -> None:
    group, topic = fake_cluster.group("g"), fake_cluster.topic("late")
    prepares = group.state("PreparingRebalance")
    both = start(fake_cluster.wait, prepares & topic.exists())
    alone = start(fake_cluster.wait, prepares & ~topic.exists())
    two_states = start(fake_cluster.wait, prepares & group.state("CompletingRebalance"), timeout_s=0.5)
    stable_group(fake_cluster)
    assert alone.result()[0].state == "PreparingRebalance"
    assert not both.done()
    topic.create()
    assert not both.done()
    rebalance(fake_cluster)
    found, found_topic = both.result()
    assert (found.state, found.generation_id, found_topic.name) == ("PreparingRebalance", 1, "late")
    assert isinstance(two_states.exception(), WaitTimeout)


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3})
def test_requests_that_arrive_together(fake_cluster: FakeCluster, start: Start) -> None:
    """Several requests of one read: an offset is replaced, and a journal of two requests drops the first."""
    internals(fake_cluster).run(lambda: setattr(internals(fake_cluster).cluster.journal, "max_calls", 2))
    commit = start(fake_cluster.wait, fake_cluster.group("g").committed("orders-0", at_least=9))
    request = start(fake_cluster.wait, fake_cluster.requested("OffsetCommit", count=5))
    with WireClient(fake_cluster.brokers[0]) as wire:

        def send() -> None:
            for offset in (1, 9, 2, 3, 4):
                wire.send(commit_request(offset), 2)

        internals(fake_cluster).run(send)  # The cluster reads them together, after this function.
        for _ in range(5):
            wire.receive()
    assert fake_cluster.group("g").offsets()["orders", 0].offset == 4
    assert commit.result().offset == 9
    assert len(request.result()) == 5
    assert len(fake_cluster.journal.requests()) == 2


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3})
def test_a_group_that_its_last_member_leaves(fake_cluster: FakeCluster, start: Start) -> None:
    member_id = stable_group(fake_cluster)
    waiting = start(fake_cluster.wait, fake_cluster.group("g").state("Empty", members=0))
    leave(fake_cluster, member_id)
    assert waiting.result().members == ()


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3})
def test_states_before_the_call_do_not_count(fake_cluster: FakeCluster) -> None:
    leave(fake_cluster, stable_group(fake_cluster))
    with pytest.raises(WaitTimeout):
        fake_cluster.wait(fake_cluster.group("g").state("PreparingRebalance"), timeout_s=0)


@pytest.mark.fake_cluster(brokers=2, topics={"orders": 3})
def test_states_at_a_zombie_coordinator_do_not_count(fake_cluster: FakeCluster, start: Start) -> None:
    member_id = stable_group(fake_cluster)
    old = fake_cluster.group("g").coordinator()
    fake_cluster.group("g").move_coordinator(3 - old.node_id, zombie=True)
    waiting = start(fake_cluster.wait, fake_cluster.group("g").state("Empty"))
    with WireClient(old) as wire:
        wire.ask(leave_request(member_id), LeaveGroupResponse)
    assert "LeaveGroup" in str(fake_cluster.group("g").timeline())
    assert not waiting.done()
    leave(fake_cluster, member_id)
    assert waiting.result().members == ()


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3})
def test_waits_go_on_after_a_reset(fake_cluster: FakeCluster, start: Start) -> None:
    state = start(fake_cluster.wait, fake_cluster.group("g").state("PreparingRebalance"))
    request = start(fake_cluster.wait, fake_cluster.requested("JoinGroup"))
    fake_cluster.reset()
    stable_group(fake_cluster)
    assert state.result().state == "PreparingRebalance"
    assert request.result()[0].api.name == "JoinGroup"


STOPPED_WAITS: dict[str, Callable[[FakeCluster], Condition[Any]]] = {
    "group('g').stable()": lambda cluster: cluster.group("g").stable(),
    "group('g').state(above=3)": lambda cluster: cluster.group("g").state(above=3),
    "group('g').committed(partition='orders-0', at_least=1)": lambda cluster: cluster.group("g").committed(
        "orders-0", at_least=1
    ),
    "transaction('t').state(state='Ongoing')": lambda cluster: cluster.transaction("t").state("Ongoing"),
    "requested()": lambda cluster: cluster.requested(),
    "~broker(1).up() | topic('new').exists()": lambda cluster: ~cluster.broker(1).up() | cluster.topic("new").exists(),
    "never": lambda cluster: predicate("never", lambda: False),
    "broker(1).up() & never": lambda cluster: cluster.broker(1).up() & predicate("never", lambda: False),
}


def test_a_wait_ends_when_the_cluster_stops(subtests: pytest.Subtests) -> None:
    has_polled = threading.Event()
    with ThreadPoolExecutor(20) as pool:
        with FakeCluster(brokers=1) as cluster:
            futures = {
                text: pool.submit(cluster.wait, condition(cluster), TIMEOUT_S)
                for text, condition in STOPPED_WAITS.items()
            }
            polled = predicate("polled", lambda: False)
            futures["polled"] = pool.submit(cluster.wait, polled, TIMEOUT_S, polling=[has_polled.set])
            futures["stays"] = pool.submit(cluster.stays, ~cluster.group("g").stable(), TIMEOUT_S)
            while len(internals(cluster).server.reactor.watchers) < len(futures):
                cluster.groups()
            assert has_polled.wait(TIMEOUT_S)
        for text, future in futures.items():
            with subtests.test(wait=text):
                error = future.exception(TIMEOUT_S)
                assert isinstance(error, ClusterStopped)
                assert isinstance(error, FakebrokerError)
                assert not isinstance(error, TimeoutError)
                if text in STOPPED_WAITS:
                    assert str(error).startswith(f"the cluster stopped during a wait for {text}\n")
        assert "g is Dead: there is no such group." in str(futures["group('g').stable()"].exception())
    assert remains_of_waits(cluster) == []


def test_a_stop_of_a_wait_that_holds_then_is_no_error() -> None:
    """The last change of a cluster before it stops is in time."""
    cluster = FakeCluster(brokers=1)
    with ThreadPoolExecutor() as pool:
        with cluster:
            waiting = pool.submit(cluster.wait, cluster.topic("new").exists(), TIMEOUT_S)
            while not internals(cluster).server.reactor.watchers:
                cluster.groups()
            cluster.topic("new").create()
        assert waiting.result().name == "new"


def test_a_wait_in_a_loop_ends_when_the_cluster_stops(subtests: pytest.Subtests) -> None:
    async def wait(cluster: FakeCluster, errors: list[BaseException]) -> None:
        try:
            await cluster.wait_async(cluster.group("g").stable(), timeout_s=TIMEOUT_S)
        except ClusterStopped as error:
            errors.append(error)

    async def with_trio(errors: list[BaseException]) -> None:
        async with trio.open_nursery() as nursery, FakeCluster(brokers=1) as cluster:
            nursery.start_soon(wait, cluster, errors)
            await trio.testing.wait_all_tasks_blocked()

    async def with_asyncio(errors: list[BaseException]) -> None:
        async with FakeCluster(brokers=1) as cluster:
            task = asyncio.create_task(wait(cluster, errors))
            while not internals(cluster).server.reactor.watchers:
                await internals(cluster).server.run_async(lambda: None)
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
                tasks.create_task(cluster.wait_async(cluster.requested("Heartbeat"))),
                tasks.create_task(cluster.wait_async(cluster.group("g").stable(members=1))),
                tasks.create_task(cluster.wait_async(cluster.group("g").state(above=0))),
                tasks.create_task(cluster.wait_async(cluster.group("g").committed("orders-2", at_least=42))),
                tasks.create_task(
                    cluster.wait_async(predicate("a topic", lambda: "x" in internals(cluster).cluster.topics))
                ),
            ]
            assert await internals(cluster).server.run_async(lambda: internals(cluster).server.is_cluster_thread)
            with pytest.raises(ZeroDivisionError):
                await internals(cluster).server.run_async(lambda: 1 // 0)
            with pytest.raises(WaitTimeout):
                await cluster.wait_async(cluster.group("h").stable(), timeout_s=0)
            await asyncio.to_thread(stable_group, cluster)
            cluster.topic("x").create()
            with WireClient(cluster.brokers[0]) as wire:
                wire.ask(heartbeat_request("g"), HeartbeatResponse)
        assert [type(wait.result()).__name__ for wait in waits] == [
            "list", "GroupView", "GroupView", "CommittedOffset", "bool",
        ]  # fmt: skip
        task = asyncio.create_task(cluster.wait_async(cluster.group("g").state("Dead")))
        while not internals(cluster).server.reactor.watchers:
            await internals(cluster).server.run_async(lambda: None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await internals(cluster).server.run_async(lambda: remains_of_waits(cluster)) == []

    with FakeCluster(brokers=1, topics={"orders": 3}) as cluster:
        asyncio.run(main(cluster))


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3}, config={"group.initial.rebalance.delay.ms": 0})
def test_dropped_changes_are_mentioned(fake_cluster: FakeCluster) -> None:
    history = internals(fake_cluster).cluster.history
    history.max_moments_of_one = 1
    fake_cluster.group("g").seed(3, topics=["orders"])
    fake_cluster.group("g").rebalance()
    first = fake_cluster.group("g").describe().members[0].member_id
    fake_cluster.group("g").evict(first)
    timeline = fake_cluster.group("g").timeline()
    assert timeline.dropped == history.dropped_of("g")
    note = f"{timeline.dropped.count} earlier changes were dropped from the history, up to 20"
    assert note in timeline.text()
    assert note in timeline.svg()
    assert note in str(fake_cluster.group("g").describe().timeline())
    unknown = f"The cause is not known: {timeline.dropped.count} earlier changes were dropped from the history."
    assert unknown in fake_cluster.group("g").explain()
    history.max_moments = 0
    fake_cluster.group("h").seed(1, topics=["orders"])
    fake_cluster.group("g").evict(fake_cluster.group("g").describe().members[0].member_id)
    gone = fake_cluster.group("g").timeline()
    assert gone.moments == ()
    assert str(gone).startswith(f"group g: {gone.dropped.count} earlier changes were dropped from the history, up to")


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 4}, clock="manual")
def test_waits_for_members_of_consumer_groups(fake_cluster: FakeCluster, start: Start) -> None:
    fake_cluster.group("g").seed([MemberSeed(member_id="a", client_id="app")], topics=["orders"], type="consumer")
    revoking = start(fake_cluster.wait, fake_cluster.group("g").member("app", "UNREVOKED_PARTITIONS"))
    reached = start(fake_cluster.wait, fake_cluster.group("g").member("a", above=1))
    joined = start(fake_cluster.wait, fake_cluster.group("g").member("i", "UNRELEASED_PARTITIONS"))
    assert fake_cluster.wait(fake_cluster.group("g").member("app", "STABLE"), timeout_s=0).type == "consumer"
    topic = internals(fake_cluster).cluster.topics.get("orders")
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
    with pytest.raises(WaitTimeout, match=r"'g'\)\.member\(member='a', state='UNKNOWN', above=7\)\ng has been in "):
        fake_cluster.wait(fake_cluster.group("g").member("a", "UNKNOWN", above=7), timeout_s=0)

    async def wait() -> int | None:
        group = await fake_cluster.wait_async(fake_cluster.group("g").member("b", above=1), timeout_s=0)
        return group.assignment_epoch

    assert asyncio.run(wait()) == 2


# What stays


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 3}, config={"group.initial.rebalance.delay.ms": 0})
def test_a_moment_in_which_a_condition_does_not_hold(fake_cluster: FakeCluster, start: Start) -> None:
    stable_group(fake_cluster)
    group, topic = fake_cluster.group("g"), fake_cluster.topic("orders")
    never_prepares = start(fake_cluster.stays, ~group.state("PreparingRebalance"), TIMEOUT_S)
    both = start(fake_cluster.stays, topic.exists() & ~group.state("PreparingRebalance"), TIMEOUT_S)
    either = start(fake_cluster.stays, topic.exists() | ~group.state("PreparingRebalance"), 0.3)
    rebalance(fake_cluster)
    assert group.describe().state == "CompletingRebalance"
    for waiting in (never_prepares, both):
        error = waiting.exception()
        assert isinstance(error, ConditionNotMet)
        assert isinstance(error, AssertionError)
        assert str(error).startswith(f"it did not hold for {TIMEOUT_S} s: ")
    assert "~group('g').state(state='PreparingRebalance')\ng has been in CompletingRebalance" in str(
        never_prepares.exception()
    )
    assert either.result() is None


@pytest.mark.fake_cluster(topics={"orders": 3})
def test_what_does_not_hold_at_first_does_not_stay(fake_cluster: FakeCluster) -> None:
    begun_s = time.monotonic()
    with pytest.raises(
        ConditionNotMet, match=r"^it did not hold for 20 s: topic\('other'\)\.exists\(\)\nno topic `other`"
    ):
        fake_cluster.stays(fake_cluster.topic("other").exists(), 20)
    assert time.monotonic() - begun_s < 10
    with pytest.raises(ConditionNotMet):
        fake_cluster.stays(~fake_cluster.topic("orders").exists(), 0)
    fake_cluster.stays(fake_cluster.topic("orders").exists(), 0)


@pytest.mark.fake_cluster(topics={"orders": 3})
def test_what_holds_all_the_time_stays(fake_cluster: FakeCluster) -> None:
    begun_s, polls = time.monotonic(), []
    fake_cluster.stays(fake_cluster.topic("orders").exists(), 0.2, polling=[lambda: polls.append(1)])
    assert time.monotonic() - begun_s >= 0.2
    assert polls
    looks: list[threading.Thread] = []

    def look() -> bool:
        looks.append(threading.current_thread())
        return len(looks) < 4

    with pytest.raises(ConditionNotMet, match=r"^it did not hold for 20 s: fewer than four looks\n"):
        fake_cluster.stays(predicate("fewer than four looks", look), 20)
    assert looks == [threading.current_thread()] * 4


@pytest.mark.fake_cluster(topics={"orders": 3}, clock="manual")
def test_stays_does_not_blame_a_manual_clock(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ConditionNotMet) as caught:
        fake_cluster.stays(fake_cluster.group("g").stable(), 0)
    assert "clock" not in str(caught.value)


def test_stays_in_a_task(subtests: pytest.Subtests) -> None:
    async def main() -> None:
        async with FakeCluster(topics={"orders": 1}) as cluster:
            exists = cluster.topic("orders").exists()
            await cluster.stays_async(exists, 0.05)
            with pytest.raises(ConditionNotMet, match=r"^it did not hold for 0\.05 s: ~topic"):
                await cluster.stays_async(~exists, 0.05)
            if trio.lowlevel.in_trio_task():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(delete_soon, cluster)
                    with pytest.raises(ConditionNotMet):
                        await cluster.stays_async(exists, TIMEOUT_S)
            else:
                deleting = asyncio.create_task(delete_soon(cluster))
                with pytest.raises(ConditionNotMet):
                    await cluster.stays_async(exists, TIMEOUT_S)
                await deleting

    async def delete_soon(cluster: FakeCluster) -> None:
        while not internals(cluster).server.reactor.watchers:
            await internals(cluster).server.run_async(lambda: None)
            await (trio.lowlevel.checkpoint() if trio.lowlevel.in_trio_task() else asyncio.sleep(0))
        cluster.topic("orders").delete()
        cluster.topic("orders").create()

    with subtests.test(loop="trio"):
        trio.run(main)
    with subtests.test(loop="asyncio"):
        asyncio.run(main())
