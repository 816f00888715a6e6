"""Topics created, listed and deleted with each client's admin, and what kafka-python's describes."""

from uuid import UUID

import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import OffsetSpec, OffsetTimestamp
from kafka.errors import NoError

from fakebroker import FakeCluster
from fakebroker.protocol.registry import APIS
from tests.interop.clients import Client, Record, StartAdmin
from tests.interop.helpers import CLIENTS, with_each_client
from tests.interop.python import KAFKA_PYTHON, PythonAdmin

pytestmark = pytest.mark.slow


@with_each_client
def test_create_list_delete(client: Client, start_admin: StartAdmin) -> None:
    admin = start_admin(client)
    admins = [start_admin(each) for each in CLIENTS]
    admin.create_topic("orders", 6, {"retention.bytes": "1000"})
    admin.create_topic("returns", 1)
    assert [each.partition_counts() for each in admins] == [{"orders": 6, "returns": 1}] * 3
    admin.delete_topic("orders")
    assert [each.partition_counts() for each in admins] == [{"returns": 1}] * 3


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 1})
def test_what_is_refused_is_raised(client: Client, start_admin: StartAdmin) -> None:
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


@pytest.fixture
def kafka_admin(start_admin: StartAdmin) -> KafkaAdminClient:
    admin = start_admin(KAFKA_PYTHON)
    assert isinstance(admin, PythonAdmin)
    return admin.inner


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_kafka_python_describes_the_cluster(fake_cluster: FakeCluster, kafka_admin: KafkaAdminClient) -> None:
    cluster = kafka_admin.describe_cluster()
    assert cluster["cluster_id"] == fake_cluster.cluster.cluster_id
    assert cluster["controller_id"] == 1
    assert [(each["broker_id"], each["host"], each["port"]) for each in cluster["brokers"]] == [
        (broker.node_id, broker.host, broker.port) for broker in fake_cluster.brokers
    ]
    versions = {api.key: (api.advertised_versions.first, api.advertised_versions.last) for api in APIS}
    assert {key.value: told for key, told in kafka_admin.api_versions().items()} == versions


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_kafka_python_describes_a_topic_by_its_name_and_by_its_id(kafka_admin: KafkaAdminClient) -> None:
    (topic,) = kafka_admin.describe_topics(["orders"])
    assert (topic["name"], topic["error_code"], topic["is_internal"]) == ("orders", 0, False)
    assert [
        (partition["partition_index"], partition["leader_id"], partition["replica_nodes"], partition["isr_nodes"])
        for partition in topic["partitions"]
    ] == [(0, 1, [1, 2, 3], [1, 2, 3]), (1, 2, [2, 3, 1], [2, 3, 1])]
    topic_id = UUID(topic["topic_id"])
    assert kafka_admin.describe_topics([topic_id]) == [topic]
    kafka_admin.delete_topics([topic_id])
    assert "orders" not in kafka_admin.list_topics()


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_kafka_python_looks_up_offsets_of_partitions(fake_cluster: FakeCluster, kafka_admin: KafkaAdminClient) -> None:
    records = [Record(value=b"x", partition=0, timestamp_ms=timestamp_ms) for timestamp_ms in (1000, 3000, 2000)]
    KAFKA_PYTHON.produce(fake_cluster.bootstrap_servers, "orders", records, None)
    specs = (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, OffsetTimestamp(1500))
    place = TopicPartition("orders", 0)
    assert [kafka_admin.list_partition_offsets({place: spec})[place].offset for spec in specs] == [0, 3, 1, 1]


@pytest.mark.fake_cluster(topics={"orders": 2})
def test_kafka_python_alters_and_lists_offsets_of_groups(
    fake_cluster: FakeCluster, kafka_admin: KafkaAdminClient
) -> None:
    groups = [f"group {number}" for number in range(6)]
    assert len({fake_cluster.coordinator_of(group) for group in groups}) == 3
    place = TopicPartition("orders", 1)
    for number, group in enumerate(groups):
        altered = kafka_admin.alter_group_offsets(group, {place: OffsetAndMetadata(number, f"note {number}", -1)})
        assert altered == {place: NoError}
    assert kafka_admin.list_group_offsets(groups) == {
        group: {place: OffsetAndMetadata(number, f"note {number}", -1)} for number, group in enumerate(groups)
    }
