"""The consumer with the consumer protocol (KIP-848) over TCP: hand-over, patterns, failover, static members."""

import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import confluent_kafka
import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.client.errors import GroupFailed, InvalidSubscription
from fakebroker.cluster.handles.group import GroupHandle
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.server.fake_cluster import internals
from fakebroker.topic_partition import TopicPartition
from tests.support.client.consumer_over_tcp import (
    DEADLINE_S,
    FAST_HEARTBEATS,
    P0,
    P1,
    committed,
    consumer,
    kip_848_consumer,
    poll_until,
    produce,
    read,
)
from tests.support.trio_runner import in_trio_with_sockets

Partitions = tuple[TopicPartition, ...]


def cluster_of(brokers: int = 1, topics: dict[str, int] | None = None, **config: Any) -> FakeCluster:
    return FakeCluster(brokers, topics or {"orders": 2}, config=FAST_HEARTBEATS | config)


# Settings


def test_settings_of_the_other_protocol_are_rejected_with_the_reason(subtests: pytest.Subtests) -> None:
    for protocol, setting, value in (
        ("consumer", "session_timeout_ms", 45_000),
        ("consumer", "heartbeat_interval_ms", 3_000),
        ("consumer", "assignor", "range"),
        ("classic", "group_remote_assignor", "uniform"),
        ("classic", "client_rack", "a"),
    ):
        with subtests.test(setting):
            expected = f"{setting}={value!r}: expected None, because it cannot be set with group_protocol={protocol!r}"
            with pytest.raises(ConfigError, match=re.escape(expected)):
                ConsumerSettings(group_protocol=protocol, **{setting: value})  # type: ignore[arg-type]  # of any type


def test_an_unknown_protocol_is_rejected() -> None:
    with pytest.raises(ConfigError, match="group_protocol='share': expected one of"):
        ConsumerSettings(group_protocol="share")  # type: ignore[arg-type]  # wrong on purpose


# Rebalances


@in_trio_with_sockets
async def test_partitions_move_without_a_gap_and_are_committed_before() -> None:
    async with cluster_of() as cluster, kip_848_consumer(cluster) as first, kip_848_consumer(cluster) as second:
        produce(cluster, P0, b"a")
        produce(cluster, P1, b"b")
        callbacks: list[tuple[str, Partitions]] = []

        async def revoked(partitions: Partitions) -> None:
            await first.commit()
            callbacks.append(("revoked", partitions))

        first.subscribe(["orders"], on_assigned=lambda added: callbacks.append(("assigned", added)), on_revoked=revoked)
        await read(first, 2)
        assert callbacks == [("assigned", (P0, P1))]
        second.subscribe(["orders"])
        await poll_until([second], lambda: len(first._core.member.revoking) == 1)
        assert list(second._core.assigned) == [], "the application of the first member has to give the partition up"
        await poll_until([first, second], lambda: len(second._core.assigned) == 1 and len(callbacks) == 3)
        (moved,) = second._core.assigned
        assert callbacks == [("assigned", (P0, P1)), ("revoked", (moved,)), ("assigned", ())]
        assert committed(cluster, moved) == 1
        (kept,) = first._core.assigned
        produce(cluster, kept, b"c")
        assert await read(first, 1) == [b"c"]

        (commit,) = cluster.journal.requests("OffsetCommit")
        given_up = [
            call
            for call in cluster.journal.requests("ConsumerGroupHeartbeat", member=commit.request.member_id)
            if call.request.topic_partitions is not None
        ][-1]
        order = list(internals(cluster).cluster.journal)
        assert order.index(commit) < order.index(given_up)


@in_trio_with_sockets
async def test_automatic_commits_include_what_was_consumed_until_the_revocation() -> None:
    settings = {"commit_interval_ms": 60_000}
    async with cluster_of() as cluster, kip_848_consumer(cluster, **settings) as first:
        produce(cluster, P0, b"a", b"b")
        produce(cluster, P1, b"c")
        first.subscribe(["orders"])
        await read(first, 3)
        async with kip_848_consumer(cluster, **settings) as second:
            second.subscribe(["orders"])
            await poll_until([first, second], lambda: len(second._core.assigned) == 1)
            assert (committed(cluster, P0), committed(cluster, P1)) == (2, 1)
            await poll_until([first, second], lambda: len(second._core._fetcher.positions()) == 1)


@pytest.mark.slow
@in_trio_with_sockets
async def test_a_group_is_shared_with_librdkafka() -> None:
    with cluster_of(topics={"orders": 4}) as cluster:
        neighbor = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        theirs: list[bytes | None] = []

        async def poll_neighbor() -> None:
            while True:
                for each in await trio.to_thread.run_sync(lambda: neighbor.consume(100, 0.05)):
                    assert each.error() is None
                    theirs.append(each.value())

        async with trio.open_nursery() as nursery, kip_848_consumer(cluster, group_remote_assignor="uniform") as ours:
            neighbor.subscribe(["orders"])
            nursery.start_soon(poll_neighbor)
            ours.subscribe(["orders"])
            records: list[ConsumerRecord] = []
            await poll_until([ours], lambda: len(neighbor.assignment()) == len(ours._core.assigned) == 2)
            for index in range(4):
                produce(cluster, ("orders", index), b"%d" % index)
            await poll_until([ours], lambda: len(records) == len(theirs) == 2, records)
            assert sorted([*(each.value or b"" for each in records), *(each or b"" for each in theirs)]) == [
                b"0",
                b"1",
                b"2",
                b"3",
            ]
            await ours.commit()
            assert {member.client_id for member in cluster.group("g").describe().members} == {"c", "rdkafka"}
            nursery.cancel_scope.cancel()
        neighbor.close()


# Subscriptions


@in_trio_with_sockets
async def test_the_broker_matches_patterns_also_with_later_topics() -> None:
    config = {"group.consumer.regex.refresh.interval.ms": 10_000}
    async with cluster_of(topics={"orders": 1, "other": 1}, **config) as cluster, kip_848_consumer(cluster) as reader:
        reader.subscribe(re.compile("(?i)ORD.*"))
        await poll_until([reader], lambda: reader._core.assigned == (P0,))
        (joined, *_) = cluster.journal.requests("ConsumerGroupHeartbeat")
        assert (joined.request.subscribed_topic_regex, joined.request.subscribed_topic_names) == ("(?i)ORD.*", [])


def test_flags_outside_of_a_pattern_are_rejected() -> None:
    reader = Consumer("localhost:1", group_id="g", group_protocol="consumer")
    with pytest.raises(InvalidSubscription, match="expected flags in the pattern itself"):
        reader._core.subscribe(re.compile("orders", re.IGNORECASE), 0.0)


@in_trio_with_sockets
async def test_a_pattern_that_is_none_in_re2_is_a_lasting_error() -> None:
    async with cluster_of() as cluster, kip_848_consumer(cluster) as reader:
        reader.subscribe(re.compile(r"(a)\1"))
        for _ in range(2):
            with pytest.raises(GroupFailed) as failed:
                await poll_until([reader], lambda: False)
            assert failed.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION


@in_trio_with_sockets
async def test_a_new_subscription_changes_the_assignment() -> None:
    async with cluster_of(topics={"orders": 1, "other": 1}) as cluster, kip_848_consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await poll_until([reader], lambda: reader._core.assigned == (P0,))
        reader.subscribe(["other"])
        await poll_until([reader], lambda: reader._core.assigned == (("other", 0),))


# Errors


@in_trio_with_sockets
async def test_a_cluster_without_the_protocol_is_an_error_and_not_another_protocol(subtests: pytest.Subtests) -> None:
    for name, arguments in {
        "switched off": {"config": {"group.coordinator.rebalance.protocols": "classic"}},
        "too old": {"as_version": "3.5"},
    }.items():
        with subtests.test(name):
            async with FakeCluster(1, {"orders": 1}, **arguments) as cluster, kip_848_consumer(cluster) as reader:  # type: ignore[arg-type]  # of any type
                reader.subscribe(["orders"])
                for _ in range(2):
                    with pytest.raises(GroupFailed, match="the cluster does not support the consumer protocol"):
                        await poll_until([reader], lambda: False)
                assert not cluster.journal.requests("JoinGroup")


@in_trio_with_sockets
async def test_a_member_that_is_fenced_or_expired_loses_its_partitions_and_joins_again(
    subtests: pytest.Subtests,
) -> None:
    removals: dict[str, Callable[[GroupHandle, str], None]] = {
        "fence": lambda group, member_id: group.fence_epoch(member_id),
        "expire": GroupHandle.expire,
        "evict": GroupHandle.evict,
    }
    for name, remove in removals.items():
        with subtests.test(name):
            await lose_partitions_and_join_again(remove)


async def lose_partitions_and_join_again(remove: Callable[[GroupHandle, str], None]) -> None:
    async with cluster_of() as cluster, kip_848_consumer(cluster) as reader:
        lost: list[Partitions] = []
        reader.subscribe(["orders"], on_lost=lost.append)
        await poll_until([reader], lambda: len(reader._core.assigned) == 2)
        member_id = reader._core.member.member_id
        remove(cluster.group("g"), member_id)
        await poll_until([reader], lambda: bool(lost) and len(reader._core.assigned) == 2)
        assert lost == [(P0, P1)]
        assert [each.member_id for each in cluster.group("g").describe().members] == [member_id]


@in_trio_with_sockets
async def test_an_error_about_a_topic_is_raised_and_the_member_stays() -> None:
    async with cluster_of() as cluster, kip_848_consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await poll_until([reader], lambda: len(reader._core.assigned) == 2)
        cluster.inject_fault("ConsumerGroupHeartbeat", error="TOPIC_AUTHORIZATION_FAILED", times=1)
        with pytest.raises(GroupFailed) as failed:
            await poll_until([reader], lambda: False)
        assert failed.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        produce(cluster, P0, b"a")
        assert await read(reader, 1) == [b"a"]
        assert len(reader._core.assigned) == 2


@in_trio_with_sockets
async def test_a_member_that_is_not_polled_leaves_and_joins_again() -> None:
    async with cluster_of() as cluster, kip_848_consumer(cluster, max_poll_interval_ms=100) as reader:
        lost: list[Partitions] = []
        reader.subscribe(["orders"], on_lost=lost.append)
        await poll_until([reader], lambda: len(reader._core.assigned) == 2)
        member_id = reader._core.member.member_id
        with trio.fail_after(DEADLINE_S):
            while reader._core.assigned:
                await trio.sleep(0.01)
        await poll_until([reader], lambda: len(reader._core.assigned) == 2)
        assert lost == [(P0, P1)]
        assert reader._core.member.member_id == member_id


# Coordinators and static members


@in_trio_with_sockets
async def test_members_keep_their_partitions_when_the_coordinator_fails() -> None:
    async with cluster_of(3) as cluster, kip_848_consumer(cluster) as first, kip_848_consumer(cluster) as second:
        for reader in (first, second):
            reader.subscribe(["orders"])
        await poll_until([first, second], lambda: len(first._core.assigned) == len(second._core.assigned) == 1)
        before = first._core.assigned, second._core.assigned
        cluster.broker(cluster.group("g").coordinator().node_id).stop()
        produce(cluster, P0, b"a")
        produce(cluster, P1, b"b")
        records: list[ConsumerRecord] = []
        await poll_until([first, second], lambda: len(records) == 2, records)
        await first.commit()
        await second.commit()
        assert (first._core.assigned, second._core.assigned) == before
        assert (committed(cluster, P0), committed(cluster, P1)) == (1, 1)


@in_trio_with_sockets
async def test_a_running_group_goes_to_the_consumer_protocol_member_by_member_and_back() -> None:
    async with cluster_of(topics={"orders": 4}) as cluster, AsyncExitStack() as opened:
        members: list[Consumer] = []
        records: list[ConsumerRecord] = []
        produced = 0

        async def start(reader: Consumer) -> None:
            """Start a member, and wait until each partition has another record, which is consumed."""
            nonlocal produced
            members.append(await opened.enter_async_context(reader))
            reader.subscribe(["orders"])
            sizes = [4 // len(members)] * len(members)
            await poll_until(members, lambda: [len(each._core.assigned) for each in members] == sizes, records)
            for index in range(4):
                produce(cluster, ("orders", index), b"%d" % produced)
                produced += 1
            await poll_until(members, lambda: len({each.value for each in records}) == produced, records)

        for _ in range(2):
            await start(consumer(cluster, commit_interval_ms=5_000))
        assert cluster.group("g").describe().type == "classic"
        for with_protocol, expected in ((kip_848_consumer, "consumer"), (consumer, "classic")):
            for _ in range(2):
                await members.pop(0).unsubscribe()
                await start(with_protocol(cluster, commit_interval_ms=5_000))
            assert cluster.group("g").describe().type == expected
        # Some may be read twice: with the downgrade, classic members lose their generation before they commit.
        assert {int(each.value or b"") for each in records} == set(range(produced))


@in_trio_with_sockets
async def test_a_static_member_that_returns_has_its_partitions_without_a_rebalance() -> None:
    async with cluster_of() as cluster, kip_848_consumer(cluster) as other:
        other.subscribe(["orders"])
        async with kip_848_consumer(cluster, instance_id="i") as static:
            static.subscribe(["orders"])
            await poll_until([other, static], lambda: len(other._core.assigned) == len(static._core.assigned) == 1)
            before, epoch = static._core.assigned, cluster.group("g").describe().generation_id
        async with kip_848_consumer(cluster, instance_id="i") as static:
            static.subscribe(["orders"])
            await poll_until([other, static], lambda: static._core.assigned == before)
            assert cluster.group("g").describe().generation_id == epoch
            assert {*before, *other._core.assigned} == {P0, P1}


@in_trio_with_sockets
async def test_a_second_process_of_a_static_member_is_rejected() -> None:
    settings = {"instance_id": "i"}
    async with (
        cluster_of() as cluster,
        kip_848_consumer(cluster, **settings) as first,
        kip_848_consumer(cluster, **settings) as second,
    ):
        first.subscribe(["orders"])
        await poll_until([first], lambda: len(first._core.assigned) == 2)
        second.subscribe(["orders"])
        with pytest.raises(GroupFailed, match="UNRELEASED_INSTANCE_ID"):
            await poll_until([second], lambda: False)
        assert len(first._core.assigned) == 2
