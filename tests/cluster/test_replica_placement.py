"""Placement of replicas on brokers, and in-sync replicas while brokers are down."""

from fakebroker.cluster.replication.replica_placement import spread
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.cluster.replicas import (
    assigned_topic,
    create_topics,
    leaders,
    metadata_of_partition,
    new_topic,
    replicas,
    start_broker,
    stop_brokers,
)

# Placement


def test_each_requested_topic_starts_at_the_next_broker() -> None:
    harness = ClusterHarness({}, brokers=3)
    for name in ("a", "b", "c", "d"):
        create_topics(harness, new_topic(name, partitions=4, factor=2))
    assert [leaders(harness, name) for name in ("a", "b", "c", "d")] == [
        [1, 2, 3, 1],
        [2, 3, 1, 2],
        [3, 1, 2, 3],
        [1, 2, 3, 1],
    ]
    assert replicas(harness, "b") == [(2, 3), (3, 1), (1, 2), (2, 3)]


def test_topics_of_settings_commands_and_metadata_also_start_at_the_next_broker() -> None:
    harness = ClusterHarness({"orders": 1, "news": 2}, brokers=3)
    harness.cluster.create_new_topic("sports", 1)
    create_topics(harness, new_topic("a", partitions=1))
    harness.ask(MetadataRequest(topics=[MetadataRequestTopic(name="b")]), 12)
    harness.cluster.create_new_topic("c", 1)
    topics = ("orders", "news", "sports", "a", "b", "c")
    assert [leaders(harness, name) for name in topics] == [[1], [2, 3], [3], [1], [2], [3]]


def test_brokers_that_are_down_get_replicas_only_if_too_few_are_up() -> None:
    harness = ClusterHarness({}, brokers=4)
    stop_brokers(harness, 2, 3)
    create_topics(harness, new_topic("a", partitions=2, factor=2))
    assert replicas(harness, "a") == [(1, 4), (4, 1)]
    create_topics(harness, new_topic("b", partitions=2, factor=3))
    assert replicas(harness, "b") == [(4, 1, 3), (1, 4, 2)]
    assert leaders(harness, "b") == [4, 1]


def test_the_first_requested_replica_that_is_up_becomes_the_leader() -> None:
    harness = ClusterHarness({}, brokers=3)
    stop_brokers(harness, 2)
    create_topics(harness, assigned_topic("a", p0=[2, 3]))
    assert (replicas(harness, "a"), leaders(harness, "a")) == ([(2, 3)], [3])
    (result,) = create_topics(harness, assigned_topic("b", p0=[2]))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert result.error_message == "partition 0 on brokers [2], which are down: expected one that is up"


def test_replicas_are_spread_when_all_brokers_are_up() -> None:
    assert spread(3, 2, [1, 2, 3], first=2) == [[3, 1], [1, 2], [2, 3]]


# In-sync replicas


def test_replicas_are_in_sync_while_their_brokers_are_up() -> None:
    harness = ClusterHarness(brokers=3)
    stop_brokers(harness, 1)
    news = metadata_of_partition(harness, 2)
    assert (news.leader_id, news.replica_nodes, news.isr_nodes, news.offline_replicas) == (2, [1, 2, 3], [2, 3], [1])
    start_broker(harness, 1)
    news = metadata_of_partition(harness)
    assert (news.leader_id, news.isr_nodes, news.offline_replicas) == (2, [1, 2, 3], [])


def test_the_last_leader_stays_in_sync_if_all_replicas_are_down() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4)
    stop_brokers(harness, 3, 1, 2)
    news = metadata_of_partition(harness, 4)
    assert (news.error_code, news.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)
    assert (news.isr_nodes, news.offline_replicas) == ([2], [1, 2, 3])
    start_broker(harness, 3)
    news = metadata_of_partition(harness)
    assert (news.leader_id, news.isr_nodes) == (3, [3])
