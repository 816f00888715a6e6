"""CreateTopics: what may be created and how, and why not."""

from typing import Any

import pytest

from fakebroker.cluster.handlers.controller_requests import MAX_RECORDS_PER_USER_OP
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions

ALL_VERSIONS = versions("CreateTopics")


def topic(
    name: str = "fresh",
    partitions: int = 2,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=node_ids)
            for index, node_ids in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create(
    harness: ClusterHarness, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    results: list[Any] = harness.ask(request, version).topics
    return results


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_creates_a_topic(version: int) -> None:
    harness = ClusterHarness(brokers=3)
    (result,) = create(harness, topic(partitions=3, factor=2), version=version)
    made = harness.topic("fresh")
    assert [partition.replicas for partition in made.partitions] == [(1, 2), (2, 3), (3, 1)]
    assert (result.name, result.error_code) == ("fresh", ErrorCode.NONE)
    assert result.error_message == (None if version >= 1 else "")
    assert (result.num_partitions, result.replication_factor) == ((3, 2) if version >= 5 else (-1, -1))
    assert result.topic_id == (made.topic_id if version >= 7 else ZERO_UUID)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_default_numbers(version: int) -> None:
    harness = ClusterHarness(brokers=3, config={"num.partitions": 5, "default.replication.factor": 3})
    assert create(harness, topic(partitions=-1, factor=-1), version=version)[0].error_code == ErrorCode.NONE
    made = harness.topic("fresh")
    assert (len(made.partitions), len(made.partitions[0].replicas)) == (5, 3)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_explicit_assignment(version: int) -> None:
    harness = ClusterHarness(brokers=3)
    assigned = topic(partitions=-1, factor=-1, assignments={1: [3, 2], 0: [2, 1]})
    assert create(harness, assigned, version=version)[0].error_code == ErrorCode.NONE
    assert [(each.replicas, each.leader_id) for each in harness.topic("fresh").partitions] == [((2, 1), 2), ((3, 2), 3)]


@pytest.mark.parametrize("version", ALL_VERSIONS[1:])
def test_validate_only(version: int) -> None:
    harness = ClusterHarness()
    results = create(harness, topic(), topic("news"), version=version, validate_only=True)
    assert [each.error_code for each in results] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert "fresh" not in harness.cluster.topics


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (topic("no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("dotted_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("dotted.name"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("__consumer_offsets"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(partitions=-1, factor=1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic(partitions=1, factor=-1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic(partitions=-1, factor=-1, assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(partitions=-1, factor=-1, assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(partitions=-1, factor=-1, assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(partitions=-1, factor=-1, assignments={0: [1], 1: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(partitions=-1, factor=-1, assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(no_such_config="1"), ErrorCode.INVALID_CONFIG),
        (topic(retention_bytes=None), ErrorCode.INVALID_CONFIG),
        (topic(retention_bytes="much"), ErrorCode.INVALID_CONFIG),
        (topic(preallocate="perhaps"), ErrorCode.INVALID_CONFIG),
        (topic(partitions=MAX_RECORDS_PER_USER_OP), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_is_refused(asked: CreatableTopic, error: ErrorCode) -> None:
    harness = ClusterHarness({"dotted.name": 1}, brokers=3)
    before = list(harness.cluster.topics)
    (result,) = create(harness, asked)
    assert (result.name, result.error_code) == (asked.name, error)
    assert result.error_message
    assert list(harness.cluster.topics) == before


def test_one_partition_assigned_twice() -> None:
    asked = topic(partitions=-1, factor=-1, assignments={0: [1]})
    asked.assignments.append(CreatableReplicaAssignment(partition_index=0, broker_ids=[1]))
    assert create(ClusterHarness(), asked)[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_name_given_twice_is_refused_once_and_the_others_are_created() -> None:
    harness = ClusterHarness()
    results = create(harness, topic("twice"), topic("once"), topic("twice"))
    assert [(each.name, each.error_code) for each in results] == [
        ("once", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert "once" in harness.cluster.topics
    assert "twice" not in harness.cluster.topics


def test_configs_are_told_with_their_source() -> None:
    harness = ClusterHarness(config={"message.max.bytes": 500})
    (result,) = create(harness, topic(retention_bytes="1000", cleanup_policy="compact"))
    told = {config.name: (config.value, config.config_source) for config in result.configs}
    assert told["retention.bytes"] == ("1000", 1)
    assert told["cleanup.policy"] == ("compact", 1)
    assert told["max.message.bytes"] == ("500", 4)
    assert told["preallocate"] == ("false", 5)
    assert list(told) == sorted(told)


def test_too_many_partitions_beside_a_negative_number() -> None:
    harness = ClusterHarness()
    results = create(harness, topic("much", partitions=MAX_RECORDS_PER_USER_OP), topic("less", partitions=-(2**31)))
    assert [each.error_code for each in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert "much" not in harness.cluster.topics
