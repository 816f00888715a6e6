"""Clients that run while a cluster with a data directory is restarted: nothing is lost, repeated or given up."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fakebroker import FakeCluster
from fakebroker.server.fake_cluster import internals
from fakebroker.server.lifecycle import bound
from tests.support.kafka_clients.client import CALL_TIMEOUT_S

pytestmark = pytest.mark.slow

FAST: dict[str, Any] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "log_level": 0,
}


Start = Callable[[], FakeCluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that makes a cluster with the same data and port each time."""
    with bound("127.0.0.1", 0) as reserved:  # While no cluster runs, no other process gets the port.
        port = reserved.getsockname()[1]
        yield lambda: FakeCluster(1, {"orders": 4}, data_dir=tmp_path, port=port, seed=1)


def test_an_idempotent_producer_continues_its_sequence(start: Start) -> None:
    with start() as first:
        producer = Producer({"bootstrap.servers": first.bootstrap_servers, "enable.idempotence": True, **FAST})
        for number in range(5):
            producer.produce("orders", b"a%d" % number, partition=0)
        assert producer.flush(CALL_TIMEOUT_S) == 0
        producer_ids = {each.producer_id for each in producers_of(first)}
    for number in range(5):
        producer.produce("orders", b"b%d" % number, partition=0)
    with start() as second:
        assert producer.flush(CALL_TIMEOUT_S) == 0
        expected = [b"%c%d" % (letter, number) for letter in b"ab" for number in range(5)]
        assert [record.value for record in second.topic("orders").records(0)] == expected
        assert {each.producer_id for each in producers_of(second)} == producer_ids
        assert [each.last_sequence for each in producers_of(second)] == [9]


def producers_of(cluster: FakeCluster) -> list[Any]:
    topic = internals(cluster).cluster.topics.get("orders")
    assert topic is not None
    return list(topic.partitions[0].log.producers.all())


def test_a_transaction_continues_after_a_restart(start: Start) -> None:
    with start() as first:
        producer = Producer({"bootstrap.servers": first.bootstrap_servers, "transactional.id": "t", **FAST})
        producer.init_transactions(CALL_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", b"before", partition=1)
        assert producer.flush(CALL_TIMEOUT_S) == 0
    with start() as second:
        assert second.transaction("t").describe().state == "Ongoing"
        producer.produce("orders", b"after", partition=2)
        producer.commit_transaction(CALL_TIMEOUT_S)
        assert second.wait(second.transaction("t").state("CompleteCommit")) is not None
        reader = Consumer({"bootstrap.servers": second.bootstrap_servers, "group.id": "r", **FAST})
        reader.assign([TopicPartition("orders", index, 0) for index in (1, 2)])
        read = {message.value() for message in reader.consume(2, CALL_TIMEOUT_S)}
        reader.close()
    assert read == {b"before", b"after"}


def test_a_static_member_keeps_its_partitions_and_resumes_where_it_committed(start: Start) -> None:
    with start() as first:
        first.topic("orders").produce(["a", "b", "c"], partition=0)
        consumer = Consumer({
            "bootstrap.servers": first.bootstrap_servers, "group.id": "g", "group.instance.id": "one",
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 100, **FAST,
        })  # fmt: skip
        revoked: list[object] = []
        consumer.subscribe(["orders"], on_revoke=lambda _, partitions: revoked.append(partitions))
        assert [message.value() for message in consumer.consume(2, CALL_TIMEOUT_S)] == [b"a", b"b"]
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        before = first.group("g").describe()
    with start() as second:
        assert second.group("g").describe().members == before.members
        second.wait(second.requested("Heartbeat", group="g"), polling=[consumer])
        assert len(consumer.assignment()) == 4
        after = second.group("g").describe()
        assert (after.state, after.generation_id, after.members) == ("Stable", before.generation_id, before.members)
        consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
        assert revoked == []
        consumer.close()
    with start() as third:
        later = Consumer({"bootstrap.servers": third.bootstrap_servers, "group.id": "g", "group.instance.id": "one"})
        third.topic("orders").produce(["d"], partition=0)
        later.subscribe(["orders"])
        assert [message.value() for message in later.consume(1, CALL_TIMEOUT_S)] == [b"d"]
        later.close()
