"""DescribeQuorum, UnregisterBroker, UnregisterController and AlterReplicaLogDirs."""

from typing import Any

import pytest

from fakebroker.cluster.configs.resolution import LOG_DIR
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from fakebroker.protocol.messages.describe_cluster import DescribeClusterRequest
from fakebroker.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestedPartition, RequestedTopic
from fakebroker.protocol.messages.unregister_broker import UnregisterBrokerRequest
from fakebroker.protocol.messages.unregister_controller import UnregisterControllerRequest
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions

METADATA_LOG = "__cluster_metadata"


def quorum(harness: ClusterHarness, topic: str = METADATA_LOG, index: int = 0, version: int = 2) -> Any:
    requested = RequestedTopic(topic_name=topic, partitions=[RequestedPartition(partition_index=index)])
    broker = harness.cluster.controller_id
    return harness.ask(DescribeQuorumRequest(topics=[requested]), version, broker=broker)


def stop(harness: ClusterHarness, node_id: int) -> None:
    harness.cluster.controller.stop_broker(harness.cluster.brokers[node_id], harness.now_ms, Failover())


def start(harness: ClusterHarness, node_id: int) -> None:
    harness.cluster.controller.start_broker(harness.cluster.brokers[node_id], harness.now_ms, Failover())


def test_the_controller_leads_a_quorum_of_all_brokers(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(brokers=3)
    for version in versions("DescribeQuorum"):
        with subtests.test(version=version):
            response = quorum(harness, version=version)
            ((partition,),) = [topic.partitions for topic in response.topics]
            assert response.error_code == partition.error_code == ErrorCode.NONE
            assert partition.leader_id == harness.cluster.controller_id == 1
            assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
            assert {each.log_end_offset for each in partition.current_voters} == {partition.high_watermark}
            assert partition.observers == []
    assert [(node.node_id, node.listeners[0].port) for node in response.nodes] == [(1, 9001), (2, 9002), (3, 9003)]
    assert len({each.replica_directory_id for each in partition.current_voters} - {ZERO_UUID}) == 3


def test_another_controller_leads_after_the_first_one_stops() -> None:
    harness = ClusterHarness(brokers=2)
    before = quorum(harness).topics[0].partitions[0]
    stop(harness, 1)
    harness.advance(1000)

    partition = quorum(harness).topics[0].partitions[0]

    assert partition.leader_id == 2
    assert partition.high_watermark > before.high_watermark
    down, leader = partition.current_voters
    assert (down.log_end_offset, down.last_fetch_timestamp, down.last_caught_up_timestamp) == (-1, -1, -1)
    assert (leader.last_fetch_timestamp, leader.last_caught_up_timestamp) == (-1, harness.now_ms)


def test_directory_ids_belong_to_kraft_version_1() -> None:
    harness = ClusterHarness(as_version="3.9")
    (voter,) = quorum(harness).topics[0].partitions[0].current_voters
    assert voter.replica_directory_id == ZERO_UUID


def test_only_the_metadata_log_has_a_quorum() -> None:
    for topic, index in (("news", 0), (METADATA_LOG, 1)):
        response = quorum(ClusterHarness(), topic, index)
        assert response.error_code == ErrorCode.NONE
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


def unregister(harness: ClusterHarness, node_id: int) -> ErrorCode:
    return ErrorCode(harness.ask(UnregisterBrokerRequest(broker_id=node_id), 0).error_code)


def test_controllers_are_unregistered_as_on_kafka() -> None:
    harness = ClusterHarness(brokers=3)

    def unregister_controller(node_id: int) -> tuple[ErrorCode, str]:
        response = harness.ask(UnregisterControllerRequest(controller_id=node_id), 0)
        return ErrorCode(response.error_code), response.error_message

    active = ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
    assert unregister_controller(1) == active
    assert unregister_controller(2) == unregister_controller(2) == (ErrorCode.NONE, "")
    stop(harness, 3)
    assert unregister_controller(3) == (ErrorCode.NONE, "")
    unknown = ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 3 is not currently registered."
    assert unregister_controller(3) == unknown
    assert unregister_controller(9)[0] == ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    start(harness, 3)
    assert unregister_controller(3) == (ErrorCode.NONE, "")
    assert registered(harness) == [1, 2, 3]


def registered(harness: ClusterHarness) -> list[int]:
    response = harness.ask(
        DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True), 2
    )
    return [each.broker_id for each in response.brokers]


def test_a_broker_that_is_down_is_unregistered_until_it_starts() -> None:
    harness = ClusterHarness(brokers=3)
    stop(harness, 3)
    assert registered(harness) == [1, 2, 3]

    assert unregister(harness, 3) == ErrorCode.NONE
    assert registered(harness) == [1, 2]
    assert unregister(harness, 3) == ErrorCode.BROKER_ID_NOT_REGISTERED

    start(harness, 3)
    assert registered(harness) == [1, 2, 3]


def test_a_broker_that_is_up_registers_again_at_once() -> None:
    harness = ClusterHarness(brokers=2)
    assert unregister(harness, 2) == ErrorCode.NONE
    assert registered(harness) == [1, 2]
    assert unregister(harness, 9) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_replicas_stay_in_the_only_log_directory(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(brokers=3)
    harness.cluster.create_new_topic("lone", 1, 1)
    (home,) = harness.partition(topic="lone").replicas
    elsewhere = home % 3 + 1
    for version in versions("AlterReplicaLogDirs"):
        for path, topic, index, broker, error in (
            (LOG_DIR, "lone", 0, home, ErrorCode.NONE),
            ("/other", "lone", 0, home, ErrorCode.LOG_DIR_NOT_FOUND),
            (LOG_DIR, "lone", 1, home, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (LOG_DIR, "gone", 0, home, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (LOG_DIR, "lone", 0, elsewhere, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            with subtests.test(version=version, path=path, topic=topic, index=index, broker=broker):
                moved = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])])
                response = harness.ask(AlterReplicaLogDirsRequest(dirs=[moved]), version, broker=broker)
                (result,) = response.results
                assert (result.topic_name, result.partitions[0].error_code) == (topic, error)
