"""CreatePartitions: replicas of the new partitions, and requests that are rejected."""

from typing import Any

import pytest

from fakebroker.cluster.handlers.controller_requests import MAX_RECORDS_PER_USER_OP
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.support.cluster.cluster_harness import ClusterHarness, versions
from tests.support.cluster.replicas import TWO_REPLICAS, leaders, replicas, stop_brokers

Growth = tuple[str, int] | tuple[str, int, list[list[int]]]
"""A topic, its new number of partitions, and optionally the replicas of each new partition."""


def create_partitions(
    harness: ClusterHarness,
    *growths: Growth,
    version: int = 3,
    timeout_ms: int = 60_000,
    validate_only: bool = False,
) -> list[Any]:
    topics = []
    for name, count, *assignments in growths:
        lists = [CreatePartitionsAssignment(broker_ids=each) for each in assignments[0]] if assignments else None
        topics.append(CreatePartitionsTopic(name=name, count=count, assignments=lists))
    request = CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
    results: list[Any] = harness.ask(request, version).results
    return results


def test_create_partitions_in_each_version(subtests: pytest.Subtests) -> None:
    for version in versions("CreatePartitions"):
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 2}, brokers=3, config=TWO_REPLICAS)
            (result,) = create_partitions(harness, ("news", 4), version=version)
            assert (result.name, result.error_code, result.error_message) == ("news", ErrorCode.NONE, None)
            assert replicas(harness) == [(1, 2), (2, 3), (3, 1), (1, 2)]
            (result,) = create_partitions(harness, ("news", 5, [[3, 2]]), version=version)
            assert result.error_code == ErrorCode.NONE
            assert (replicas(harness)[4], leaders(harness)[4]) == ((3, 2), 3)


def test_new_partitions_are_placed_on_brokers_that_are_up() -> None:
    harness = ClusterHarness({"news": 2}, brokers=3, config=TWO_REPLICAS)
    stop_brokers(harness, 3)
    create_partitions(harness, ("news", 4))
    assert replicas(harness)[2:] == [(1, 2), (2, 1)]


def test_validate_only_creates_nothing(subtests: pytest.Subtests) -> None:
    for version in versions("CreatePartitions"):
        with subtests.test(version=version):
            harness = ClusterHarness({"news": 1})
            results = create_partitions(harness, ("news", 3), ("none", 3), version=version, validate_only=True)
            assert [each.error_code for each in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert len(replicas(harness)) == 1


def test_invalid_requests_create_nothing(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Growth, ErrorCode, str | None]] = [
        (("none", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (("news", 2), ErrorCode.INVALID_PARTITIONS, "topic 'news' with 2 partitions: expected 3 to 100000"),
        (("news", 1), ErrorCode.INVALID_PARTITIONS, "topic 'news' with 1 partitions: expected 3 to 100000"),
        (("news", 0), ErrorCode.INVALID_PARTITIONS, "topic 'news' with 0 partitions: expected 3 to 100000"),
        (("news", -1), ErrorCode.INVALID_PARTITIONS, "topic 'news' with -1 partitions: expected 3 to 100000"),
        (("news", 2**31 - 1), ErrorCode.INVALID_PARTITIONS, "expected 3 to 100000"),
        (
            ("news", MAX_RECORDS_PER_USER_OP + 3),
            ErrorCode.POLICY_VIOLATION,
            "10001 more partitions of 'news': expected at most 10000",
        ),
        (("__consumer_offsets", 9), ErrorCode.INVALID_REQUEST, "topic '__consumer_offsets' is internal"),
        (("news", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 assignments of partitions of 'news'"),
        (("news", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected 1, one for each"),
        (("news", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 on brokers []: expected one or more"),
        (("news", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected one or more, each once"),
        (("news", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected brokers out of [1, 2, 3]"),
        (("news", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected 2 replicas, as the first partition has"),
        (("news", 3, [[3, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected one that is up"),
    ]
    for growth, error, message in cases:
        with subtests.test(growth=growth):
            harness = ClusterHarness({"news": 2}, brokers=3, config=TWO_REPLICAS)
            harness.cluster.topics.show_offsets_topic()
            stop_brokers(harness, 2, 3)
            (result,) = create_partitions(harness, growth)
            assert (result.name, result.error_code) == (growth[0], error)
            assert result.error_message is message is None or message in result.error_message
            assert len(replicas(harness)) == 2


def test_a_duplicate_topic_gets_no_partitions_and_others_do() -> None:
    harness = ClusterHarness({"news": 1, "sports": 1})
    results = create_partitions(harness, ("news", 2), ("sports", 2), ("news", 3))
    assert [(each.name, each.error_code) for each in results] == [
        ("news", ErrorCode.INVALID_REQUEST),
        ("sports", ErrorCode.NONE),
    ]
    assert results[0].error_message == "topic 'news' 2 times in one request: expected once"
    assert (len(replicas(harness)), len(replicas(harness, "sports"))) == (1, 2)


def test_no_partition_is_created_if_the_timeout_is_not_positive(subtests: pytest.Subtests) -> None:
    for timeout_ms in (0, -1):
        with subtests.test(timeout_ms=timeout_ms):
            harness = ClusterHarness({"news": 1})
            (result,) = create_partitions(harness, ("news", 2), timeout_ms=timeout_ms)
            assert (result.error_code, result.error_message) == (ErrorCode.REQUEST_TIMED_OUT, None)
            assert len(replicas(harness)) == 1
            assert create_partitions(harness, timeout_ms=timeout_ms) == []


def test_commands_create_no_partitions_of_internal_topics() -> None:
    with pytest.raises(ConfigError, match="topic='__consumer_offsets': expected a topic that is not internal"):
        ClusterHarness().cluster.create_partitions("__consumer_offsets", 100)
