"""Waits of FakeCluster for consumers that poll in threads."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import Consumer, Record, StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import TIMEOUT_S

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 4})]

PollOn = Callable[[Consumer], None]


@pytest.fixture
def poll_on() -> Iterator[PollOn]:
    """A function that lets a consumer poll and commit in a thread until the end of the test."""
    is_over = threading.Event()

    def poll(consumer: Consumer) -> None:
        while not is_over.is_set():
            if consumer.poll():
                consumer.commit()

    with ThreadPoolExecutor() as pool:
        threads: list[Future[None]] = []
        try:
            yield lambda consumer: threads.append(pool.submit(poll, consumer))
        finally:
            is_over.set()
    for thread in threads:
        thread.result()


def test_wait_for_two_consumers(fake_cluster: FakeCluster, start_consumer: StartConsumer, poll_on: PollOn) -> None:
    first, second = (start_consumer(CONFLUENT, group_id="g", client_id=name) for name in ("first", "second"))
    first.subscribe("orders")
    poll_on(first)
    alone = fake_cluster.wait(fake_cluster.group("g").stable(members=1), timeout_s=TIMEOUT_S)
    second.subscribe("orders")
    poll_on(second)
    group = fake_cluster.wait(fake_cluster.group("g").stable(members=2), timeout_s=TIMEOUT_S)
    assert group.generation_id > alone.generation_id
    assert {member.client_id for member in group.members} == {"first", "second"}
    assert group.timeline().transitions[-1].cause == f"SyncGroup of the leader {group.leader_id}"
    records = [Record(value=b"value", partition=index) for index in range(4)]
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", records, None)
    for index in range(4):
        fake_cluster.wait(fake_cluster.group("g").committed(f"orders-{index}", at_least=1), timeout_s=TIMEOUT_S)
    fake_cluster.wait(fake_cluster.requested("Heartbeat", "second", group="g"), timeout_s=TIMEOUT_S)
