"""Subscriptions and assignments in views of members: decoded for consumers, bytes for others and if malformed."""

import pytest
from hypothesis import given, strategies as st

from fakebroker import FakeCluster
from fakebroker.cluster.inspect.views import MemberView
from fakebroker.protocol.consumer_protocol import encode_assignment, encode_subscription
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from tests.support.group_requests import sync_request
from tests.support.groups_over_tcp import JOIN_WITHOUT_MEMBER_ID, OLD_SYNC
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.fake_cluster(topics={"orders": 3, "news": 1}, clock="manual", seed=1)

OWNED = [("orders", 0), ("orders", 2)]


def join_request(protocol_type: str, *protocols: tuple[str, bytes]) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


def join(wire: WireClient, protocol_type: str, *protocols: tuple[str, bytes]) -> JoinGroupResponse:
    return wire.ask(join_request(protocol_type, *protocols), JoinGroupResponse, JOIN_WITHOUT_MEMBER_ID)


def stable_member(
    cluster: FakeCluster, protocol_type: str, protocol: str, metadata: bytes, assignment: bytes
) -> MemberView:
    """Return the only member of a stable group."""
    with WireClient(cluster.group("g").coordinator()) as wire:
        joined = join(wire, protocol_type, (protocol, metadata))
        sync = sync_request(joined.member_id, "g", joined.generation_id, {joined.member_id: assignment})
        wire.ask(sync, SyncGroupResponse, OLD_SYNC)
    (member,) = cluster.group("g").describe().members
    return member


def test_consumers_have_topics_and_partitions(fake_cluster: FakeCluster) -> None:
    metadata = encode_subscription(["orders", "news"], OWNED, 4)
    member = stable_member(fake_cluster, "consumer", "range", metadata, encode_assignment(OWNED))
    assert (member.assigned_partitions, member.subscribed_topics) == (tuple(OWNED), ("news", "orders"))
    assert member.owned_partitions == tuple(OWNED)
    assert (member.protocol_type, member.protocol_name) == ("consumer", "range")
    assert (member.metadata, member.assignment) == (metadata, encode_assignment(OWNED))


def test_owned_partitions_of_the_sticky_assignor_are_in_its_user_data(fake_cluster: FakeCluster) -> None:
    metadata = encode_subscription(["orders"], previous=(tuple(OWNED), 4))
    member = stable_member(fake_cluster, "consumer", "sticky", metadata, encode_assignment([]))
    assert (member.owned_partitions, member.assigned_partitions) == (tuple(OWNED), ())


def test_a_member_without_an_assignment_has_no_partitions(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.group("g").coordinator()) as wire:
        join(wire, "consumer", ("range", encode_subscription(["orders"])))
        (member,) = fake_cluster.group("g").describe().members
    assert fake_cluster.group("g").describe().state == "CompletingRebalance"
    assert (member.assigned_partitions, member.subscribed_topics) == ((), ("orders",))


def test_members_have_subscriptions_while_no_protocol_is_selected(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(members=2, topics=["orders"], state="PreparingRebalance")
    assert [each.subscribed_topics for each in fake_cluster.group("g").describe().members] == [("orders",)] * 2


def test_members_of_other_types_have_bytes(fake_cluster: FakeCluster) -> None:
    metadata, assignment = encode_subscription(["orders"]), encode_assignment(OWNED)
    member = stable_member(fake_cluster, "connect", "sessioned", metadata, assignment)
    assert (member.metadata, member.assignment) == (metadata, assignment)
    assert [member.assigned_partitions, member.subscribed_topics, member.owned_partitions] == [None] * 3


def test_malformed_bytes_of_a_consumer_stay_bytes(fake_cluster: FakeCluster) -> None:
    member = stable_member(fake_cluster, "consumer", "range", b"\xff", b"all")
    assert (member.metadata, member.assignment) == (b"\xff", b"all")
    assert [member.assigned_partitions, member.subscribed_topics, member.owned_partitions] == [None] * 3


@given(st.binary(max_size=60), st.integers(0, 3), st.sampled_from(["range", "sticky"]))
def test_no_bytes_raise(data: bytes, version: int, protocol: str) -> None:
    for each in (data, version.to_bytes(2, "big") + data):
        member = MemberView("m", "c", "/127.0.0.1", None, 1, 1, each, each, "consumer", protocol)
        assert isinstance(member.assigned_partitions, tuple | None)
        assert isinstance(member.subscribed_topics, tuple | None)
        assert isinstance(member.owned_partitions, tuple | None)


def test_during_a_rebalance_a_member_may_lack_the_protocol_of_the_last_generation(fake_cluster: FakeCluster) -> None:
    coordinator = fake_cluster.group("g").coordinator()
    both = [(name, encode_subscription(["orders"])) for name in ("range", "roundrobin")]
    with WireClient(coordinator) as first, WireClient(coordinator) as second:
        join(first, "consumer", *both)
        second.send(join_request("consumer", ("roundrobin", encode_subscription(["news"]))), JOIN_WITHOUT_MEMBER_ID)
        group = fake_cluster.wait(fake_cluster.group("g").state("PreparingRebalance", members=2))
    assert [(each.protocol_name, each.subscribed_topics) for each in group.members] == [
        ("range", ("orders",)),
        ("roundrobin", ("news",)),
    ]
