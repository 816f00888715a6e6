"""The consumer over TCP: what it reads, where it stands, what it commits, and what it refuses."""

import re
from typing import Any

import pytest
import trio
import trio.testing

from fakebroker import FakeCluster
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.consumer.consumer_settings import ConsumerOptions, ConsumerSettings
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.client.errors import (
    CommitFailed,
    EmptySubscription,
    InitialOffsetUnknown,
    InvalidSubscription,
    OffsetOutOfRange,
    PartitionsNotAssigned,
)
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.records import Record, encode_batch
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
from tests.support.trio_runner import in_trio_with_sockets

RELEASES = ("0.10.2", "1.0", "2.8", "3.9", None)


# Reading


@pytest.mark.parametrize("compression", Compression)
@in_trio_with_sockets
async def test_records_are_read_with_all_that_is_in_them(compression: Compression) -> None:
    records = [
        Record(0, 1_000, b"key", b"value", (("header", b"one"), ("header", None))),
        Record(1, 1_001, None, None),
    ]
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, group_id=None) as reader:
        append(cluster, P0, encode_batch(records, compression=compression))
        reader.assign([P0])
        with trio.fail_after(DEADLINE_S):
            assert await reader.poll(DEADLINE_S) == [
                ConsumerRecord("orders", 0, 0, 1_000, b"key", b"value", (("header", b"one"), ("header", None))),
                ConsumerRecord("orders", 0, 1, 1_001, None, None),
            ]


@pytest.mark.parametrize("release", RELEASES)
@in_trio_with_sockets
async def test_brokers_of_any_age_are_read_and_committed_to(release: str | None) -> None:
    async with FakeCluster(2, {"orders": 2}, as_version=release) as cluster:
        produce(cluster, P0, b"a", b"b")
        produce(cluster, P1, b"c", compression=Compression.GZIP)
        async with consumer(cluster) as reader:
            reader.subscribe(["orders"])
            assert sorted(await read(reader, 3), key=str) == [b"a", b"b", b"c"]
            await reader.commit()
            assert await reader.committed() == {P0: 2, P1: 1}


@in_trio_with_sockets
async def test_control_batches_and_what_lies_before_the_position_are_left_out() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        produce(cluster, P0, b"a", b"b")
        produce(cluster, P0, b"the end of a transaction", is_transactional=True, is_control=True, producer_id=1)
        produce(cluster, P0, b"d")
        reader.assign({P0: 1})
        assert await read(reader, 2) == [b"b", b"d"]
        assert await reader.position(P0) == 4


@in_trio_with_sockets
async def test_a_poll_gives_no_more_than_it_may_and_the_position_follows_it() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, max_poll_records=2) as reader:
        produce(cluster, P0, b"a", b"b", b"c")
        reader.assign([P0])
        sizes = []
        for position in (2, 3):
            sizes.append(len(await reader.poll(DEADLINE_S)))
            assert await reader.position(P0) == position
        assert sizes == [2, 1]


@in_trio_with_sockets
async def test_a_poll_without_records_ends_when_its_time_is_over() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        assert await reader.poll(0) == []


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [b"old", b"new"]), ("latest", [b"new"])])
@in_trio_with_sockets
async def test_without_a_committed_offset_it_begins_where_the_policy_says(policy: str, expected: list[bytes]) -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, auto_offset_reset=policy) as reader:
        produce(cluster, P0, b"old")
        reader.assign([P0])
        await reader.position(P0)
        produce(cluster, P0, b"new")
        assert await read(reader, len(expected)) == expected


@in_trio_with_sockets
async def test_it_follows_a_partition_to_its_new_leader_and_back() -> None:
    async with FakeCluster(2, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        for value in (b"a", b"b", b"c"):
            produce(cluster, P0, value)
            assert await read(reader, 1) == [value]
            leader = cluster.cluster.topics.get("orders").partitions[0].leader_id  # type: ignore[union-attr]  # it is there
            cluster.restart_broker(leader)


@in_trio_with_sockets
async def test_a_topic_that_is_made_later_is_read() -> None:
    config = {"auto.create.topics.enable": "false"}
    async with FakeCluster(1, config=config) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await reader.poll(0.05)
        cluster.create_topic("orders", 2)
        produce(cluster, P1, b"a")
        assert await read(reader, 1) == [b"a"]


# Offsets and positions


@in_trio_with_sockets
async def test_the_next_one_goes_on_where_the_last_one_has_committed() -> None:
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
async def test_what_a_poll_gave_is_committed_from_the_next_one_on_and_when_the_consumer_closes() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        produce(cluster, P0, b"a")
        async with consumer(cluster, commit_interval_ms=20) as reader:
            reader.subscribe(["orders"])
            await read(reader, 1)
            await reader.poll(0)
            await cluster.wait_for_commit_async("g", "orders-0", at_least=1)
            produce(cluster, P0, b"b")
            await read(reader, 1)
        assert committed(cluster, P0) == 2


@in_trio_with_sockets
async def test_an_application_that_fails_has_not_consumed_what_it_was_given_last() -> None:
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
async def test_a_commit_that_nobody_waits_for_arrives_all_the_same() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        await reader.commit({P0: 7}, wait=False)
        assert await reader.committed([P0, P1]) == {P0: 7, P1: None}


@in_trio_with_sockets
async def test_a_seek_drops_what_was_fetched_ahead() -> None:
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
async def test_offsets_kept_elsewhere_are_given_when_partitions_come() -> None:
    def begin(partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            reader.seek(partition, 1)

    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, auto_offset_reset=None) as reader:
        produce(cluster, P0, b"a", b"b")
        reader.subscribe(["orders"], on_assigned=begin)
        assert await read(reader, 1) == [b"b"]


@in_trio_with_sockets
async def test_partitions_assigned_by_hand_are_committed_without_a_generation() -> None:
    async with FakeCluster(2, {"orders": 2}) as cluster:
        produce(cluster, P1, b"a")
        async with consumer(cluster, commit_interval_ms=20) as reader:
            reader.assign([P1])
            assert await read(reader, 1) == [b"a"]
            await reader.commit()
            assert (await reader.committed(), await reader.assignment()) == ({P1: 1}, (P1,))
            assert cluster.group("g").state == "Empty"
            produce(cluster, P1, b"b")
            await read(reader, 1)
            await poll_until([reader], lambda: committed(cluster, P1) == 2)
            reader.assign({P0: 0})
            assert await reader.assignment() == (P0,)
        produce(cluster, P1, b"c")
        async with consumer(cluster) as reader:
            reader.assign([P1])
            assert await read(reader, 1) == [b"c"], "what comes after the committed offset"


# Refusals


@pytest.mark.parametrize(
    ("subscribe", "sentence"),
    [
        (lambda reader: reader.subscribe("orders"), "topics='orders': expected a list of names"),
        (lambda reader: reader.subscribe(7), "topics=7: expected a list of names, or a compiled pattern"),
        (lambda reader: reader.subscribe([]), r"topics=\[\]: expected one or more"),
        (lambda reader: reader.subscribe(["a b"]), "topic='a b': expected 1 to 249 of"),
        (lambda reader: reader.subscribe(["."]), r"topic='\.': expected 1 to 249 of"),
        (lambda reader: reader.assign([("", 0)]), "topic='': expected 1 to 249 of"),
        (lambda reader: reader.assign("orders"), "partitions='orders': expected several, such as"),
        (lambda reader: reader.assign(7), "partitions=7: expected several, such as"),
        (lambda reader: reader.assign(["orders"]), r"partition='orders': expected \(topic, number\), such as"),
        (lambda reader: reader.assign([("orders", -1)]), r"partition=\('orders', -1\): expected \(topic, number\)"),
        (lambda reader: reader.assign([("orders", 2**31)]), r"partition=\('orders', 2147483648\): expected \(topic"),
    ],
)
@in_trio_with_sockets
async def test_what_cannot_be_subscribed_to(subscribe: Any, sentence: str) -> None:
    async with FakeCluster(1) as cluster, consumer(cluster) as reader:
        with pytest.raises(InvalidSubscription, match=sentence):
            subscribe(reader)
        with pytest.raises(EmptySubscription):
            await reader.poll(0)


@in_trio_with_sockets
async def test_one_kind_of_subscription_at_a_time() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        with pytest.raises(InvalidSubscription, match="subscription to partitions: there is one to topics"):
            reader.assign([P0])
        with pytest.raises(InvalidSubscription, match="subscription to a pattern: there is one to topics"):
            reader.subscribe(re.compile("o.*"))
        await reader.unsubscribe()
        reader.assign([P0])
        with pytest.raises(InvalidSubscription, match="subscription to topics: there is one to partitions"):
            reader.subscribe(["orders"])


@in_trio_with_sockets
async def test_without_a_subscription_there_is_nothing_to_do() -> None:
    async with FakeCluster(1) as cluster, consumer(cluster) as reader:
        calls: list[Any] = [
            lambda: reader.poll(0),
            reader.commit,
            lambda: reader.commit({P0: 1}),
            reader.committed,
            reader.assignment,
            lambda: reader.position(P0),
        ]
        for call in calls:
            with pytest.raises(EmptySubscription, match="nothing is subscribed to or assigned, expected subscribe"):
                await call()
        with pytest.raises(EmptySubscription):
            reader.seek(P0, 0)


@in_trio_with_sockets
async def test_partitions_of_others_are_none_of_its_business() -> None:
    async with FakeCluster(1, {"orders": 2}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        sentence = "partitions orders-1: not assigned, expected some of orders-0"
        with pytest.raises(PartitionsNotAssigned, match=sentence):
            await reader.commit({P1: 1})
        with pytest.raises(PartitionsNotAssigned, match=sentence):
            await reader.position(P1)
        with pytest.raises(PartitionsNotAssigned, match=sentence):
            reader.seek(P1, 1)


@pytest.mark.parametrize("by_hand", [False, True])
@in_trio_with_sockets
async def test_where_to_begin_has_to_be_known(by_hand: bool) -> None:
    async with FakeCluster(1, {"orders": 2}) as cluster, consumer(cluster, auto_offset_reset=None) as reader:
        produce(cluster, P0, b"a")
        if by_hand:
            reader.assign([P0, P1])
        else:
            reader.subscribe(["orders"])
        for _ in range(2):
            with pytest.raises(InitialOffsetUnknown, match="orders-0, orders-1: no offset is committed") as raised:
                await poll_until([reader], lambda: False)
        assert raised.value.partitions == (P0, P1)
        with pytest.raises(InitialOffsetUnknown):
            await reader.position(P1)
        for partition in raised.value.partitions:
            reader.seek(partition, 0)
        assert await read(reader, 1) == [b"a"]


@in_trio_with_sockets
async def test_an_offset_that_the_log_does_not_have_is_an_error_without_a_policy() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, auto_offset_reset=None) as reader:
        produce(cluster, P0, b"a")
        reader.assign({P0: 9})
        with pytest.raises(OffsetOutOfRange, match="orders-0: offset 9 is out of range"):
            await reader.poll(DEADLINE_S)
        reader.seek(P0, 0)
        assert await read(reader, 1) == [b"a"]


@in_trio_with_sockets
async def test_an_offset_that_the_log_does_not_have_is_reset_by_the_policy() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        produce(cluster, P0, b"a")
        reader.assign({P0: 9})
        assert await read(reader, 1) == [b"a"]


@in_trio_with_sockets
async def test_without_a_group_there_is_nothing_to_subscribe_or_commit_as() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, group_id=None) as reader:
        with pytest.raises(InvalidSubscription, match="group_id=None: expected one to subscribe"):
            reader.subscribe(["orders"])
        reader.assign([P0])
        with pytest.raises(ConfigError, match="group_id=None: expected a name, to commit"):
            await reader.commit()


@in_trio_with_sockets
async def test_a_commit_outside_of_a_generation_fails() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        with pytest.raises(CommitFailed, match="commit of group 'g': UNKNOWN_MEMBER_ID, expected NONE") as raised:
            await reader.commit()
        assert raised.value.error is ErrorCode.UNKNOWN_MEMBER_ID


@in_trio_with_sockets
async def test_one_task_polls_at_a_time_and_only_an_open_consumer_can() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        async with consumer(cluster) as reader, trio.open_nursery() as nursery:
            reader.assign([P0])
            nursery.start_soon(reader.poll, 10)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await reader.poll(0)
            nursery.cancel_scope.cancel()
        with pytest.raises(trio.ClosedResourceError, match="the consumer is not open"):
            await reader.poll(0)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"isolation_level": "read_committed"}, "isolation_level='read_committed': expected 'read_uncommitted'"),
        ({"auto_offset_reset": "none"}, "auto_offset_reset='none': expected one of earliest, latest or None"),
        ({"group_id": ""}, "group_id='': expected a name, or None"),
        ({"max_poll_records": 0}, "max_poll_records=0: expected an integer from 1 to 2147483647"),
        ({"fetch_max_wait_ms": -1}, "fetch_max_wait_ms=-1: expected an integer from 0 to 2147483647"),
        ({"session_timeout_ms": 2**31}, "session_timeout_ms=2147483648: expected an integer from 1 to"),
        ({"fetch_max_bytes": 1e6}, r"fetch_max_bytes=1000000\.0: expected an integer from 1 to"),
        ({"instance_id": ""}, "instance_id='': expected 1 to 249 of"),
        ({"assignor": "best"}, "assignor='best': expected one of range"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Consumer("localhost:9092", **settings)


def test_the_options_are_the_settings() -> None:
    assert list(ConsumerOptions.__annotations__) == list(ConsumerSettings.__dataclass_fields__)
