"""The consumer over TCP as a member of a group: callbacks, rebalances, patterns and changes of coordinator."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from fakebroker import FakeCluster
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.client.errors import CommitFailed, GroupFailed
from fakebroker.client.member.assignors import Assignments, assign_round_robin
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import Subscription
from fakebroker.server.fake_cluster import internals
from fakebroker.topic_partition import TopicPartition
from tests.support.client.consumer_over_tcp import (
    DEADLINE_S,
    P0,
    P1,
    P2,
    committed,
    consumer,
    poll_until,
    produce,
    read,
)
from tests.support.trio_runner import in_trio_with_sockets

Partitions = tuple[TopicPartition, ...]


class CallbackLog:
    """The callbacks of an application.

    Attributes:
        entries: The kind and the partitions of each callback.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, Partitions]] = []

    def listeners(self) -> dict[str, Any]:
        """Return arguments of `Consumer.subscribe`."""
        return {
            f"on_{kind}": lambda partitions, kind=kind: self.entries.append((kind, partitions))
            for kind in ("assigned", "revoked", "lost")
        }


# Rebalances


@in_trio_with_sockets
async def test_on_revoked_can_commit_before_the_rebalance() -> None:
    async with FakeCluster(1, {"orders": 2}) as cluster, consumer(cluster) as first, consumer(cluster) as second:
        produce(cluster, P0, b"a")
        produce(cluster, P1, b"b")
        callbacks: list[tuple[str, Partitions]] = []

        async def revoked(partitions: Partitions) -> None:
            await first.commit()
            callbacks.append(("revoked", partitions))

        first.subscribe(["orders"], on_assigned=lambda added: callbacks.append(("assigned", added)), on_revoked=revoked)
        await read(first, 2)
        second.subscribe(["orders"])
        await poll_until([first, second], lambda: len(callbacks) == 3)
        await poll_until([first, second], lambda: len(cluster.group("g").describe().members) == 2)
        assert callbacks == [("assigned", (P0, P1)), ("revoked", (P0, P1)), ("assigned", callbacks[2][1])]
        assert len(callbacks[2][1]) == 1
        assert (committed(cluster, P0), committed(cluster, P1)) == (1, 1)

        (commit,) = cluster.journal.requests("OffsetCommit")
        assert commit.request.generation_id_or_member_epoch == 1
        assert [each.error_code for each in commit.response.topics[0].partitions] == [0, 0]
        rejoin = cluster.journal.requests("JoinGroup", member=commit.request.member_id)[-1]
        order = list(internals(cluster).cluster.journal)
        assert order.index(commit) < order.index(rejoin)


@in_trio_with_sockets
async def test_a_rebalance_waits_until_the_application_polls() -> None:
    async with FakeCluster(1, {"orders": 2}) as cluster, consumer(cluster) as first, consumer(cluster) as second:
        callbacks = CallbackLog()
        first.subscribe(["orders"], **callbacks.listeners())
        await poll_until([first], lambda: bool(callbacks.entries))
        second.subscribe(["orders"])
        await poll_until([second], lambda: cluster.group("g").describe().state == "PreparingRebalance")
        await poll_until([second], lambda: first._core.member.state is MemberState.STOPPED)
        assert first._core.member.assigned == (P0, P1)
        await poll_until([first], lambda: len(callbacks.entries) == 3)
        assert callbacks.entries[1] == ("revoked", (P0, P1))


@in_trio_with_sockets
async def test_a_cooperative_rebalance_revokes_only_partitions_that_move() -> None:
    settings = {"assignor": "cooperative-sticky"}
    async with (
        FakeCluster(1, {"orders": 3}) as cluster,
        consumer(cluster, **settings) as first,
        consumer(cluster, **settings) as second,
    ):
        for partition in (P0, P1, P2):
            produce(cluster, partition, b"1")
        callbacks, records = CallbackLog(), list[ConsumerRecord]()
        first.subscribe(["orders"], **callbacks.listeners())
        await poll_until([first], lambda: len(records) == 3, records)
        await first.commit()
        second.subscribe(["orders"])
        await poll_until([first, second], lambda: second._core.assigned != (), records)
        (revoked,) = [partitions for kind, partitions in callbacks.entries if kind == "revoked"]
        assert len(revoked) == 1
        assert {*first._core.assigned, *revoked} == {P0, P1, P2}
        for partition in (P0, P1, P2):
            produce(cluster, partition, b"2")
        await poll_until([first, second], lambda: len(records) == 6, records)
        assert sorted((each.partition, each.offset) for each in records) == [(p, o) for p in range(3) for o in range(2)]


@in_trio_with_sockets
async def test_a_consumer_that_is_not_polled_leaves_its_group_until_the_next_poll() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, max_poll_interval_ms=200) as reader:
        produce(cluster, P0, b"a")
        callbacks = CallbackLog()
        reader.subscribe(["orders"], **callbacks.listeners())
        await read(reader, 1)
        await cluster.wait_async(cluster.group("g").state("Empty"))
        with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID"):
            await reader.commit()
        assert await read(reader, 1) == [b"a"]
        kinds = [kind for kind, _ in callbacks.entries]
        assert kinds[:3] == ["assigned", "lost", "assigned"]


@in_trio_with_sockets
async def test_an_evicted_consumer_joins_again() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        callbacks = CallbackLog()
        reader.subscribe(["orders"], **callbacks.listeners())
        await poll_until([reader], lambda: bool(callbacks.entries))
        cluster.group("g").evict(cluster.group("g").describe().members[0].member_id)
        await poll_until([reader], lambda: len(callbacks.entries) == 3)
        assert callbacks.entries[1:] == [("lost", (P0,)), ("assigned", (P0,))]


@in_trio_with_sockets
async def test_unsubscribe_calls_on_revoked_and_leaves_the_group() -> None:
    async with FakeCluster(1, {"orders": 1, "more": 1}) as cluster, consumer(cluster) as reader:
        callbacks = CallbackLog()
        reader.subscribe(["orders"], **callbacks.listeners())
        await poll_until([reader], lambda: bool(callbacks.entries))
        await reader.unsubscribe()
        assert callbacks.entries[-1] == ("revoked", (P0,))
        await cluster.wait_async(cluster.group("g").state("Empty"))
        reader.subscribe(["more"])
        await poll_until([reader], lambda: reader._core.assigned == (("more", 0),))
        reader.subscribe(["orders", "more"])
        await poll_until([reader], lambda: reader._core.assigned == (("more", 0), P0))


@in_trio_with_sockets
async def test_a_consumer_can_be_closed_during_a_rebalance() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        async with consumer(cluster) as late:
            late.subscribe(["orders"])
            await late.poll(0)
            await cluster.wait_async(cluster.requested("JoinGroup", count=4))
        await poll_until([reader], lambda: [m.client_id for m in cluster.group("g").describe().members] == ["c"])


@in_trio_with_sockets
async def test_a_static_consumer_returns_without_a_rebalance() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        for _ in range(2):
            async with consumer(cluster, instance_id="i") as reader:
                reader.subscribe(["orders"])
                assert await reader.assignment() == (P0,)
        assert cluster.group("g").describe().generation_id == 1


class FirstMemberAssignor:
    """Assigns all partitions to the member with the lowest member id."""

    name = "first-member"
    is_cooperative = False

    def partitions_to_consume(
        self, subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        first, *others = sorted(member.member_id for member in subscriptions)
        subscription = Subscription(member_id=first, topics=tuple(partition_counts))
        return assign_round_robin([subscription], partition_counts) | {member_id: [] for member_id in others}


@in_trio_with_sockets
async def test_a_custom_assignor_is_used() -> None:
    settings = {"assignor": FirstMemberAssignor()}
    async with (
        FakeCluster(1, {"orders": 3}) as cluster,
        consumer(cluster, **settings) as first,
        consumer(cluster, **settings) as second,
    ):
        for each in (first, second):
            each.subscribe(["orders"])
        await poll_until(
            [first, second],
            lambda: len(cluster.group("g").describe().members) == 2 and cluster.group("g").describe().state == "Stable",
        )
        shares = {len(await first.assignment()), len(await second.assignment())}
        assert (shares, cluster.group("g").describe().protocol_name) == ({0, 3}, "first-member")


class FailingAssignor(FirstMemberAssignor):
    """Raises an exception, or returns a value that is not an assignment."""

    name = "failing"

    def __init__(self, outcome: object) -> None:
        self.outcome = outcome

    def partitions_to_consume(
        self, subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return cast(Assignments, self.outcome)


@in_trio_with_sockets
async def test_the_error_of_a_custom_assignor_is_raised_by_poll(subtests: pytest.Subtests) -> None:
    outcomes: tuple[object, ...] = (ZeroDivisionError("no shares"), None, {"somebody": "everything"})
    for outcome in outcomes:
        with subtests.test(outcome=outcome):
            assignor = FailingAssignor(outcome)
            async with FakeCluster(1, {"orders": 3}) as cluster, consumer(cluster, assignor=assignor) as reader:
                reader.subscribe(["orders"])
                with pytest.raises(GroupFailed, match=r"the assignor 'failing' failed with .*, expected partitions"):
                    await reader.poll(DEADLINE_S)


# Patterns and new partitions


@in_trio_with_sockets
async def test_a_pattern_matches_topics_created_later_but_no_internal_ones() -> None:
    async with FakeCluster(1, {"orders.eu": 1, "my.orders.eu": 1, "orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(re.compile(r"orders\..*|__.*"))
        await poll_until([reader], lambda: reader._core.assigned == (("orders.eu", 0),))
        cluster.topic("orders.us").create(2)
        produce(cluster, ("orders.us", 1), b"a")
        assert await read(reader, 1) == [b"a"]
        assert set(await reader.assignment()) == {("orders.eu", 0), ("orders.us", 0), ("orders.us", 1)}


@in_trio_with_sockets
async def test_internal_topics_can_be_subscribed_to_by_name() -> None:
    async with FakeCluster(1, config={"offsets.topic.num.partitions": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["__consumer_offsets"])
        assert await reader.assignment() == (("__consumer_offsets", 0),)


@in_trio_with_sockets
async def test_new_partitions_are_assigned() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        cluster.topic("orders").create_partitions(3)
        await poll_until([reader], lambda: reader._core.assigned == (P0, P1, P2))


# Coordinators


@in_trio_with_sockets
async def test_reading_continues_while_the_coordinator_is_looked_up() -> None:
    async with FakeCluster(3, {"orders": 1}) as cluster, consumer(cluster) as reader:
        callbacks = CallbackLog()
        reader.subscribe(["orders"], **callbacks.listeners())
        produce(cluster, P0, b"a")
        assert await read(reader, 1) == [b"a"]  # The consumer knows the committed offset now, and need not fetch it.
        cluster.group("g").move_coordinator(None)
        await poll_until([reader], lambda: reader._core.member.state is MemberState.REDISCOVERING)
        produce(cluster, P0, b"b")
        assert await read(reader, 1) == [b"b"]
        cluster.group("g").move_coordinator(2, load_ms=20)
        await reader.commit()
        assert committed(cluster, P0) == 2
        assert (len(callbacks.entries), cluster.group("g").describe().generation_id) == (1, 1)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@in_trio_with_sockets
async def test_reading_and_commits_survive_restarts_of_coordinators(assignor: str) -> None:
    async with FakeCluster(3, {"orders": 2}) as cluster, consumer(cluster, assignor=assignor) as reader:
        reader.subscribe(["orders"])
        for value in (b"a", b"b", b"c"):
            produce(cluster, P0, value)
            assert await read(reader, 1) == [value]
            await reader.commit()
            cluster.broker(cluster.group("g").coordinator().node_id).restart()
        assert committed(cluster, P0) == 3


@in_trio_with_sockets
async def test_a_commit_is_repeated_after_a_request_timeout() -> None:
    async with FakeCluster(2, {"orders": 1}) as cluster, consumer(cluster, request_timeout_ms=50) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        with cluster.inject_fault("OffsetCommit", silent=True, times=2):
            await reader.commit({P0: 3})
        assert committed(cluster, P0) == 3


@in_trio_with_sockets
async def test_after_an_error_of_the_group_the_next_poll_joins_again() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        cluster.inject_fault("JoinGroup", error="GROUP_AUTHORIZATION_FAILED", times=1)
        reader.subscribe(["orders"])
        with pytest.raises(GroupFailed, match="GROUP_AUTHORIZATION_FAILED") as raised:
            await reader.poll(DEADLINE_S)
        assert raised.value.error is ErrorCode.GROUP_AUTHORIZATION_FAILED
        await poll_until([reader], lambda: reader._core.assigned == (P0,))
