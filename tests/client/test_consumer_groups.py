"""The consumer over TCP as a member of a group: callbacks, rebalances, patterns, and coordinators that go."""

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


class Diary:
    """What an application was called back for, in order."""

    def __init__(self, name: str = "") -> None:
        self.entries: list[tuple[str, Partitions]] = []
        self.name = name

    def listeners(self) -> dict[str, Any]:
        return {
            f"on_{kind}": lambda partitions, kind=kind: self.entries.append((kind, partitions))
            for kind in ("assigned", "revoked", "lost")
        }


# Rebalances


@in_trio_with_sockets
async def test_what_goes_is_told_and_committed_before_the_next_round() -> None:
    async with FakeCluster(1, {"orders": 2}) as cluster, consumer(cluster) as first, consumer(cluster) as second:
        produce(cluster, P0, b"a")
        produce(cluster, P1, b"b")
        diary: list[tuple[str, Partitions]] = []

        async def revoked(partitions: Partitions) -> None:
            await first.commit()
            diary.append(("revoked", partitions))

        first.subscribe(["orders"], on_assigned=lambda new: diary.append(("assigned", new)), on_revoked=revoked)
        await read(first, 2)
        second.subscribe(["orders"])
        await poll_until([first, second], lambda: len(diary) == 3)
        await poll_until([first, second], lambda: len(cluster.group("g").members) == 2)
        assert diary == [("assigned", (P0, P1)), ("revoked", (P0, P1)), ("assigned", diary[2][1])]
        assert len(diary[2][1]) == 1
        assert (committed(cluster, P0), committed(cluster, P1)) == (1, 1)

        (commit,) = cluster.requests("OffsetCommit")
        assert commit.request.generation_id_or_member_epoch == 1
        assert [each.error_code for each in commit.response.topics[0].partitions] == [0, 0]
        rejoin = cluster.requests("JoinGroup", member=commit.request.member_id)[-1]
        order = list(cluster.cluster.journal)
        assert order.index(commit) < order.index(rejoin)


@in_trio_with_sockets
async def test_a_rebalance_waits_for_an_application_to_poll() -> None:
    async with FakeCluster(1, {"orders": 2}) as cluster, consumer(cluster) as first, consumer(cluster) as second:
        diary = Diary()
        first.subscribe(["orders"], **diary.listeners())
        await poll_until([first], lambda: bool(diary.entries))
        second.subscribe(["orders"])
        await poll_until([second], lambda: cluster.group("g").state == "PreparingRebalance")
        await poll_until([second], lambda: first._core.member.state is MemberState.STOPPED)
        assert first._core.member.assigned == (P0, P1)
        await poll_until([first], lambda: len(diary.entries) == 3)
        assert diary.entries[1] == ("revoked", (P0, P1))


@in_trio_with_sockets
async def test_a_cooperative_handover_leaves_alone_what_stays() -> None:
    settings = {"assignor": "cooperative-sticky"}
    async with (
        FakeCluster(1, {"orders": 3}) as cluster,
        consumer(cluster, **settings) as first,
        consumer(cluster, **settings) as second,
    ):
        for place in (P0, P1, P2):
            produce(cluster, place, b"1")
        diary, records = Diary(), list[ConsumerRecord]()
        first.subscribe(["orders"], **diary.listeners())
        await poll_until([first], lambda: len(records) == 3, records)
        await first.commit()
        second.subscribe(["orders"])
        await poll_until([first, second], lambda: second._core.assigned != (), records)
        (gone,) = [partitions for kind, partitions in diary.entries if kind == "revoked"]
        assert len(gone) == 1
        assert {*first._core.assigned, *gone} == {P0, P1, P2}
        for place in (P0, P1, P2):
            produce(cluster, place, b"2")
        await poll_until([first, second], lambda: len(records) == 6, records)
        assert sorted((each.partition, each.offset) for each in records) == [(p, o) for p in range(3) for o in range(2)]


@in_trio_with_sockets
async def test_an_application_that_does_not_poll_leaves_until_it_does() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, max_poll_interval_ms=200) as reader:
        produce(cluster, P0, b"a")
        diary = Diary()
        reader.subscribe(["orders"], **diary.listeners())
        await read(reader, 1)
        await cluster.wait_for_state_async("g", "Empty")
        with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID"):
            await reader.commit()
        assert await read(reader, 1) == [b"a"]
        kinds = [kind for kind, _ in diary.entries]
        assert kinds[:3] == ["assigned", "lost", "assigned"]


@in_trio_with_sockets
async def test_a_group_that_went_on_without_it_is_joined_again() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        diary = Diary()
        reader.subscribe(["orders"], **diary.listeners())
        await poll_until([reader], lambda: bool(diary.entries))
        cluster.evict("g", cluster.group("g").members[0].member_id)
        await poll_until([reader], lambda: len(diary.entries) == 3)
        assert diary.entries[1:] == [("lost", (P0,)), ("assigned", (P0,))]


@in_trio_with_sockets
async def test_leaving_is_told_to_the_application_and_to_the_group() -> None:
    async with FakeCluster(1, {"orders": 1, "more": 1}) as cluster, consumer(cluster) as reader:
        diary = Diary()
        reader.subscribe(["orders"], **diary.listeners())
        await poll_until([reader], lambda: bool(diary.entries))
        await reader.unsubscribe()
        assert diary.entries[-1] == ("revoked", (P0,))
        await cluster.wait_for_state_async("g", "Empty")
        reader.subscribe(["more"])
        await poll_until([reader], lambda: reader._core.assigned == (("more", 0),))
        reader.subscribe(["orders", "more"])
        await poll_until([reader], lambda: reader._core.assigned == (("more", 0), P0))


@in_trio_with_sockets
async def test_a_consumer_closes_in_the_middle_of_a_round() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        async with consumer(cluster) as late:
            late.subscribe(["orders"])
            await late.poll(0)
            await cluster.wait_for_request_async("JoinGroup", count=4)
        await poll_until([reader], lambda: [m.client_id for m in cluster.group("g").members] == ["c"])


@in_trio_with_sockets
async def test_a_static_consumer_comes_back_to_what_it_had() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        for _ in range(2):
            async with consumer(cluster, instance_id="i") as reader:
                reader.subscribe(["orders"])
                assert await reader.assignment() == (P0,)
        assert cluster.group("g").generation_id == 1


class AllToTheFirst:
    name = "all-to-the-first"
    is_cooperative = False

    def partitions_to_consume(
        self, subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        first, *others = sorted(member.member_id for member in subscriptions)
        everything = assign_round_robin(
            [Subscription(member_id=first, topics=tuple(partition_counts))], partition_counts
        )
        return everything | {member_id: [] for member_id in others}


@in_trio_with_sockets
async def test_an_assignor_of_ones_own() -> None:
    settings = {"assignor": AllToTheFirst()}
    async with (
        FakeCluster(1, {"orders": 3}) as cluster,
        consumer(cluster, **settings) as first,
        consumer(cluster, **settings) as second,
    ):
        for each in (first, second):
            each.subscribe(["orders"])
        await poll_until(
            [first, second], lambda: len(cluster.group("g").members) == 2 and cluster.group("g").state == "Stable"
        )
        shares = {len(await first.assignment()), len(await second.assignment())}
        assert (shares, cluster.group("g").protocol_name) == ({0, 3}, "all-to-the-first")


class Broken(AllToTheFirst):
    name = "broken"

    def __init__(self, outcome: object) -> None:
        self.outcome = outcome

    def partitions_to_consume(
        self, subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return cast(Assignments, self.outcome)


@pytest.mark.parametrize("outcome", [ZeroDivisionError("no shares"), None, {"somebody": "everything"}])
@in_trio_with_sockets
async def test_an_assignor_that_fails_is_an_error_of_poll(outcome: object) -> None:
    async with FakeCluster(1, {"orders": 3}) as cluster, consumer(cluster, assignor=Broken(outcome)) as reader:
        reader.subscribe(["orders"])
        with pytest.raises(GroupFailed, match=r"the assignor 'broken' failed with .*, expected partitions"):
            await reader.poll(DEADLINE_S)


# Patterns and growth


@in_trio_with_sockets
async def test_a_pattern_takes_in_topics_that_come_later_but_none_of_kafkas_own() -> None:
    async with FakeCluster(1, {"orders.eu": 1, "my.orders.eu": 1, "orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(re.compile(r"orders\..*|__.*"))
        await poll_until([reader], lambda: reader._core.assigned == (("orders.eu", 0),))
        cluster.create_topic("orders.us", 2)
        produce(cluster, ("orders.us", 1), b"a")
        assert await read(reader, 1) == [b"a"]
        assert set(await reader.assignment()) == {("orders.eu", 0), ("orders.us", 0), ("orders.us", 1)}


@in_trio_with_sockets
async def test_kafkas_own_topics_are_read_by_their_names() -> None:
    async with FakeCluster(1, config={"offsets.topic.num.partitions": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["__consumer_offsets"])
        assert await reader.assignment() == (("__consumer_offsets", 0),)


@in_trio_with_sockets
async def test_the_leader_sees_topics_grow() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        cluster.create_partitions("orders", 3)
        await poll_until([reader], lambda: reader._core.assigned == (P0, P1, P2))


# Coordinators


@in_trio_with_sockets
async def test_while_the_coordinator_is_looked_for_it_goes_on_reading() -> None:
    async with FakeCluster(3, {"orders": 1}) as cluster, consumer(cluster) as reader:
        diary = Diary()
        reader.subscribe(["orders"], **diary.listeners())
        produce(cluster, P0, b"a")
        assert await read(reader, 1) == [b"a"]  # It knows where it is to go on, which a coordinator had to tell it.
        cluster.move_coordinator("g", None)
        await poll_until([reader], lambda: reader._core.member.state is MemberState.REDISCOVERING)
        produce(cluster, P0, b"b")
        assert await read(reader, 1) == [b"b"]
        cluster.move_coordinator("g", 2, load_ms=20)
        await reader.commit()
        assert committed(cluster, P0) == 2
        assert (len(diary.entries), cluster.group("g").generation_id) == (1, 1)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@in_trio_with_sockets
async def test_coordinators_may_stop_one_after_the_other(assignor: str) -> None:
    async with FakeCluster(3, {"orders": 2}) as cluster, consumer(cluster, assignor=assignor) as reader:
        reader.subscribe(["orders"])
        for value in (b"a", b"b", b"c"):
            produce(cluster, P0, value)
            assert await read(reader, 1) == [value]
            await reader.commit()
            cluster.restart_broker(cluster.coordinator_of("g").node_id)
        assert committed(cluster, P0) == 3


@in_trio_with_sockets
async def test_a_coordinator_that_says_nothing_is_given_up() -> None:
    async with FakeCluster(2, {"orders": 1}) as cluster, consumer(cluster, request_timeout_ms=50) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        with cluster.fail("OffsetCommit", silent=True, times=2):
            await reader.commit({P0: 3})
        assert committed(cluster, P0) == 3


@in_trio_with_sockets
async def test_a_group_that_refuses_it_is_an_error_and_the_next_poll_tries_again() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        cluster.fail("JoinGroup", error="GROUP_AUTHORIZATION_FAILED", times=1)
        reader.subscribe(["orders"])
        with pytest.raises(GroupFailed, match="GROUP_AUTHORIZATION_FAILED") as raised:
            await reader.poll(DEADLINE_S)
        assert raised.value.error is ErrorCode.GROUP_AUTHORIZATION_FAILED
        await poll_until([reader], lambda: reader._core.assigned == (P0,))
