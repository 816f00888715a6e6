"""Ways to a coordinator: a connection of one's own, or lanes, connections that many members share.

A broker answers one connection strictly in order, so a parked JoinGroup or SyncGroup would hold up everybody on its
lane. Those two go over a connection that a member has to itself for one round of its group; such connections are used
again by the next rounds. There are so many of them at most. A group takes all that its members need before the first
one joins, or waits for its turn: if groups took some each, they could wait for one another until their rebalance
timeouts.
"""

from typing import Any, Protocol

from fakebroker.errors import FakebrokerError
from fakebroker.replay.members.bootstrap import Address
from fakebroker.replay.members.link import Link, User
from fakebroker.replay.members.wire import Wire

_MOST_IDLE = 1_000
"""How many unused connections are kept for the rounds to come."""


class Rider(User, Protocol):
    """Who wants to go to a coordinator."""

    group: str
    number: int

    def admitted(self) -> None:
        """Its group may begin its round."""


class Lanes:
    """The shared connections of one loop.

    Args:
        wire: Makes them.
        count: How many lanes there are to each broker.
        most_rounds: How many connections there are for rounds at most, without idle ones.
        group_sizes: How many members each group can have.

    Raises:
        FakebrokerError: A group is larger than that.
    """

    def __init__(self, wire: Wire, count: int, most_rounds: int, group_sizes: dict[str, int]) -> None:
        largest = max(group_sizes, key=lambda group: group_sizes[group], default="")
        if group_sizes.get(largest, 0) > most_rounds:
            raise FakebrokerError(
                f"group {largest!r} has {group_sizes[largest]:,} members, which join over a connection each: "
                f"there can be {most_rounds:,} of those in one task"
            )
        self._wire, self._count, self._group_sizes = wire, count, group_sizes
        self._room = most_rounds
        self._lanes: dict[tuple[Address, int], Link] = {}
        self._inside: dict[str, int] = {}  # groups in a round, and how many of their members are at it
        self._waiting: dict[str, list[Rider]] = {}  # groups that wait for room, in their order
        self._idle: dict[Link, None] = {}

    def lane(self, address: Address, rider: Rider) -> Link:
        """The lane that a rider takes to a broker."""
        key = address, rider.number % self._count
        link = self._lanes.get(key)
        if link is None or link.is_closed:
            link = self._lanes[key] = self._wire.connect(address, rider, is_shared=True)
        link.users[rider] = None
        return link

    def begin_round(self, address: Address, rider: Rider) -> Link | None:
        """A connection for a round; None if the rider's group has to wait: the rider is told when to come again."""
        group = rider.group
        if group not in self._inside:
            if self._waiting or self._group_sizes[group] > self._room:
                self._waiting.setdefault(group, []).append(rider)
                return None
            self._enter(group)
        self._inside[group] += 1
        link = next((idle for idle in self._idle if idle.address == address), None)
        if link is None:
            return self._wire.connect(address, rider)
        del self._idle[link]
        link.users = {rider: None}
        return link

    def end_round(self, link: Link, rider: Rider) -> None:
        """A rider is through, or has given up."""
        if link.is_closed or link.spoken is None or link.is_owed() or len(self._idle) >= _MOST_IDLE:
            self._wire.let_go(link, rider)
        else:
            link.users = {self: None}
            self._idle[link] = None
        self._inside[rider.group] -= 1
        if not self._inside[rider.group]:
            del self._inside[rider.group]
            self._room += self._group_sizes[rider.group]
            self._admit()

    def wait_no_more(self, rider: Rider) -> None:
        """A rider whose group waits for its round has given up."""
        riders = self._waiting[rider.group]
        riders.remove(rider)
        if not riders:
            del self._waiting[rider.group]
            self._admit()

    def opened(self, link: Link) -> None:
        """An idle connection has opened before."""

    def answered(self, link: Link, response: Any) -> None:
        """An idle connection is owed nothing."""

    def lost(self, link: Link, why: str) -> None:
        del self._idle[link]

    def _admit(self) -> None:
        while self._waiting:
            group = next(iter(self._waiting))
            if self._group_sizes[group] > self._room:
                return
            riders = self._waiting.pop(group)
            self._enter(group)
            for rider in riders:
                rider.admitted()

    def _enter(self, group: str) -> None:
        self._inside[group] = 0
        self._room -= self._group_sizes[group]
