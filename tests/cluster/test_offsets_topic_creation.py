"""__consumer_offsets is created when it is first used, or before by a client, with its own number of partitions."""

from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.cluster.first_use import FirstUseMode
from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.inspect.explain import explain
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from fakebroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment, response, versions
from tests.support.cluster.harness_groups import NO_INITIAL_DELAY, join, sync_after
from tests.support.cluster.replicas import assigned_topic, create_topics, new_topic, stop_brokers
from tests.support.group_requests import commit_of, heartbeat_request, join_request, offset_to_commit

NAME = "__consumer_offsets"


def commands_of(harness: ClusterHarness) -> LocalCluster:
    environment = ClusterHarnessEnvironment(harness)
    return LocalCluster(
        Local(
            harness.cluster, environment, new_cluster=lambda: ClusterHarness(brokers=3, config=NO_INITIAL_DELAY).cluster
        )
    )


def topics(harness: ClusterHarness) -> dict[str, int]:
    """Return the partition counts of all topics, by a Metadata request."""
    metadata = harness.ask(MetadataRequest(topics=None), 12)
    return {topic.name: len(topic.partitions) for topic in metadata.topics}


def named(harness: ClusterHarness, *, allow: bool = True) -> Any:
    """Return the topic in a Metadata response for its name."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=NAME)], allow_auto_topic_creation=allow)
    (topic,) = harness.ask(request, 12).topics
    return topic


def find(harness: ClusterHarness, *keys: str) -> list[int]:
    """Return the node ids of the coordinators of groups."""
    found = harness.ask(FindCoordinatorRequest(coordinator_keys=list(keys)), 4).coordinators
    assert [each.error_code for each in found] == [0] * len(keys)
    return [each.node_id for each in found]


# Its creation when it is used


def test_clients_do_not_see_it_before_it_is_used() -> None:
    harness = ClusterHarness(brokers=3)
    assert topics(harness) == {"news": 1}
    assert named(harness, allow=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    described = harness.ask(DescribeTopicPartitionsRequest(topics=[]), 0).topics
    assert [topic.name for topic in described] == ["news"]
    (directory,) = harness.ask(DescribeLogDirsRequest(topics=None), 4).results
    assert [topic.name for topic in directory.topics] == ["news"]
    assert harness.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []
    stop_brokers(harness, 1)
    assert topics_at(harness, 2) == ["news"]


def topics_at(harness: ClusterHarness, broker: int) -> list[str]:
    return [topic.name for topic in harness.ask(MetadataRequest(topics=None), 12, broker=broker).topics]


def test_the_first_lookup_creates_it_and_finds_the_coordinator(subtests: pytest.Subtests) -> None:
    for version in versions("FindCoordinator"):
        with subtests.test(version=version):
            harness = ClusterHarness(brokers=3)
            request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
            found = harness.ask(request, version)
            found = found if version < 4 else found.coordinators[0]
            assert (found.error_code, found.node_id) == (0, partition_for("g", 2) % 3 + 1)
            assert topics(harness) == {"news": 1, NAME: 2}


def test_it_is_created_by_metadata_with_its_name() -> None:
    harness = ClusterHarness(brokers=3)
    topic = named(harness)
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 2)
    assert topics(harness) == {"news": 1, NAME: 2}


def test_it_is_created_by_commands_that_use_it(subtests: pytest.Subtests) -> None:
    uses: dict[str, Callable[[LocalCluster], None]] = {
        "group.seed": lambda commands: commands.group("g").seed(1),
        "group.move_coordinator": lambda commands: commands.group("g").move_coordinator(2),
        "partition.move_leader": lambda commands: commands.topic(NAME).partition(0).move_leader(3),
    }
    for name, use in uses.items():
        with subtests.test(name):
            harness = ClusterHarness(brokers=3)
            use(commands_of(harness))
            assert NAME in topics(harness)


def test_commands_that_do_not_use_it_do_not_create_it() -> None:
    harness = ClusterHarness(brokers=3)
    commands = commands_of(harness)
    commands.group("g").hold("PreparingRebalance")
    commands.brokers.elect_preferred()
    commands.broker(1).restart()
    commands.brokers.add()
    commands.broker(2).remove()
    assert topics(harness) == {"news": 1}


def test_a_group_that_joins_without_a_lookup_creates_it() -> None:
    harness = ClusterHarness(config=NO_INITIAL_DELAY)
    joined = join(harness)
    harness.ask(sync_after(joined), 5)
    assert topics(harness) == {"news": 1, NAME: 2}


def test_its_replication_factor_is_a_setting() -> None:
    for factor in (1, 2, 3):
        harness = ClusterHarness(brokers=3, config={"offsets.topic.replication.factor": factor})
        assert {len(each.replica_nodes) for each in named(harness).partitions} == {factor}
    assert {len(each.replica_nodes) for each in named(ClusterHarness(brokers=2)).partitions} == {2}


def find_error(harness: ClusterHarness, key: str, key_type: int = 0) -> ErrorCode:
    (found,) = harness.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 4).coordinators
    return ErrorCode(found.error_code)


@pytest.mark.parametrize("first_use", ["ready", "kafka"])
def test_more_replicas_than_brokers(first_use: FirstUseMode) -> None:
    config: dict[str, object] = {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 2}
    harness = ClusterHarness(config=config, first_use=first_use)
    for _ in range(3):
        assert [find_error(harness, "g"), find_error(harness, "t", 1)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        harness.advance(1_000)
    assert named(harness).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.ask(heartbeat_request(), 4).error_code == ErrorCode.NOT_COORDINATOR
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    commit = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="news", partitions=[partition])],
    )
    (refused,) = harness.ask(commit, 4).topics[0].partitions
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (
        harness.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4).error_code
        == ErrorCode.NOT_COORDINATOR
    )
    assert "its replicas need more brokers" in explain(harness.cluster, "g", harness.now_ms)
    assert topics(harness) == {"news": 1}

    commands_of(harness).brokers.add()
    find_error(harness, "t", 1)
    harness.advance(1_000)
    assert [find_error(harness, "g"), find_error(harness, "t", 1)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]

    commands_of(harness).brokers.add()
    find_error(harness, "g")
    harness.advance(1_000)
    assert find_error(harness, "g") == 0
    assert {len(each.replica_nodes) for each in named(harness).partitions} == {3}


def test_a_client_creates_it_with_fewer_replicas() -> None:
    harness = ClusterHarness(config={"offsets.topic.replication.factor": 3})
    (result,) = create_topics(harness, new_topic(NAME, partitions=7, factor=1))
    assert result.error_code == ErrorCode.NONE
    assert find(harness, "g") == [1]
    assert harness.ask(heartbeat_request(), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Its creation by clients


def test_it_is_created_with_its_own_number_of_partitions() -> None:
    harness = ClusterHarness(brokers=3, config=NO_INITIAL_DELAY)
    (result,) = create_topics(harness, new_topic(NAME, partitions=7, factor=2))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 7, 2)
    assert topics(harness) == {"news": 1, NAME: 7}
    leaders = {each.partition_index: each.leader_id for each in named(harness).partitions}
    group_ids = [f"group-{number}" for number in range(20)]
    assert find(harness, *group_ids) == [leaders[partition_for(each, 7)] for each in group_ids]
    (again,) = create_topics(harness, new_topic(NAME, partitions=7, factor=2))
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_its_groups_survive_a_failover_and_are_found_by_new_brokers() -> None:
    harness = ClusterHarness(brokers=2, config=NO_INITIAL_DELAY)
    commands = commands_of(harness)
    create_topics(harness, assigned_topic(NAME, p0=[2, 1]))
    assert find(harness, "g") == [2]
    member_id = harness.ask(join_request(), 9, broker=2).member_id
    joined = harness.ask(join_request(member_id=member_id), 9, broker=2)
    assert harness.ask(sync_after(joined), 5, broker=2).error_code == 0
    commit = commit_of(offset_to_commit(0), generation_id_or_member_epoch=1, member_id=member_id)
    assert harness.ask(commit, 8, broker=2).topics[0].partitions[0].error_code == 0
    node_id = commands.brokers.add().node_id
    for broker in (1, node_id):
        commands.group("g").move_coordinator(broker)
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
        assert harness.ask(heartbeat, 4, broker=broker).error_code == 0
        assert find(harness, "g") == [broker]


def test_a_snapshot_from_before_restores_the_number_of_partitions() -> None:
    harness = ClusterHarness(brokers=3, config=NO_INITIAL_DELAY)
    commands = commands_of(harness)
    before = commands.snapshot()
    create_topics(harness, new_topic(NAME, partitions=7, factor=3))
    commands.group("g").seed(1)
    after = commands.snapshot()
    for snapshot, partitions in ((before, 2), (after, 7), (before, 2)):
        commands.restore(snapshot)
        assert NAME in topics(harness) if partitions == 7 else NAME not in topics(harness)
        found = harness.cluster.coordinator_of("g")
        assert found is not None
        assert (found.coordinator.groups.classic.get("g") is not None) == (partitions == 7)
        partition = harness.cluster.offsets_partition(partition_for("g", partitions))
        assert found.node_id == partition.leader_id
    commands.reset()
    assert topics(harness) == {"news": 1}


def test_a_member_that_joined_before_gets_not_coordinator() -> None:
    # Before 4.0, a new group is not written to the log, which would create the topic.
    harness = ClusterHarness(config={"group.initial.rebalance.delay.ms": 3000}, as_version="3.9")
    member_id = harness.ask(join_request(), 9).member_id
    parked = harness.send(join_request(member_id=member_id), 9)
    assert parked.response is None
    create_topics(harness, new_topic(NAME, partitions=1))
    assert response(parked).error_code == ErrorCode.NOT_COORDINATOR
    assert harness.ask(join_request(), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_the_settings_and_a_command_create_it_with_another_number() -> None:
    by_settings = ClusterHarness({NAME: 3}, brokers=3)
    by_command = ClusterHarness(brokers=3)
    commands_of(by_command).topic(NAME).create(3)
    for harness in (by_settings, by_command):
        assert topics(harness)[NAME] == 3
        leaders = [each.leader_id for each in harness.cluster.topics.offsets_topic.partitions]
        assert find(harness, "a", "b") == [leaders[partition_for(each, 3)] for each in ("a", "b")]


def test_leader_epochs_do_not_decrease_while_it_is_hidden() -> None:
    harness = ClusterHarness(brokers=3)
    commands = commands_of(harness)
    before = commands.snapshot()
    named(harness)
    after = commands.snapshot()
    for node_id in (3, 2, 3):
        commands.topic(NAME).partition(0).move_leader(node_id)
    known = named(harness).partitions[0].leader_epoch
    commands.restore(before)
    commands.restore(after)
    assert named(harness).partitions[0].leader_epoch > known
