"""Transactional producers of three clients, read by the consumers of the same clients.

Records of aborted transactions are invisible to consumers of committed records, also while coordinators move.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from fakebroker import FakeCluster
from tests.support.kafka_clients.aiokafka_client import LoopThread
from tests.support.kafka_clients.client import CALL_TIMEOUT_S

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 1})]

TRANSACTIONS = 6


class Client(Protocol):
    """A transactional producer and a consumer of committed records, of one client."""

    def transact(self, values: Sequence[bytes], *, commit: bool) -> None:
        """Produce records in one transaction, and commit or abort it."""

    def read(self, count: int) -> list[bytes]:
        """Return the first committed records; fewer if there is no more after a second."""

    def close(self) -> None: ...


class ConfluentClient:
    def __init__(self, servers: str) -> None:
        settings = {"bootstrap.servers": servers, "log_level": 0}
        self._producer = confluent_kafka.Producer({**settings, "transactional.id": "confluent"})
        self._producer.init_transactions(CALL_TIMEOUT_S)
        self._settings = {**settings, "group.id": "g", "isolation.level": "read_committed"}

    def transact(self, values: Sequence[bytes], *, commit: bool) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce("orders", value)
        self._producer.flush(CALL_TIMEOUT_S)
        if commit:
            self._producer.commit_transaction(CALL_TIMEOUT_S)
        else:
            self._producer.abort_transaction(CALL_TIMEOUT_S)

    def read(self, count: int) -> list[bytes]:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        values: list[bytes] = []
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        while len(values) <= count and time.monotonic() < deadline_s:
            message = consumer.poll(1.0)
            if message is None:
                break
            assert message.error() is None
            values.append(message.value() or b"")
        consumer.close()
        return values

    def close(self) -> None:
        self._producer.close()


class PythonClient:
    def __init__(self, servers: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=servers, transactional_id="python")
        self._producer.init_transactions()
        self._servers = servers

    def transact(self, values: Sequence[bytes], *, commit: bool) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.send("orders", value)
        self._producer.flush(CALL_TIMEOUT_S)
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def read(self, count: int) -> list[bytes]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._servers, isolation_level="read_committed", consumer_timeout_ms=1_000
        )
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek_to_beginning()
        values = [message.value for message in consumer]
        consumer.close()
        return values

    def close(self) -> None:
        self._producer.close(CALL_TIMEOUT_S)


class AioClient:
    def __init__(self, servers: str) -> None:
        self._loop = LoopThread()
        self._servers = servers
        self._producer = self._loop.run(self._start())

    async def _start(self) -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=self._servers, transactional_id="aio")
        await producer.start()
        return producer

    def transact(self, values: Sequence[bytes], *, commit: bool) -> None:
        self._loop.run(self._transact(values, commit))

    async def _transact(self, values: Sequence[bytes], commit: bool) -> None:
        await self._producer.begin_transaction()
        for value in values:
            await self._producer.send("orders", value)
        await self._producer.flush()
        await (self._producer.commit_transaction() if commit else self._producer.abort_transaction())

    def read(self, count: int) -> list[bytes]:
        return self._loop.run(self._read(count))

    async def _read(self, count: int) -> list[bytes]:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        values: list[bytes] = []
        while len(values) <= count:
            batches = await consumer.getmany(timeout_ms=1_000)
            if not batches:
                break
            values += [record.value for records in batches.values() for record in records]
        await consumer.stop()
        return values

    def close(self) -> None:
        self._loop.close(self._producer.stop)


@pytest.mark.parametrize("client_class", [ConfluentClient, PythonClient, AioClient])
def test_only_committed_records_are_read(fake_cluster: FakeCluster, client_class: Callable[[str], Client]) -> None:
    client = client_class(fake_cluster.bootstrap_servers)
    expected = []
    for number in range(TRANSACTIONS):
        values = [b"%d-%d" % (number, index) for index in range(3)]
        is_commit = number % 2 == 0
        client.transact(values, commit=is_commit)
        expected += values if is_commit else []
        if number == TRANSACTIONS // 2:
            for broker in fake_cluster.brokers:
                fake_cluster.stop_broker(broker.node_id)
                fake_cluster.start_broker(broker.node_id)
    assert client.read(len(expected)) == expected
    client.close()


def test_a_second_producer_fences_the_first_one(fake_cluster: FakeCluster) -> None:
    first = ConfluentClient(fake_cluster.bootstrap_servers)
    first.transact([b"a"], commit=True)
    second = ConfluentClient(fake_cluster.bootstrap_servers)
    with pytest.raises(confluent_kafka.KafkaException, match="fenced by a newer instance"):
        first.transact([b"b"], commit=True)
    second.transact([b"c"], commit=True)
    assert second.read(2) == [b"a", b"c"]
    second.close()


def test_an_admin_finds_an_open_transaction(fake_cluster: FakeCluster) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": fake_cluster.bootstrap_servers, "transactional.id": "hanging", "log_level": 0}
    )
    producer.init_transactions(CALL_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"a")
    producer.flush(CALL_TIMEOUT_S)
    admin = KafkaAdminClient(bootstrap_servers=fake_cluster.bootstrap_servers)
    assert "hanging" in str(admin.list_transactions())
    described = admin.describe_transactions(["hanging"])
    assert "Ongoing" in str(described)
    assert "orders" in str(described)
    partition = fake_cluster.cluster.topics.find("orders", b"", by_id=False)
    assert partition is not None
    log = partition.partitions[0].log
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    producer.abort_transaction(CALL_TIMEOUT_S)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)
    admin.close()
    producer.close()
