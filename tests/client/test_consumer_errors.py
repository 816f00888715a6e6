"""Invalid arguments and settings of the consumer, and errors that its calls raise."""

import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.consumer.consumer_settings import ConsumerOptions, ConsumerSettings
from fakebroker.client.errors import (
    BrokerRefused,
    BrokerUnreachable,
    CommitFailed,
    EmptySubscription,
    GroupFailed,
    InitialOffsetUnknown,
    InvalidSubscription,
    OffsetOutOfRange,
    PartitionsNotAssigned,
)
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError, WaitTimeout
from fakebroker.server.lifecycle import bound
from tests.support.client.consumer_over_tcp import DEADLINE_S, P0, P1, consumer, poll_until, produce, read
from tests.support.trio_runner import in_trio_with_own_sockets, in_trio_with_sockets

# Settings


def test_invalid_settings_are_rejected(subtests: pytest.Subtests) -> None:
    for name, value, message in (
        ("isolation_level", "committed", "isolation_level='committed': expected one of"),
        ("auto_offset_reset", "none", "auto_offset_reset='none': expected one of earliest, latest or None"),
        ("group_id", "", "group_id='': expected a name, or None"),
        ("max_poll_records", 0, "max_poll_records=0: expected an integer from 1 to 2147483647"),
        ("fetch_max_wait_ms", -1, "fetch_max_wait_ms=-1: expected an integer from 0 to 2147483647"),
        ("session_timeout_ms", 2**31, "session_timeout_ms=2147483648: expected an integer from 1 to"),
        ("fetch_max_bytes", 1e6, r"fetch_max_bytes=1000000\.0: expected an integer from 1 to"),
        ("instance_id", "", "instance_id='': expected a name of 1 to 249 characters"),
        ("assignor", "best", "assignor='best': expected one of range"),
    ):
        settings: dict[str, Any] = {name: value}
        with subtests.test(**settings), pytest.raises(ConfigError, match=message):
            Consumer("localhost:9092", **settings)


def test_invalid_bootstrap_servers_are_rejected() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers='here': expected HOST:PORT"):
        Consumer("here")


def test_the_options_of_a_consumer_are_its_settings() -> None:
    assert list(ConsumerOptions.__annotations__) == list(ConsumerSettings.__dataclass_fields__)


def test_an_unknown_setting_is_an_error_with_the_nearest_name() -> None:
    expected = (
        r"Consumer\(\) got an unexpected keyword argument 'group': expected one of group_id, .*did you mean 'group_id'"
    )
    with pytest.raises(TypeError, match=expected):
        Consumer("localhost:9092", group="g")  # type: ignore[call-arg]  # wrong on purpose


# Subscriptions


@in_trio_with_sockets
async def test_invalid_subscriptions_are_rejected(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Callable[[Any], None], str]] = [
        (lambda reader: reader.subscribe("orders"), "topics='orders': expected a list of names"),
        (lambda reader: reader.subscribe(7), "topics=7: expected a list of names, or a compiled pattern"),
        (lambda reader: reader.subscribe([]), r"topics=\[\]: expected one or more"),
        (lambda reader: reader.subscribe(["a b"]), "topic='a b': expected a name of 1 to 249 characters"),
        (lambda reader: reader.subscribe(["."]), r"topic='\.': expected a name of 1 to 249 characters"),
        (lambda reader: reader.assign([("", 0)]), "topic='': expected a name of 1 to 249 characters"),
        (lambda reader: reader.assign("orders"), "partitions='orders': expected a list of .topic, number., such as"),
        (lambda reader: reader.assign(7), "partitions=7: expected a list of .topic, number., such as"),
        (lambda reader: reader.assign(["orders"]), r"partition='orders': expected \(topic, number\), such as"),
        (lambda reader: reader.assign([("orders", -1)]), r"partition=\('orders', -1\): expected \(topic, number\)"),
        (lambda reader: reader.assign([("orders", 2**31)]), r"partition=\('orders', 2147483648\): expected \(topic"),
    ]
    async with FakeCluster(1) as cluster, consumer(cluster) as reader:
        for subscribe, message in cases:
            with subtests.test(message):
                with pytest.raises(InvalidSubscription, match=message):
                    subscribe(reader)
                with pytest.raises(EmptySubscription):
                    await reader.poll(0)


@in_trio_with_sockets
async def test_types_of_subscription_cannot_be_mixed() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        with pytest.raises(InvalidSubscription, match="subscription to partitions: already subscribed to topics"):
            reader.assign([P0])
        with pytest.raises(InvalidSubscription, match="subscription to a pattern: already subscribed to topics"):
            reader.subscribe(re.compile("o.*"))
        await reader.unsubscribe()
        reader.assign([P0])
        with pytest.raises(InvalidSubscription, match="subscription to topics: already subscribed to partitions"):
            reader.subscribe(["orders"])


@in_trio_with_sockets
async def test_calls_that_need_a_subscription_raise_without_one() -> None:
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
            with pytest.raises(EmptySubscription, match="no topics or partitions: expected subscribe"):
                await call()
        with pytest.raises(EmptySubscription):
            reader.seek(P0, 0)


@in_trio_with_sockets
async def test_partitions_that_are_not_assigned_are_rejected() -> None:
    async with FakeCluster(1, {"orders": 2}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        message = "partitions orders-1: not assigned, expected some of orders-0"
        with pytest.raises(PartitionsNotAssigned, match=message):
            await reader.commit({P1: 1})
        with pytest.raises(PartitionsNotAssigned, match=message):
            await reader.position(P1)
        with pytest.raises(PartitionsNotAssigned, match=message):
            reader.seek(P1, 1)


@in_trio_with_sockets
async def test_subscriptions_and_commits_need_a_group_id() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, group_id=None) as reader:
        with pytest.raises(InvalidSubscription, match="group_id=None: expected a group id to subscribe"):
            reader.subscribe(["orders"])
        reader.assign([P0])
        with pytest.raises(ConfigError, match="group_id=None: expected a name, to commit"):
            await reader.commit()


# Offsets


@in_trio_with_sockets
async def test_invalid_offsets_are_rejected(subtests: pytest.Subtests) -> None:
    offsets: tuple[Any, ...] = (-1, 2**63, 1.5, "7", None)
    async with FakeCluster(1, {"orders": 1}) as cluster:
        for offset in offsets:
            message = f"orders-0: offset={offset!r}: expected an integer from 0 to "
            async with consumer(cluster) as reader:
                with subtests.test(offset=offset):
                    with pytest.raises(ConfigError, match=message):
                        reader.assign({P0: offset})
                    reader.assign([P0])
                    with pytest.raises(ConfigError, match=message):
                        reader.seek(P0, offset)
                    with pytest.raises(ConfigError, match=message):
                        await reader.commit({P0: offset})
        assert cluster.journal.count("OffsetCommit") == 0


@in_trio_with_sockets
async def test_invalid_partitions_have_no_committed_offsets() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        with pytest.raises(InvalidSubscription, match=r"partition='orders': expected \(topic, number\)"):
            await reader.committed(["orders"])  # type: ignore[list-item]  # wrong on purpose


@pytest.mark.parametrize("subscribes", [True, False], ids=["subscribe", "assign"])
@in_trio_with_sockets
async def test_without_a_reset_policy_an_initial_offset_is_required(subscribes: bool) -> None:
    async with FakeCluster(1, {"orders": 2}) as cluster, consumer(cluster, auto_offset_reset=None) as reader:
        produce(cluster, P0, b"a")
        if subscribes:
            reader.subscribe(["orders"])
        else:
            reader.assign([P0, P1])
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
async def test_without_a_reset_policy_an_offset_out_of_range_is_an_error() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, auto_offset_reset=None) as reader:
        produce(cluster, P0, b"a")
        reader.assign({P0: 9})
        with pytest.raises(OffsetOutOfRange, match="orders-0: offset 9 is out of range"):
            await reader.poll(DEADLINE_S)
        reader.seek(P0, 0)
        assert await read(reader, 1) == [b"a"]


@in_trio_with_sockets
async def test_a_commit_outside_of_a_generation_fails() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.subscribe(["orders"])
        with pytest.raises(CommitFailed, match="commit of group 'g': UNKNOWN_MEMBER_ID, expected NONE") as raised:
            await reader.commit()
        assert raised.value.error is ErrorCode.UNKNOWN_MEMBER_ID


# Groups and polls


@in_trio_with_sockets
async def test_waiting_for_an_assignment_raises_the_error_of_the_group() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        cluster.inject_fault("JoinGroup", error="GROUP_AUTHORIZATION_FAILED", times=1)
        reader.subscribe(["orders"])
        with pytest.raises(GroupFailed, match="GROUP_AUTHORIZATION_FAILED"):
            await reader.assignment()
        assert await reader.assignment() == (P0,)


@in_trio_with_sockets
async def test_a_consumer_whose_last_poll_was_cancelled_leaves_its_group() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster, max_poll_interval_ms=30) as reader:
        reader.subscribe(["orders"])
        await reader.assignment()
        with trio.move_on_after(0.01):
            await reader.poll(DEADLINE_S)
        with trio.fail_after(DEADLINE_S):
            while cluster.group("g").describe().members:
                await trio.lowlevel.checkpoint()


@in_trio_with_sockets
async def test_only_one_task_can_poll_and_only_while_the_consumer_is_open() -> None:
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


# Clusters that cannot be reached, and topics that do not exist


@contextmanager
def not_a_broker(greeting: bytes | None) -> Iterator[str]:
    """Listen on a port; send each connection this greeting and close it, or if None, accept none. Yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as peer:
                        peer.recv(1_000)
                        peer.sendall(greeting or b"")

        thread = threading.Thread(target=greet, daemon=True)
        if greeting is not None:
            thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        if greeting is not None:
            thread.join()


async def until_caused(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call with a timeout, within which a busy machine may not learn anything, until an error names a cause.

    Raises:
        FakebrokerError: The error.
    """
    with trio.fail_after(DEADLINE_S):
        while True:
            try:
                await call()
            except FakebrokerError as error:
                message = str(error)
                if not message.endswith((" s", "no broker has answered yet", "REQUEST_TIMED_OUT, expected NONE")):
                    raise


@in_trio_with_sockets
async def test_every_call_names_why_the_cluster_cannot_be_reached(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(name: str, address: str, cause: str) -> None:
        async def subscribed_poll(reader: Consumer) -> object:
            reader.subscribe(["orders"])
            return await reader.poll(0.3)

        async def assigned_poll(reader: Consumer) -> object:
            reader.assign([P0])
            return await reader.poll(0.3)

        async def assignment(reader: Consumer) -> object:
            reader.subscribe(["orders"])
            return await reader.assignment(timeout=0.3)

        async def position(reader: Consumer) -> object:
            reader.assign([P0])
            return await reader.position(P0, timeout=0.3)

        async def committed_offsets(reader: Consumer) -> object:
            reader.assign([P0])
            return await reader.committed(timeout=0.3)

        async def commit(reader: Consumer) -> None:
            reader.assign([P0])
            await reader.commit({P0: 1}, timeout=0.3)

        calls: list[tuple[Callable[[Consumer], Awaitable[object]], type[Exception]]] = [
            (subscribed_poll, BrokerUnreachable),
            (assigned_poll, BrokerUnreachable),
            (assignment, WaitTimeout),
            (position, WaitTimeout),
            (committed_offsets, GroupFailed),
            (commit, CommitFailed),
        ]
        for call, kind in calls:
            with subtests.test(name, call=call.__name__):
                async with Consumer(address, group_id="g", retry_backoff_ms=5, close_timeout_ms=1) as reader:
                    with pytest.raises(kind, match=f"broker {re.escape(address)} cannot be reached: .*{cause}"):
                        await until_caused(partial(call, reader))
        with subtests.test(name, call="Admin"), pytest.raises(BrokerUnreachable, match=cause):
            async with Admin(address):
                pass

    with (
        not_a_broker(b"HTTP/1.1 400 Bad Request\r\n\r\n") as http,
        not_a_broker(b"") as closing,
        bound("127.0.0.1", 0) as deaf,  # Reserves a port on which nobody listens.
    ):
        async with trio.open_nursery() as nursery:
            closed_port = f"127.0.0.1:{deaf.getsockname()[1]}"
            nursery.start_soon(fails, "closed port", closed_port, "Connection refused")
            nursery.start_soon(fails, "HTTP", http, "not a Kafka broker, .*: it sent 'HTTP/1.1 400 Bad'")
            nursery.start_soon(fails, "closes", closing, "the broker has closed|Connection reset by peer")


@in_trio_with_own_sockets
async def test_a_peer_that_does_not_answer_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The clock stands still until all tasks wait: a consumer that works all the time would never see its timeout."""
    with not_a_broker(None) as silent:
        async with Consumer(silent, group_id="g", close_timeout_ms=1) as reader:
            reader.subscribe(["orders"])
            with pytest.raises(WaitTimeout, match=r"not known after 0\.1 s; no broker has answered yet"):
                await reader.assignment(timeout=0.1)
            with trio.fail_after(DEADLINE_S):
                while not caplog.messages:
                    assert await reader.poll(0.1) == []
            assert caplog.messages == ["consumer fakebroker: no records; no broker has answered yet"]
        with pytest.raises(BrokerUnreachable, match="connected, but no response to ApiVersions in 100 ms"):
            async with Admin(silent, connect_timeout_ms=100):
                pass


@in_trio_with_sockets
async def test_topics_and_partitions_that_do_not_exist_are_reported_once(subtests: pytest.Subtests) -> None:
    config = {"auto.create.topics.enable": "false"}
    no_topic = "topic 'unknown': UNKNOWN_TOPIC_OR_PARTITION, expected NONE"

    async def reported(cluster: FakeCluster, subscribe: Callable[[Consumer], None], message: str) -> None:
        async with consumer(cluster) as reader:
            subscribe(reader)
            errors: list[str] = []
            with trio.fail_after(DEADLINE_S):
                while not errors:
                    try:
                        assert await reader.poll(0.02) == []
                    except BrokerRefused as error:
                        errors.append(str(error))
            for _ in range(3):
                assert await reader.poll(0.02) == []
            with subtests.test(message):
                assert errors == [message]

    async with FakeCluster(1, {"orders": 1}, config=config) as cluster, trio.open_nursery() as nursery:
        nursery.start_soon(reported, cluster, lambda reader: reader.subscribe(["orders", "unknown"]), no_topic)
        nursery.start_soon(reported, cluster, lambda reader: reader.assign([("unknown", 0)]), no_topic)
        partition = "partition orders-7 (the topic has 1): UNKNOWN_TOPIC_OR_PARTITION, expected NONE"
        nursery.start_soon(reported, cluster, lambda reader: reader.assign([("orders", 7)]), partition)


@in_trio_with_sockets
async def test_time_outs_name_topics_that_do_not_exist() -> None:
    config = {"auto.create.topics.enable": "false"}
    async with FakeCluster(1, {"orders": 1}, config=config) as cluster, consumer(cluster) as reader:
        reader.assign([("unknown", 0)])
        message = "position of unknown-0: not known after 0.2 s; topic 'unknown': UNKNOWN_TOPIC_OR_PARTITION"
        with pytest.raises(WaitTimeout, match=message):
            await until_caused(lambda: reader.position(("unknown", 0), timeout=0.2))
        message = "REQUEST_TIMED_OUT, expected NONE; topic 'unknown': UNKNOWN_TOPIC_OR_PARTITION"
        with pytest.raises(CommitFailed, match=message):
            await until_caused(lambda: reader.commit({("unknown", 0): 1}, timeout=0.2))


@in_trio_with_sockets
async def test_an_outage_is_logged_once_and_raised_by_no_poll(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster, consumer(cluster) as reader:
        reader.assign([P0])
        produce(cluster, P0, b"first")
        assert await read(reader, 1) == [b"first"]
        cluster.broker(1).stop()
        with trio.fail_after(DEADLINE_S):
            while not caplog.messages:
                assert await reader.poll(0.02) == []
        assert "cannot be reached" in caplog.messages[0]
        cluster.broker(1).start()
        produce(cluster, P0, b"second")
        assert await read(reader, 1) == [b"second"]
