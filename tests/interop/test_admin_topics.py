"""Topics and partitions created, described and rejected, with real admin clients."""

from typing import Any

import pytest
from aiokafka.admin import NewPartitions as AioNewPartitions, NewTopic as AioNewTopic
from aiokafka.errors import InvalidPartitionsError as AioInvalidPartitions
from confluent_kafka import TopicCollection
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    UnknownTopicOrPartitionError,
)

from tests.support.kafka_clients.aiokafka_client import aio_admin
from tests.support.kafka_clients.client import StartAdmin
from tests.support.kafka_clients.confluent_client import confluent_admin, outcomes
from tests.support.kafka_clients.kafka_python_client import python_admin

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 2})]

ORDERS = [[1, 2, 3], [2, 3, 1]]


def replicas(admin: KafkaAdminClient, topic: str) -> list[list[int]]:
    """Return the replicas of each partition, the leader first."""
    (described,) = admin.describe_topics([topic])
    partitions: list[dict[str, Any]] = described["partitions"]
    assert all(each["leader_id"] == each["replica_nodes"][0] for each in partitions)
    return [each["replica_nodes"] for each in partitions]


def test_confluent_creates_topics(start_admin: StartAdmin) -> None:
    admin, other = confluent_admin(start_admin), python_admin(start_admin)
    wanted = [
        NewTopic("pairs", 3, replication_factor=2),
        NewTopic("placed", 2, replica_assignment=[[3, 1], [1, 2]]),
        NewTopic("spread", 2, replication_factor=4),
        NewTopic("nothing", 0),
        NewTopic("orders", 1),
    ]
    assert {topic.topic: outcomes(admin.create_topics([topic]))[topic.topic] for topic in wanted[2:]} == {
        "spread": "INVALID_REPLICATION_FACTOR",
        "nothing": "INVALID_PARTITIONS",
        "orders": "TOPIC_ALREADY_EXISTS",
    }
    assert outcomes(admin.create_topics(wanted[:2], validate_only=True)) == {"pairs": None, "placed": None}
    assert other.list_topics() == ["orders"]
    assert outcomes(admin.create_topics(wanted[:2])) == {"pairs": None, "placed": None}
    assert [len(each) for each in replicas(other, "pairs")] == [2, 2, 2]
    assert replicas(other, "placed") == [[3, 1], [1, 2]]


def test_kafka_python_creates_topics(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    reported = admin.create_topics(
        {
            "pairs": {"num_partitions": 3, "replication_factor": 2, "configs": {"retention.ms": "5000"}},
            "placed": {"assignments": {0: [3, 1], 1: [1, 2]}},
        },
        wait_for_metadata=True,
    )["topics"]
    assert [(each["name"], each["num_partitions"], each["replication_factor"]) for each in reported] == [
        ("pairs", 3, 2),
        ("placed", 2, 2),
    ]
    retention = reported[0]["configs"]["retention.ms"]
    assert (retention["value"], retention["config_source"]) == ("5000", "DYNAMIC_TOPIC_CONFIG")
    assert replicas(admin, "placed") == [[3, 1], [1, 2]]
    admin.create_topics(["plain"])
    assert [len(each) for each in replicas(admin, "plain")] == [3]
    for options, error in (
        ({"replication_factor": 4}, InvalidReplicationFactorError),
        ({"num_partitions": 0}, InvalidPartitionsError),
        ({"assignments": {0: [1, 9]}}, InvalidReplicationAssignmentError),
        ({"assignments": {0: [1], 2: [2]}}, InvalidReplicationAssignmentError),
    ):
        with pytest.raises(error):
            admin.create_topics({"refused": options})
    admin.create_topics(["valid"], validate_only=True)
    assert sorted(admin.list_topics()) == ["orders", "pairs", "placed", "plain"]


def test_aiokafka_creates_topics(start_admin: StartAdmin) -> None:
    admin = aio_admin(start_admin)
    wanted = [
        AioNewTopic("placed", -1, -1, replica_assignments={0: [3, 1]}),
        AioNewTopic("spread", 2, 4),
        AioNewTopic("orders", 1, 1),
    ]
    response = admin.run(admin.inner.create_topics(wanted, validate_only=True))
    assert {name: code for name, code, _ in response.topic_errors} == {"placed": 0, "spread": 38, "orders": 36}
    assert admin.run(admin.inner.list_topics()) == ["orders"]
    admin.run(admin.inner.create_topics(wanted))
    assert sorted(admin.run(admin.inner.list_topics())) == ["orders", "placed"]
    assert replicas(python_admin(start_admin), "placed") == [[3, 1]]


def test_confluent_describes_topics(start_admin: StartAdmin) -> None:
    admin, other = confluent_admin(start_admin), python_admin(start_admin)
    topics = TopicCollection(["orders", "nowhere"])
    described = outcomes(admin.describe_topics(topics, include_authorized_operations=True))
    assert described["nowhere"] == "UNKNOWN_TOPIC_OR_PART"
    orders = described["orders"]
    assert (orders.name, orders.is_internal) == ("orders", False)
    assert "ALTER_CONFIGS" in {each.name for each in orders.authorized_operations}
    assert [
        (each.id, each.leader.id, [node.id for node in each.replicas], [node.id for node in each.isr])
        for each in orders.partitions
    ] == [(index, brokers[0], brokers, brokers) for index, brokers in enumerate(ORDERS)]
    assert other.list_topics() == ["orders"], "describing a topic does not create it"
    listed = admin.list_topics("orders", timeout=10).topics["orders"].partitions
    assert [(each.leader, each.replicas, each.isrs) for each in listed.values()] == [
        (brokers[0], brokers, brokers) for brokers in ORDERS
    ]


def test_confluent_creates_partitions(start_admin: StartAdmin) -> None:
    admin, other = confluent_admin(start_admin), python_admin(start_admin)
    wanted = [NewPartitions("orders", 3), NewPartitions("nowhere", 3)]
    expected = {"orders": None, "nowhere": "UNKNOWN_TOPIC_OR_PART"}
    assert outcomes(admin.create_partitions(wanted, validate_only=True)) == expected
    assert replicas(other, "orders") == ORDERS
    assert outcomes(admin.create_partitions(wanted)) == expected
    assert outcomes(admin.create_partitions(wanted[:1])) == {"orders": "INVALID_PARTITIONS"}
    assert outcomes(admin.create_partitions([NewPartitions("orders", 4, [[3, 9, 1]])])) == {
        "orders": "INVALID_REPLICA_ASSIGNMENT"
    }
    assert outcomes(admin.create_partitions([NewPartitions("orders", 4, [[3, 2, 1]])])) == {"orders": None}
    found = replicas(other, "orders")
    assert (found[:2], len(found), found[3]) == (ORDERS, 4, [3, 2, 1])


def test_kafka_python_and_aiokafka_create_partitions(start_admin: StartAdmin) -> None:
    admin, aio = python_admin(start_admin), aio_admin(start_admin)
    admin.create_partitions({"orders": {"count": 3, "assignments": [[3, 2, 1]]}})
    assert replicas(admin, "orders") == [*ORDERS, [3, 2, 1]]
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"orders": 3})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.create_partitions({"nowhere": 3})
    with pytest.raises(InvalidReplicationAssignmentError):
        admin.create_partitions({"orders": {"count": 5, "assignments": [[3, 2, 1]]}})
    aio.run(aio.inner.create_partitions({"orders": AioNewPartitions(4, [[1, 3, 2]])}))
    assert replicas(admin, "orders") == [*ORDERS, [3, 2, 1], [1, 3, 2]]
    with pytest.raises(AioInvalidPartitions):
        aio.run(aio.inner.create_partitions({"orders": AioNewPartitions(4)}))
    assert len(replicas(admin, "orders")) == 4


@pytest.mark.fake_cluster(topics={"orders": 2, "returns": 3})
def test_kafka_python_describes_partitions_page_by_page(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    pages: list[list[tuple[str, list[int]]]] = []
    cursor = None
    while cursor is not None or not pages:
        page = admin.describe_topic_partitions(["returns", "orders"], response_partition_limit=2, cursor=cursor)
        pages.append(
            [(topic["name"], [each["partition_index"] for each in topic["partitions"]]) for topic in page["topics"]]
        )
        cursor = page["next_cursor"]
    assert pages == [[("orders", [0, 1])], [("returns", [0, 1])], [("returns", [2])]]
    (missing,) = admin.describe_topic_partitions(["nowhere"])["topics"]
    assert (missing["error_code"], missing["partitions"]) == (3, [])
