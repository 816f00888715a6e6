"""The effects of topic configs on real producers and consumers."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError as AioInvalidTimestampError
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer
from kafka.errors import InvalidTimestampError, KafkaError as PythonError, NotEnoughReplicasError

from fakebroker import FakeCluster
from fakebroker.server.fake_cluster import internals
from tests.support.kafka_clients.client import KafkaClient, Record, StartAdmin, StartConsumer
from tests.support.kafka_clients.helpers import numbered, poll_records, values, with_each_client
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(clock="manual")]

T0 = ("t", 0)
KEYED = [Record(key=key, value=value, partition=0) for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))]


@with_each_client
def test_a_consumer_starts_over_after_its_records_expired(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer, start_admin: StartAdmin
) -> None:
    start_admin(client).create_topic("t", 1, {"retention.ms": "60000"})
    client.produce(fake_cluster.bootstrap_servers, "t", numbered(range(3)), None)
    consumer = start_consumer(client)
    assert consumer.first_and_end_offsets(T0) == (0, 3)
    fake_cluster.advance(60 + 300)
    assert consumer.first_and_end_offsets(T0) == (3, 3)
    later = Record(value=b"new", partition=0, timestamp_ms=int(internals(fake_cluster).cluster.now_ms))
    client.produce(fake_cluster.bootstrap_servers, "t", [later], None)
    consumer.assign(T0)
    consumer.seek(T0, 1)
    assert values(poll_records(fake_cluster, 1, consumer)) == [b"new"]


@with_each_client
def test_a_compacted_topic_has_the_last_record_of_each_key(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer, start_admin: StartAdmin
) -> None:
    start_admin(client).create_topic("t", 1, {"cleanup.policy": "compact"})
    client.produce(fake_cluster.bootstrap_servers, "t", KEYED, None)
    fake_cluster.advance(15)
    client.produce(fake_cluster.bootstrap_servers, "t", [Record(key=b"c", value=b"1", partition=0)], None)
    consumer = start_consumer(client)
    consumer.assign(T0)
    read = poll_records(fake_cluster, 3, consumer)
    assert [(record.key, record.value) for record in read] == [(b"b", b"1"), (b"a", b"2"), (b"c", b"1")]


@with_each_client
def test_log_append_time(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer, start_admin: StartAdmin
) -> None:
    start_admin(client).create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
    fake_cluster.advance(1000)
    record = Record(value=b"v", partition=0, timestamp_ms=1_000_000)
    client.produce(fake_cluster.bootstrap_servers, "t", [record], "gzip")
    consumer = start_consumer(client)
    consumer.assign(T0)
    (read,) = poll_records(fake_cluster, 1, consumer)
    assert read.timestamp_ms == int(internals(fake_cluster).cluster.now_ms)
    assert consumer.offset_for_time(T0, read.timestamp_ms) == 0


@pytest.mark.fake_cluster(topics={"t": 1}, config={"min.insync.replicas": 2})
def test_producers_with_acks_all_get_not_enough_replicas(fake_cluster: FakeCluster) -> None:
    servers = fake_cluster.bootstrap_servers
    fake_cluster.broker(2).stop()
    fake_cluster.broker(3).stop()
    errors: list[KafkaError | None] = []

    def report(error: KafkaError | None, message: Message) -> None:
        errors.append(error)

    for acks in ("all", "1"):
        # Closed before the cluster is: the exception that is caught below keeps the producer.
        with Producer({"bootstrap.servers": servers, "acks": acks, "retries": 0}) as producer:
            producer.produce("t", b"confluent", on_delivery=report)
            assert producer.flush(20) == 0
    refused, accepted = errors
    assert refused is not None
    assert (refused.code(), accepted) == (KafkaError.NOT_ENOUGH_REPLICAS, None)

    python = KafkaProducer(bootstrap_servers=servers, acks="all", retries=0, enable_idempotence=False)
    try:
        with pytest.raises(NotEnoughReplicasError):
            python.send("t", b"kafka-python").get(20)
        fake_cluster.broker(2).start()
        assert python.send("t", b"kafka-python").get(20).offset == 1
    finally:
        python.close()


@pytest.mark.fake_cluster(topics={"t": 1})
def test_not_enough_replicas_after_the_append(fake_cluster: FakeCluster) -> None:
    """A producer without idempotence retries, and the records are there twice."""
    fake_cluster.inject_fault("Produce", error="NOT_ENOUGH_REPLICAS_AFTER_APPEND", handles=True, times=1)
    producer = Producer({"bootstrap.servers": fake_cluster.bootstrap_servers, "enable.idempotence": False})
    producer.produce("t", b"v")
    assert producer.flush(20) == 0
    assert [record.value for record in fake_cluster.topic("t").records()] == [b"v", b"v"]


@pytest.mark.fake_cluster(topics={"t": 1}, config={"min.insync.replicas": 2})
def test_a_producer_retries_until_a_replica_is_back(fake_cluster: FakeCluster) -> None:
    fake_cluster.broker(2).stop()
    fake_cluster.broker(3).stop()

    async def produce() -> int:
        async with AIOKafkaProducer(bootstrap_servers=fake_cluster.bootstrap_servers, acks="all") as producer:
            sent = await producer.send("t", b"value")
            try:
                await fake_cluster.wait_async(fake_cluster.requested("Produce", count=2, error="NOT_ENOUGH_REPLICAS"))
            finally:
                fake_cluster.broker(3).start()
            offset: int = (await sent).offset
            return offset

    assert asyncio.run(produce()) == 0


def test_timestamps_and_keys_that_are_refused(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    servers = fake_cluster.bootstrap_servers
    start_admin(KAFKA_PYTHON).create_topic("t", 1, {"cleanup.policy": "compact"})
    late_ms = int(internals(fake_cluster).cluster.now_ms) + 2 * 3600 * 1000
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("t", b"v", b"k", timestamp=late_ms, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert [error and error.code() for error in errors] == [KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD]

    python = KafkaProducer(bootstrap_servers=servers, enable_idempotence=False)
    try:
        with pytest.raises(InvalidTimestampError):
            python.send("t", b"v", b"k", timestamp_ms=late_ms).get(20)
        with pytest.raises(PythonError, match="key"):
            python.send("t", b"v").get(20)
    finally:
        python.close()

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as aio:
            with pytest.raises(AioInvalidTimestampError):
                await aio.send_and_wait("t", b"v", b"k", timestamp_ms=late_ms)
            await aio.send_and_wait("t", b"v", b"k")

    asyncio.run(produce())
