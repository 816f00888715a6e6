"""Shared connections without sockets: groups reserve all the connections that a rebalance needs, or none."""

from typing import Any

import pytest

from fakebroker.client.transport import Address, ConnectionUser
from fakebroker.client.versions import NegotiatedVersions
from fakebroker.errors import FakebrokerError
from fakebroker.replay.members.shared_connections import SharedConnections
from fakebroker.replay.members.sockets import SocketConnection

BROKER, OTHER = ("a", 1), ("b", 2)


class FakeTransport:
    """A transport without sockets, whose connections are open from the start."""

    def __init__(self) -> None:
        self.made: list[SocketConnection] = []

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> SocketConnection:
        connection = SocketConnection(address, user, is_shared=is_shared)
        connection.versions = NegotiatedVersions({})
        self.made.append(connection)
        return connection

    def release(self, connection: SocketConnection, user: ConnectionUser) -> None:
        connection.forget(user)
        connection.is_closed = connection.is_closed or not connection.users


class FakeMember:
    """A user of shared connections that counts its admissions."""

    def __init__(self, group: str, number: int) -> None:
        self.group, self.number, self.admissions = group, number, 0

    def admitted(self) -> None:
        self.admissions += 1

    def opened(self, connection: SocketConnection) -> None: ...

    def answered(self, connection: SocketConnection, response: Any) -> None: ...

    def lost(self, connection: SocketConnection, why: str) -> None: ...


def shared_by(transport: FakeTransport, limit: int, **sizes: int) -> SharedConnections:
    return SharedConnections(transport, 2, limit, sizes)  # type: ignore[arg-type]  # a fake transport


def test_members_share_the_given_number_of_connections_to_a_broker() -> None:
    transport = FakeTransport()
    shared = shared_by(transport, 10, g=4)
    members = [FakeMember("g", number) for number in range(4)]
    connections = [shared.shared(BROKER, member) for member in members]
    assert connections[0] is connections[2]
    assert connections[1] is connections[3]
    assert shared.shared(OTHER, members[0]) is not connections[0]
    assert len(transport.made) == 3
    assert set(connections[0].users) == {members[0], members[2]}


def test_a_lost_shared_connection_is_replaced() -> None:
    shared, member = shared_by(FakeTransport(), 10, g=1), FakeMember("g", 0)
    first = shared.shared(BROKER, member)
    first.is_closed = True
    assert shared.shared(BROKER, member) is not first


def test_separate_connections_are_reused_by_later_rebalances() -> None:
    transport = FakeTransport()
    shared, one, two = shared_by(transport, 10, one=1, two=1), FakeMember("one", 0), FakeMember("two", 1)
    connection = shared.begin_rebalance(BROKER, one)
    assert connection is not None
    shared.end_rebalance(connection, one)
    assert shared.begin_rebalance(OTHER, two) is not connection
    again = shared.begin_rebalance(BROKER, one)
    assert again is connection
    assert list(connection.users) == [one]
    assert len(transport.made) == 2


def test_a_lost_idle_connection_is_not_reused() -> None:
    shared, one = shared_by(FakeTransport(), 10, one=1), FakeMember("one", 0)
    connection = shared.begin_rebalance(BROKER, one)
    assert connection is not None
    shared.end_rebalance(connection, one)
    connection.is_closed = True
    (user,) = connection.users
    user.lost(connection, "gone")
    assert shared.begin_rebalance(BROKER, one) is not connection


def test_a_group_waits_until_it_can_reserve_a_connection_for_each_member() -> None:
    shared = shared_by(FakeTransport(), 4, one=2, two=3, three=1)
    one, two, three = FakeMember("one", 0), FakeMember("two", 1), FakeMember("three", 2)
    connections = [shared.begin_rebalance(BROKER, member) for member in (one, FakeMember("one", 3))]
    assert None not in connections
    assert shared.begin_rebalance(BROKER, two) is None
    assert shared.begin_rebalance(BROKER, three) is None  # enough connections are free, but another group waits already
    for connection in connections:
        assert connection is not None
        assert two.admissions == 0
        shared.end_rebalance(connection, one)
    assert (two.admissions, three.admissions) == (1, 1)
    assert shared.begin_rebalance(BROKER, two) is not None
    assert shared.begin_rebalance(BROKER, three) is not None
    assert shared.begin_rebalance(BROKER, one) is None


def test_a_waiting_group_without_members_does_not_block_the_next_one() -> None:
    shared = shared_by(FakeTransport(), 3, one=2, two=3, three=1)
    two, three = FakeMember("two", 1), FakeMember("three", 2)
    assert shared.begin_rebalance(BROKER, FakeMember("one", 0)) is not None
    assert shared.begin_rebalance(BROKER, two) is None
    assert shared.begin_rebalance(BROKER, three) is None
    shared.stop_waiting(two)
    assert (two.admissions, three.admissions) == (0, 1)


def test_a_group_above_the_limit_is_rejected() -> None:
    with pytest.raises(FakebrokerError, match=r"^group 'large' has 5 members: with --lanes, expected at most 4, "):
        shared_by(FakeTransport(), 4, small=1, large=5)
