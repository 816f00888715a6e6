"""Clients with a rack read from the replica in their rack (KIP-392)."""

import pytest

from fakebroker import Broker, FakeCluster
from fakebroker.server.fake_cluster import internals
from tests.support.kafka_clients.client import KafkaClient, StartConsumer
from tests.support.kafka_clients.helpers import numbered, poll_records, values, with_each_client

pytestmark = pytest.mark.slow

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@with_each_client
@pytest.mark.fake_cluster(
    brokers=[Broker(rack="a"), Broker(rack="b"), Broker(rack="c")],
    topics={"orders": 1},
    config={"replica.selector.class": RACK_AWARE},
)
def test_a_consumer_reads_from_the_follower_in_its_rack(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(3)), None)
    topic = internals(fake_cluster).cluster.topics.get("orders")
    assert topic is not None
    leader_id = topic.partitions[0].leader_id
    follower = next(broker for broker in fake_cluster.brokers if broker.node_id != leader_id)
    consumer = start_consumer(client, client_id="reader", rack=follower.rack)
    consumer.assign(("orders", 0))
    assert values(poll_records(fake_cluster, 3, consumer)) == [b"value 0", b"value 1", b"value 2"]
    fetches = fake_cluster.journal.requests("Fetch", "reader")
    read_by = [call.node_id for call in fetches if b"value 2" in bytes(str(call.response), "utf-8")]
    assert set(read_by) == {follower.node_id}


@with_each_client
@pytest.mark.fake_cluster(
    brokers=[Broker(rack="a"), Broker(rack="b")],
    topics={"orders": 1},
    config={"replica.selector.class": RACK_AWARE, "default.replication.factor": 2},
)
def test_a_consumer_returns_to_the_leader_when_its_replica_stops(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    topic = internals(fake_cluster).cluster.topics.get("orders")
    assert topic is not None
    leader_id = topic.partitions[0].leader_id
    follower = next(broker for broker in fake_cluster.brokers if broker.node_id != leader_id)
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered([0]), None)
    consumer = start_consumer(client, client_id="reader", rack=follower.rack)
    consumer.assign(("orders", 0))
    poll_records(fake_cluster, 1, consumer)
    fake_cluster.broker(follower.node_id).stop()
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered([1]), None)
    assert values(poll_records(fake_cluster, 1, consumer)) == [b"value 1"]
