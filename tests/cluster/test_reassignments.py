"""Partitions that move to other brokers: at once, when a broker is back, or not at all."""

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
from tests.cluster.test_controller import Group
from tests.cluster.test_topology import TWO, described, leaders, replicas, start, stop
from tests.support.cluster.cluster_harness import ClusterHarness, versions


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
    partition = ReassignablePartition(partition_index=index, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        allow_replication_factor_change=allow,
        topics=[ReassignableTopic(name=name, partitions=[partition])],
    )
    altered = harness.ask(request, version, broker=broker)
    assert altered.allow_replication_factor_change == allow
    (told,) = altered.responses[0].partitions
    assert (altered.responses[0].name, told.partition_index) == (name, index)
    assert altered.error_code in (ErrorCode.NONE, told.error_code)
    return ErrorCode(told.error_code), told.error_message


def ongoing(harness: ClusterHarness, asked: dict[str, list[int]] | None = None) -> list[tuple[Any, ...]]:
    topics = None
    if asked is not None:
        topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=each) for name, each in asked.items()]
    told = harness.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
    assert (told.error_code, told.error_message) == (ErrorCode.NONE, None)
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in told.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", versions("AlterPartitionReassignments"))
def test_a_partition_goes_to_other_brokers(version: int) -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO)
    epoch = harness.partition().leader_epoch
    assert reassign(harness, [4, 3], version=version) == (ErrorCode.NONE, None)
    assert (replicas(harness), leaders(harness)) == ([(4, 3)], [4])
    assert harness.partition().leader_epoch == epoch + 1
    assert ongoing(harness) == []
    told = described(harness)
    assert (told.replica_nodes, told.isr_nodes, told.offline_replicas) == ([4, 3], [4, 3], [])


def test_a_leader_that_stays_goes_on_leading() -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=TWO)
    epoch = harness.partition().leader_epoch
    reassign(harness, [2, 1])
    assert (replicas(harness), leaders(harness), harness.partition().leader_epoch) == ([(2, 1)], [1], epoch)
    reassign(harness, [2, 3, 1])
    assert (leaders(harness), harness.partition().leader_epoch) == ([1], epoch)
    reassign(harness, [3, 1])
    assert (leaders(harness), harness.partition().leader_epoch) == ([1], epoch + 1)


def test_a_reassignment_waits_for_a_broker_that_is_down() -> None:
    harness = ClusterHarness({"news": 1, "sports": 1}, brokers=4, config=TWO)
    stop(harness, 4)
    assert reassign(harness, [4, 2]) == (ErrorCode.NONE, None)
    waiting = ("news", 0, [4, 2, 1], [4], [1])
    assert ongoing(harness) == [waiting]
    assert ongoing(harness, {"news": [0, 5], "none": [0]}) == [waiting]
    assert ongoing(harness, {"sports": [0]}) == ongoing(harness, {}) == []
    assert leaders(harness) == [1]
    start(harness, 4)
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(4, 2)], [4])


def test_a_reassignment_is_replaced_by_another() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO)
    stop(harness, 3, 4)
    reassign(harness, [4, 2])
    reassign(harness, [4, 3])
    assert ongoing(harness) == [("news", 0, [4, 3, 1, 2], [4, 3], [1, 2])]
    reassign(harness, [2, 1])
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(2, 1)], [1])


def test_a_reassignment_is_cancelled() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO)
    assert reassign(harness, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "news-0 is not being reassigned")
    stop(harness, 4)
    reassign(harness, [4, 3])
    assert reassign(harness, None) == (ErrorCode.NONE, None)
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(1, 2)], [1])


def test_a_reassignment_that_cannot_go_back() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO)
    stop(harness, 4)
    reassign(harness, [4, 3])
    stop(harness, 1, 2)
    assert leaders(harness) == [3]
    error, message = reassign(harness, None, broker=3)
    assert error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message == "news-0 cannot go back: of its old replicas none is in sync"


def test_a_broker_that_is_removed_ends_a_reassignment_to_it() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO)
    stop(harness, 4)
    reassign(harness, [4, 2])
    harness.cluster.remove_broker(harness.cluster.brokers[4], harness.now_ms, Failover())
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(2, 1)], [1])


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"target": [1], "name": "none"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition none-0"),
        ({"target": [1], "index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition news-9"),
        ({"target": []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 on brokers []: expected one or more"),
        ({"target": [2, 2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected one or more, each once"),
        ({"target": [2, -1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected brokers out of [1, 2, 3]"),
        (
            {"target": [2], "allow": False},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "news-0 on brokers [2]: expected 2 replicas, as it has",
        ),
        ({"target": [2], "timeout_ms": 0}, ErrorCode.REQUEST_TIMED_OUT, "timeout_ms=0: expected 1 or more"),
    ],
)
def test_reassignments_that_are_refused(asked: dict[str, Any], error: ErrorCode, message: str) -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=TWO)
    told, why = reassign(harness, **asked)
    assert told == error
    assert why is not None
    assert message in why
    assert replicas(harness) == [(1, 2)]


def test_the_same_replication_factor_is_always_allowed() -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=TWO)
    assert reassign(harness, [2, 3], allow=False) == (ErrorCode.NONE, None)
    assert replicas(harness) == [(2, 3)]


def test_reassignments_are_not_listed_without_time() -> None:
    told = ClusterHarness().ask(ListPartitionReassignmentsRequest(timeout_ms=-5), 0)
    assert (told.error_code, told.error_message, told.topics) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "timeout_ms=-5: expected 1 or more",
        [],
    )


def test_a_coordinator_moves_with_its_partition() -> None:
    group = Group().sync()
    group.commit(7)
    assert reassign(group.h, [2, 3], name="__consumer_offsets", broker=3) == (ErrorCode.NONE, None)
    assert (group.beat(1), group.committed(1)) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)
    assert (group.found(), group.beat(2), group.committed(2)) == (2, 0, 7)


def test_a_leader_from_elsewhere_ends_a_reassignment() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO)
    stop(harness, 4)
    reassign(harness, [4, 2])
    harness.cluster.controller.set_leader(harness.partition(), 3, harness.now_ms, Failover())
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(2, 3)], [3])


def test_a_reassignment_ends_when_the_last_leader_of_the_partition_is_back() -> None:
    group = Group().sync()
    group.commit(7)
    stop(group.h, 1, elect=False)
    assert reassign(group.h, [2, 3], name="__consumer_offsets", broker=3) == (ErrorCode.NONE, None)
    assert [each[0] for each in ongoing(group.h)] == ["__consumer_offsets"]
    stop(group.h, 3)
    start(group.h, 3)
    assert group.found() == -ErrorCode.COORDINATOR_NOT_AVAILABLE
    start(group.h, 1)
    assert (ongoing(group.h), group.found(), group.committed(2)) == ([], 2, 7)


def test_a_partition_awaits_its_last_leader_after_its_reassignment_was_cancelled() -> None:
    group = Group().sync()
    group.commit(7)
    stop(group.h, 1, elect=False)
    reassign(group.h, [2, 3], name="__consumer_offsets", broker=3)
    assert reassign(group.h, None, name="__consumer_offsets", broker=3) == (ErrorCode.NONE, None)
    assert group.found() == -ErrorCode.COORDINATOR_NOT_AVAILABLE
    start(group.h, 1)
    assert (group.found(), group.committed(1)) == (1, 7)
