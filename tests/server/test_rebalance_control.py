"""Rebalances controlled by a test: holds in blocks and over a failover, delayed syncs, errors."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fakebroker import ConfigError, FakeCluster
from fakebroker.errors import ErrorCode
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
        """The response to its last JoinGroup."""
        assert self.answer is not None
        return self.answer

    def send_join(self) -> None:
        """Send a JoinGroup without waiting for the response."""
        request = join_request("g", self.answer.member_id if self.answer else "")
        request.group_instance_id = self.instance_id
        self.wire.send(request, 5 if self.instance_id else 3)

    def wait_joined(self) -> JoinGroupResponse:
        """Wait for the response to the JoinGroup."""
        answer = self.wire.receive()
        assert isinstance(answer, JoinGroupResponse)
        self.answer = answer
        return answer

    def send_sync(self, assignments: dict[str, bytes]) -> None:
        """Send a SyncGroup without waiting for the response; a leader also sends assignments by member id."""
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

    def wait_synced(self) -> SyncGroupResponse:
        """Wait for the response to the SyncGroup."""
        answer = self.wire.receive()
        assert isinstance(answer, SyncGroupResponse)
        return answer


Start = Callable[..., TcpMember]


@pytest.fixture
def start(fake_cluster: FakeCluster) -> Iterator[Start]:
    """A function that starts a member, whose first JoinGroup is parked; connections are closed after the test."""
    with ExitStack() as stack:

        def start(client_id: str, instance_id: str | None = None) -> TcpMember:
            members = len(fake_cluster.group("g").members)
            member = TcpMember(fake_cluster, client_id, instance_id)
            stack.enter_context(member.wire)
            member.send_join()
            until(lambda: len(fake_cluster.group("g").members) > members, fake_cluster)
            return member

        yield start


@pytest.fixture
def members(fake_cluster: FakeCluster, start: Start) -> list[TcpMember]:
    """Two members of a stable group, the second one static; the first leads."""
    with fake_cluster.hold("g", "PreparingRebalance"):
        made = [start("app"), start("other", "i")]
    for member in made:
        assert member.wait_joined().error_code == ErrorCode.NONE
    synchronize(made)
    return made


def synchronize(members: list[TcpMember]) -> None:
    """Send the SyncGroup of all members, and check their assignments."""
    for member in members:
        is_leader = member.joined.leader == member.joined.member_id
        member.send_sync({each.joined.member_id: b"part" for each in members} if is_leader else {})
    for member in members:
        assert member.wait_synced().assignment == b"part"


def test_a_group_can_be_held_before_it_exists(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    assert [len(member.joined.members) for member in members] == [2, 0]
    assert fake_cluster.group("g").generation_id == 1


def test_a_hold_may_be_released_before_its_block_ends(fake_cluster: FakeCluster) -> None:
    with fake_cluster.hold("g", "PreparingRebalance"):
        fake_cluster.release("g")
        with pytest.raises(ConfigError, match="group_id='g': expected a group that is held, but there is none"):
            fake_cluster.release("g")


def sync_with_delay(cluster: FakeCluster, members: list[TcpMember]) -> None:
    """Rebalance; all members sync, and the response to the second one is delayed."""
    cluster.force_rebalance("g")
    for member in members:
        member.send_join()
    for member in members:
        member.wait_joined()
    members[1].send_sync({})
    members[0].send_sync({member.joined.member_id: b"new" for member in members})
    assert members[0].wait_synced().assignment == b"new"
    assert cluster.group("g").state == "Stable"
    assert [call.response for call in cluster.requests("SyncGroup", client_id="other")[1:]] == [None]


def test_a_sync_response_delayed_until_release_sync(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.delay_sync("g", "other")
    sync_with_delay(fake_cluster, members)
    fake_cluster.release_sync("g", "i")
    assert members[1].wait_synced().assignment == b"new"
    with pytest.raises(ConfigError, match="member='i': expected a member whose SyncGroup response is delayed"):
        fake_cluster.release_sync("g", "i")


@pytest.mark.fake_cluster(clock="manual")
def test_a_sync_response_delayed_by_seconds(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.delay_sync("g", "i", 2)
    sync_with_delay(fake_cluster, members)
    fake_cluster.advance(1.5)
    assert fake_cluster.requests("SyncGroup", client_id="other")[-1].response is None
    fake_cluster.advance(0.5)
    assert members[1].wait_synced().assignment == b"new"


def test_a_delay_applies_to_one_response(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.delay_sync("g", "i", 0)
    for _ in range(2):
        fake_cluster.force_rebalance("g")
        for member in members:
            member.send_join()
        for member in members:
            member.wait_joined()
        synchronize(members)


@pytest.mark.usefixtures("members")
def test_invalid_controls_are_rejected(fake_cluster: FakeCluster) -> None:
    for refused, sentence in (
        (lambda: fake_cluster.hold("g", "Stable"), "state='Stable': expected one of PreparingRebalance, Completing"),
        (
            lambda: fake_cluster.release("h"),
            "group_id='h': expected a group that is held, but there is none",
        ),
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
    assert again.wait_joined().error_code == ErrorCode.NONE
