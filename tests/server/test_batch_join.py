"""The proposal `batch-join` over TCP: supported versions, failover, and expected instances in responses."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from fakebroker import FakeCluster
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.coordinator.classic.extension import no_extension
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.proposals.batch_join.messages import (
    BatchJoinGroupRequest,
    BatchJoinGroupRequestMember,
    BatchJoinGroupResponse,
)
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.server.fake_cluster import internals
from tests.support.wire_client import TIMEOUT_S, WireClient, until

RANGE = [JoinGroupRequestProtocol(name="range", metadata=b"")]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(2, seed=1, proposals=["batch-join"], clock="manual") as running:
        yield running


def batch(*members: tuple[str, bool], group_id: str = "g") -> BatchJoinGroupRequest:
    """Return a JoinGroup for several instances: for each, its id and whether it joins (else it is expected)."""
    return BatchJoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        join_group_members=[
            BatchJoinGroupRequestMember(member_id="", group_instance_id=name, protocols=RANGE if joins else [])
            for name, joins in members
        ],
    )


def single(instance_id: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=RANGE,
    )


def register(broker: BrokerView, *instance_ids: str) -> list[str]:
    with WireClient(broker) as wire:
        answer = wire.ask(batch(*((each, False) for each in instance_ids)), BatchJoinGroupResponse, 10)
    assert [each.error_code for each in answer.member_join_response_list] == [0] * len(instance_ids)
    return [each.member.member_id for each in answer.member_join_response_list]


def parked(
    cluster: FakeCluster, broker: BrokerView, request: JoinGroupRequest | BatchJoinGroupRequest, version: int
) -> WireClient:
    """Send a join that is parked, and return its connection."""
    count = len(cluster.journal.requests())
    wire = WireClient(broker, "parked")
    wire.send(request, version)
    until(lambda: len(cluster.journal.requests()) > count, cluster)
    return wire


def joins(response: object) -> JoinGroupResponse:
    assert isinstance(response, JoinGroupResponse)
    return response


def last_join_version(cluster: FakeCluster) -> int:
    """Return the newest version of JoinGroup that broker 1 supports."""
    with WireClient(cluster.brokers[0]) as wire:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answer = wire.ask(request, ApiVersionsResponse, 4)
    return next(api.max_version for api in answer.api_keys if api.api_key == JoinGroupRequest.API_KEY)


def test_version_10_requires_the_proposal(cluster: FakeCluster) -> None:
    assert last_join_version(cluster) == 10
    with FakeCluster(1, seed=1) as plain:
        assert last_join_version(plain) == 9
        with WireClient(plain.brokers[0]) as wire:
            wire.send(batch(("x", False)), 10)
            assert wire.is_closed_by_broker(), "as Kafka does with a version that it does not know"
    with FakeCluster(1, seed=1, proposals=["batch-join"], as_version="4.3") as older:
        assert last_join_version(older) == 9


def test_upgraded_and_added_brokers_have_the_proposal() -> None:
    with FakeCluster(1, seed=1, proposals=["batch-join"], as_version="3.9") as cluster:
        assert last_join_version(cluster) == 9
        cluster.broker(1).upgrade(None)
        assert last_join_version(cluster) == 10
        cluster.brokers.add()
        assert internals(cluster).cluster.brokers[2].coordinator.config.extension is no_extension


def test_an_unknown_proposal_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"^proposals\[0\]='x': expected one of batch-join, rewrite$"):
        FakeCluster(proposals=["x"])


def test_a_failover_while_instances_are_expected(cluster: FakeCluster) -> None:
    broker = cluster.group("g").coordinator()
    x_id, y_id = register(broker, "x", "y")
    waits = parked(cluster, broker, single("x"), 9)
    other = next(each for each in cluster.brokers if each.node_id != broker.node_id)
    cluster.group("g").move_coordinator(other.node_id)
    assert joins(waits.receive()).error_code == ErrorCode.NOT_COORDINATOR
    again = parked(cluster, other, single("x", x_id), 9)
    assert [(m.instance_id, m.is_expected) for m in cluster.group("g").describe().members] == [("x", True), ("y", True)]
    with WireClient(other) as last:
        answer = last.ask(batch(("y", True)), BatchJoinGroupResponse, 10)
    (y,) = answer.member_join_response_list
    assert (y.member.member_id, y.error_code, answer.generation_id) == (y_id, 0, 1)
    x = joins(again.receive())
    assert (x.member_id, x.generation_id, x.leader) == (x_id, 1, answer.leader)
    assert len(x.members) == 2
    for wire in (waits, again):
        wire.socket.close()


def test_members_of_a_batch_can_share_a_connection_if_the_leader_syncs_first(cluster: FakeCluster) -> None:
    with WireClient(cluster.group("g").coordinator()) as wire:
        answer = wire.ask(batch(("x", True), ("y", True)), BatchJoinGroupResponse, 10)
        ids = [each.member.member_id for each in answer.member_join_response_list]
        assert answer.leader == ids[0]
        assert [member.member_id for member in answer.members] == ids
        for member_id in ids:
            sync = SyncGroupRequest(
                group_id="g",
                generation_id=answer.generation_id,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[],
            )
            assert wire.ask(sync, SyncGroupResponse).error_code == 0
    assert cluster.group("g").describe().state == "Stable"
    journaled = next(call for call in cluster.journal.requests() if call.api.name == "JoinGroup")
    assert journaled.member_ids == tuple(ids)


def test_expected_instances_are_described_as_members(cluster: FakeCluster) -> None:
    broker = cluster.group("g").coordinator()
    x_id, y_id = register(broker, "x", "y")
    wire = parked(cluster, broker, single("x"), 9)
    with WireClient(broker) as other:
        (group,) = other.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse).groups
    assert [(m.member_id, m.group_instance_id, m.client_id, m.client_host) for m in group.members] == [
        (x_id, "x", "parked", "/127.0.0.1"),
        (y_id, "y", "", ""),
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result(TIMEOUT_S)
    assert [(m.member_id, m.group_instance_id, m.client_id) for m in described.members] == [
        (x_id, "x", "parked"),
        (y_id, "y", ""),
    ]
    held_back = "1 join is held back until the registered instances y join, for at most 60.0 s more."
    assert held_back in cluster.group("g").explain()
    assert ", static 'y', expected" in str(cluster.group("g").describe())
    assert [each.kind for each in cluster.deadlines() if each.member_ids == (y_id,)] == ["expected"]
    wire.socket.close()


def test_expected_instances_are_explained(cluster: FakeCluster) -> None:
    register(cluster.group("g").coordinator(), "x", "y")
    assert (
        cluster.group("g")
        .explain()
        .endswith(
            "The registered instances x, y have not joined. If none of them joins, the first registration expires in "
            "60.0 s."
        )
    )


def test_snapshots_contain_expected_instances(cluster: FakeCluster) -> None:
    register(cluster.group("g").coordinator(), "x")
    kept = cluster.snapshot()
    internals(cluster).server.clock.advance(60)
    assert cluster.group("g").describe().members == ()
    cluster.restore(kept)
    assert [member.instance_id for member in cluster.group("g").describe().members] == ["x"]
