"""CreateTopics: the results in all versions, and which topics are not created."""

import pytest

from fakebroker.cluster.handlers.controller_requests import MAX_RECORDS_PER_USER_OP
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_topics import CreatableReplicaAssignment, CreateTopicsRequest
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions
from tests.support.cluster.replicas import assigned_topic, create_topics, new_topic

ALL_VERSIONS = versions("CreateTopics")


def test_create_a_topic_in_each_version(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness({}, brokers=3)
            (result,) = create_topics(harness, new_topic(partitions=3, factor=2), version=version)
            created = harness.topic("fresh")
            assert [partition.replicas for partition in created.partitions] == [(1, 2), (2, 3), (3, 1)]
            assert (result.name, result.error_code) == ("fresh", ErrorCode.NONE)
            assert result.error_message == (None if version >= 1 else "")
            assert (result.num_partitions, result.replication_factor) == ((3, 2) if version >= 5 else (-1, -1))
            assert result.topic_id == (created.topic_id if version >= 7 else ZERO_UUID)


def test_minus_one_means_the_default_numbers_in_each_version(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(brokers=3, config={"num.partitions": 5, "default.replication.factor": 3})
            (result,) = create_topics(harness, new_topic(partitions=-1, factor=-1), version=version)
            assert result.error_code == ErrorCode.NONE
            created = harness.topic("fresh")
            assert (len(created.partitions), len(created.partitions[0].replicas)) == (5, 3)


def test_explicit_replicas_in_each_version(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(brokers=3)
            (result,) = create_topics(harness, assigned_topic(p1=[3, 2], p0=[2, 1]), version=version)
            assert result.error_code == ErrorCode.NONE
            created = [(each.replicas, each.leader_id) for each in harness.topic("fresh").partitions]
            assert created == [((2, 1), 2), ((3, 2), 3)]


def test_validate_only_creates_nothing(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS[1:]:
        with subtests.test(version=version):
            harness = ClusterHarness()
            results = create_topics(harness, new_topic(), new_topic("news"), version=version, validate_only=True)
            assert [each.error_code for each in results] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
            assert "fresh" not in harness.cluster.topics


def test_topics_that_are_not_created(subtests: pytest.Subtests) -> None:
    cases = {
        "name with a space": (new_topic("no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "name of a dot": (new_topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "long name": (new_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "colliding name": (new_topic("dotted_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "existing topic": (new_topic("dotted.name"), ErrorCode.TOPIC_ALREADY_EXISTS),
        "offsets topic": (new_topic("__consumer_offsets"), ErrorCode.TOPIC_ALREADY_EXISTS),
        "metadata topic": (new_topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        "0 partitions": (new_topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        "-2 partitions": (new_topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        "too many partitions": (new_topic(partitions=MAX_RECORDS_PER_USER_OP), ErrorCode.POLICY_VIOLATION),
        "0 replicas": (new_topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        "-2 replicas": (new_topic(factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        "more replicas than brokers": (new_topic(factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        "assignment and factor": (assigned_topic(factor=1, p0=[1]), ErrorCode.INVALID_REQUEST),
        "assignment and partitions": (assigned_topic(partitions=1, p0=[1]), ErrorCode.INVALID_REQUEST),
        "no replicas": (assigned_topic(p0=[]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "duplicate replica": (assigned_topic(p0=[1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "unknown broker": (assigned_topic(p0=[9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "different factors": (assigned_topic(p0=[1], p1=[1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "missing partition": (assigned_topic(p1=[1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "unknown config": (new_topic(no_such_config="1"), ErrorCode.INVALID_CONFIG),
        "config without value": (new_topic(retention_bytes=None), ErrorCode.INVALID_CONFIG),
        "config that is no number": (new_topic(retention_bytes="much"), ErrorCode.INVALID_CONFIG),
        "config that is no boolean": (new_topic(preallocate="perhaps"), ErrorCode.INVALID_CONFIG),
    }
    for case, (topic, error) in cases.items():
        with subtests.test(case):
            harness = ClusterHarness({"dotted.name": 1}, brokers=3)
            harness.cluster.topics.show_offsets_topic()
            before = list(harness.cluster.topics)
            (result,) = create_topics(harness, topic)
            assert (result.name, result.error_code) == (topic.name, error)
            assert result.error_message
            assert list(harness.cluster.topics) == before


def test_explicit_replicas_name_each_partition_once() -> None:
    topic = assigned_topic(p0=[1])
    topic.assignments.append(CreatableReplicaAssignment(partition_index=0, broker_ids=[1]))
    assert create_topics(ClusterHarness(), topic)[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_duplicate_topic_is_not_created_and_others_are() -> None:
    harness = ClusterHarness()
    results = create_topics(harness, new_topic("twice"), new_topic("once"), new_topic("twice"))
    assert [(each.name, each.error_code) for each in results] == [
        ("once", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert "once" in harness.cluster.topics
    assert "twice" not in harness.cluster.topics


def test_results_have_all_configs_with_their_sources() -> None:
    harness = ClusterHarness(config={"message.max.bytes": 500})
    (result,) = create_topics(harness, new_topic(retention_bytes="1000", cleanup_policy="compact"))
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.bytes"] == ("1000", 1)
    assert configs["cleanup.policy"] == ("compact", 1)
    assert configs["max.message.bytes"] == ("500", 4)
    assert configs["preallocate"] == ("false", 5)
    assert list(configs) == sorted(configs)


def test_negative_partition_counts_do_not_compensate_for_too_many_partitions() -> None:
    harness = ClusterHarness()
    topics = new_topic("many", partitions=MAX_RECORDS_PER_USER_OP), new_topic("negative", partitions=-(2**31))
    assert [each.error_code for each in create_topics(harness, *topics)] == [ErrorCode.POLICY_VIOLATION] * 2
    assert "many" not in harness.cluster.topics


def test_no_topic_is_created_if_the_timeout_is_not_positive(subtests: pytest.Subtests) -> None:
    for version in ALL_VERSIONS:
        for timeout_ms in (0, -1):
            with subtests.test(version=version, timeout_ms=timeout_ms):
                harness = ClusterHarness({})
                request = CreateTopicsRequest(topics=[new_topic(partitions=1)], timeout_ms=timeout_ms)
                (result,) = harness.ask(request, version).topics
                assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
                assert "fresh" not in harness.cluster.topics
