"""`Wire` in virtual time, as far as look-ups and loads use it: links whose requests go through the simulated network.

Knows links and their users; not what they ask.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call
from fakebroker.protocol.schema import Message
from fakebroker.replay.members.bootstrap import Address
from fakebroker.replay.members.link import Link, User
from fakebroker.replay.simulation.terminal import Network, Terminal
from fakebroker.replay.simulation.virtual_time import REACH, Agenda


class _LinkEnd(Terminal):
    """The client's end of a link."""

    __slots__ = ("_wire", "link", "users")

    def __init__(self, broker: BrokerNode, number: int, wire: "VirtualWire", link: Link) -> None:
        super().__init__(broker, number)
        self._wire = wire
        self.link = link
        self.users: deque[User] = deque()  # Of the requests that are not answered, in their order.

    def opened(self) -> None:
        self.link.spoken = self.spoken
        for user in self.link.users:
            user.opened(self.link)
        self._wire.turn()

    def reached(self, call: Call, response: Any) -> None:
        self.users.popleft().answered(self.link, response)
        self._wire.turn()

    def cut(self) -> None:
        self.link.is_closed = True
        for user in list(self.link.users):
            user.lost(self.link, "the broker has closed it")
        self._wire.turn()


class VirtualWire:
    """Links in virtual time.

    Args:
        anybody: A broker, for links that are not connected yet.
        numbers: For terminals.
    """

    def __init__(self, network: Network, agenda: Agenda, anybody: BrokerNode, numbers: Iterator[int]) -> None:
        self._network, self._agenda, self._anybody, self._numbers = network, agenda, anybody, numbers
        self._ends: dict[Link, _LinkEnd] = {}

    def turn(self) -> None:
        """Is called when users of links may want something. To be replaced."""

    def connect(self, address: Address, user: User, *, is_shared: bool = False) -> Link:
        """A connection that is being made; the user is told when it is open, or lost."""
        link = Link(address, user, is_shared=is_shared)
        end = self._ends[link] = _LinkEnd(self._anybody, next(self._numbers), self, link)
        self._network.terminals.append(end)
        self._network.connect(end, address[1], self._agenda.clock.moment_ms)
        return link

    def send(self, link: Link, request: Message, version: int, client_id: str, user: User, memo: object = None) -> None:
        """Send a request over an open link."""
        end = self._ends[link]
        if end.is_open:
            end.users.append(user)
            self._network.send(self._network.call(end, request, version, client_id), self._agenda.clock.moment_ms)

    def lose(self, link: Link, why: str) -> None:
        """Give a link up; its users are told."""
        end = self._ends[link]
        end.hang_up()
        self._agenda.note(self._agenda.clock.moment_ms, REACH, end.number, end.cut)
