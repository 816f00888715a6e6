"""Leaders that change: what clients are told before, during and after, message by message."""

from typing import Any

import pytest

from fakebroker.cluster.controller import Failover
from fakebroker.cluster.emulation import Broker, EmulatedRelease
from fakebroker.cluster.logs.offsets_topic import read_records
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.coordinator.group.records import GroupRecord, OffsetRecord
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.cluster.test_group_apis import NO_DELAY, commit_partition, join, sync
from tests.support.cluster.cluster_harness import ClusterHarness, response

OLD, NEW = 1, 2


class Group:
    """A group "g" with one member, at a cluster of three brokers; its coordinator is broker 1."""

    def __init__(self, **config: object) -> None:
        self.h = ClusterHarness(brokers=3, config=NO_DELAY | {"offsets.topic.num.partitions": 1} | config)
        self.member_id = self.h.ask(join(), 9).member_id
        self.joined = self.h.ask(join(self.member_id), 9)

    def sync(self) -> "Group":
        assert self.h.ask(sync(self.joined, 5), 5).error_code == 0
        return self

    def commit(self, offset: int, broker: int = OLD) -> int:
        from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic

        topic = OffsetCommitRequestTopic(name="news", partitions=[commit_partition(0, offset)])
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=1, member_id=self.member_id, topics=[topic]
        )
        code: int = self.h.ask(request, 9, broker=broker).topics[0].partitions[0].error_code
        return code

    def beat(self, broker: int = NEW, generation_id: int = 1) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=self.member_id)
        code: int = self.h.ask(request, 4, broker=broker).error_code
        return code

    def committed(self, broker: int = NEW) -> Any:
        """The committed offset, or the group's error."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (group,) = self.h.ask(request, 9, broker=broker).groups
        if group.error_code:
            return ErrorCode(group.error_code)
        return group.topics[0].partitions[0].committed_offset if group.topics else None

    def found(self) -> int:
        (found,) = self.h.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4, broker=3).coordinators
        node_id: int = found.node_id
        return node_id if not found.error_code else -found.error_code

    def move(self, to: int = NEW, **how: Any) -> None:
        self.h.cluster.controller.set_leader(self.partition, to, self.h.now_ms, Failover(**how))
        self.h.cluster.tick(self.h.now_ms)

    @property
    def partition(self) -> Any:
        return self.h.cluster.offsets_partition(0)


def test_what_is_decided_is_in_the_log_before_it_is_answered() -> None:
    group = Group().sync()
    group.commit(7)
    records = read_records(group.partition.log, 0)
    created, synced, committed = records
    assert isinstance(created, GroupRecord)
    assert isinstance(synced, GroupRecord)
    assert isinstance(committed, OffsetRecord)
    assert created.value is not None
    assert (created.value.generation_id, created.value.members) == (0, ())
    assert synced.value is not None
    assert [(m.member_id, m.assignment) for m in synced.value.members] == [(group.member_id, b"mine")]
    assert committed.value is not None
    assert (committed.topic, committed.partition, committed.value.offset) == ("news", 0, 7)


def test_a_coordinator_moves_with_what_it_knows() -> None:
    group = Group().sync()
    group.commit(7)
    epoch = group.partition.leader_epoch
    group.move()
    assert group.partition.leader_epoch == epoch + 1
    assert (group.beat(OLD), group.committed(OLD)) == (16, ErrorCode.NOT_COORDINATOR)
    assert (group.beat(), group.committed(), group.found()) == (0, 7, NEW)
    assert group.commit(8, NEW) == 0
    group.move(OLD)
    assert group.committed(OLD) == 8


def test_a_load_takes_its_time() -> None:
    group = Group().sync()
    group.commit(7)
    group.move(load_ms=5000)
    assert group.committed() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert group.commit(8, NEW) == 14
    assert group.beat() == 0, "a heartbeat counts while loading"
    assert group.found() == NEW, "FindCoordinator does not know of loading"
    assert group.h.cluster.next_deadline() == group.h.now_ms + 5000
    group.h.advance(4999)
    assert group.committed() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    group.h.advance(1)
    assert group.committed() == 7


def test_a_load_can_be_held() -> None:
    group = Group().sync()
    group.move(load_ms=None)
    group.h.advance(10_000_000)
    assert group.committed() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    group.h.cluster.controller.finish_loading(group.h.now_ms)
    # Every session starts anew, in full.
    group.h.advance(9_999)
    assert group.beat() == 0
    group.h.advance(10_000)
    assert group.beat() == 25


def test_a_load_that_fails() -> None:
    group = Group().sync()
    group.move(load_fails=True)
    assert (group.beat(), group.committed()) == (16, ErrorCode.NOT_COORDINATOR)
    group.move(3)
    assert group.beat(3) == 0


def test_the_tail_of_the_log_can_be_lost() -> None:
    group = Group().sync()
    for offset in (7, 8, 9):
        group.commit(offset)
    group.move(lose_tail=2)
    assert group.committed() == 7
    assert group.beat() == 0


def test_the_whole_log_can_be_lost() -> None:
    group = Group().sync()
    group.commit(7)
    group.move(lose_all=True)
    assert (group.committed(), group.beat()) == (None, 25)


def test_a_generation_whose_sync_was_not_written_is_lost() -> None:
    group = Group()
    group.move()
    assert group.beat() == 25
    coordinator = group.h.cluster.brokers[NEW].coordinator
    loaded = coordinator.group("g")
    assert loaded is not None
    assert (loaded.state.value, loaded.generation_id) == ("Empty", 0)


def test_parked_joins_and_syncs_are_told() -> None:
    group = Group().sync()
    second = group.h.ask(join(), 9).member_id
    parked = group.h.send(join(second), 9)
    group.move()
    assert response(parked).error_code == ErrorCode.NOT_COORDINATOR
    again = Group()
    follower = again.h.ask(join(), 9).member_id
    waiting = again.h.send(join(follower), 9)
    again.h.ask(join(again.member_id), 9)
    joined = response(waiting)
    parked_sync = again.h.send(sync(joined, 5), 5)
    assert parked_sync.response is None
    again.move()
    assert response(parked_sync).error_code == ErrorCode.NOT_COORDINATOR


def test_a_zombie_goes_on_answering_until_it_is_told() -> None:
    group = Group().sync()
    group.commit(7)
    group.move(zombie=True)
    assert (group.beat(OLD), group.commit(8, OLD), group.committed(OLD)) == (0, 0, 8)
    assert group.committed(NEW) == 7, "what a zombie writes is lost"
    group.h.cluster.controller.stop_zombies(group.h.now_ms)
    assert group.beat(OLD) == 16
    assert group.beat(NEW) == 0


def test_a_zombie_can_become_the_coordinator_again() -> None:
    group = Group().sync()
    group.commit(7)
    group.move(zombie=True)
    group.commit(8, OLD)
    group.commit(9, NEW)
    group.move(OLD)
    assert group.committed(OLD) == 9


@pytest.mark.parametrize("moves", [(2, 3), (2, NO_LEADER, 3), (2, 3, 2, 3)])
def test_several_zombies_of_one_partition(moves: tuple[int, ...]) -> None:
    group = Group().sync()
    group.commit(7)
    for node_id in moves:
        group.move(node_id, zombie=True)
    assert [group.beat(node_id) for node_id in (1, 2, 3)] == [0, 0, 0]
    assert group.commit(8, 1) == group.commit(9, 2) == 0
    assert group.committed(3) == 7, "what a zombie writes is lost"
    group.h.cluster.controller.stop_zombies(group.h.now_ms)
    assert [group.beat(node_id) for node_id in (1, 2, 3)] == [16, 16, 0]
    group.move(1)
    assert [group.beat(node_id) for node_id in (1, 2, 3)] == [0, 16, 16]
    assert group.committed(1) == 7


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_broker_that_stops_is_not_a_zombie_and_an_earlier_zombie_remains_one(is_removed: bool) -> None:
    group = Group().sync()
    group.commit(7)
    cluster, now_ms, how = group.h.cluster, group.h.now_ms, Failover(zombie=True)
    group.move(2)
    group.move(3, zombie=True)
    if is_removed:
        cluster.remove_broker(cluster.brokers[3], now_ms, how)
    else:
        cluster.controller.stop_broker(cluster.brokers[3], now_ms, how)
        cluster.controller.start_broker(cluster.brokers[3], now_ms, how)
        assert group.beat(3) == 16
    assert cluster.controller.zombies(0) == [2]
    assert (group.beat(1), group.beat(2)) == (0, 0)
    cluster.controller.stop_zombies(now_ms)
    assert (group.beat(1), group.beat(2)) == (0, 16)
    group.move(2)
    assert group.committed(2) == 7


def test_a_zombie_that_restarts_is_not_one_any_more() -> None:
    group = Group().sync()
    group.move(2, zombie=True)
    group.move(3, zombie=True)
    controller, first = group.h.cluster.controller, group.h.cluster.brokers[1]
    controller.stop_broker(first, group.h.now_ms, Failover())
    assert controller.zombies(0) == [2]
    controller.start_broker(first, group.h.now_ms, Failover())
    assert [group.beat(node_id) for node_id in (1, 2, 3)] == [16, 0, 0]


def test_a_broker_that_is_still_loading_does_not_become_a_zombie() -> None:
    group = Group().sync()
    group.commit(7)
    group.move(2, load_ms=1000)
    group.move(3, zombie=True)
    assert group.h.cluster.controller.zombies(0) == []
    assert (group.beat(2), group.committed(2), group.committed(3)) == (16, ErrorCode.NOT_COORDINATOR, 7)
    group.h.advance(1000)
    assert group.beat(2) == 16


def test_look_ups_can_be_stale() -> None:
    group = Group().sync()
    group.move(stale_ms=1000)
    assert group.found() == OLD
    assert group.beat(OLD) == 16
    group.h.advance(1000)
    assert group.found() == NEW


def test_a_stale_look_up_of_a_broker_that_was_removed() -> None:
    group = Group().sync()
    cluster = group.h.cluster
    cluster.remove_broker(cluster.brokers[OLD], group.h.now_ms, Failover(stale_ms=1000))
    assert group.found() == -ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.h.advance(1000)
    assert group.found() in cluster.brokers


def test_no_coordinator_at_all() -> None:
    group = Group().sync()
    group.commit(7)
    group.move(NO_LEADER)
    assert group.found() == -ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (group.beat(OLD), group.beat(NEW)) == (16, 16)
    group.move()
    assert (group.found(), group.committed()) == (NEW, 7)


@pytest.mark.parametrize("elect", [True, False])
def test_a_broker_stops_and_starts(elect: bool) -> None:
    group = Group().sync()
    group.commit(7)
    cluster = group.h.cluster
    cluster.controller.stop_broker(cluster.brokers[OLD], group.h.now_ms, Failover(), elect=elect)
    metadata = group.h.ask(MetadataRequest(topics=[MetadataRequestTopic(name="news")]), 12, broker=2)
    assert [broker.node_id for broker in metadata.brokers] == [2, 3]
    assert metadata.controller_id == 2
    (partition,) = metadata.topics[0].partitions
    assert (partition.leader_id, partition.error_code) == ((2, 0) if elect else (-1, 5))
    assert partition.isr_nodes == [2, 3]
    assert partition.offline_replicas == [1]
    assert group.found() == (NEW if elect else -15)
    cluster.controller.start_broker(cluster.brokers[OLD], group.h.now_ms, Failover())
    home = NEW if elect else OLD
    assert (group.found(), group.committed(home), group.beat(home)) == (home, 7, 0)


# Partitions that await their last leader


class AwaitingGroup(Group):
    """A group whose coordinator, broker 2, was stopped with `elect=False`."""

    def __init__(self, **config: object) -> None:
        super().__init__(**config)
        self.sync().commit(7)
        self.move(2)
        self.stop(2, elect=False)

    def stop(self, node_id: int, *, elect: bool = True) -> None:
        cluster = self.h.cluster
        cluster.controller.stop_broker(cluster.brokers[node_id], self.h.now_ms, Failover(), elect=elect)

    def start(self, node_id: int) -> None:
        cluster = self.h.cluster
        cluster.controller.start_broker(cluster.brokers[node_id], self.h.now_ms, Failover())

    def remove(self, node_id: int) -> None:
        cluster = self.h.cluster
        cluster.remove_broker(cluster.brokers[node_id], self.h.now_ms, Failover())

    def is_without_leader(self) -> bool:
        return self.partition.leader_id == NO_LEADER and self.found() == -ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("others", [[1], [3], [1, 3], [3, 1, 3]])
def test_other_brokers_that_start_do_not_lead_a_partition_that_awaits_its_last_leader(others: list[int]) -> None:
    group = AwaitingGroup()
    for node_id in others:
        group.stop(node_id)
        group.start(node_id)
        assert group.is_without_leader()
    group.start(2)
    assert (group.found(), group.committed(2), group.partition.replicas[0]) == (2, 7, 1)


def test_a_partition_awaits_its_last_leader_while_brokers_are_added_and_removed() -> None:
    group = AwaitingGroup()
    group.h.cluster.add_broker(EmulatedRelease.of(Broker()))
    group.remove(1)
    assert group.partition.replicas == (2, 3, 4)
    assert group.is_without_leader()
    group.start(2)
    assert (group.found(), group.committed(2)) == (2, 7)


def test_a_partition_elects_another_leader_if_the_last_one_is_removed() -> None:
    group = AwaitingGroup()
    group.remove(2)
    assert (group.found(), group.committed(1)) == (1, 7)


def test_the_first_broker_that_starts_leads_if_the_last_leader_was_removed() -> None:
    group = AwaitingGroup()
    group.stop(1)
    group.stop(3)
    group.remove(2)
    group.start(3)
    assert (group.found(), group.committed(3)) == (3, 7)


def test_a_partition_moved_to_no_leader_after_its_last_leader_was_removed() -> None:
    group = AwaitingGroup()
    group.start(2)
    for node_id in (1, 3, 2):
        group.stop(node_id)
    group.remove(2)
    group.move(NO_LEADER)
    group.h.cluster.add_broker(EmulatedRelease.of(Broker()))
    group.remove(1)
    group.start(3)
    assert group.is_without_leader()
    group.move(4)
    assert (group.found(), group.committed(4)) == (4, 7)


def test_a_partition_that_was_moved_does_not_await_its_last_leader() -> None:
    group = AwaitingGroup()
    group.move(3)
    assert (group.found(), group.committed(3)) == (3, 7)
    group.start(2)
    group.stop(3)
    assert (group.found(), group.committed(1)) == (1, 7)


def test_the_first_replica_that_starts_leads_if_all_were_down() -> None:
    group = AwaitingGroup()
    group.start(2)
    for node_id in (1, 3, 2):
        group.stop(node_id)
    group.start(3)
    assert (group.found(), group.committed(3)) == (3, 7)


def test_a_partition_moved_to_no_leader_gets_one_when_its_last_leader_starts() -> None:
    group = Group().sync()
    group.commit(7)
    group.move(NO_LEADER)
    cluster = group.h.cluster
    for node_id, found in ((2, -ErrorCode.COORDINATOR_NOT_AVAILABLE), (1, 1)):
        cluster.controller.stop_broker(cluster.brokers[node_id], group.h.now_ms, Failover())
        cluster.controller.start_broker(cluster.brokers[node_id], group.h.now_ms, Failover())
        assert group.found() == found
    assert group.committed(1) == 7


def test_a_broker_that_is_removed_leaves_its_replicas_to_others() -> None:
    group = Group().sync()
    group.commit(7)
    cluster = group.h.cluster
    added = cluster.add_broker(EmulatedRelease.of(Broker()))
    assert added.node_id == 4
    cluster.remove_broker(cluster.brokers[OLD], group.h.now_ms, Failover())
    assert list(cluster.brokers) == [2, 3, 4]
    for topic in cluster.topics:
        for partition in topic.partitions:
            assert sorted(partition.replicas) == [2, 3, 4]
            assert partition.leader_id in cluster.brokers
    home = group.found()
    assert (group.committed(home), group.beat(home)) == (7, 0)
