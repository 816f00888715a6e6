"""Snapshots and resets: the state that `restore` restores, and the state that `reset` removes."""

import pytest

from fakebroker import ConfigError, FakeCluster
from fakebroker.cluster.inspect.views import GroupView
from fakebroker.cluster.seeding.seed import GroupSeed
from fakebroker.cluster.topics import Topic
from fakebroker.coordinator.invariants import check
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import join_request
from tests.support.groups_over_tcp import stable_group
from tests.support.wire_client import WireClient, broker_of, until

pytestmark = pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual", seed=1)


def topic(cluster: FakeCluster, name: str = "orders") -> Topic:
    found = internals(cluster).cluster.topics.get(name)
    assert found is not None
    return found


def produce(cluster: FakeCluster, *values: bytes) -> None:
    """Put records into partition 0 of orders."""
    cluster.topic("orders").produce(values, partition=0)


def end(cluster: FakeCluster) -> int:
    return topic(cluster).partitions[0].log.log_end_offset


def offsets(cluster: FakeCluster, group_id: str = "g") -> dict[tuple[str, int], int]:
    return {place: committed.offset for place, committed in cluster.group(group_id).offsets().items()}


def visible_state(cluster: FakeCluster) -> tuple[object, ...]:
    """Return the visible state of a cluster, to compare it: groups, offsets, leaders, brokers."""
    groups = sorted(cluster.groups(), key=lambda group: group.group_id)
    leaders = [
        (each.name, each.topic_id, partition.index, partition.leader_id, partition.replicas, partition.log.size_bytes)
        for each in internals(cluster).cluster.topics
        for partition in each.partitions
    ]
    return groups, [offsets(cluster, group.group_id) for group in groups], leaders, list(cluster.brokers)


def brokers_in_metadata(cluster: FakeCluster, node_id: int) -> list[int]:
    """Return the node ids in a Metadata response of a broker."""
    with WireClient(broker_of(cluster, node_id)) as wire:
        answer = wire.ask(MetadataRequest(topics=None), MetadataResponse, 4)
    return [each.node_id for each in answer.brokers]


# Snapshots


def test_a_snapshot_can_be_restored_twice(fake_cluster: FakeCluster) -> None:
    produce(fake_cluster, b"a", b"b")
    fake_cluster.group("g").seed(members=2, topics=["orders"], offsets={"orders-0": 1}, lag={"orders-0": 1})
    before, snapshot = visible_state(fake_cluster), fake_cluster.snapshot()
    for _ in range(2):
        produce(fake_cluster, b"c")
        fake_cluster.group("h").seed()
        fake_cluster.group("g").evict("consumer-g-1")
        fake_cluster.topic("news").create()
        fake_cluster.topic("orders").create_partitions(7)
        fake_cluster.group("g").move_coordinator(to=None)
        assert visible_state(fake_cluster) != before
        fake_cluster.restore(snapshot)
        assert visible_state(fake_cluster) == before
        assert end(fake_cluster) == 2


def test_a_deleted_topic_is_restored_with_its_offsets(fake_cluster: FakeCluster) -> None:
    produce(fake_cluster, b"a")
    fake_cluster.group("g").seed(offsets={"orders-0": 1}, lag={"orders-0": 0})
    before, snapshot = visible_state(fake_cluster), fake_cluster.snapshot()
    fake_cluster.topic("orders").delete()
    fake_cluster.topic("orders").create(1)
    assert offsets(fake_cluster) == {}
    fake_cluster.restore(snapshot)
    assert visible_state(fake_cluster) == before


def test_groups_are_restored_from_their_log(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=2, topics=["orders"])
    fake_cluster.group("g").rebalance()
    snapshot = fake_cluster.snapshot()
    fake_cluster.advance(40)
    fake_cluster.restore(snapshot)
    assert (fake_cluster.group("g").describe().state, len(fake_cluster.group("g").describe().members)) == ("Stable", 2)
    fake_cluster.advance(40)
    assert fake_cluster.group("g").describe().state == "Stable"
    fake_cluster.advance(5)
    assert fake_cluster.group("g").describe().state == "Empty"
    for broker in internals(fake_cluster).cluster.brokers.values():
        for group in broker.coordinator.groups.classic.values():
            check(group)


def test_a_log_does_not_share_records_with_its_snapshot(fake_cluster: FakeCluster) -> None:
    for number in range(600):  # Enough records for a compaction of the log.
        fake_cluster.group("g").seed(offsets={"orders-0": number}, lag={"orders-0": 0})
        if number == 200:
            snapshot = fake_cluster.snapshot()
        internals(fake_cluster).cluster.brokers[
            fake_cluster.group("g").coordinator().node_id
        ].coordinator.delete_groups(["g"], 0)
    fake_cluster.restore(snapshot)
    assert offsets(fake_cluster) == {("orders", 0): 200}


def test_brokers_are_restored(fake_cluster: FakeCluster) -> None:
    before, snapshot = visible_state(fake_cluster), fake_cluster.snapshot()
    fake_cluster.broker(1).stop()
    fake_cluster.broker(2).remove()
    added = fake_cluster.brokers.add()
    fake_cluster.restore(snapshot)
    assert visible_state(fake_cluster) == before
    assert [brokers_in_metadata(fake_cluster, node_id) for node_id in (1, 2, 3)] == [[1, 2, 3]] * 3
    with pytest.raises(ConnectionRefusedError):
        WireClient(added)


def test_stopped_brokers_are_restored(fake_cluster: FakeCluster) -> None:
    fake_cluster.broker(1).stop()
    added = fake_cluster.brokers.add()
    before, snapshot = visible_state(fake_cluster), fake_cluster.snapshot()
    first = fake_cluster.brokers[0]
    fake_cluster.broker(1).start()
    fake_cluster.broker(added.node_id).remove()
    fake_cluster.restore(snapshot)
    assert visible_state(fake_cluster) == before
    assert brokers_in_metadata(fake_cluster, added.node_id) == [2, 3, 4]
    with pytest.raises(ConnectionRefusedError):
        WireClient(first)
    fake_cluster.broker(1).start()
    assert brokers_in_metadata(fake_cluster, 1) == [1, 2, 3, 4]


def test_a_broker_added_after_the_snapshot_is_removed(fake_cluster: FakeCluster) -> None:
    snapshot = fake_cluster.snapshot()
    added = fake_cluster.brokers.add()
    fake_cluster.broker(added.node_id).stop()
    fake_cluster.broker(1).set_network(accept="refuse")
    fake_cluster.restore(snapshot)
    assert brokers_in_metadata(fake_cluster, 1) == [1, 2, 3]


def test_releases_are_restored(fake_cluster: FakeCluster) -> None:
    snapshot = fake_cluster.snapshot()
    newest = internals(fake_cluster).cluster.brokers[1].versions
    fake_cluster.broker(1).upgrade("2.0")
    fake_cluster.restore(snapshot)
    assert internals(fake_cluster).cluster.brokers[1].versions == newest


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 1}, config={"group.initial.rebalance.delay.ms": 600_000})
def test_a_restore_answers_parked_requests(fake_cluster: FakeCluster) -> None:
    snapshot = fake_cluster.snapshot()
    fetch = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        topics=[
            FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=9)])
        ],
    )
    produce(fake_cluster, b"a")
    with WireClient(fake_cluster.brokers[0]) as joining, WireClient(fake_cluster.brokers[0]) as fetching:
        joining.send(join_request("g"), 3)
        fetching.send(fetch, 11)
        until(lambda: len(fake_cluster.journal.requests()) == 2 and bool(fake_cluster.groups()), fake_cluster)
        fake_cluster.restore(snapshot)
        answer = joining.receive()
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        fetched = fetching.receive()
        assert isinstance(fetched, FetchResponse)
        assert fetched.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fake_cluster.group("g").describe().state == "Dead"


def test_a_restore_ends_holds_faults_and_loads(fake_cluster: FakeCluster) -> None:
    snapshot = fake_cluster.snapshot()
    fake_cluster.group("g").hold("PreparingRebalance")
    fake_cluster.inject_fault("JoinGroup", error="UNKNOWN_SERVER_ERROR")
    fake_cluster.group("g").move_coordinator(to=1, load_ms=None)
    fake_cluster.restore(snapshot)
    assert fake_cluster.faults() == []
    stable_group(fake_cluster, "g")


def test_leader_epochs_do_not_decrease(fake_cluster: FakeCluster) -> None:
    partition = topic(fake_cluster).partitions[0]
    snapshot = fake_cluster.snapshot()
    fake_cluster.broker(partition.leader_id).stop()
    moved = topic(fake_cluster).partitions[0].leader_epoch
    fake_cluster.restore(snapshot)
    again = topic(fake_cluster).partitions[0]
    assert (again.leader_id, again.leader_epoch > moved) == (1, True)
    assert topic(fake_cluster).partitions[1].leader_epoch == 0


def test_producer_ids_are_reused_only_after_a_reset(fake_cluster: FakeCluster) -> None:
    def producer_id() -> int:
        with WireClient(fake_cluster.brokers[0]) as wire:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            return wire.ask(request, InitProducerIdResponse).producer_id

    snapshot = fake_cluster.snapshot()
    first = producer_id()
    fake_cluster.restore(snapshot)
    assert producer_id() == first + 1  # A producer may still use the first one.
    fake_cluster.reset()
    assert producer_id() == first


def test_a_snapshot_of_another_cluster_is_rejected(fake_cluster: FakeCluster) -> None:
    other = FakeCluster(seed=2).snapshot()
    with pytest.raises(ConfigError, match=r"snapshot: cluster_id=.*: expected .*, this cluster"):
        fake_cluster.restore(other)


def test_a_cluster_can_be_restored_and_reset_before_it_starts() -> None:
    cluster = FakeCluster(topics={"orders": 1}, seed=1)
    cluster.group("g").seed(members=1, topics=["orders"])
    snapshot = cluster.snapshot()
    cluster.topic("orders").delete()
    cluster.restore(snapshot)
    assert [group.group_id for group in cluster.groups()] == ["g"]
    cluster.reset()
    assert cluster.groups() == []


def test_a_thousand_groups_are_restored(fake_cluster: FakeCluster) -> None:
    fake_cluster.seed_groups(GroupSeed(group_id=f"g{number}", members=2, topics=["orders"]) for number in range(1_000))
    before, snapshot = visible_state(fake_cluster), fake_cluster.snapshot()
    fake_cluster.group("g").seed()
    fake_cluster.restore(snapshot)
    assert visible_state(fake_cluster) == before


# Resets


def one_test(cluster: FakeCluster) -> tuple[GroupView, bytes, list[str]]:
    """Use the cluster as a test may do; return ids and other values that must be equal after each reset."""
    cluster.group("seeded").seed(members=1, topics=["orders"])
    stable_group(cluster, "g")
    with WireClient(cluster.brokers[0]) as wire:
        new = CreatableTopic(name="news", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), CreateTopicsResponse)
    produce(cluster, b"a")
    apis = [call.api.name for call in cluster.journal.requests()]
    return (
        cluster.group("g").describe(),
        topic(cluster, "news").topic_id,
        [*apis, cluster.group("seeded").describe().members[0].member_id],
    )


def test_ids_are_the_same_after_each_reset(fake_cluster: FakeCluster) -> None:
    before = visible_state(fake_cluster)
    first = one_test(fake_cluster)
    for _ in range(2):
        fake_cluster.reset()
        assert visible_state(fake_cluster) == before
        assert fake_cluster.journal.requests() == []
        assert end(fake_cluster) == 0
        assert one_test(fake_cluster) == first


def test_a_reset_closes_connections_and_keeps_ports(fake_cluster: FakeCluster) -> None:
    ports = [broker.port for broker in fake_cluster.brokers]
    fake_cluster.broker(1).stop()
    fake_cluster.broker(2).remove()
    fake_cluster.brokers.add()
    with WireClient(fake_cluster.brokers[1]) as wire:
        fake_cluster.reset()
        assert wire.is_closed_by_broker()
    assert [broker.port for broker in fake_cluster.brokers] == ports
    assert [brokers_in_metadata(fake_cluster, node_id) for node_id in (1, 2, 3)] == [[1, 2, 3]] * 3


def test_a_reset_removes_everything(fake_cluster: FakeCluster) -> None:
    fake_cluster.advance(60)
    now_ms = internals(fake_cluster).server.clock.now_ms()
    stable_group(fake_cluster, "g")
    fake_cluster.group("g").hold("CompletingRebalance")
    fake_cluster.inject_fault("Metadata", error="UNKNOWN_SERVER_ERROR")
    fake_cluster.broker(1).set_network(accept="half_open")
    fake_cluster.reset()
    assert (fake_cluster.groups(), fake_cluster.faults(), fake_cluster.journal.requests()) == ([], [], [])
    assert brokers_in_metadata(fake_cluster, 1) == [1, 2, 3]
    assert internals(fake_cluster).server.clock.now_ms() == now_ms
    stable_group(fake_cluster, "g")
