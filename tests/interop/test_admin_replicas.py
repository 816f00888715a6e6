"""Leaders elected, replicas moved and log directories described, with real admin clients."""

import pytest
from confluent_kafka import ElectionType, TopicCollection, TopicPartition as Confluent
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import (
    InvalidReplicationAssignmentError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, Record, StartAdmin
from tests.support.kafka_clients.confluent_client import confluent_admin, outcomes
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON, python_admin

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 3})]

PREFERRED, UNCLEAN = 0, 1
PLACE, MISSING = TopicPartition("orders", 2), TopicPartition("returns", 0)
"""A partition whose preferred leader is broker 3; a partition that does not exist."""


def leader(admin: KafkaAdminClient) -> int:
    """Return the leader of the partition, with kafka-python."""
    (topic,) = admin.describe_topics(["orders"])
    node_id: int = topic["partitions"][2]["leader_id"]
    return node_id


def leader_and_replicas(admin: AdminClient) -> tuple[int | None, list[int]]:
    """Return leader and replicas, with confluent-kafka: kafka-python may send its request to a stopped broker."""
    topic = outcomes(admin.describe_topics(TopicCollection(["orders"])))["orders"]
    partition = topic.partitions[2]
    return partition.leader and partition.leader.id, [node.id for node in partition.replicas]


def test_confluent_elects_the_preferred_leader(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    fake_cluster.broker(3).restart()
    admin, other = confluent_admin(start_admin), python_admin(start_admin)
    assert leader(other) == 1
    places = [Confluent("orders", 2), Confluent("orders", 0), Confluent("returns", 0)]
    reported = admin.elect_leaders(ElectionType.PREFERRED, places).result(CALL_TIMEOUT_S)
    assert {(place.topic, place.partition): error and error.name() for place, error in reported.items()} == {
        ("orders", 2): None,
        ("orders", 0): "ELECTION_NOT_NEEDED",
        ("returns", 0): "UNKNOWN_TOPIC_OR_PART",
    }
    assert leader(other) == 3


def test_all_preferred_leaders_are_elected(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    fake_cluster.broker(3).restart()
    admin, other = confluent_admin(start_admin), python_admin(start_admin)
    reported = admin.elect_leaders(ElectionType.PREFERRED).result(CALL_TIMEOUT_S)
    assert reported[Confluent("orders", 2)] is None
    assert leader(other) == 3
    assert admin.elect_leaders(ElectionType.PREFERRED).result(CALL_TIMEOUT_S) == {}


def test_kafka_python_elects_the_preferred_leader(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    fake_cluster.broker(3).restart()
    admin, other = python_admin(start_admin), confluent_admin(start_admin)
    assert leader_and_replicas(other)[0] == 1
    for expected in ([0], [84]):  # 84 is ELECTION_NOT_NEEDED
        response = admin.elect_leaders(PREFERRED, {"orders": [2]})
        (topic,) = response.replica_election_results
        assert [each.error_code for each in topic.partition_result] == expected
        assert leader_and_replicas(other)[0] == 3
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(PREFERRED, {"returns": [0]})


def test_kafka_python_elects_another_leader(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin, other = python_admin(start_admin), confluent_admin(start_admin)
    # This call makes the client look up the controller now. Later it might ask broker 3, which is stopped then.
    admin.elect_leaders(PREFERRED, {"orders": [2]})
    fake_cluster.broker(3).stop(elect=False)
    assert leader_and_replicas(other)[0] is None
    admin.elect_leaders(UNCLEAN, {"orders": [2]})
    assert leader_and_replicas(other)[0] == 1
    # The preferred leader is down.
    (topic,) = admin.elect_leaders(PREFERRED, {"orders": [2]}, raise_errors=False).replica_election_results
    assert [each.error_code for each in topic.partition_result] == [80]
    assert leader_and_replicas(other)[0] == 1


def test_replicas_are_reassigned(start_admin: StartAdmin) -> None:
    admin, other = python_admin(start_admin), confluent_admin(start_admin)
    assert leader_and_replicas(other) == (3, [3, 1, 2])
    assert admin.alter_partition_reassignments({PLACE: [2, 1], MISSING: [1]}) == {
        PLACE: None,
        MISSING: UnknownTopicOrPartitionError,
    }
    assert (leader_and_replicas(other), admin.list_partition_reassignments()) == ((2, [2, 1]), {})
    for brokers, error in (([9], InvalidReplicationAssignmentError), (None, NoReassignmentInProgressError)):
        assert admin.alter_partition_reassignments({PLACE: brokers}) == {PLACE: error}
    assert leader_and_replicas(other) == (2, [2, 1])


@pytest.mark.fake_cluster(brokers=4, topics={"orders": 3})
def test_clients_see_a_held_reassignment_until_it_is_released(
    fake_cluster: FakeCluster, start_admin: StartAdmin
) -> None:
    admin, other = python_admin(start_admin), confluent_admin(start_admin)
    admin.alter_partition_reassignments({PLACE: [3, 1, 2]})
    with fake_cluster.topic("orders").hold_reassignments():
        assert admin.alter_partition_reassignments({PLACE: [4, 1, 2]}) == {PLACE: None}
        assert admin.list_partition_reassignments([PLACE]) == {
            PLACE: {"replicas": [4, 1, 2, 3], "adding_replicas": [4], "removing_replicas": [3]}
        }
        topic = outcomes(other.describe_topics(TopicCollection(["orders"])))["orders"]
        assert [node.id for node in topic.partitions[2].isr] == [1, 2, 3]
        assert leader_and_replicas(other) == (3, [4, 1, 2, 3])
    assert admin.list_partition_reassignments() == {}
    assert leader_and_replicas(other) == (4, [4, 1, 2])


def set_configs(type_: str, name: str, configs: dict[str, str]) -> ConfigResource:
    """Return a resource for `incremental_alter_configs` with these values."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()]
    return ConfigResource(type_, name, incremental_configs=entries)


def throttle(admin: AdminClient, rate: int) -> None:
    """Throttle reassignments of "orders" as `kafka-reassign-partitions --throttle` does, in bytes per second."""
    roles = ("leader", "follower")
    replicas = {f"{role}.replication.throttled.replicas": "*" for role in roles}
    rates = {f"{role}.replication.throttled.rate": str(rate) for role in roles}
    for resource in [
        set_configs("topic", "orders", replicas),
        *(set_configs("broker", str(node_id), rates) for node_id in (1, 2, 3, 4)),
    ]:
        assert outcomes(admin.incremental_alter_configs([resource])) == {resource: None}


@pytest.mark.fake_cluster(brokers=4, topics={"orders": 3}, clock="manual")
def test_a_reassignment_that_clients_throttle_takes_time(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    KAFKA_PYTHON.produce(fake_cluster.bootstrap_servers, "orders", [Record(value=bytes(2000), partition=2)], None)
    admin, other = python_admin(start_admin), confluent_admin(start_admin)
    admin.alter_partition_reassignments({PLACE: [3, 1, 2]})
    throttle(other, 100)
    assert admin.alter_partition_reassignments({PLACE: [4, 1, 2]}) == {PLACE: None}
    fake_cluster.advance(19)
    assert list(admin.list_partition_reassignments()) == [PLACE]
    fake_cluster.advance(2)
    assert admin.list_partition_reassignments() == {}
    assert leader_and_replicas(other) == (4, [4, 1, 2])


@pytest.mark.fake_cluster(brokers=4, topics={"orders": 3})
def test_a_reassignment_waits_for_a_stopped_broker(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin, other = python_admin(start_admin), confluent_admin(start_admin)
    admin.alter_partition_reassignments({PLACE: [3, 1, 2]})
    fake_cluster.broker(4).stop()
    assert admin.alter_partition_reassignments({PLACE: [4, 1, 2]}) == {PLACE: None}
    assert admin.list_partition_reassignments([PLACE]) == {
        PLACE: {"replicas": [4, 1, 2, 3], "adding_replicas": [4], "removing_replicas": [3]}
    }
    assert leader_and_replicas(other) == (3, [4, 1, 2, 3])
    # After a cancellation, the replicas to be removed are the last ones.
    assert admin.alter_partition_reassignments({PLACE: None}) == {PLACE: None}
    assert (leader_and_replicas(other), admin.list_partition_reassignments()) == ((3, [1, 2, 3]), {})

    admin.alter_partition_reassignments({PLACE: [4, 1, 2]})
    fake_cluster.broker(4).start()
    assert (leader_and_replicas(other)[1], admin.list_partition_reassignments()) == ([4, 1, 2], {})


def test_kafka_python_describes_log_dirs(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)

    def sizes() -> dict[int, dict[int, int]]:
        """Return the size in bytes of each replica, by broker and partition."""
        return {
            each["broker"]: {
                partition["partition_index"]: partition["partition_size"]
                for log_dir in each["log_dirs"]
                for topic in log_dir["topics"]
                for partition in topic["partitions"]
            }
            for each in admin.describe_log_dirs({"orders": [0, 2]})
        }

    assert sizes() == {1: {0: 0, 2: 0}, 2: {0: 0, 2: 0}, 3: {0: 0, 2: 0}}
    KAFKA_PYTHON.produce(fake_cluster.bootstrap_servers, "orders", [Record(b"x" * 1000, partition=2)], None)
    found = sizes()
    assert found == dict.fromkeys((1, 2, 3), found[1])
    assert (found[1][0], found[1][2] > 1000) == (0, True)
    (one,) = admin.describe_log_dirs({"nowhere": [0]}, brokers=[2])
    assert [log_dir["topics"] for log_dir in one["log_dirs"]] == [[]]
