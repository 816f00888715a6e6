"""The consumer over TCP: reading records, positions and commits. For errors see test_consumer_errors.py."""

import pytest
import trio
import trio.testing

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.server.fake_cluster import internals
from fakebroker.topic_partition import TopicPartition
from tests.support.client.consumer_over_tcp import (
    DEADLINE_S,
    P0,
    P1,
    append,
    committed,
    consumer,
    poll_until,
    produce,
    read,
)
from tests.support.client.wire_producer import WireProducer
from tests.support.trio_runner import in_trio_with_sockets

# Reading


@in_trio_with_sockets
async def test_records_are_read_with_key_value_timestamp_and_headers(subtests: pytest.Subtests) -> None:
    records = [
        Record(0, 1_000, b"key", b"value", (("header", b"one"), ("header", None))),
        Record(1, 1_001, None, None),
    ]
    for compression in Compression:
        with subtests.test(compression=compression):
            async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, group_id=None) as reader:
                append(cluster, P0, encode_batch(records, compression=compression))
                reader.assign([P0])
                with trio.fail_after(DEADLINE_S):
                    assert await reader.poll(DEADLINE_S) == [
                        ConsumerRecord("orders", 0, 0, 1_000, b"key", b"value", (("header", b"one"), ("header", None))),
                        ConsumerRecord("orders", 0, 1, 1_001, None, None),
                    ]


@in_trio_with_sockets
async def test_brokers_of_all_releases_are_supported(subtests: pytest.Subtests) -> None:
    for release in ("0.10.2", "1.0", "2.8", "3.9", None):
        with subtests.test(release=release):
            async with FakeCluster(2, {"orders": 2}, as_version=release) as cluster:
                produce(cluster, P0, b"a", b"b")
                append(cluster, P1, encode_batch([Record(0, 1_000, None, b"c")], compression=Compression.GZIP))
                async with consumer(cluster) as reader:
                    reader.subscribe(["orders"])
                    assert sorted(await read(reader, 3), key=str) == [b"a", b"b", b"c"]
                    await reader.commit()
                    assert await reader.committed() == {P0: 2, P1: 1}


@in_trio_with_sockets
async def test_control_batches_and_records_before_the_position_are_skipped() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        produce(cluster, P0, b"a", b"b")
        marker = Record(0, 1_000, None, b"the end of a transaction")
        append(cluster, P0, encode_batch([marker], is_transactional=True, is_control=True, producer_id=1))
        produce(cluster, P0, b"d")
        reader.assign({P0: 1})
        assert await read(reader, 2) == [b"b", b"d"]
        assert await reader.position(P0) == 4


@in_trio_with_sockets
async def test_committed_records_are_read_when_their_transaction_ends(subtests: pytest.Subtests) -> None:
    for release in ("0.11", "2.8", "3.9", "4.2", None):
        with FakeCluster(2, {"orders": 1}, as_version=release) as cluster:
            one, two = WireProducer(cluster, "one"), WireProducer(cluster, "two")
            with subtests.test(release=release):
                async with (
                    consumer(cluster, group_id=None) as all_records,
                    consumer(cluster, isolation_level="read_committed") as committed_records,
                ):
                    all_records.assign([P0])
                    committed_records.subscribe(["orders"])
                    one.begin(P0, b"a", b"b")
                    two.begin(P0, b"c")
                    assert await read(all_records, 3) == [b"a", b"b", b"c"]
                    one.end(commit=False)
                    produce(cluster, P0, b"d")
                    assert await committed_records.assignment() == (P0,)
                    assert await committed_records.poll(0) == []
                    two.end(commit=True)
                    assert await read(committed_records, 2) == [b"c", b"d"]
                    assert await read(all_records, 1) == [b"d"]
                    one.begin(P0, b"e")
                    one.end(commit=False)
                    await poll_until([committed_records], lambda: _next(committed_records) == 8)
                    await committed_records.commit()
                    assert await committed_records.committed() == {P0: 8}


def _next(reader: Consumer) -> int:
    return reader._core._fetcher.positions()[P0]


@in_trio_with_sockets
async def test_readers_of_committed_records_start_at_the_last_stable_offset() -> None:
    with FakeCluster(1, {"orders": 1}) as cluster:
        produce(cluster, P0, b"a")
        WireProducer(cluster, "one").begin(P0, b"b")
        for level, position in (("read_uncommitted", 2), ("read_committed", 1)):
            async with consumer(cluster, isolation_level=level, auto_offset_reset="latest", group_id=None) as reader:
                reader.assign([P0])
                assert await reader.position(P0) == position


@in_trio_with_sockets
async def test_readers_wait_until_committed_offsets_are_stable(subtests: pytest.Subtests) -> None:
    """Kafka's consumers do this with either isolation level, if brokers support it (since 2.5)."""
    for release in ("2.4", "2.5", "3.9", None):
        for is_member in (False, True):
            with (
                subtests.test(release=release, is_member=is_member),
                FakeCluster(2, {"orders": 1}, as_version=release) as cluster,
            ):
                one = WireProducer(cluster, "one")
                one.init()
                one.add_offsets("g")
                one.commit_offset("g", P0, 5)
                async with consumer(cluster) as reader:
                    if is_member:
                        reader.subscribe(["orders"])
                        await reader.assignment()
                    else:
                        reader.assign([P0])
                    if release == "2.4":
                        assert await reader.position(P0) == 0
                    else:
                        await until_requested(cluster, 3)
                        assert reader._core._fetcher.positions() == {}
                        one.end(commit=True)
                        assert await reader.position(P0) == 5


async def until_requested(cluster: FakeCluster, times: int) -> None:
    with trio.fail_after(DEADLINE_S):
        while cluster.journal.count("OffsetFetch") < times:
            await trio.lowlevel.checkpoint()


@in_trio_with_sockets
async def test_a_poll_returns_at_most_max_poll_records_and_advances_the_position() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, max_poll_records=2) as reader:
        produce(cluster, P0, b"a", b"b", b"c")
        reader.assign([P0])
        sizes = []
        for position in (2, 3):
            sizes.append(len(await reader.poll(DEADLINE_S)))
            assert await reader.position(P0) == position
        assert sizes == [2, 1]


@in_trio_with_sockets
async def test_a_poll_without_records_returns_after_its_timeout() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        assert await reader.poll(0) == []


@in_trio_with_sockets
async def test_without_a_committed_offset_the_reset_policy_decides() -> None:
    for policy, expected in (("earliest", [b"old", b"new"]), ("latest", [b"new"])):
        async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, auto_offset_reset=policy) as reader:
            produce(cluster, P0, b"old")
            reader.assign([P0])
            await reader.position(P0)
            produce(cluster, P0, b"new")
            assert await read(reader, len(expected)) == expected


@in_trio_with_sockets
async def test_partitions_are_read_from_their_new_leader() -> None:
    async with FakeCluster(2, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        for value in (b"a", b"b", b"c"):
            produce(cluster, P0, value)
            assert await read(reader, 1) == [value]
            leader = internals(cluster).cluster.topics.get("orders").partitions[0].leader_id  # type: ignore[union-attr]  # the topic exists
            cluster.broker(leader).restart()


@in_trio_with_sockets
async def test_a_topic_that_is_created_after_the_subscription_is_read() -> None:
    config = {"auto.create.topics.enable": "false"}
    async with FakeCluster(1, config=config) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await reader.poll(0.05)
        cluster.topic("orders").create(2)
        produce(cluster, P1, b"a")
        assert await read(reader, 1) == [b"a"]


# Positions and commits


@in_trio_with_sockets
async def test_a_consumer_starts_at_the_committed_offset() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        produce(cluster, P0, b"a", b"b", b"c")
        async with consumer(cluster) as first:
            first.subscribe(["orders"])
            await read(first, 3)
            await first.commit({P0: 2})
        async with consumer(cluster) as second:
            second.subscribe(["orders"])
            assert await read(second, 1) == [b"c"]


@in_trio_with_sockets
async def test_automatic_commits_include_the_records_of_a_poll_from_the_next_poll_on_and_at_the_end() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        produce(cluster, P0, b"a")
        async with consumer(cluster, commit_interval_ms=20) as reader:
            reader.subscribe(["orders"])
            await read(reader, 1)
            await reader.poll(0)
            await cluster.wait_async(cluster.group("g").committed("orders-0", at_least=1))
            produce(cluster, P0, b"b")
            await read(reader, 1)
        assert committed(cluster, P0) == 2


@in_trio_with_sockets
async def test_the_last_records_are_not_committed_when_the_application_raises() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        produce(cluster, P0, b"a")

        async def fail() -> None:
            async with consumer(cluster, commit_interval_ms=60_000) as reader:
                reader.subscribe(["orders"])
                await read(reader, 1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert (committed(cluster, P0) or 0) == 0


@in_trio_with_sockets
async def test_a_commit_without_waiting_is_sent() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        await reader.commit({P0: 7}, wait=False)
        assert await reader.committed([P0, P1]) == {P0: 7, P1: None}


@in_trio_with_sockets
async def test_a_seek_discards_fetched_records() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, max_poll_records=1) as reader:
        produce(cluster, P0, b"a", b"b", b"c")
        reader.subscribe(["orders"])
        assert await read(reader, 1) == [b"a"]
        reader.seek(P0, 2)
        assert await reader.position(P0) == 2
        assert await read(reader, 1) == [b"c"]
        reader.seek(P0, 0)
        assert await read(reader, 1) == [b"a"]


@in_trio_with_sockets
async def test_on_assigned_may_seek_to_offsets_stored_elsewhere() -> None:
    def seek_to_stored_offsets(partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            reader.seek(partition, 1)

    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, auto_offset_reset=None) as reader:
        produce(cluster, P0, b"a", b"b")
        reader.subscribe(["orders"], on_assigned=seek_to_stored_offsets)
        assert await read(reader, 1) == [b"b"]


@in_trio_with_sockets
async def test_manually_assigned_partitions_are_committed_without_a_generation() -> None:
    async with FakeCluster(2, {"orders": 2}) as cluster:
        produce(cluster, P1, b"a")
        async with consumer(cluster, commit_interval_ms=20) as reader:
            reader.assign([P1])
            assert await read(reader, 1) == [b"a"]
            await reader.commit()
            assert (await reader.committed(), await reader.assignment()) == ({P1: 1}, (P1,))
            assert cluster.group("g").describe().state == "Empty"
            produce(cluster, P1, b"b")
            await read(reader, 1)
            await poll_until([reader], lambda: committed(cluster, P1) == 2)
            reader.assign({P0: 0})
            assert await reader.assignment() == (P0,)
        produce(cluster, P1, b"c")
        async with consumer(cluster) as reader:
            reader.assign([P1])
            assert await read(reader, 1) == [b"c"]


@in_trio_with_sockets
async def test_an_offset_out_of_range_is_reset_by_the_policy() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        produce(cluster, P0, b"a")
        reader.assign({P0: 9})
        assert await read(reader, 1) == [b"a"]
