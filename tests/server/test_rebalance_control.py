"""Rebalances controlled by a test: holds, forced rebalances, removed and fenced members, delayed syncs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fakebroker import ConfigError, FakeCluster
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.support.group_requests import join_request
from tests.support.wire_client import WireClient, until


class TcpMember:
    """A member with a connection to the coordinator of group "g". Joins with one request (before KIP-394)."""

    def __init__(self, cluster: FakeCluster, client_id: str, instance_id: str | None = None) -> None:
        self.wire = WireClient(cluster.coordinator_of("g"), client_id)
        self.instance_id = instance_id
        self.answer: JoinGroupResponse | None = None

    @property
    def joined(self) -> JoinGroupResponse:
        assert self.answer is not None
        return self.answer

    def start_joining(self) -> None:
        request = join_request("g", self.answer.member_id if self.answer else "")
        request.group_instance_id = self.instance_id
        self.wire.send(request, 5 if self.instance_id else 3)

    def joins(self) -> JoinGroupResponse:
        answer = self.wire.receive()
        assert isinstance(answer, JoinGroupResponse)
        self.answer = answer
        return answer

    def start_syncing(self, assignments: dict[str, bytes]) -> None:
        self.wire.send(
            SyncGroupRequest(
                group_id="g",
                generation_id=self.joined.generation_id,
                member_id=self.joined.member_id,
                group_instance_id=self.instance_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=key, assignment=it) for key, it in assignments.items()
                ],
            ),
            3,
        )

    def syncs(self) -> SyncGroupResponse:
        answer = self.wire.receive()
        assert isinstance(answer, SyncGroupResponse)
        return answer

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.joined.generation_id,
            member_id=self.joined.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode(self.wire.ask(request, HeartbeatResponse, 3).error_code)


Start = Callable[..., TcpMember]


@pytest.fixture
def start(fake_cluster: FakeCluster) -> Iterator[Start]:
    """A function that starts a member, whose first JoinGroup is parked; connections are closed after the test."""
    with ExitStack() as stack:

        def start(client_id: str, instance_id: str | None = None) -> TcpMember:
            members = len(fake_cluster.group("g").members)
            member = TcpMember(fake_cluster, client_id, instance_id)
            stack.enter_context(member.wire)
            member.start_joining()
            until(lambda: len(fake_cluster.group("g").members) > members, fake_cluster)
            return member

        yield start


@pytest.fixture
def members(fake_cluster: FakeCluster, start: Start) -> list[TcpMember]:
    """Two members of a stable group, the second one static; the first leads."""
    with fake_cluster.hold("g", "PreparingRebalance"):
        made = [start("app"), start("other", "i")]
    for member in made:
        assert member.joins().error_code == ErrorCode.NONE
    synchronize(made)
    return made


def synchronize(members: list[TcpMember]) -> None:
    for member in members:
        is_leader = member.joined.leader == member.joined.member_id
        member.start_syncing({each.joined.member_id: b"part" for each in members} if is_leader else {})
    for member in members:
        assert member.syncs().assignment == b"part"


def test_a_hold_before_there_is_a_group(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    assert [len(member.joined.members) for member in members] == [2, 0]
    assert fake_cluster.group("g").generation_id == 1


def test_a_hold_and_its_release(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.hold("g", "CompletingRebalance")
    fake_cluster.force_rebalance("g")
    for member in members:
        assert member.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        member.start_joining()
    for member in members:
        member.joins()
    members[0].start_syncing({member.joined.member_id: b"new" for member in members})
    until(lambda: len(fake_cluster.requests("SyncGroup")) == 3, fake_cluster)
    assert members[1].beat() is ErrorCode.NONE
    assert fake_cluster.group("g").state == "CompletingRebalance"
    fake_cluster.release("g", "CompletingRebalance")
    assert fake_cluster.group("g").state == "Stable"
    assert members[0].syncs().assignment == b"new"


def test_a_hold_that_was_released_before_its_end(fake_cluster: FakeCluster) -> None:
    with fake_cluster.hold("g", "PreparingRebalance"):
        fake_cluster.release("g")
        with pytest.raises(ConfigError, match="group_id='g': expected a group that is held, but there is none"):
            fake_cluster.release("g")


def test_the_leader_that_a_test_wants(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.choose_leader("g", "i")
    fake_cluster.force_rebalance("g")
    for member in members:
        member.start_joining()
    assert {member.joins().leader for member in members} == {members[1].joined.member_id}
    synchronize(members)


def test_members_are_taken_out(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.fence("g", "i")
    assert members[1].beat() is ErrorCode.FENCED_INSTANCE_ID
    assert members[0].beat() is ErrorCode.NONE
    fake_cluster.evict("g", "app")
    assert members[0].beat() is ErrorCode.UNKNOWN_MEMBER_ID
    fake_cluster.expire("g", "i")
    assert fake_cluster.group("g").state == "Empty"


def synced_late(cluster: FakeCluster, members: list[TcpMember]) -> None:
    """Another round, in which the second member's sync is not answered in time."""
    cluster.force_rebalance("g")
    for member in members:
        member.start_joining()
    for member in members:
        member.joins()
    members[1].start_syncing({})
    members[0].start_syncing({member.joined.member_id: b"new" for member in members})
    assert members[0].syncs().assignment == b"new"
    assert cluster.group("g").state == "Stable"
    assert [call.response for call in cluster.requests("SyncGroup", client_id="other")[1:]] == [None]


def test_a_sync_response_delayed_until_release_sync(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.delay_sync("g", "other")
    synced_late(fake_cluster, members)
    fake_cluster.release_sync("g", "i")
    assert members[1].syncs().assignment == b"new"
    with pytest.raises(ConfigError, match="member='i': expected a member whose SyncGroup response is delayed"):
        fake_cluster.release_sync("g", "i")


@pytest.mark.fake_cluster(clock="manual")
def test_a_sync_response_delayed_by_seconds(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.delay_sync("g", "i", 2)
    synced_late(fake_cluster, members)
    fake_cluster.advance(1.5)
    assert fake_cluster.requests("SyncGroup", client_id="other")[-1].response is None
    fake_cluster.advance(0.5)
    assert members[1].syncs().assignment == b"new"


def test_a_delay_applies_to_one_response(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.delay_sync("g", "i", 0)
    for _ in range(2):
        fake_cluster.force_rebalance("g")
        for member in members:
            member.start_joining()
        for member in members:
            member.joins()
        synchronize(members)


@pytest.mark.usefixtures("members")
def test_invalid_controls_are_rejected(fake_cluster: FakeCluster) -> None:
    for refused, sentence in (
        (lambda: fake_cluster.hold("g", "Stable"), "state='Stable': expected one of PreparingRebalance, Completing"),
        (lambda: fake_cluster.release("h"), "group_id='h': expected a group that is held, but there is none"),
        (lambda: fake_cluster.force_rebalance("h"), "group_id='h': expected an existing group; its"),
        (lambda: fake_cluster.evict("g", "x"), "group 'g': member='x': expected one of app-"),
        (lambda: fake_cluster.expire("g", "x"), "group 'g': member='x'"),
        (lambda: fake_cluster.choose_leader("g", "x"), "group 'g': member='x'"),
        (lambda: fake_cluster.fence("g", "app"), "group 'g': instance_id='app': expected one of i"),
        (lambda: fake_cluster.delay_sync("g", "i", -1), "seconds=-1: expected a number >= 0 or none"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            refused()
    fake_cluster.move_coordinator("g", to=None)
    with pytest.raises(ConfigError, match="group_id='g': expected a group that has a coordinator now"):
        fake_cluster.force_rebalance("g")


@pytest.mark.usefixtures("members")
def test_a_hold_survives_a_change_of_the_coordinator(fake_cluster: FakeCluster, start: Start) -> None:
    fake_cluster.hold("g", "PreparingRebalance")
    fake_cluster.move_coordinator("g", to=None)
    fake_cluster.move_coordinator("g", to=fake_cluster.brokers[0].node_id)
    again = start("new")
    for name in ("app", "i"):
        fake_cluster.evict("g", name)
    assert fake_cluster.group("g").state == "PreparingRebalance"
    fake_cluster.release("g")
    assert again.joins().error_code == ErrorCode.NONE
