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
        self.wire = WireClient(cluster.group("g").coordinator(), client_id)
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
            members = len(fake_cluster.group("g").describe().members)
            member = TcpMember(fake_cluster, client_id, instance_id)
            stack.enter_context(member.wire)
            member.send_join()
            until(lambda: len(fake_cluster.group("g").describe().members) > members, fake_cluster)
            return member

        yield start


@pytest.fixture
def members(fake_cluster: FakeCluster, start: Start) -> list[TcpMember]:
    """Two members of a stable group, the second one static; the first leads."""
    with fake_cluster.group("g").hold("PreparingRebalance"):
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
    assert fake_cluster.group("g").describe().generation_id == 1


def test_a_hold_may_be_released_before_its_block_ends(fake_cluster: FakeCluster) -> None:
    with fake_cluster.group("g").hold("PreparingRebalance"):
        fake_cluster.group("g").release()
        with pytest.raises(ConfigError, match="group_id='g': expected a group that is held, but there is none"):
            fake_cluster.group("g").release()


def sync_with_delay(cluster: FakeCluster, members: list[TcpMember]) -> None:
    """Rebalance; all members sync, and the response to the second one is delayed."""
    cluster.group("g").rebalance()
    for member in members:
        member.send_join()
    for member in members:
        member.wait_joined()
    members[1].send_sync({})
    members[0].send_sync({member.joined.member_id: b"new" for member in members})
    assert members[0].wait_synced().assignment == b"new"
    assert cluster.group("g").describe().state == "Stable"
    assert [call.response for call in cluster.journal.requests("SyncGroup", client_id="other")[1:]] == [None]


def test_a_sync_response_delayed_until_release_sync(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.group("g").delay_sync("other")
    sync_with_delay(fake_cluster, members)
    fake_cluster.group("g").release_sync("i")
    assert members[1].wait_synced().assignment == b"new"
    with pytest.raises(ConfigError, match="member='i': expected a member whose SyncGroup response is delayed"):
        fake_cluster.group("g").release_sync("i")


@pytest.mark.fake_cluster(clock="manual")
def test_a_sync_response_delayed_by_seconds(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.group("g").delay_sync("i", 2)
    sync_with_delay(fake_cluster, members)
    fake_cluster.advance(1.5)
    assert fake_cluster.journal.requests("SyncGroup", client_id="other")[-1].response is None
    fake_cluster.advance(0.5)
    assert members[1].wait_synced().assignment == b"new"


def test_a_delay_applies_to_one_response(fake_cluster: FakeCluster, members: list[TcpMember]) -> None:
    fake_cluster.group("g").delay_sync("i", 0)
    for _ in range(2):
        fake_cluster.group("g").rebalance()
        for member in members:
            member.send_join()
        for member in members:
            member.wait_joined()
        synchronize(members)


@pytest.mark.usefixtures("members")
def test_invalid_controls_are_rejected(fake_cluster: FakeCluster) -> None:
    for refused, sentence in (
        (
            lambda: fake_cluster.group("g").hold("Stable"),
            "state='Stable': expected one of PreparingRebalance, Completing",
        ),
        (
            lambda: fake_cluster.group("h").release(),
            "group_id='h': expected a group that is held, but there is none",
        ),
        (lambda: fake_cluster.group("h").rebalance(), "group_id='h': expected an existing group; its"),
        (lambda: fake_cluster.group("g").evict("x"), "group 'g': member='x': expected one of app-"),
        (lambda: fake_cluster.group("g").expire("x"), "group 'g': member='x'"),
        (lambda: fake_cluster.group("g").choose_leader("x"), "group 'g': member='x'"),
        (lambda: fake_cluster.group("g").fence_instance("app"), "group 'g': member='app': expected one of i"),
        (lambda: fake_cluster.group("g").delay_sync("i", -1), "seconds=-1: expected a number >= 0 or none"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            refused()
    fake_cluster.group("g").move_coordinator(to=None)
    with pytest.raises(ConfigError, match="group_id='g': expected a group that has a coordinator now"):
        fake_cluster.group("g").rebalance()


@pytest.mark.usefixtures("members")
def test_a_hold_survives_a_change_of_the_coordinator(fake_cluster: FakeCluster, start: Start) -> None:
    fake_cluster.group("g").hold("PreparingRebalance")
    fake_cluster.group("g").move_coordinator(to=None)
    fake_cluster.group("g").move_coordinator(to=fake_cluster.brokers[0].node_id)
    again = start("new")
    for name in ("app", "i"):
        fake_cluster.group("g").evict(name)
    assert fake_cluster.group("g").describe().state == "PreparingRebalance"
    fake_cluster.group("g").release()
    assert again.wait_joined().error_code == ErrorCode.NONE
