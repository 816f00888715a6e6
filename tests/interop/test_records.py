"""Records produced by one client and read by the others, with each compression."""

from dataclasses import replace

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.records import split_batches
from fakebroker.server.fake_cluster import internals
from tests.support.kafka_clients.aiokafka_client import AIO
from tests.support.kafka_clients.client import KafkaClient, Record, StartConsumer
from tests.support.kafka_clients.helpers import CLIENTS, poll_records, with_each_client
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON

pytestmark = pytest.mark.slow

COMPRESSIBLE = b"the same again, " * 200
RECORDS = [
    Record(value=COMPRESSIBLE, key=b"key", headers=(("trace", b"\x00\xff"), ("trace", b"again"), ("größe", b""))),
    Record(value=None, key=b"a tombstone"),
    Record(value=b"", key=b""),
    Record(value=COMPRESSIBLE[::-1], key=None),
]


def stamped(start_ms: int) -> list[Record]:
    """Return the records for partition 0, with timestamps at intervals of one second."""
    return [
        replace(record, partition=0, timestamp_ms=start_ms + 1000 * number) for number, record in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 1})
def test_every_client_reads_the_records_of_one(
    client: KafkaClient, compression: str | None, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    records = stamped(1_700_000_000_000)
    client.produce(fake_cluster.bootstrap_servers, "orders", records, compression)
    assert compressions(fake_cluster, "orders") == {Compression[(compression or "none").upper()]}
    for other in CLIENTS:
        consumer = start_consumer(other)
        consumer.assign(("orders", 0))
        assert poll_records(fake_cluster, len(records), consumer) == records, other


def compressions(cluster: FakeCluster, name: str) -> set[Compression]:
    """Return the compressions of the batches in partition 0 of a topic."""
    topic = internals(cluster).cluster.topics.get(name)
    assert topic is not None
    return {batch.compression for batch in split_batches(topic.partitions[0].log.read(0, 2**20))}


@with_each_client
def test_producing_creates_a_topic(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    client.produce(fake_cluster.bootstrap_servers, "fresh", RECORDS[:1], None)
    consumer = start_consumer(client)
    consumer.assign(("fresh", 0))
    (record,) = poll_records(fake_cluster, 1, consumer)
    assert (record.key, record.value, record.headers) == (RECORDS[0].key, RECORDS[0].value, RECORDS[0].headers)


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_every_client_reads_the_records_that_a_test_produces(
    fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    keyed = fake_cluster.topic("orders").produce(
        ["größe", b"\xff", None], key="k", headers={"h": b"1"}, timestamp=1_700_000_000_000
    )
    fake_cluster.group("g").seed(lag={"orders-0": 4, "orders-1": 4})
    for client in CLIENTS:
        consumer = start_consumer(client)
        consumer.assign(("orders", keyed[0].partition))
        records = poll_records(fake_cluster, 4, consumer)
        assert [(each.key, each.value, each.timestamp_ms) for each in records[:3]] == [
            (b"k", value, 1_700_000_000_000) for value in ("größe".encode(), b"\xff", None)
        ]
        assert records[0].headers == (("h", b"1"),)
        assert (records[3].key, records[3].value) == (b"3", b"3")


@pytest.mark.parametrize("client", [AIO, KAFKA_PYTHON], ids=lambda client: client.name)
@pytest.mark.fake_cluster(topics={"orders": 12})
def test_keys_go_to_the_partitions_of_clients_with_kafkas_partitioner(
    client: KafkaClient, fake_cluster: FakeCluster
) -> None:
    """Those of librdkafka differ: its default is `consistent_random`."""
    keys = [b"%d" % number for number in range(30)]
    client.produce(fake_cluster.bootstrap_servers, "orders", [Record(value=b"", key=key) for key in keys], None)
    found = {record.key: record.partition for record in fake_cluster.topic("orders").records()}
    assert found == {key: fake_cluster.topic("orders").produce(["x"], key=key)[0].partition for key in keys}
