"""AlterPartitionReassignments and ListPartitionReassignments: partitions that move to other brokers, now or later."""

from typing import Any

import pytest

from fakebroker.cluster.controller import Failover
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fakebroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.support.cluster.cluster_harness import ClusterHarness, versions
from tests.support.cluster.failover_harness import FailoverHarness
from tests.support.cluster.replicas import (
    TWO_REPLICAS,
    leaders,
    metadata_of_partition,
    replicas,
    start_broker,
    stop_brokers,
)


def reassign(
    harness: ClusterHarness,
    target: list[int] | None,
    *,
    name: str = "news",
    index: int = 0,
    version: int = 1,
    broker: int = 1,
    timeout_ms: int = 60_000,
    allow: bool = True,
) -> tuple[ErrorCode, str | None]:
    """Move a partition to the brokers `target`, or with None cancel its reassignment. Returns the error and message."""
    partition = ReassignablePartition(partition_index=index, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        allow_replication_factor_change=allow,
        topics=[ReassignableTopic(name=name, partitions=[partition])],
    )
    altered = harness.ask(request, version, broker=broker)
    assert altered.allow_replication_factor_change == allow
    (result,) = altered.responses[0].partitions
    assert (altered.responses[0].name, result.partition_index) == (name, index)
    assert altered.error_code in (ErrorCode.NONE, result.error_code)
    return ErrorCode(result.error_code), result.error_message


def ongoing(harness: ClusterHarness, partitions: dict[str, list[int]] | None = None) -> list[tuple[Any, ...]]:
    """List reassignments of partitions by topic, None for all: topic, number, and all, added and removed replicas."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in partitions.items()
        ]
    listed = harness.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
    assert (listed.error_code, listed.error_message) == (ErrorCode.NONE, None)
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in listed.topics
        for each in topic.partitions
    ]


def test_a_partition_moves_to_other_brokers_in_each_version(subtests: pytest.Subtests) -> None:
    for version in versions("AlterPartitionReassignments"):
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 1}, brokers=4, config=TWO_REPLICAS)
            epoch = harness.partition().leader_epoch
            assert reassign(harness, [4, 3], version=version) == (ErrorCode.NONE, None)
            assert (replicas(harness), leaders(harness)) == ([(4, 3)], [4])
            assert harness.partition().leader_epoch == epoch + 1
            assert ongoing(harness) == []
            news = metadata_of_partition(harness)
            assert (news.replica_nodes, news.isr_nodes, news.offline_replicas) == ([4, 3], [4, 3], [])


def test_a_leader_that_remains_a_replica_remains_the_leader() -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=TWO_REPLICAS)
    epoch = harness.partition().leader_epoch
    reassign(harness, [2, 1])
    assert (replicas(harness), leaders(harness), harness.partition().leader_epoch) == ([(2, 1)], [1], epoch)
    reassign(harness, [2, 3, 1])
    assert (leaders(harness), harness.partition().leader_epoch) == ([1], epoch)
    reassign(harness, [3, 1])
    assert (leaders(harness), harness.partition().leader_epoch) == ([1], epoch + 1)


def test_a_reassignment_waits_for_a_broker_that_is_down() -> None:
    harness = ClusterHarness({"news": 1, "sports": 1}, brokers=4, config=TWO_REPLICAS)
    stop_brokers(harness, 4)
    assert reassign(harness, [4, 2]) == (ErrorCode.NONE, None)
    waiting = ("news", 0, [4, 2, 1], [4], [1])
    assert ongoing(harness) == [waiting]
    assert ongoing(harness, {"news": [0, 5], "none": [0]}) == [waiting]
    assert ongoing(harness, {"sports": [0]}) == ongoing(harness, {}) == []
    assert leaders(harness) == [1]
    start_broker(harness, 4)
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(4, 2)], [4])


def test_a_reassignment_is_replaced_by_another() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO_REPLICAS)
    stop_brokers(harness, 3, 4)
    reassign(harness, [4, 2])
    reassign(harness, [4, 3])
    assert ongoing(harness) == [("news", 0, [4, 3, 1, 2], [4, 3], [1, 2])]
    reassign(harness, [2, 1])
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(2, 1)], [1])


def test_a_reassignment_is_canceled() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO_REPLICAS)
    assert reassign(harness, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "news-0 is not being reassigned")
    stop_brokers(harness, 4)
    reassign(harness, [4, 3])
    assert reassign(harness, None) == (ErrorCode.NONE, None)
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(1, 2)], [1])


def test_a_reassignment_is_not_canceled_if_no_old_replica_is_in_sync() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO_REPLICAS)
    stop_brokers(harness, 4)
    reassign(harness, [4, 3])
    stop_brokers(harness, 1, 2)
    assert leaders(harness) == [3]
    error, message = reassign(harness, None, broker=3)
    assert error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message == "the reassignment of news-0 cannot be canceled: none of its old replicas is in sync"


def test_a_broker_that_is_removed_ends_a_reassignment_to_it() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO_REPLICAS)
    stop_brokers(harness, 4)
    reassign(harness, [4, 2])
    harness.cluster.remove_broker(harness.cluster.brokers[4], harness.now_ms, Failover())
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(2, 1)], [1])


def test_replicas_of_a_removed_broker_move_to_brokers_that_are_up() -> None:
    harness = ClusterHarness({"news": 4}, brokers=4, config={"default.replication.factor": 1})
    stop_brokers(harness, 2, 3)
    assert leaders(harness) == [1, -1, -1, 4]
    harness.cluster.remove_broker(harness.cluster.brokers[1], harness.now_ms, Failover())
    assert (replicas(harness)[0], leaders(harness)[0]) == ((4,), 4)
    harness.cluster.remove_broker(harness.cluster.brokers[4], harness.now_ms, Failover())
    assert (set(replicas(harness)), leaders(harness)) == ({(2,), (3,)}, [-1] * 4)


def test_invalid_reassignments_change_nothing(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], ErrorCode, str]] = [
        ({"target": [1], "name": "none"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition none-0"),
        ({"target": [1], "index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition news-9"),
        ({"target": []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 on brokers []: expected one or more"),
        ({"target": [2, 2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected one or more, each once"),
        ({"target": [2, -1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected brokers out of [1, 2, 3]"),
        (
            {"target": [2], "allow": False},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "news-0 on brokers [2]: expected 2 replicas, as before",
        ),
        ({"target": [2], "timeout_ms": 0}, ErrorCode.REQUEST_TIMED_OUT, "timeout_ms=0: expected 1 or more"),
    ]
    for arguments, error, message in cases:
        with subtests.test(**arguments):
            harness = ClusterHarness({"news": 1}, brokers=3, config=TWO_REPLICAS)
            result_error, result_message = reassign(harness, **arguments)
            assert result_error == error
            assert result_message is not None
            assert message in result_message
            assert replicas(harness) == [(1, 2)]


def test_the_same_replication_factor_is_always_allowed() -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=TWO_REPLICAS)
    assert reassign(harness, [2, 3], allow=False) == (ErrorCode.NONE, None)
    assert replicas(harness) == [(2, 3)]


def test_no_reassignments_are_listed_if_the_timeout_is_not_positive() -> None:
    listed = ClusterHarness().ask(ListPartitionReassignmentsRequest(timeout_ms=-5), 0)
    assert (listed.error_code, listed.error_message, listed.topics) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "timeout_ms=-5: expected 1 or more",
        [],
    )


def test_a_coordinator_moves_with_its_partition() -> None:
    group = FailoverHarness(offset=7)
    assert reassign(group.cluster_harness, [2, 3], name="__consumer_offsets", broker=3) == (ErrorCode.NONE, None)
    assert (group.heartbeat(1), group.committed(1)) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)
    assert (group.found_coordinator(), group.heartbeat(2), group.committed(2)) == (2, 0, 7)


def test_a_move_to_a_broker_without_a_replica_ends_a_reassignment() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO_REPLICAS)
    stop_brokers(harness, 4)
    reassign(harness, [4, 2])
    harness.cluster.controller.set_leader(harness.partition(), 3, harness.now_ms, Failover())
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(2, 3)], [3])


def test_a_reassignment_ends_when_the_last_leader_of_the_partition_is_back() -> None:
    group = FailoverHarness(offset=7)
    group.stop_broker(1, elect=False)
    assert reassign(group.cluster_harness, [2, 3], name="__consumer_offsets", broker=3) == (ErrorCode.NONE, None)
    assert [each[0] for each in ongoing(group.cluster_harness)] == ["__consumer_offsets"]
    group.stop_broker(3)
    group.start_broker(3)
    assert group.found_coordinator() == -ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.start_broker(1)
    assert (ongoing(group.cluster_harness), group.found_coordinator(), group.committed(2)) == ([], 2, 7)


def test_a_partition_awaits_its_last_leader_after_its_reassignment_was_canceled() -> None:
    group = FailoverHarness(offset=7)
    group.stop_broker(1, elect=False)
    reassign(group.cluster_harness, [2, 3], name="__consumer_offsets", broker=3)
    assert reassign(group.cluster_harness, None, name="__consumer_offsets", broker=3) == (ErrorCode.NONE, None)
    assert group.found_coordinator() == -ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.start_broker(1)
    assert (group.found_coordinator(), group.committed(1)) == (1, 7)
