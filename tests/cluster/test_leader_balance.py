"""Leaders after a broker has started again: they stay where they are, until a preferred election moves them back."""

import pytest

from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.inspect.deadlines import pending_deadlines
from fakebroker.cluster.replication.coordinator_moves import Failover
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment
from tests.support.cluster.failover_harness import FailoverHarness
from tests.support.cluster.replicas import leaders, start_broker, stop_brokers

AUTOMATIC: dict[str, object] = {"auto.leader.rebalance.enable": True}
INTERVAL_MS = 300_000


def commands(harness: ClusterHarness) -> LocalCluster:
    environment = ClusterHarnessEnvironment(harness)
    return LocalCluster(Local(harness.cluster, environment, new_cluster=lambda: harness.cluster))


def test_leaders_stay_where_they_are_by_default() -> None:
    harness = ClusterHarness({"news": 3}, brokers=3)
    stop_brokers(harness, 1)
    start_broker(harness, 1)
    assert harness.cluster.next_deadline() is None
    harness.advance(10 * INTERVAL_MS)
    assert leaders(harness) == [2, 2, 3]
    assert harness.cluster.in_sync(harness.partition()) == [1, 2, 3]
    commands(harness).brokers.elect_preferred()
    assert leaders(harness) == [1, 2, 3]


def test_preferred_leaders_are_elected_after_the_interval(subtests: pytest.Subtests) -> None:
    for release in (None, "3.9"):
        with subtests.test(release=release):
            harness = ClusterHarness({"news": 3}, brokers=3, config=AUTOMATIC, as_version=release)
            assert harness.cluster.next_deadline() is None
            stop_brokers(harness, 1)
            harness.advance(1000)
            start_broker(harness, 1)
            (deadline,) = pending_deadlines(harness.cluster, harness.now_ms)
            assert (deadline.kind, deadline.in_s, deadline.node_id) == ("preferred_election", 299.0, None)
            assert harness.cluster.next_deadline() == deadline.at_ms
            harness.advance(INTERVAL_MS - 1001)
            assert leaders(harness) == [2, 2, 3]
            harness.advance(1)
            assert leaders(harness) == [1, 2, 3]
            assert harness.cluster.next_deadline() is None


def test_a_broker_that_is_down_at_the_election_leads_after_the_next_one() -> None:
    config = {**AUTOMATIC, "leader.imbalance.check.interval.seconds": 10}
    harness = ClusterHarness({"news": 3}, brokers=3, config=config)
    stop_brokers(harness, 1)
    harness.advance(10_000)
    start_broker(harness, 1)
    harness.advance(9_999)
    assert leaders(harness) == [2, 2, 3]
    harness.advance(1)
    assert leaders(harness) == [1, 2, 3]


def test_releases_before_4_leave_few_partitions_at_their_leaders(subtests: pytest.Subtests) -> None:
    cases = [("3.9", 34, 2), ("3.9", 33, 1), ("4.0", 34, 1), (None, 100, 1)]
    for release, percentage, leader_id in cases:
        with subtests.test(release=release, percentage=percentage):
            config = AUTOMATIC | {
                "leader.imbalance.per.broker.percentage": percentage,
                "offsets.topic.num.partitions": 1,
            }
            # Broker 1 is preferred by three partitions: news-0, news-2 and the one of __consumer_offsets.
            harness = ClusterHarness({"news": 3}, brokers=2, config=config, as_version=release)
            harness.cluster.controller.set_leader(harness.partition(), 2, harness.now_ms, Failover())
            harness.advance(INTERVAL_MS)
            assert leaders(harness) == [leader_id, 2, 1]


def test_coordinators_move_back_with_their_groups() -> None:
    group = FailoverHarness(offset=7, config=AUTOMATIC)
    group.stop_broker(1)
    group.start_broker(1)
    assert (group.found_coordinator(), group.heartbeat(2)) == (2, 0)
    group.cluster_harness.advance(INTERVAL_MS)
    assert (group.found_coordinator(), group.committed(1)) == (1, 7)


def test_partitions_that_await_their_last_leader_have_none_until_it_starts() -> None:
    harness = ClusterHarness({"news": 1}, brokers=3, config=AUTOMATIC)
    stop_brokers(harness, 1)
    stop_brokers(harness, 2, elect=False)
    start_broker(harness, 1)
    harness.advance(2 * INTERVAL_MS)
    assert leaders(harness) == [-1]
    start_broker(harness, 2)
    assert leaders(harness) == [2]
    harness.advance(INTERVAL_MS)
    assert leaders(harness) == [1]
