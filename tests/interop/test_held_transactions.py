"""Held and aborted transactions of confluent-kafka's producer, with what the cluster says about them."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException, Producer

from fakebroker import FakeCluster

ID = "payments"


@pytest.fixture
def producer(fake_cluster: FakeCluster) -> Iterator[Producer]:
    settings = {
        "bootstrap.servers": fake_cluster.bootstrap_servers,
        "transactional.id": ID,
        "transaction.timeout.ms": 30_000,
        "client.id": "app",
    }
    producer = Producer(settings)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"a", partition=0)
    producer.flush(10)
    yield producer
    producer.purge()
    # pytest keeps the producer for longer than the cluster, and it would try to connect again.
    with suppress(KafkaException):  # It may be fenced.
        producer.close()


@pytest.mark.fake_cluster(topics={"orders": 1})
def test_a_commit_waits_while_it_is_held(fake_cluster: FakeCluster, producer: Producer) -> None:
    with fake_cluster.transaction(ID).hold("PrepareCommit"):
        commit = threading.Thread(target=producer.commit_transaction, args=[10])
        commit.start()
        view = fake_cluster.wait(fake_cluster.transaction(ID).state("Ongoing", pending="PrepareCommit"))
        assert (view.is_held, view.partitions) == (True, (("orders", 0),))
        assert "EndTxn, was received from client app" in fake_cluster.transaction(ID).explain()
    commit.join()
    assert fake_cluster.wait(fake_cluster.transaction(ID).state("CompleteCommit")).awaited_markers == ()
    causes = [moment.cause for moment in fake_cluster.transaction(ID).timeline().moments]
    assert causes == ["InitProducerId", "AddPartitionsToTxn", "EndTxn", "all markers written"]


@pytest.mark.fake_cluster(topics={"orders": 1})
def test_a_producer_whose_transaction_was_aborted_is_fenced(fake_cluster: FakeCluster, producer: Producer) -> None:
    fake_cluster.transaction(ID).abort()
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(10)
    assert caught.value.args[0].fatal()
    assert fake_cluster.journal.count("EndTxn", transactional_id=ID, error="INVALID_PRODUCER_EPOCH") == 1
    producer_id = fake_cluster.transaction(ID).describe().producer_id
    assert fake_cluster.journal.count("Produce", producer_id=producer_id) == 1
