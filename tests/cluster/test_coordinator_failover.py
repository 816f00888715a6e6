"""Failovers of the group coordinator: lost records, zombies, lookups, and brokers that stop and start."""

import pytest

from fakebroker.cluster.emulation import Broker, EmulatedRelease
from fakebroker.cluster.logs.coordinator_records import read_records
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.coordinator.records import CoordinatorRecord
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.cluster.failover_harness import FailoverHarness

NOT_AVAILABLE = -ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The result of `found_coordinator` if there is no coordinator."""

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID


def test_generations_and_offsets_are_in_the_log() -> None:
    group = FailoverHarness(offset=7)
    created, synced, committed = read_records(group.partition.log, 0)
    assert isinstance(created, CoordinatorRecord)
    assert isinstance(synced, CoordinatorRecord)
    assert isinstance(committed, CoordinatorRecord)
    assert created.key == synced.key == GroupMetadataKey(group="g")
    assert (created.value.generation, created.value.members) == (0, [])
    members = [(member.member_id, member.assignment) for member in synced.value.members]
    assert members == [(group.member_id, b"mine")]
    assert committed.key == OffsetCommitKey(group="g", topic="news", partition=0)
    assert committed.value.offset == 7


# Lost records


def test_the_newest_records_are_lost_with_lose_tail() -> None:
    group = FailoverHarness(offset=7)
    for offset in (8, 9):
        group.commit(offset, 1)
    group.move_coordinator(2, lose_tail=2)
    assert (group.committed(2), group.heartbeat(2)) == (7, 0)


def test_all_records_are_lost_with_lose_all() -> None:
    group = FailoverHarness(offset=7)
    group.move_coordinator(2, lose_all=True)
    assert (group.committed(2), group.heartbeat(2)) == (None, UNKNOWN_MEMBER_ID)


# Zombies


def test_a_zombie_continues_to_answer_and_loses_its_writes() -> None:
    group = FailoverHarness(offset=7)
    group.move_coordinator(2, zombie=True)
    assert (group.heartbeat(1), group.commit(8, 1), group.committed(1)) == (0, 0, 8)
    assert group.committed(2) == 7
    group.cluster.controller.stop_zombies(group.now_ms)
    assert (group.heartbeat(1), group.heartbeat(2)) == (NOT_COORDINATOR, 0)


def test_a_zombie_that_becomes_the_coordinator_again_loads_the_log() -> None:
    group = FailoverHarness(offset=7)
    group.move_coordinator(2, zombie=True)
    group.commit(8, 1)
    group.commit(9, 2)
    group.move_coordinator(1)
    assert group.committed(1) == 9


def test_a_partition_can_have_several_zombies(subtests: pytest.Subtests) -> None:
    for moves in [(2, 3), (2, NO_LEADER, 3), (2, 3, 2, 3)]:
        with subtests.test(moves=moves):
            group = FailoverHarness(offset=7)
            for node_id in moves:
                group.move_coordinator(node_id, zombie=True)
            assert group.heartbeats() == [0, 0, 0]
            assert group.commit(8, 1) == group.commit(9, 2) == 0
            assert group.committed(3) == 7, "writes of zombies are lost"
            group.cluster.controller.stop_zombies(group.now_ms)
            assert group.heartbeats() == [NOT_COORDINATOR, NOT_COORDINATOR, 0]
            group.move_coordinator(1)
            assert group.heartbeats() == [0, NOT_COORDINATOR, NOT_COORDINATOR]
            assert group.committed(1) == 7


def test_a_broker_that_stops_or_is_removed_is_no_zombie_and_others_remain_zombies(subtests: pytest.Subtests) -> None:
    for is_removed in (True, False):
        with subtests.test(is_removed=is_removed):
            group = FailoverHarness(offset=7)
            group.move_coordinator(2)
            group.move_coordinator(3, zombie=True)
            if is_removed:
                group.remove_broker(3, zombie=True)
            else:
                group.stop_broker(3, zombie=True)
                group.start_broker(3, zombie=True)
                assert group.heartbeat(3) == NOT_COORDINATOR
            assert group.cluster.group_moves.zombies(0) == [2]
            assert (group.heartbeat(1), group.heartbeat(2)) == (0, 0)
            group.cluster.controller.stop_zombies(group.now_ms)
            assert (group.heartbeat(1), group.heartbeat(2)) == (0, NOT_COORDINATOR)
            group.move_coordinator(2)
            assert group.committed(2) == 7


def test_a_zombie_that_restarts_is_no_zombie_any_more() -> None:
    group = FailoverHarness()
    group.move_coordinator(2, zombie=True)
    group.move_coordinator(3, zombie=True)
    group.stop_broker(1)
    assert group.cluster.group_moves.zombies(0) == [2]
    group.start_broker(1)
    assert group.heartbeats() == [NOT_COORDINATOR, 0, 0]


def test_a_broker_that_is_still_loading_does_not_become_a_zombie() -> None:
    group = FailoverHarness(offset=7)
    group.move_coordinator(2, load_ms=1000)
    group.move_coordinator(3, zombie=True)
    assert group.cluster.group_moves.zombies(0) == []
    assert (group.heartbeat(2), group.committed(2), group.committed(3)) == (NOT_COORDINATOR, NOT_COORDINATOR, 7)
    group.cluster_harness.advance(1000)
    assert group.heartbeat(2) == NOT_COORDINATOR


# FindCoordinator


def test_find_coordinator_returns_the_old_coordinator_for_stale_ms() -> None:
    group = FailoverHarness()
    group.move_coordinator(2, stale_ms=1000)
    assert group.found_coordinator() == 1
    assert group.heartbeat(1) == NOT_COORDINATOR
    group.cluster_harness.advance(1000)
    assert group.found_coordinator() == 2


def test_find_coordinator_does_not_return_a_removed_broker() -> None:
    group = FailoverHarness()
    group.remove_broker(1, stale_ms=1000)
    assert group.found_coordinator() == NOT_AVAILABLE
    group.cluster_harness.advance(1000)
    assert group.found_coordinator() in group.cluster.brokers


def test_a_group_can_have_no_coordinator() -> None:
    group = FailoverHarness(offset=7)
    group.move_coordinator(NO_LEADER)
    assert group.found_coordinator() == NOT_AVAILABLE
    assert (group.heartbeat(1), group.heartbeat(2)) == (NOT_COORDINATOR, NOT_COORDINATOR)
    group.move_coordinator(2)
    assert (group.found_coordinator(), group.committed(2)) == (2, 7)


# Brokers that stop and start


def test_a_broker_stops_and_starts_with_or_without_an_election(subtests: pytest.Subtests) -> None:
    for elect in (True, False):
        with subtests.test(elect=elect):
            group = FailoverHarness(offset=7)
            group.stop_broker(1, elect=elect)
            request = MetadataRequest(topics=[MetadataRequestTopic(name="news")])
            metadata = group.cluster_harness.ask(request, 12, broker=2)
            assert [broker.node_id for broker in metadata.brokers] == [2, 3]
            assert metadata.controller_id == 2
            (partition,) = metadata.topics[0].partitions
            assert (partition.leader_id, partition.error_code) == ((2, 0) if elect else (-1, 5))
            assert (partition.isr_nodes, partition.offline_replicas) == ([2, 3], [1])
            assert group.found_coordinator() == (2 if elect else NOT_AVAILABLE)
            group.start_broker(1)
            leader = 2 if elect else 1
            assert (group.found_coordinator(), group.committed(leader), group.heartbeat(leader)) == (leader, 7, 0)


def test_replicas_of_a_removed_broker_move_to_others() -> None:
    group = FailoverHarness(offset=7)
    assert group.cluster.add_broker(EmulatedRelease.of(Broker())).node_id == 4
    group.remove_broker(1)
    assert list(group.cluster.brokers) == [2, 3, 4]
    for topic in group.cluster.topics:
        for partition in topic.partitions:
            assert sorted(partition.replicas) == [2, 3, 4]
            assert partition.leader_id in group.cluster.brokers
    found = group.found_coordinator()
    assert (group.committed(found), group.heartbeat(found)) == (7, 0)


# Partitions that await their last leader


def group_awaiting_broker_2() -> FailoverHarness:
    """Return a group with the offset 7 whose coordinator, broker 2, was stopped with `elect=False`."""
    group = FailoverHarness(offset=7)
    group.move_coordinator(2)
    group.stop_broker(2, elect=False)
    return group


NO_COORDINATOR = (NO_LEADER, NOT_AVAILABLE)


def coordinator(group: FailoverHarness) -> tuple[int, int]:
    """Return the leader of the group's partition, and the result of FindCoordinator."""
    return group.partition.leader_id, group.found_coordinator()


def test_other_brokers_that_start_do_not_lead_a_partition_that_awaits_its_last_leader(
    subtests: pytest.Subtests,
) -> None:
    for others in [[1], [3], [1, 3], [3, 1, 3]]:
        with subtests.test(others=others):
            group = group_awaiting_broker_2()
            for node_id in others:
                group.stop_broker(node_id)
                group.start_broker(node_id)
                assert coordinator(group) == NO_COORDINATOR
            group.start_broker(2)
            assert (group.found_coordinator(), group.committed(2), group.partition.replicas[0]) == (2, 7, 1)


def test_a_partition_awaits_its_last_leader_while_brokers_are_added_and_removed() -> None:
    group = group_awaiting_broker_2()
    group.cluster.add_broker(EmulatedRelease.of(Broker()))
    group.remove_broker(1)
    assert group.partition.replicas == (2, 3, 4)
    assert coordinator(group) == NO_COORDINATOR
    group.start_broker(2)
    assert (group.found_coordinator(), group.committed(2)) == (2, 7)


def test_a_partition_elects_another_leader_if_the_last_one_is_removed() -> None:
    group = group_awaiting_broker_2()
    group.remove_broker(2)
    assert (group.found_coordinator(), group.committed(1)) == (1, 7)


def test_the_first_broker_that_starts_leads_if_the_last_leader_was_removed() -> None:
    group = group_awaiting_broker_2()
    group.stop_broker(1)
    group.stop_broker(3)
    group.remove_broker(2)
    group.start_broker(3)
    assert (group.found_coordinator(), group.committed(3)) == (3, 7)


def test_a_partition_moved_to_no_leader_after_its_last_leader_was_removed() -> None:
    group = group_awaiting_broker_2()
    group.start_broker(2)
    for node_id in (1, 3, 2):
        group.stop_broker(node_id)
    group.remove_broker(2)
    group.move_coordinator(NO_LEADER)
    group.cluster.add_broker(EmulatedRelease.of(Broker()))
    group.remove_broker(1)
    group.start_broker(3)
    assert coordinator(group) == NO_COORDINATOR
    group.move_coordinator(4)
    assert (group.found_coordinator(), group.committed(4)) == (4, 7)


def test_a_partition_that_was_moved_does_not_await_its_last_leader() -> None:
    group = group_awaiting_broker_2()
    group.move_coordinator(3)
    assert (group.found_coordinator(), group.committed(3)) == (3, 7)
    group.start_broker(2)
    group.stop_broker(3)
    assert (group.found_coordinator(), group.committed(1)) == (1, 7)


def test_the_first_replica_that_starts_leads_if_all_were_down() -> None:
    group = group_awaiting_broker_2()
    group.start_broker(2)
    for node_id in (1, 3, 2):
        group.stop_broker(node_id)
    group.start_broker(3)
    assert (group.found_coordinator(), group.committed(3)) == (3, 7)


def test_a_partition_moved_to_no_leader_gets_one_when_its_last_leader_starts() -> None:
    group = FailoverHarness(offset=7)
    group.move_coordinator(NO_LEADER)
    for node_id, found in ((2, NOT_AVAILABLE), (1, 1)):
        group.stop_broker(node_id)
        group.start_broker(node_id)
        assert group.found_coordinator() == found
    assert group.committed(1) == 7
