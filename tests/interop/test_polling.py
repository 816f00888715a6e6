"""Waits that poll real consumers: several in one thread, in a loop of asyncio, and in one of trio."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import trio
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer as ConfluentConsumer
from kafka import KafkaConsumer

import fakebroker
from fakebroker import FakeCluster, PollError, Polling, WaitTimeout, predicate
from tests.support.kafka_clients.client import HEARTBEAT_INTERVAL_MS, Record
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import TIMEOUT_S

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 4})]

VALUES = {b"%d" % number for number in range(40)}

Start = Callable[[FakeCluster], Any]


def confluent(cluster: FakeCluster) -> ConfluentConsumer:
    config: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
    }
    config |= {"heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS, "auto.commit.interval.ms": 100}
    return ConfluentConsumer(config)


def kafka_python(cluster: FakeCluster) -> KafkaConsumer:
    return KafkaConsumer(**settings(cluster), auto_commit_interval_ms=100)


def settings(cluster: FakeCluster) -> dict[str, Any]:
    """Return settings that several clients have."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        "auto_offset_reset": "earliest",
    }


@pytest.fixture
def start(fake_cluster: FakeCluster) -> Iterator[Callable[[Start], Any]]:
    """A function that starts a consumer, which is closed at the end of the test."""
    with ExitStack() as stack:

        def start(consumer: Start) -> Any:
            started = stack.enter_context(closing(consumer(fake_cluster)))
            started.subscribe(["orders"])
            return started

        yield start


def produce(cluster: FakeCluster) -> None:
    records = [Record(value=value, partition=at % 4) for at, value in enumerate(sorted(VALUES))]
    CONFLUENT.produce(cluster.bootstrap_servers, "orders", records, None)


def values(records: list[Any]) -> set[bytes]:
    return {record.value() if callable(record.value) else record.value for record in records}


@pytest.mark.parametrize("client", [confluent, kafka_python])
def test_consumers_in_one_thread(fake_cluster: FakeCluster, start: Callable[[Start], Any], client: Start) -> None:
    produce(fake_cluster)
    one, two = start(client), start(client)
    both = Polling([one, two])
    group = fake_cluster.wait(fake_cluster.group("g").stable(members=2), polling=both, timeout_s=TIMEOUT_S)
    assert len(group.members) == 2
    assert len(one.assignment()) == len(two.assignment()) == 2
    three = start(client)
    consumers = [one, two, three]
    polled = Polling(consumers)
    fake_cluster.wait(fake_cluster.group("g").stable(members=3), polling=polled, timeout_s=TIMEOUT_S)
    assert sorted(len(each.assignment()) for each in consumers) == [1, 1, 2]
    for partition in range(4):
        committed = fake_cluster.group("g").committed(f"orders-{partition}", at_least=10)
        fake_cluster.wait(committed, polling=polled, timeout_s=TIMEOUT_S)
    assert values(both.records + polled.records) == VALUES
    generation = fake_cluster.group("g").describe().generation_id
    three.close()  # Members of librdkafka join again in a thread of its own, perhaps before this returns.
    fake_cluster.wait(fake_cluster.group("g").state(above=generation), polling=both, timeout_s=TIMEOUT_S)
    fake_cluster.wait(predicate("half of it", lambda: len(one.assignment()) == 2), polling=both, timeout_s=TIMEOUT_S)


@pytest.mark.fake_cluster(topics={"orders": 4}, clock="manual")
def test_a_consumer_that_takes_over_the_partitions_of_one_that_does_not_know(
    fake_cluster: FakeCluster, start: Callable[[Start], Any]
) -> None:
    """The session of `one` expires while its heartbeats get no answers, so that it keeps its partitions."""
    one = start(confluent)
    group = fake_cluster.wait(fake_cluster.group("g").stable(members=1), polling=[one], timeout_s=TIMEOUT_S)
    assert len(one.assignment()) == 4
    fake_cluster.inject_fault("Heartbeat", delay_s=60)
    two = start(confluent)
    fake_cluster.wait(
        fake_cluster.group("g").state("PreparingRebalance", members=2), polling=[one, two], timeout_s=TIMEOUT_S
    )
    fake_cluster.advance(group.members[0].session_timeout_ms / 1000)
    fake_cluster.wait(fake_cluster.group("g").stable(members=1), polling=[one, two], timeout_s=TIMEOUT_S)
    assert (len(one.assignment()), len(two.assignment())) == (4, 4)
    fake_cluster.advance(60)  # The heartbeats are answered, so that the consumers can be closed.


@pytest.mark.parametrize("client", [confluent, kafka_python])
def test_records_are_kept_after_a_timeout(
    fake_cluster: FakeCluster, start: Callable[[Start], Any], client: Start
) -> None:
    produce(fake_cluster)
    polled = Polling([start(client)])
    fake_cluster.wait(fake_cluster.group("g").stable(), polling=polled, timeout_s=TIMEOUT_S)
    for _ in range(TIMEOUT_S):
        with pytest.raises(WaitTimeout, match=r"^not reached within 1 s: group\('g'\)\.stable\(members=2\)\n"):
            fake_cluster.wait(fake_cluster.group("g").stable(members=2), polling=polled, timeout_s=1)
        if values(polled.records) == VALUES:
            break
    assert values(polled.records) == VALUES


@pytest.mark.parametrize("client", [confluent, kafka_python])
def test_an_error_of_a_poll_is_raised(fake_cluster: FakeCluster, start: Callable[[Start], Any], client: Start) -> None:
    fake_cluster.inject_fault(
        "JoinGroup", error="GROUP_AUTHORIZATION_FAILED"
    )  # First: librdkafka joins before it is polled.
    consumer = start(client)
    with pytest.raises(PollError, match=r"polling\[0\], .*[aA]uthorization"):
        fake_cluster.wait(fake_cluster.group("g").stable(), polling=[consumer], timeout_s=TIMEOUT_S)


async def share_a_group(cluster: FakeCluster) -> None:
    """Two consumers of one client, which block, and one of another in one task: the loop is not blocked."""
    in_thread = trio.to_thread.run_sync if trio.lowlevel.in_trio_task() else asyncio.to_thread
    for client in (confluent, kafka_python):
        one, two = await in_thread(client, cluster), await in_thread(client, cluster)
        one.subscribe(["orders"])
        two.subscribe(["orders"])
        await cluster.wait_async(cluster.group("g").stable(members=2), polling=[one, two], timeout_s=TIMEOUT_S)
        assert len(one.assignment()) == len(two.assignment()) == 2
        await in_thread(one.close)
        await in_thread(two.close)
        await cluster.wait_async(cluster.group("g").state("Empty"), timeout_s=TIMEOUT_S)


def test_consumers_in_a_task_of_asyncio(fake_cluster: FakeCluster) -> None:
    asyncio.run(share_a_group(fake_cluster))


def test_consumers_in_a_task_of_trio(fake_cluster: FakeCluster) -> None:
    trio.run(share_a_group, fake_cluster)


def test_consumers_in_the_loop_of_the_cluster() -> None:
    async def main() -> None:
        async with FakeCluster(topics={"orders": 4}) as cluster:
            await share_a_group(cluster)

    trio.run(main)


def test_aiokafka(fake_cluster: FakeCluster) -> None:
    """It rejoins in tasks of its own while a wait, with `polling` or without, does not block the loop."""
    produce(fake_cluster)

    async def main() -> None:
        async with AIOKafkaConsumer("orders", **settings(fake_cluster)) as one:
            await fake_cluster.wait_async(fake_cluster.group("g").stable(members=1), timeout_s=TIMEOUT_S)
            async with AIOKafkaConsumer("orders", **settings(fake_cluster)) as two:
                await fake_cluster.wait_async(fake_cluster.group("g").stable(members=2), timeout_s=TIMEOUT_S)
                polled = Polling([one, two])
                await fake_cluster.wait_async(fake_cluster.group("g").stable(members=2), polling=polled)
                assert len(one.assignment()) == len(two.assignment()) == 2
                all_values = predicate("all values", lambda: values(polled.records) == VALUES)
                await fake_cluster.wait_async(all_values, polling=polled, timeout_s=TIMEOUT_S)

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_the_consumer_of_this_project() -> None:
    async def main() -> None:
        async with FakeCluster(topics={"orders": 4}) as cluster:
            await trio.to_thread.run_sync(produce, cluster)
            async with fakebroker.Consumer(**settings(cluster)) as one, fakebroker.Consumer(**settings(cluster)) as two:
                one.subscribe(["orders"])
                two.subscribe(["orders"])
                polled = Polling([one, two])
                await cluster.wait_async(cluster.group("g").stable(members=2), polling=polled)
                assert len(await one.assignment()) == len(await two.assignment()) == 2
                all_values = predicate("all values", lambda: values(polled.records) == VALUES)
                await cluster.wait_async(all_values, polling=polled, timeout_s=TIMEOUT_S)

    trio.run(main)
