"""Waits of FakeCluster for conditions of each kind, composed conditions and predicates; their errors; event loops."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from fakebroker import ConfigError, FakebrokerError, FakeCluster, WaitTimeout, predicate
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import heartbeat_request, join_request
from tests.support.groups_over_tcp import heartbeat, stable_group
from tests.support.server.pending_waits import Start, pending_waits, remains_of_waits
from tests.support.wire_client import TIMEOUT_S, WireClient

STOOD_STILL = "The brokers' clock is manual, and stood still during the wait; `advance` moves it."


@pytest.fixture
def start(fake_cluster: FakeCluster) -> Iterator[Start]:
    """A function that starts a wait in a thread, and returns its future as soon as the wait is registered."""
    with pending_waits(fake_cluster) as function:
        yield function


def error_of_wait(cluster: FakeCluster, condition: Any, timeout_s: float = 0) -> WaitTimeout:
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait(condition, timeout_s)
    return caught.value


# Conditions


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_wait_for_a_state(fake_cluster: FakeCluster, start: Start) -> None:
    waiting = start(fake_cluster.wait, fake_cluster.group("g").stable(members=1))
    member_id = stable_group(fake_cluster, "g")
    group = waiting.result()
    assert (group.state, group.leader_id) == ("Stable", member_id)
    # The conditions hold already.
    assert fake_cluster.wait(fake_cluster.group("g").stable(), timeout_s=0) == group
    assert fake_cluster.wait(fake_cluster.group("g").state(members=1), timeout_s=0) == group
    assert fake_cluster.wait(fake_cluster.group("other").state("Dead", members=0), timeout_s=0).members == ()


@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual")
def test_wait_for_a_state_that_the_clock_causes(fake_cluster: FakeCluster, start: Start) -> None:
    stable_group(fake_cluster, "g")
    waiting = start(fake_cluster.wait, fake_cluster.group("g").state("Empty"))
    fake_cluster.advance(29)
    assert not waiting.done()
    fake_cluster.advance(1)
    assert waiting.result().members == ()


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_wait_for_a_generation(fake_cluster: FakeCluster, start: Start) -> None:
    stable_group(fake_cluster, "g")
    waiting = start(fake_cluster.wait, fake_cluster.group("g").state(above=1))
    with WireClient(fake_cluster.group("g").coordinator()) as wire:
        wire.ask(join_request("g", fake_cluster.group("g").describe().members[0].member_id), JoinGroupResponse)
    assert waiting.result().generation_id == 2
    assert fake_cluster.wait(fake_cluster.group("g").state(above=1), timeout_s=0).generation_id == 2
    # A group that does not exist has no generation.
    error_of_wait(fake_cluster, fake_cluster.group("other").state(above=-1))


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_wait_for_a_commit(fake_cluster: FakeCluster, start: Start) -> None:
    waiting = start(fake_cluster.wait, fake_cluster.group("g").committed("orders-2", at_least=42))
    stable_group(fake_cluster, "g")
    assert waiting.result().offset == 42
    late = error_of_wait(fake_cluster, fake_cluster.group("g").committed("orders-2", at_least=43))
    assert str(late).startswith("not reached within 0 s: group('g').committed(partition='orders-2', at_least=43)\n")
    assert str(late).endswith("\ncommitted by g: orders-2 at 42")
    nothing = error_of_wait(fake_cluster, fake_cluster.group("h").committed("orders-1", at_least=0))
    assert "\ncommitted by h: nothing\n" in str(nothing)


def test_wait_for_requests(fake_cluster: FakeCluster, start: Start) -> None:
    with WireClient(fake_cluster.brokers[0], "a") as wire, WireClient(fake_cluster.brokers[1], "b") as other:
        wire.ask(heartbeat_request("g"), HeartbeatResponse)
        waiting = start(
            fake_cluster.wait,
            fake_cluster.requested("Heartbeat", client_id="a", group="g", count=2),
            timeout_s=TIMEOUT_S,
        )
        other.ask(heartbeat_request("g"), HeartbeatResponse)
        wire.ask(heartbeat_request("h"), HeartbeatResponse)
        assert not waiting.done()
        wire.ask(heartbeat_request("g"), HeartbeatResponse)
        assert [call.client_id for call in waiting.result()] == ["a", "a"]
    assert len(fake_cluster.wait(fake_cluster.requested(count=4), timeout_s=0)) == 4


@pytest.mark.fake_cluster(brokers=1, config={"group.initial.rebalance.delay.ms": 60_000}, clock="manual")
def test_wait_for_a_request_with_a_certain_response(fake_cluster: FakeCluster, start: Start) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        waiting = start(fake_cluster.wait, fake_cluster.requested("JoinGroup", error="NONE"))
        member_id = wire.ask(join_request("g"), JoinGroupResponse).member_id
        wire.send(join_request("g", member_id))
        fake_cluster.wait(fake_cluster.group("g").state("PreparingRebalance", members=1))
        assert not waiting.done()
        fake_cluster.advance(60)
        (call,) = waiting.result()
    assert call.response.generation_id == 1


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_wait_for_records_topics_and_brokers(fake_cluster: FakeCluster, start: Start) -> None:
    orders, news = fake_cluster.topic("orders"), fake_cluster.topic("news")
    in_topic = start(fake_cluster.wait, orders.has(3))
    in_partition = start(fake_cluster.wait, orders.partition(1).has(2))
    exists = start(fake_cluster.wait, news.exists())
    has_three = start(fake_cluster.wait, news.exists(partitions=3))
    added = start(fake_cluster.wait, fake_cluster.broker(4).up())
    orders.produce(["a"], partition=0)
    orders.produce(["b"], partition=1)
    assert not in_topic.done()
    orders.produce(["c"], partition=1)
    assert [(each.partition, each.value) for each in in_topic.result()] == [(0, b"a"), (1, b"b"), (1, b"c")]
    assert [each.value for each in in_partition.result()] == [b"b", b"c"]
    news.create(2)
    assert len(exists.result().partitions) == 2
    assert not has_three.done()
    news.create_partitions(3)
    assert len(has_three.result().partitions) == 3
    assert added.done() is False
    fake_cluster.brokers.add()
    assert added.result() == fake_cluster.brokers[3]
    fake_cluster.broker(1).stop()
    assert fake_cluster.wait(~fake_cluster.broker(1).up(), timeout_s=0) is None
    again = start(fake_cluster.wait, fake_cluster.broker(1).up())
    fake_cluster.broker(1).start()
    assert again.result().node_id == 1
    # What does not exist has no records, not even 0.
    error_of_wait(fake_cluster, fake_cluster.topic("other").has(0))
    error_of_wait(fake_cluster, orders.partition(2).has(0))
    assert fake_cluster.wait(fake_cluster.topic("news").has(0), timeout_s=0) == []


# Composed conditions


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_what_composed_conditions_find(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    stable, exists = fake_cluster.group("g").stable(), fake_cluster.topic("orders").exists()
    commit, never = fake_cluster.group("g").committed("orders-2", at_least=1), fake_cluster.topic("other").exists()
    group, topic = fake_cluster.group("g").describe(), fake_cluster.topic("orders").describe()
    offset = fake_cluster.group("g").offsets()["orders", 2]
    for condition in ((stable & exists) & commit, stable & (exists & commit)):
        assert fake_cluster.wait(condition, timeout_s=0) == (group, topic, offset)
    assert fake_cluster.wait(stable | never, timeout_s=0) is None
    assert fake_cluster.wait(~never, timeout_s=0) is None
    assert fake_cluster.wait(stable & (exists | never) & ~never, timeout_s=0) == (group, None, None)
    assert fake_cluster.wait((stable & exists) | never, timeout_s=0) is None
    seen = predicate("seen", lambda: "seen")
    assert fake_cluster.wait(stable & seen, timeout_s=0) == (group, "seen")
    assert fake_cluster.wait(seen | never, timeout_s=0) is None
    for unmet in (stable & never, never | never, ~exists, ~(stable & exists), ~(stable | never), never & seen, ~seen):
        assert error_of_wait(fake_cluster, unmet).condition == str(unmet)


def test_both_hold_in_one_moment(fake_cluster: FakeCluster, start: Start) -> None:
    one, two = fake_cluster.topic("one"), fake_cluster.topic("two")
    waiting = start(fake_cluster.wait, one.exists() & two.exists())
    with_predicate = start(fake_cluster.wait, one.exists() & predicate("two", lambda: fake_cluster.holds(two.exists())))
    one.create()
    one.delete()
    two.create()
    fake_cluster.groups()
    assert not waiting.done()
    assert not with_predicate.done()
    one.create()
    assert [each.name for each in waiting.result()] == ["one", "two"]
    assert with_predicate.result()[0].name == "one"


def test_one_of_several(fake_cluster: FakeCluster, start: Start) -> None:
    one, two = fake_cluster.topic("one"), fake_cluster.topic("two")
    waiting = start(fake_cluster.wait, one.exists() | two.exists())
    gone = start(fake_cluster.wait, ~one.exists() & two.exists())
    one.create()
    assert waiting.result() is None
    two.create()
    assert not gone.done()
    one.delete()
    (nothing, topic) = gone.result()
    assert (nothing, topic.name) == (None, "two")


def test_a_part_of_a_condition_counts_what_it_has_seen(fake_cluster: FakeCluster, start: Start) -> None:
    """The journal keeps one request, and the first part holds only at the end."""
    internals(fake_cluster).run(lambda: setattr(internals(fake_cluster).cluster.journal, "max_calls", 1))
    requested, exists = fake_cluster.requested("Heartbeat", count=3), fake_cluster.topic("late").exists()
    waits = [start(fake_cluster.wait, each) for each in (exists & requested, ~(~exists | ~requested))]
    with WireClient(fake_cluster.brokers[0]) as wire:
        for _ in range(3):
            wire.ask(heartbeat_request(), HeartbeatResponse)
    assert [each.done() for each in waits] == [False, False]
    fake_cluster.topic("late").create()
    assert [len(waits[0].result()[1]), waits[1].result()] == [3, None]


# Predicates


@pytest.mark.fake_cluster(brokers=2)
def test_wait_for_a_predicate(fake_cluster: FakeCluster, start: Start) -> None:
    waiting = start(fake_cluster.wait, predicate("a third broker", lambda: list(fake_cluster.brokers)[2:]))
    also = start(fake_cluster.wait, predicate("a group", lambda: fake_cluster.group("g").describe().state == "Dead"))
    assert also.result() is True
    fake_cluster.brokers.add()
    assert waiting.result() == [fake_cluster.brokers[2]]


def test_a_predicate_is_called_in_the_thread_that_waits(fake_cluster: FakeCluster) -> None:
    threads: list[threading.Thread] = []

    def look() -> bool:
        threads.append(threading.current_thread())
        return len(threads) >= 3

    fake_cluster.wait(predicate("looked", look))
    assert threads == [threading.current_thread()] * 3

    async def wait() -> None:
        threads.clear()
        await fake_cluster.wait_async(predicate("looked", look))
        assert threads == [threading.current_thread()] * 3

    trio.run(wait)
    asyncio.run(wait())


def test_a_predicate_is_called_after_changes(
    fake_cluster: FakeCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fakebroker.server.waits._SAMPLE_S", TIMEOUT_S)
    begun_s = time.monotonic()
    waiting = start(
        fake_cluster.wait, predicate("a topic", lambda: len(fake_cluster.topics())), timeout_s=2 * TIMEOUT_S
    )
    fake_cluster.topic("new").create()
    assert waiting.result() == 1
    assert time.monotonic() - begun_s < TIMEOUT_S / 2


def test_a_predicate_is_called_again_although_nothing_changes(fake_cluster: FakeCluster) -> None:
    called_s: list[float] = []
    late = error_of_wait(fake_cluster, predicate("never", lambda: called_s.append(time.monotonic())), 0.5)
    assert (late.condition, late.timeout_s) == ("never", 0.5)
    assert 5 <= len(called_s) <= 50, "every 20 ms"


def test_a_predicate_is_called_at_the_deadline(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fakebroker.server.waits._SAMPLE_S", TIMEOUT_S)
    begun_s = time.monotonic()
    late = predicate("it is late", lambda: time.monotonic() > begun_s + 0.2)
    assert fake_cluster.wait(late, timeout_s=0.3) is True
    assert fake_cluster.wait(predicate("now", lambda: "now"), timeout_s=0) == "now"


@pytest.mark.fake_cluster(topics={"orders": 1})
def test_conditions_hold_before_and_after_predicates_are_called(fake_cluster: FakeCluster) -> None:
    orders = fake_cluster.topic("orders")

    def delete() -> bool:
        if fake_cluster.holds(orders.exists()):
            orders.delete()
        return True

    error_of_wait(fake_cluster, orders.exists() & predicate("deleted", delete), 0.05)
    error_of_wait(fake_cluster, orders.exists() & predicate("created", lambda: orders.create() or True), 0)
    assert fake_cluster.wait(orders.exists() & predicate("nothing happens", lambda: True), timeout_s=0)[1] is True


def test_an_exception_of_a_predicate_is_raised_by_the_wait(fake_cluster: FakeCluster, start: Start) -> None:
    def fails_later() -> bool:
        return "x" in [each.name for each in fake_cluster.topics()] and bool(1 // 0)

    waiting = start(fake_cluster.wait, predicate("nothing", fails_later))
    fake_cluster.topic("x").create()
    with pytest.raises(ZeroDivisionError):
        waiting.result()
    # The cluster still serves requests.
    with WireClient(fake_cluster.brokers[0]) as wire:
        assert wire.ask(heartbeat_request(), HeartbeatResponse).error_code in (16, 25)


# Errors


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_timeout_shows_the_state_of_what_was_waited_for(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    lines = str(error_of_wait(fake_cluster, fake_cluster.group("g").stable(members=3))).splitlines()
    assert lines[0] == "not reached within 0 s: group('g').stable(members=3)"
    assert lines[1].startswith("g has been in Stable for ")
    assert any(line.endswith("SyncGroup of the leader app") for line in lines)
    requested = error_of_wait(fake_cluster, fake_cluster.requested("SyncGroup", "app", count=2))
    assert str(requested).startswith(
        "not reached within 0 s: requested(api='SyncGroup', client_id='app', count=2)\nthe last 4 of 4 requests:\n"
    )
    records = error_of_wait(fake_cluster, fake_cluster.topic("orders").partition(5).has(1))
    assert str(records) == (
        "not reached within 0 s: topic('orders').partition(5).has(at_least=1)\ntopic orders has 0 records; "
        "offsets of partitions: 0: 0 to 0, 1: 0 to 0, 2: 0 to 0, 3: 0 to 0, 4: 0 to 0, 5: 0 to 0"
    )
    assert error_of_wait(fake_cluster, predicate("never", lambda: None)).state == ""
    fake_cluster.broker(2).stop()
    assert error_of_wait(fake_cluster, fake_cluster.broker(2).up()).state == "broker 2 is down"
    assert error_of_wait(fake_cluster, fake_cluster.broker(9).up()).state == "no broker 9; expected one of 1, 2, 3"


def test_a_timeout_shows_everything_of_a_composed_condition_once(fake_cluster: FakeCluster) -> None:
    one, two = fake_cluster.broker(1), fake_cluster.broker(2)
    condition = ~one.up() & (~two.up() | one.up()) & predicate("never", lambda: False)
    assert error_of_wait(fake_cluster, condition).state == "broker 1 is up\nbroker 2 is up"


@pytest.mark.fake_cluster(topics={"orders": 3})
def test_a_timeout_has_fields(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster)
    error = error_of_wait(fake_cluster, fake_cluster.group("g").state("Empty"))
    assert (error.condition, error.timeout_s, error.wait) == ("group('g').state(state='Empty')", 0, None)
    assert error.state.startswith("g has been in Stable")
    assert str(error) == f"not reached within 0 s: {error.condition}\n{error.state}"
    assert isinstance(error, FakebrokerError)
    assert isinstance(error, TimeoutError)


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_wait_for_an_unknown_thing_names_the_others(fake_cluster: FakeCluster) -> None:
    def of_group(group_id: str) -> str:
        return str(error_of_wait(fake_cluster, fake_cluster.group(group_id).stable()))

    assert "no group" not in of_group("biling")
    fake_cluster.group("billing").seed(topics=["orders"])
    fake_cluster.group("shipping").seed(topics=["orders"])
    assert of_group("biling").endswith("\nno group `biling`; nearest: `billing`; others: shipping, billing")
    assert of_group("x").endswith("\nno group `x`; others: shipping, billing")
    assert "no group" not in str(error_of_wait(fake_cluster, fake_cluster.group("billing").state(above=10)))
    fake_cluster.transaction("payments").seed()
    missing = error_of_wait(fake_cluster, fake_cluster.transaction("payment").state("CompleteCommit"))
    assert str(missing).endswith("\nno transactional id `payment`; nearest: `payments`; others: payments")
    topic = error_of_wait(fake_cluster, fake_cluster.topic("ordrs").has(1))
    assert topic.state.startswith("no topic `ordrs`; nearest: `orders`; others: orders, __consumer_offsets")


@pytest.mark.fake_cluster(clock="manual")
def test_a_timeout_mentions_a_manual_clock_that_stood_still(fake_cluster: FakeCluster) -> None:
    never = fake_cluster.group("g").stable()
    assert str(error_of_wait(fake_cluster, never)).endswith(f"\n\n{STOOD_STILL}")
    moving = predicate("never", lambda: fake_cluster.advance(0.001) is not None)
    assert STOOD_STILL not in str(error_of_wait(fake_cluster, never & moving, 0.05))
    with FakeCluster() as cluster:
        assert STOOD_STILL not in str(error_of_wait(cluster, cluster.group("g").stable()))


def test_invalid_conditions_are_rejected_when_they_are_built(fake_cluster: FakeCluster) -> None:
    group = fake_cluster.group("g")
    with pytest.raises(ConfigError, match=r"^state is missing: expected one of Empty, .*, or members or above$"):
        group.state()
    with pytest.raises(ConfigError, match=r"^state='Steady': expected one of Empty, PreparingRebalance"):
        group.state("Steady")
    with pytest.raises(ConfigError, match=r"^state='stable': expected one of .*; did you mean 'Stable'\?$"):
        group.state("stable")
    with pytest.raises(ConfigError, match=r"^state='Stable': expected one of STABLE, "):
        group.member("app", "Stable")
    with pytest.raises(ConfigError, match=r"^members=-1: expected an integer >= 0"):
        group.stable(members=-1)
    with pytest.raises(ConfigError, match=r"^partition='orders': expected a topic and a number"):
        group.committed("orders", at_least=1)
    with pytest.raises(ConfigError, match=r"^partition=.*: expected a string or "):
        group.committed(0, at_least=1)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigError, match=r"^api='Join': expected one of Produce, "):
        fake_cluster.requested("Join")
    with pytest.raises(ConfigError, match=r"^count=0: expected an integer >= 1"):
        fake_cluster.requested(count=0)
    with pytest.raises(ConfigError, match=r"^at_least=-1: expected an integer >= 0"):
        fake_cluster.topic("orders").has(-1)


def test_invalid_arguments_of_waits_are_rejected(fake_cluster: FakeCluster) -> None:
    holds = fake_cluster.group("g").state("Dead")
    for wrong in (-1, float("nan"), float("inf"), "1", True, None):
        with pytest.raises(ConfigError, match=r"^timeout_s=.*: expected a (finite )?number"):
            fake_cluster.wait(holds, wrong)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(ConfigError, match=r"^for_s=.*: expected a (finite )?number"):
            fake_cluster.stays(holds, wrong)  # type: ignore[arg-type]  # wrong on purpose
    no_conditions: list[Any] = [True, None, lambda: True, "group.stable", {"is": "group.stable", "group_id": "g"}]
    methods: list[Callable[[Any], object]] = [fake_cluster.wait, lambda each: fake_cluster.stays(each, 0)]
    for no_condition in no_conditions:
        for method in methods:
            with pytest.raises(
                ConfigError, match=r"^condition=.*: expected a condition, such as cluster\.group\('billi"
            ):
                method(no_condition)


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_cluster_that_does_not_run_only_satisfies_conditions_that_hold() -> None:
    cluster = FakeCluster(topics={"orders": 6})
    error = r"^waiting for group\('g'\)\.state\(state='Empty'\): expected a running cluster$"
    assert cluster.wait(cluster.topic("orders").exists()).name == "orders"
    with pytest.raises(ConfigError, match=error):
        cluster.wait(cluster.group("g").state("Empty"))
    with cluster:
        stable_group(cluster, "g")
    assert cluster.wait(cluster.group("g").stable()).generation_id == 1
    with pytest.raises(ConfigError, match=error):
        cluster.wait(cluster.group("g").state("Empty"))
    assert remains_of_waits(cluster) == []


# Event loops


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
        (call,) = await cluster.wait_async(cluster.requested("Heartbeat", "other"), timeout_s=TIMEOUT_S)
        assert call.client_id == "other"
        assert (await cluster.wait_async(cluster.group("g").state("Dead"))).state == "Dead"
        assert await cluster.wait_async(predicate("brokers", lambda: len(cluster.brokers))) == 3
        with pytest.raises(WaitTimeout):
            await cluster.wait_async(cluster.group("g").committed("orders-0", at_least=1), timeout_s=0)
        with pytest.raises(WaitTimeout):
            await cluster.wait_async(cluster.group("g").state(above=0), timeout_s=0)
        with pytest.raises(ConfigError, match=r"^timeout_s=-1: expected a number >= 0$"):
            await cluster.wait_async(cluster.group("g").state("Dead"), timeout_s=-1)
        with trio.move_on_after(0):
            await cluster.wait_async(cluster.group("g").stable(), timeout_s=TIMEOUT_S)
        with trio.move_on_after(0) as scope:  # The condition holds, but a wait is always a checkpoint.
            await cluster.wait_async(cluster.group("g").state("Dead"))
        assert scope.cancelled_caught
        # In the cluster's thread, after the end of the canceled waits, which they do not await.
        assert await internals(cluster).server.run_async(lambda: remains_of_waits(cluster)) == []
        await trio.to_thread.run_sync(thread.join)

    async def inside() -> None:
        async with FakeCluster() as cluster:
            await main(cluster)

    async def outside() -> None:
        with FakeCluster() as cluster:
            await main(cluster)

    trio.run(outside if has_thread else inside)


def test_a_wait_that_would_block_an_event_loop_is_refused(subtests: pytest.Subtests) -> None:
    async def main() -> None:
        async with FakeCluster(brokers=1) as cluster:
            holds = cluster.group("g").state("Dead")
            waits: dict[str, Callable[[], object]] = {
                "wait": lambda: cluster.wait(holds),
                "stays": lambda: cluster.stays(holds, 0),
            }
            for name, wait in waits.items():
                error = rf"^{name}\(\) would block the event loop of the calling task: use {name}_async\(\)$"
                with pytest.raises(FakebrokerError, match=error):
                    wait()
            assert cluster.holds(holds), "it does not block"
            in_thread: Any = trio.to_thread.run_sync if trio.lowlevel.in_trio_task() else asyncio.to_thread
            assert (await in_thread(cluster.wait, holds)).state == "Dead"

    with subtests.test(loop="trio"):
        trio.run(main)
    with subtests.test(loop="asyncio"):
        asyncio.run(main())


def test_code_in_a_loop_that_is_no_task_may_wait() -> None:
    """So does Playwright's sync API: tests run in its loop, without a task."""
    found: list[str] = []

    async def main(cluster: FakeCluster) -> None:
        asyncio.get_running_loop().call_soon(lambda: found.append(cluster.wait(cluster.group("g").state("Dead")).state))
        await asyncio.sleep(0)

    with FakeCluster(brokers=1) as cluster:
        asyncio.run(main(cluster))
    assert found == ["Dead"]


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_above_alone_means_a_generation_with_members(fake_cluster: FakeCluster) -> None:
    group = fake_cluster.group("g")
    group.seed(1, topics=["orders"])
    before = group.describe().generation_id
    group.evict(group.describe().members[0].member_id)
    assert group.describe().generation_id > before
    assert not fake_cluster.holds(group.state(above=before))
    assert fake_cluster.holds(group.state("Empty", above=before))
    assert fake_cluster.holds(group.state(above=before, members=0))


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_a_wait_for_a_partition_that_does_not_exist_says_so(fake_cluster: FakeCluster) -> None:
    with pytest.raises(WaitTimeout, match=r"\nno partition orders-7\ntopic orders has 0 records"):
        fake_cluster.wait(fake_cluster.topic("orders").partition(7).has(1), timeout_s=0)
