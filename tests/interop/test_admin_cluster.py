"""Features, the quorum, resources with configs, log directories and quotas, with real clients."""

from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource as ConfluentResource
from kafka import KafkaProducer, TopicPartitionReplica
from kafka.admin import ConfigResource, NewTopic
from kafka.errors import InvalidUpdateVersionError, LogDirNotFoundError, NoError

from fakebroker import FakeCluster
from fakebroker.cluster.configs.resolution import LOG_DIR
from fakebroker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, KafkaClient, StartAdmin, StartConsumer
from tests.support.kafka_clients.confluent_client import confluent_admin, outcomes
from tests.support.kafka_clients.helpers import poll_records, poll_until, with_each_client
from tests.support.kafka_clients.kafka_python_client import python_admin
from tests.support.wire_client import WireClient

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 2})]


def limit(cluster: FakeCluster, client_id: str, key: str, value: float) -> None:
    """Set a quota of a client id; none of the clients has a call for it."""
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key=key, value=value, remove=False)],
    )
    with WireClient(cluster.brokers[0]) as wire:
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
        (result,) = wire.ask(request, AlterClientQuotasResponse).entries
    assert result.error_code == 0


def test_features_are_described_and_updated(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    before = admin.describe_features()
    assert before["metadata.version"]["finalized"] == (33, 33)
    assert before["group.version"]["supported"] == (0, 1)

    assert admin.update_features({"group.version": ("SAFE_DOWNGRADE", 0)}) == {"group.version": "OK"}
    with pytest.raises(InvalidUpdateVersionError, match="only supports levels 0 to 1"):
        admin.update_features({"group.version": 7})

    after = admin.describe_features()
    assert "finalized" not in after["group.version"]
    assert after["share.version"]["finalized_epoch"] > before["share.version"]["finalized_epoch"]


def test_the_quorum_is_described(start_admin: StartAdmin) -> None:
    described = python_admin(start_admin).describe_metadata_quorum()
    ((partition,),) = [topic["partitions"] for topic in described["topics"]]
    assert (partition["leader_id"], partition["error"]) == (1, None)
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [1, 2, 3]
    assert [node["node_id"] for node in described["nodes"]] == [1, 2, 3]


def test_configs_of_groups_and_log_levels(start_admin: StartAdmin) -> None:
    python, confluent = python_admin(start_admin), confluent_admin(start_admin)
    python.alter_configs([ConfigResource("GROUP", "billing", {"consumer.session.timeout.ms": "50000"})])
    entry = ConfigEntry("share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET)
    outcomes(confluent.incremental_alter_configs([ConfluentResource("group", "billing", incremental_configs=[entry])]))

    (described,) = outcomes(confluent.describe_configs([ConfluentResource("group", "billing")])).values()
    assert described["consumer.session.timeout.ms"].value == "50000"
    assert described["consumer.heartbeat.interval.ms"].value == "5000"
    own: dict[str, Any] = python.describe_configs([ConfigResource("GROUP", "billing")])["group"]["billing"]
    assert {name: each["value"] for name, each in own.items()} == {
        "consumer.session.timeout.ms": "50000",
        "share.isolation.level": "read_committed",
    }
    assert python.list_config_resources(["GROUP"]) == {"group": ["billing"]}

    python.alter_configs([ConfigResource("BROKER_LOGGER", "2", {"kafka": "TRACE"})])
    levels = python.describe_configs([ConfigResource("BROKER_LOGGER", str(node_id)) for node_id in (1, 2)])
    assert [levels["broker_logger"][name]["kafka"]["value"] for name in ("1", "2")] == ["INFO", "TRACE"]


def test_client_metrics_are_configured(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    admin.alter_configs([ConfigResource("CLIENT_METRICS", "rates", {"metrics": "*", "interval.ms": "1000"})])
    own = admin.describe_configs([ConfigResource("CLIENT_METRICS", "rates")])["client_metrics"]["rates"]
    assert {name: each["value"] for name, each in own.items()} == {"metrics": "*", "interval.ms": "1000"}
    assert admin.list_config_resources(["CLIENT_METRICS"]) == {"client_metrics": ["rates"]}


def test_resources_are_listed(start_admin: StartAdmin) -> None:
    nodes = ["1", "2", "3"]
    assert python_admin(start_admin).list_config_resources() == {
        "topic": ["orders"],
        "broker": nodes,
        "broker_logger": nodes,
    }


def test_replicas_are_moved_to_their_log_directory_only(start_admin: StartAdmin) -> None:
    replica = TopicPartitionReplica("orders", 0, 1)
    admin = python_admin(start_admin)
    assert admin.alter_replica_log_dirs({replica: LOG_DIR}) == {replica: NoError}
    assert admin.alter_replica_log_dirs({replica: "/other"}) == {replica: LogDirNotFoundError}


def test_confluent_kafka_is_told_how_long_it_is_throttled(fake_cluster: FakeCluster) -> None:
    limit(fake_cluster, "confluent", "producer_byte_rate", 10_000)
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": fake_cluster.bootstrap_servers,
            "client.id": "confluent",
            "linger.ms": 0,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    for value in (b"x" * 105_000, b"y"):
        producer.produce("orders", value, partition=0)
        assert producer.flush(CALL_TIMEOUT_S) == 0
    producer.poll(0)

    # About 105 KB in 10 seconds: 5 % above the limit.
    assert throttled
    assert 0.5 <= max(throttled) <= 0.6


def test_kafka_python_waits_while_it_is_throttled(fake_cluster: FakeCluster) -> None:
    limit(fake_cluster, "python", "producer_byte_rate", 10_000)
    producer = KafkaProducer(bootstrap_servers=fake_cluster.bootstrap_servers, client_id="python")
    try:
        for value in (b"x" * 102_000, b"y"):
            producer.send("orders", value, partition=0).get(CALL_TIMEOUT_S)
        first, second = fake_cluster.journal.requests("Produce")
        assert second.received_ms - first.received_ms >= 200
    finally:
        producer.close()


@pytest.mark.fake_cluster(topics={"orders": 2}, clock="manual")
def test_a_client_is_refused_topics_while_its_quota_is_exhausted(
    fake_cluster: FakeCluster, start_admin: StartAdmin
) -> None:
    admin = python_admin(start_admin)
    limit(fake_cluster, admin.config["client_id"], "controller_mutation_rate", 1)
    admin.create_topics([NewTopic("first", 12, 1)])
    with pytest.raises(Exception, match="ThrottlingQuotaExceeded"):
        admin.create_topics([NewTopic("second", 1, 1)], timeout_ms=100)


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 1}, clock="manual")
def test_consumers_read_on_after_they_were_throttled(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    values = [b"%02d" % number * 500 for number in range(20)]
    for value in values:
        fake_cluster.topic("orders").produce([value])
    limit(fake_cluster, "reader", "consumer_byte_rate", 2000)
    consumer = start_consumer(client, client_id="reader")
    consumer.assign(("orders", 0))

    # Ten seconds of the quota are 18 of the batches.
    received = poll_until(
        fake_cluster,
        "18 records and a throttled Fetch",
        lambda records: len(records) == 18 and throttled_fetches(fake_cluster) == 1,
        consumer,
    )
    fake_cluster.advance(20)
    received += poll_records(fake_cluster, 2, consumer)

    assert [record.value for record in received] == values


def throttled_fetches(cluster: FakeCluster) -> int:
    return sum(
        call.response is not None and call.response.throttle_time_ms > 0 for call in cluster.journal.requests("Fetch")
    )
