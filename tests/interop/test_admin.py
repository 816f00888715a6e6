"""Topics created, listed and deleted, clusters described, and unsupported APIs, with real admin clients."""

from uuid import UUID

import pytest
from confluent_kafka.admin._acl import AclOperation
from kafka import KafkaAdminClient
from kafka.errors import IncompatibleBrokerVersion

from fakebroker import FakeCluster
from fakebroker.errors import ErrorCode
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.releases import RELEASES, Release
from fakebroker.server.fake_cluster import internals
from tests.support.kafka_clients.aiokafka_client import aio_admin
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, KafkaClient, StartAdmin
from tests.support.kafka_clients.confluent_client import confluent_admin
from tests.support.kafka_clients.helpers import CLIENTS, with_each_client
from tests.support.kafka_clients.kafka_python_client import python_admin

pytestmark = pytest.mark.slow


@with_each_client
def test_topics_are_created_listed_and_deleted(client: KafkaClient, start_admin: StartAdmin) -> None:
    admin = start_admin(client)
    admins = [start_admin(each) for each in CLIENTS]
    admin.create_topic("orders", 6, {"retention.bytes": "1000"})
    admin.create_topic("returns", 1)
    assert [each.partition_counts() for each in admins] == [{"orders": 6, "returns": 1}] * 3
    admin.delete_topic("orders")
    assert [each.partition_counts() for each in admins] == [{"returns": 1}] * 3


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 1})
def test_rejected_topics_are_errors(client: KafkaClient, start_admin: StartAdmin) -> None:
    admin = start_admin(client)
    with pytest.raises(Exception, match=r"(?i)already.?exists"):
        admin.create_topic("orders", 1)
    with pytest.raises(Exception, match=r"(?i)unknown.?topic"):
        admin.delete_topic("returns")
    with pytest.raises(Exception, match=r"(?i)invalid.?config"):
        admin.create_topic("returns", 1, {"retention.bits": "8"})
    with pytest.raises(Exception, match=r"(?i)invalid.?topic|topic_exception"):
        admin.create_topic("a/b", 1)
    assert admin.partition_counts() == {"orders": 1}


# kafka-python does not know the key of UnregisterController, an API of 4.4.
@pytest.mark.fake_cluster(topics={"orders": 2}, as_version="4.3")
def test_kafka_python_describes_the_cluster(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    cluster = admin.describe_cluster()
    assert (cluster["cluster_id"], cluster["controller_id"]) == (internals(fake_cluster).cluster.cluster_id, 1)
    assert [(each["broker_id"], each["host"], each["port"]) for each in cluster["brokers"]] == [
        (broker.node_id, broker.host, broker.port) for broker in fake_cluster.brokers
    ]
    assert not any(each["is_fenced"] for each in cluster["brokers"])
    assert "ALTER_CONFIGS" in cluster["authorized_operations"]
    advertised = RELEASES[Release(4, 3)]
    without_telemetry = advertised.keys() - {"GetTelemetrySubscriptions", "PushTelemetry"}
    versions = {API_BY_NAME[name].key: (advertised[name].first, advertised[name].last) for name in without_telemetry}
    assert {key.value: reported for key, reported in admin.api_versions().items()} == versions


def test_confluent_and_aiokafka_describe_the_cluster(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    brokers = [(broker.node_id, broker.host, broker.port) for broker in fake_cluster.brokers]
    cluster_id = internals(fake_cluster).cluster.cluster_id
    admin = confluent_admin(start_admin)
    cluster = admin.describe_cluster(include_authorized_operations=True).result(CALL_TIMEOUT_S)
    assert (cluster.cluster_id, cluster.controller.id) == (cluster_id, 1)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == brokers
    assert AclOperation.ALTER_CONFIGS in cluster.authorized_operations
    assert admin.cluster_id(timeout=CALL_TIMEOUT_S) == cluster_id

    aio = aio_admin(start_admin)
    reported = aio.run(aio.inner.describe_cluster())
    assert (reported["cluster_id"], reported["controller_id"]) == (cluster_id, 1)
    assert [(each["node_id"], each["host"], each["port"]) for each in reported["brokers"]] == brokers


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_kafka_python_describes_a_topic_by_name_and_by_id(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    (topic,) = admin.describe_topics(["orders"])
    assert (topic["name"], topic["error_code"], topic["is_internal"]) == ("orders", 0, False)
    assert [
        (partition["partition_index"], partition["leader_id"], partition["replica_nodes"], partition["isr_nodes"])
        for partition in topic["partitions"]
    ] == [(0, 1, [1, 2, 3], [1, 2, 3]), (1, 2, [2, 3, 1], [2, 3, 1])]
    topic_id = UUID(topic["topic_id"])
    assert admin.describe_topics([topic_id]) == [topic]
    (missing,) = admin.describe_topics(["missing"])
    assert missing["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing["authorized_operations"] == topic["authorized_operations"]
    admin.delete_topics([topic_id])
    assert "orders" not in admin.list_topics()


def test_unsupported_apis_are_errors() -> None:
    with FakeCluster(as_version="2.8") as cluster:
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(IncompatibleBrokerVersion):
            admin.list_transactions()
        admin.close()
