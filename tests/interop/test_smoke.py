"""Each client produces, joins a group, reads and commits: the one fast test with real clients."""

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import KafkaClient, StartConsumer
from tests.support.kafka_clients.helpers import committed_total, numbered, poll_records, values, with_each_client


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 2})
def test_produce_read_and_commit(client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(10)), None)
    consumer = start_consumer(client, group_id="readers")
    consumer.subscribe("orders")
    assert values(poll_records(fake_cluster, 10, consumer)) == values(numbered(range(10)))
    consumer.commit()
    assert committed_total(fake_cluster, "readers") == 10
    consumer.close()
    assert fake_cluster.group("readers").describe().state == "Empty"
