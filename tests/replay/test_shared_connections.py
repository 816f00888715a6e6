"""Lanes without sockets: groups get all the connections that they need for a round, or none."""

from typing import Any

import pytest

from fakebroker.errors import FakebrokerError
from fakebroker.replay.members.connection import Address, BrokerConnection, ConnectionUser, NegotiatedVersions
from fakebroker.replay.members.shared_connections import SharedConnections

BROKER, OTHER = ("a", 1), ("b", 2)


class PaperWire:
    """Opens links at once, on paper."""

    def __init__(self) -> None:
        self.made: list[BrokerConnection] = []

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> BrokerConnection:
        link = BrokerConnection(address, user, is_shared=is_shared)
        link.versions = NegotiatedVersions({})
        self.made.append(link)
        return link

    def let_go(self, link: BrokerConnection, user: ConnectionUser) -> None:
        link.forget(user)
        link.is_closed = link.is_closed or not link.users


class Rider:
    def __init__(self, group: str, number: int) -> None:
        self.group, self.number, self.admissions = group, number, 0

    def admitted(self) -> None:
        self.admissions += 1

    def opened(self, link: BrokerConnection) -> None: ...

    def answered(self, link: BrokerConnection, response: Any) -> None: ...

    def lost(self, link: BrokerConnection, why: str) -> None: ...


def lanes_of(wire: PaperWire, most_rounds: int, **sizes: int) -> SharedConnections:
    return SharedConnections(wire, 2, most_rounds, sizes)  # type: ignore[arg-type]  # a wire on paper


def test_riders_share_as_many_lanes_to_a_broker_as_there_are() -> None:
    wire = PaperWire()
    lanes = lanes_of(wire, 10, g=4)
    riders = [Rider("g", number) for number in range(4)]
    links = [lanes.shared(BROKER, rider) for rider in riders]
    assert links[0] is links[2]
    assert links[1] is links[3]
    assert lanes.shared(OTHER, riders[0]) is not links[0]
    assert len(wire.made) == 3
    assert set(links[0].users) == {riders[0], riders[2]}


def test_a_lane_that_is_lost_is_made_again() -> None:
    lanes, rider = lanes_of(PaperWire(), 10, g=1), Rider("g", 0)
    first = lanes.shared(BROKER, rider)
    first.is_closed = True
    assert lanes.shared(BROKER, rider) is not first


def test_a_connection_is_used_again_by_the_next_round_at_its_broker() -> None:
    wire = PaperWire()
    lanes, one, two = lanes_of(wire, 10, one=1, two=1), Rider("one", 0), Rider("two", 1)
    link = lanes.begin_rebalance(BROKER, one)
    assert link is not None
    lanes.end_rebalance(link, one)
    assert lanes.begin_rebalance(OTHER, two) is not link
    again = lanes.begin_rebalance(BROKER, one)
    assert again is link
    assert list(link.users) == [one]
    assert len(wire.made) == 2


def test_a_connection_that_was_lost_while_it_was_idle_is_not_used_again() -> None:
    lanes, one = lanes_of(PaperWire(), 10, one=1), Rider("one", 0)
    link = lanes.begin_rebalance(BROKER, one)
    assert link is not None
    lanes.end_rebalance(link, one)
    link.is_closed = True
    (user,) = link.users
    user.lost(link, "gone")
    assert lanes.begin_rebalance(BROKER, one) is not link


def test_a_group_waits_until_there_is_room_for_all_of_it() -> None:
    lanes = lanes_of(PaperWire(), 4, one=2, two=3, three=1)
    one, two, three = Rider("one", 0), Rider("two", 1), Rider("three", 2)
    links = [lanes.begin_rebalance(BROKER, rider) for rider in (one, Rider("one", 3))]
    assert None not in links
    assert lanes.begin_rebalance(BROKER, two) is None
    assert lanes.begin_rebalance(BROKER, three) is None  # there is room for it, but others came first
    for link in links:
        assert link is not None
        assert two.admissions == 0
        lanes.end_rebalance(link, one)
    assert (two.admissions, three.admissions) == (1, 1)
    assert lanes.begin_rebalance(BROKER, two) is not None
    assert lanes.begin_rebalance(BROKER, three) is not None
    assert lanes.begin_rebalance(BROKER, one) is None


def test_who_gives_up_waiting_lets_the_next_ones_in() -> None:
    lanes = lanes_of(PaperWire(), 3, one=2, two=3, three=1)
    two, three = Rider("two", 1), Rider("three", 2)
    assert lanes.begin_rebalance(BROKER, Rider("one", 0)) is not None
    assert lanes.begin_rebalance(BROKER, two) is None
    assert lanes.begin_rebalance(BROKER, three) is None
    lanes.stop_waiting(two)
    assert (two.admissions, three.admissions) == (0, 1)


def test_a_group_that_can_never_have_its_round_is_told_of() -> None:
    with pytest.raises(FakebrokerError, match=r"^group 'large' has 5 members, which join over a connection each: "):
        lanes_of(PaperWire(), 4, small=1, large=5)
