"""Changes of brokers, coordinators, topics and the clock while clients are connected."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from fakebroker import ConfigError, FakeCluster
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import join_request
from tests.support.groups_over_tcp import heartbeat_to, stable_group
from tests.support.wire_client import WireClient, broker_of, find_coordinator, until


def beat(cluster: FakeCluster, member_id: str, node_id: int) -> ErrorCode:
    return heartbeat_to(broker_of(cluster, node_id), member_id=member_id)


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_coordinator_moves(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster, "g")
    old = fake_cluster.group("g").coordinator().node_id
    new = old % 3 + 1
    fake_cluster.group("g").move_coordinator(to=new)
    assert fake_cluster.group("g").coordinator().node_id == new
    assert beat(fake_cluster, member_id, old) is ErrorCode.NOT_COORDINATOR
    assert beat(fake_cluster, member_id, new) is ErrorCode.NONE
    assert fake_cluster.group("g").offsets()["orders", 2].offset == 42
    fake_cluster.group("g").move_coordinator(to=None)
    assert fake_cluster.group("g").describe().state == "Dead"
    assert fake_cluster.group("g").offsets() == {}
    with pytest.raises(ConfigError, match="group_id='g': expected a group that has a coordinator now"):
        fake_cluster.group("g").coordinator()


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_load_lasts_until_finish_loading(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    new = fake_cluster.group("g").coordinator().node_id % 3 + 1
    fake_cluster.group("g").move_coordinator(to=new, load_ms=None)
    with WireClient(fake_cluster.group("g").coordinator()) as wire:
        assert wire.ask(join_request("g"), JoinGroupResponse).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        fake_cluster.brokers.finish_loading()
        assert wire.ask(join_request("g"), JoinGroupResponse).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_load_ends_after_its_duration(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster, "g")
    new = fake_cluster.group("g").coordinator().node_id % 3 + 1
    fake_cluster.group("g").move_coordinator(to=new, load_ms=20)
    until(lambda: fake_cluster.group("g").describe().state == "Stable", fake_cluster)
    assert beat(fake_cluster, member_id, new) is ErrorCode.NONE


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_broker_restarts_on_its_port(fake_cluster: FakeCluster) -> None:
    first, second, _ = fake_cluster.brokers
    with WireClient(first) as wire, WireClient(second) as other:
        fake_cluster.broker(first.node_id).stop()
        assert wire.is_closed_by_broker()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((first.host, first.port))
        metadata = other.ask(MetadataRequest(topics=None), MetadataResponse)
        assert [broker.node_id for broker in metadata.brokers] == [2, 3]
        assert {p.leader_id for topic in metadata.topics for p in topic.partitions} == {2, 3}
        fake_cluster.broker(first.node_id).start()
        assert fake_cluster.brokers[0] == first
    with WireClient(first) as wire:
        assert len(wire.ask(MetadataRequest(topics=None), MetadataResponse).brokers) == 3


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_rolling_restart_loses_nothing(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster, "g")
    before = fake_cluster.group("g").describe()
    fake_cluster.brokers.rolling_restart()
    assert all(broker.up for broker in fake_cluster.brokers)
    home = fake_cluster.group("g").coordinator()
    assert beat(fake_cluster, member_id, home.node_id) is ErrorCode.NONE
    after = fake_cluster.group("g").describe()
    assert (after.generation_id, after.leader_id) == (before.generation_id, before.leader_id)
    assert fake_cluster.group("g").offsets()["orders", 2].offset == 42


@pytest.mark.fake_cluster(brokers=2, topics={"orders": 6})
def test_brokers_are_added_and_removed(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster, "g")
    added = fake_cluster.brokers.add()
    assert added.node_id == 3
    for node_id in (1, 2):
        fake_cluster.broker(node_id).remove()
    assert [broker.node_id for broker in fake_cluster.brokers] == [3]
    assert beat(fake_cluster, member_id, 3) is ErrorCode.NONE
    with WireClient(added) as wire:
        assert wire.ask(find_coordinator("g"), FindCoordinatorResponse).coordinators[0].node_id == 3
    with pytest.raises(ConfigError, match="node_id=3: expected a broker that is not the last one"):
        fake_cluster.broker(3).remove()


@pytest.mark.fake_cluster(topics={"orders": 6}, config={"offsets.topic.num.partitions": 1})
@pytest.mark.parametrize("is_removed", [False, True])
def test_two_zombies_in_a_row(fake_cluster: FakeCluster, is_removed: bool) -> None:
    member_id = stable_group(fake_cluster, "g")
    if is_removed:
        fake_cluster.group("g").move_coordinator(to=2)
        fake_cluster.group("g").move_coordinator(to=3, zombie=True)
        fake_cluster.broker(3).remove()
        zombies, home = [2], 1
    else:
        fake_cluster.group("g").move_coordinator(to=2, zombie=True)
        fake_cluster.group("g").move_coordinator(to=3, zombie=True)
        zombies, home = [1, 2], 3
    assert fake_cluster.group("g").coordinator().node_id == home
    assert all(beat(fake_cluster, member_id, node_id) is ErrorCode.NONE for node_id in (home, *zombies))
    fake_cluster.brokers.stop_zombies()
    assert all(beat(fake_cluster, member_id, node_id) is ErrorCode.NOT_COORDINATOR for node_id in zombies)
    for node_id in zombies:
        fake_cluster.group("g").move_coordinator(to=node_id)
        assert fake_cluster.group("g").offsets()["orders", 2].offset == 42
        assert beat(fake_cluster, member_id, node_id) is ErrorCode.NONE


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_broker_stopped_without_election_leads_when_it_starts_again(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    home = fake_cluster.group("g").coordinator().node_id
    fake_cluster.broker(home).stop(elect=False)
    fake_cluster.brokers.rolling_restart()
    fake_cluster.brokers.add()
    fake_cluster.restore(fake_cluster.snapshot())
    fake_cluster.brokers.rolling_restart()
    with pytest.raises(ConfigError, match="group_id='g': expected a group that has a coordinator now"):
        fake_cluster.group("g").coordinator()
    fake_cluster.broker(home).start()
    assert fake_cluster.group("g").coordinator().node_id == home
    assert fake_cluster.group("g").offsets()["orders", 2].offset == 42


def test_invalid_changes_are_rejected(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("orders").create(2)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: fake_cluster.broker(9).stop(), "node_id=9: expected one of 1, 2, 3"),
        (lambda: fake_cluster.broker(1).start(), "node_id=1: expected a broker that is down"),
        (lambda: fake_cluster.group("g").move_coordinator(to=7), "to=7: expected one of 1, 2, 3"),
        (
            lambda: fake_cluster.group("g").move_coordinator(to=2, lose_tail=-1),
            "lose_tail=-1: expected an integer >= 0",
        ),
        (lambda: fake_cluster.topic("orders").create_partitions(2), "total=2: expected an integer from 3 to"),
        (
            lambda: fake_cluster.topic("none").create_partitions(2),
            "topic='none': expected a topic",
        ),
        (
            lambda: fake_cluster.topic("__consumer_offsets").delete(),
            "expected a topic that is not internal, one of orders",
        ),
        (lambda: internals(fake_cluster).server.clock.advance(1), "clock='real': expected 'manual'"),
        (lambda: FakeCluster(clock="slow"), "clock='slow': expected one of real, manual"),  # type: ignore[arg-type]  # Wrong on purpose.
    ]
    for call, sentence in cases:
        with pytest.raises(ConfigError, match=sentence):
            call()


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_preferred_leaders_are_elected(fake_cluster: FakeCluster) -> None:
    def leaders() -> dict[str, list[int]]:
        return {
            topic.name: [each.leader_id for each in topic.partitions]
            for topic in internals(fake_cluster).cluster.topics
        }

    stable_group(fake_cluster, "g")
    at_start, home = leaders(), fake_cluster.group("g").coordinator().node_id
    fake_cluster.broker(home).restart()
    assert home not in leaders()["orders"]
    fake_cluster.brokers.elect_preferred(load_ms=None)
    assert leaders() == at_start
    assert internals(fake_cluster).cluster.group_moves.loading
    fake_cluster.brokers.finish_loading()
    assert fake_cluster.group("g").describe().state == "Stable"
    fake_cluster.broker(home).stop()
    without_home = leaders()
    fake_cluster.brokers.elect_preferred()
    assert leaders() == without_home


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_topics_get_partitions_and_are_deleted(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    fake_cluster.topic("orders").create_partitions(8)
    with WireClient(fake_cluster.brokers[0]) as wire:
        topics = {t.name: t for t in wire.ask(MetadataRequest(topics=None), MetadataResponse).topics}
        assert [p.leader_id for p in topics["orders"].partitions] == [1, 2, 3, 1, 2, 3, 1, 2]
        fake_cluster.topic("orders").delete()
        names = {t.name for t in wire.ask(MetadataRequest(topics=None), MetadataResponse).topics}
        assert "orders" not in names
    assert fake_cluster.group("g").offsets() == {}


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 6}, clock="manual")
def test_sessions_expire_by_the_manual_clock(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    (broker,) = fake_cluster.brokers
    internals(fake_cluster).server.clock.advance(29.9)
    assert fake_cluster.group("g").describe().state == "Stable"
    internals(fake_cluster).server.clock.advance(0.1)
    assert fake_cluster.group("g").describe().state == "Empty"
    with pytest.raises(ConfigError, match=r"^seconds=-1: expected a number from 0 to 1000000000$"):
        internals(fake_cluster).server.clock.advance(-1)
    # With a manual clock, a Fetch still waits in real time.
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = internals(fake_cluster).cluster.topics.get("orders")
    assert topic is not None
    fetch = FetchRequest(
        max_wait_ms=20, min_bytes=1, topics=[FetchTopic(topic_id=topic.topic_id, partitions=[partition])]
    )
    with WireClient(broker) as wire:
        assert wire.ask(fetch, FetchResponse).responses[0].partitions[0].records == b""


@pytest.mark.fake_cluster(topics={"orders": 6}, config={"auto.leader.rebalance.enable": True}, clock="manual")
def test_preferred_leaders_are_elected_by_the_manual_clock(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster, "g")
    first = fake_cluster.group("g").coordinator().node_id
    fake_cluster.broker(first).stop()
    fake_cluster.broker(first).start()
    second = fake_cluster.group("g").coordinator().node_id
    assert second != first
    assert "preferred_election" in [deadline.kind for deadline in fake_cluster.deadlines()]
    snapshot = fake_cluster.snapshot()
    fake_cluster.advance(300)
    assert fake_cluster.group("g").coordinator().node_id == first
    assert "preferred_election" not in [deadline.kind for deadline in fake_cluster.deadlines()]
    fake_cluster.restore(snapshot)
    assert fake_cluster.group("g").coordinator().node_id == second
    fake_cluster.advance(300)
    assert fake_cluster.group("g").coordinator().node_id == first
    assert beat(fake_cluster, member_id, first) == ErrorCode.UNKNOWN_MEMBER_ID  # its session has expired, too
