"""AlterPartitionReassignments and ListPartitionReassignments: partitions that move to other brokers, now or later."""

from typing import Any

import pytest

from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.inspect.deadlines import pending_deadlines
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fakebroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment, versions
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
    assert altered.allow_replication_factor_change == (allow or bool(altered.error_code))
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
    assert reassign(harness, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
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
    cases: list[tuple[dict[str, Any], ErrorCode, str | None]] = [
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
        ({"target": [2], "timeout_ms": 0}, ErrorCode.REQUEST_TIMED_OUT, None),
    ]
    for arguments, error, message in cases:
        with subtests.test(**arguments):
            harness = ClusterHarness({"news": 1}, brokers=3, config=TWO_REPLICAS)
            result_error, result_message = reassign(harness, **arguments)
            assert result_error == error
            assert (result_message is None) == (message is None)
            assert (message or "") in (result_message or "")
            assert replicas(harness) == [(1, 2)]


def test_the_same_replication_factor_is_always_allowed() -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=TWO_REPLICAS)
    assert reassign(harness, [2, 3], allow=False) == (ErrorCode.NONE, None)
    assert replicas(harness) == [(2, 3)]


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


# Reassignments that take time

HELD = ("news", 0, [3, 4, 1, 2], [3, 4], [1, 2])


def commands_of(harness: ClusterHarness) -> LocalCluster:
    environment = ClusterHarnessEnvironment(harness)
    return LocalCluster(Local(harness.cluster, environment, new_cluster=lambda: harness.cluster))


def held_harness() -> tuple[ClusterHarness, LocalCluster]:
    """Return a cluster where news-0 is held while it moves from brokers 1 and 2 to 3 and 4."""
    harness = ClusterHarness({"news": 1, "sports": 1}, brokers=4, config=TWO_REPLICAS)
    commands = commands_of(harness)
    commands.topic("news").hold_reassignments()
    assert reassign(harness, [3, 4]) == (ErrorCode.NONE, None)
    return harness, commands


def test_a_held_reassignment_is_visible_until_it_is_released() -> None:
    harness, commands = held_harness()
    assert reassign(harness, [3, 4], name="sports") == (ErrorCode.NONE, None)
    assert ongoing(harness) == [HELD]
    news = metadata_of_partition(harness)
    assert (news.leader_id, news.replica_nodes, news.isr_nodes) == (1, [3, 4, 1, 2], [1, 2])
    harness.advance(10**9)
    assert ongoing(harness) == [HELD]
    commands.topic("news").release_reassignments()
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(3, 4)], [3])
    assert metadata_of_partition(harness).isr_nodes == [3, 4]


def test_a_hold_ends_with_its_context() -> None:
    harness = ClusterHarness({"news": 1}, brokers=4, config=TWO_REPLICAS)
    with commands_of(harness).topic("news").hold_reassignments():
        reassign(harness, [3, 4])
        assert ongoing(harness) == [HELD]
        reassign(harness, [2, 1])  # adds no replica: completes at once
        assert (ongoing(harness), replicas(harness)) == ([], [(2, 1)])
        reassign(harness, [3, 4])
    assert (ongoing(harness), replicas(harness)) == ([], [(3, 4)])


def test_held_reassignments_are_finished_by_a_command() -> None:
    harness, commands = held_harness()
    stop_brokers(harness, 4)
    commands.topic("news").finish_reassignments()
    assert (ongoing(harness), metadata_of_partition(harness).isr_nodes) == ([HELD], [3, 1, 2])
    start_broker(harness, 4)
    assert ongoing(harness) == [HELD]  # the hold applies to the copy that is left
    commands.topic("news").finish_reassignments()
    assert (ongoing(harness), replicas(harness)) == ([], [(3, 4)])


def test_reassignments_of_other_topics_are_not_finished() -> None:
    harness, commands = held_harness()
    commands.topic("sports").finish_reassignments()
    assert ongoing(harness) == [HELD]


def test_reassignments_that_are_not_held_cannot_be_released() -> None:
    _, commands = held_harness()
    expected = r"^topic='sports': expected a topic whose reassignments are held, one of 'news'$"
    with pytest.raises(ConfigError, match=expected):
        commands.topic("sports").release_reassignments()
    commands.topic("news").release_reassignments()
    expected = r"^topic='news': expected a topic whose reassignments are held, but there is none$"
    with pytest.raises(ConfigError, match=expected):
        commands.topic("news").release_reassignments()


def test_a_held_reassignment_is_canceled() -> None:
    harness, commands = held_harness()
    assert reassign(harness, None) == (ErrorCode.NONE, None)
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(1, 2)], [1])
    commands.topic("news").release_reassignments()
    assert replicas(harness) == [(1, 2)]


def test_a_replica_that_is_not_in_sync_is_never_elected() -> None:
    harness, commands = held_harness()
    commands.brokers.elect_preferred()
    assert leaders(harness) == [1]
    stop_brokers(harness, 1, 2)
    assert leaders(harness) == [-1]
    stop_brokers(harness, 3)
    start_broker(harness, 3)
    assert leaders(harness) == [-1]
    assert metadata_of_partition(harness, 3).isr_nodes == [2]
    commands.topic("news").release_reassignments()
    assert ongoing(harness) == [HELD]  # there is no leader to copy from
    start_broker(harness, 2)
    assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(3, 4)], [3])


def test_a_replica_that_another_reassignment_removes_again_is_not_in_sync() -> None:
    harness, _ = held_harness()
    reassign(harness, [4, 1])
    assert ongoing(harness) == [("news", 0, [4, 1, 2, 3], [4], [2, 3])]
    assert metadata_of_partition(harness).isr_nodes == [1, 2]
    stop_brokers(harness, 1, 2)
    assert leaders(harness) == [-1]


def test_a_replica_that_is_moved_to_by_a_command_is_in_sync() -> None:
    harness, _ = held_harness()
    harness.cluster.controller.set_leader(harness.partition(), 4, harness.now_ms, Failover())
    assert (leaders(harness), metadata_of_partition(harness).isr_nodes) == ([4], [4, 1, 2])
    assert ongoing(harness) == [HELD]


def test_the_topic_of_a_held_reassignment_is_deleted() -> None:
    harness, commands = held_harness()
    commands.topic("news").delete()
    assert ongoing(harness) == []
    commands.topic("news").release_reassignments()


def test_a_snapshot_has_the_reassignments_in_progress_and_no_holds() -> None:
    harness, commands = held_harness()
    snapshot = commands.snapshot()
    commands.topic("news").release_reassignments()
    assert ongoing(harness) == []
    commands.restore(snapshot)
    assert ongoing(harness) == [HELD]
    harness.advance(0)
    assert (ongoing(harness), replicas(harness)) == ([], [(3, 4)])


def test_a_coordinator_stays_while_the_reassignment_of_its_partition_is_held() -> None:
    group = FailoverHarness(offset=7)
    commands = commands_of(group.cluster_harness)
    reassign(group.cluster_harness, [1], name="__consumer_offsets")
    with commands.topic("__consumer_offsets").hold_reassignments():
        reassign(group.cluster_harness, [2], name="__consumer_offsets", broker=3)
        assert (group.found_coordinator(), group.heartbeat(1)) == (1, 0)
    assert (group.found_coordinator(), group.heartbeat(2), group.committed(2)) == (2, 0, 7)


# Throttled reassignments


def alter(harness: ClusterHarness, resource_type: int, name: str, **configs: str | None) -> None:
    """Set configs, or with None delete them. The names of configs have underscores instead of dots."""
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            AlterableConfig(name=key.replace("_", "."), config_operation=int(value is None), value=value)
            for key, value in configs.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = harness.ask(request, 1).responses
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)


def throttled_harness(size_bytes: int = 1000, **limits: str) -> ClusterHarness:
    """Return a cluster with news-0 and sports-0 of this size on broker 1 of 4. Limits are configs of all brokers."""
    harness = ClusterHarness({"news": 1, "sports": 1}, brokers=4, config={"default.replication.factor": 1})
    reassign(harness, [1], name="sports")
    harness.partition().log.size_bytes = harness.partition(0, "sports").log.size_bytes = size_bytes
    for topic in ("news", "sports"):
        alter(
            harness,
            2,
            topic,
            leader_replication_throttled_replicas="0:1",
            follower_replication_throttled_replicas="*",
        )
    alter(harness, 4, "", **limits)
    return harness


def test_a_throttled_reassignment_takes_as_long_as_its_copies(subtests: pytest.Subtests) -> None:
    limits: dict[str, dict[str, str]] = {
        "leader": {"leader_replication_throttled_rate": "100"},
        "follower": {"follower_replication_throttled_rate": "100"},
        "both": {"leader_replication_throttled_rate": "500", "follower_replication_throttled_rate": "100"},
    }
    for name, given in limits.items():
        with subtests.test(name):
            harness = throttled_harness(1000, **given)
            reassign(harness, [3])
            assert ongoing(harness) == [("news", 0, [3, 1], [3], [1])]
            (deadline,) = pending_deadlines(harness.cluster, harness.now_ms)
            assert (deadline.kind, deadline.in_s, deadline.node_id) == ("replica_copy", 10.0, 3)
            assert harness.cluster.next_deadline() == deadline.at_ms
            harness.advance(9_999)
            assert leaders(harness) == [1]
            harness.advance(1)
            assert (ongoing(harness), replicas(harness), leaders(harness)) == ([], [(3,)], [3])
            assert harness.cluster.next_deadline() is None


def test_copies_from_one_broker_run_one_after_the_other() -> None:
    harness = throttled_harness(1000, leader_replication_throttled_rate="100")
    reassign(harness, [3])
    reassign(harness, [4], name="sports")
    harness.advance(10_000)
    assert (leaders(harness), leaders(harness, "sports")) == ([3], [1])
    harness.advance(10_000)
    assert leaders(harness, "sports") == [4]


def test_replicas_that_are_not_listed_are_not_throttled() -> None:
    harness = throttled_harness(1000, leader_replication_throttled_rate="1", follower_replication_throttled_rate="1")
    unlisted: dict[str, str | None] = {
        "leader_replication_throttled_replicas": "0:2,1:1",
        "follower_replication_throttled_replicas": None,
    }
    alter(harness, 2, "news", **unlisted)
    reassign(harness, [3])
    assert (ongoing(harness), leaders(harness)) == ([], [3])


def test_a_rate_that_changes_applies_to_the_rest_of_a_copy() -> None:
    harness = throttled_harness(1000, leader_replication_throttled_rate="100")
    reassign(harness, [3])
    harness.advance(5_000)
    alter(harness, 4, "1", leader_replication_throttled_rate="50")  # of one broker, before that of all brokers
    harness.advance(9_999)
    assert leaders(harness) == [1]
    harness.advance(1)
    assert leaders(harness) == [3]


def test_a_copy_ends_when_its_throttle_is_removed() -> None:
    harness = throttled_harness(1000, leader_replication_throttled_rate="0")
    reassign(harness, [3])
    harness.advance(10**9)
    assert (leaders(harness), harness.cluster.next_deadline()) == ([1], None)
    alter(harness, 2, "news", leader_replication_throttled_replicas=None)
    harness.advance(0)
    assert leaders(harness) == [3]


def test_a_throttled_copy_pauses_while_its_broker_is_down() -> None:
    harness = throttled_harness(1000, follower_replication_throttled_rate="100")
    reassign(harness, [3])
    harness.advance(4_000)
    stop_brokers(harness, 3)
    harness.advance(60_000)
    assert leaders(harness) == [1]
    start_broker(harness, 3)
    harness.advance(5_999)
    assert leaders(harness) == [1]
    harness.advance(1)
    assert leaders(harness) == [3]


def test_a_throttled_reassignment_is_finished_and_held_by_commands() -> None:
    harness = throttled_harness(1000, leader_replication_throttled_rate="100")
    news = commands_of(harness).topic("news")
    reassign(harness, [3])
    news.hold_reassignments()
    harness.advance(60_000)
    news.release_reassignments()
    assert leaders(harness) == [1]
    news.finish_reassignments()
    assert leaders(harness) == [3]


def test_a_throttled_reassignment_that_is_canceled_has_no_deadline() -> None:
    harness = throttled_harness(1000, leader_replication_throttled_rate="100")
    reassign(harness, [3])
    reassign(harness, [4], name="sports")
    assert reassign(harness, None) == (ErrorCode.NONE, None)
    (deadline,) = pending_deadlines(harness.cluster, harness.now_ms)
    assert (deadline.node_id, deadline.in_s) == (4, 10.0)  # no longer after the other copy
    assert reassign(harness, None, name="sports") == (ErrorCode.NONE, None)
    assert harness.cluster.next_deadline() is None
