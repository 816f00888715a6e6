"""Real clients that lose access while they run: the errors of ACLs that change."""

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import KafkaClient, StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import numbered, poll_records, poll_until
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(brokers=1, topics={"orders": 1}, seed=1)]


@pytest.mark.parametrize("client", [CONFLUENT, KAFKA_PYTHON], ids=lambda client: client.name)
def test_a_consumer_loses_its_group_in_flight_and_gets_it_back(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(10)), None)
    consumer = start_consumer(client, group_id="g")
    consumer.subscribe("orders")
    poll_records(fake_cluster, 10, consumer)
    with fake_cluster.acls.deny("ANONYMOUS", "READ", group="g"):
        with pytest.raises(Exception, match=r"(?i)group.?authorization.?failed"):
            consumer.commit()
        fake_cluster.wait(
            fake_cluster.requested("OffsetCommit", error="GROUP_AUTHORIZATION_FAILED", principal="ANONYMOUS")
        )
    consumer.commit()
    assert fake_cluster.group("g").offsets()["orders", 0].offset == 10


@pytest.mark.parametrize("client", [CONFLUENT, KAFKA_PYTHON], ids=lambda client: client.name)
def test_a_consumer_loses_its_topic_in_flight(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(10)), None)
    consumer = start_consumer(client, group_id="g")
    consumer.assign(("orders", 0))
    poll_records(fake_cluster, 10, consumer)
    fake_cluster.acls.deny("ANONYMOUS", "READ", topic="orders")
    with pytest.raises(Exception, match=r"(?i)topic.?authorization.?failed"):
        poll_until(fake_cluster, "an error", lambda records: False, consumer)
    assert fake_cluster.journal.count("Fetch", error="TOPIC_AUTHORIZATION_FAILED") > 0
