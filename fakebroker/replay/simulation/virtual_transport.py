"""A `Transport` in virtual time, for look-ups and loads: their requests go through the simulated network."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from fakebroker.client.broker_connection import BrokerConnection
from fakebroker.client.transport import Address, ConnectionUser
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.network import ClientEnd, Network
from fakebroker.replay.simulation.scheduler import RESPONSE, Scheduler


class _ConnectionEnd(ClientEnd):
    """The client's end of one connection."""

    __slots__ = ("_after_call", "connection", "users")

    def __init__(
        self, broker: BrokerNode, number: int, connection: BrokerConnection, after_call: Callable[[], None]
    ) -> None:
        super().__init__(broker, number)
        self._after_call = after_call
        self.connection = connection
        self.users: deque[ConnectionUser] = deque()  # Of pending requests, in their order.

    def opened(self) -> None:
        self.connection.versions = self.versions
        for user in self.connection.users:
            user.opened(self.connection)
        self._after_call()

    def answered(self, call: Call, response: Any) -> None:
        self.users.popleft().answered(self.connection, response)
        self._after_call()

    def lost(self) -> None:
        self.connection.is_closed = True
        for user in list(self.connection.users):
            user.lost(self.connection, "the broker has closed it")
        self._after_call()


class VirtualTransport:
    """Connections in virtual time.

    Args:
        network: The simulated network.
        scheduler: The time.
        any_broker: For connections that are not open yet.
        numbers: Numbers of clients.
        after_call: Called after users were called, which may have more to send then.
    """

    def __init__(
        self,
        network: Network,
        scheduler: Scheduler,
        any_broker: BrokerNode,
        numbers: Iterator[int],
        after_call: Callable[[], None],
    ) -> None:
        self._network, self._scheduler, self._any_broker = network, scheduler, any_broker
        self._numbers, self._after_call = numbers, after_call
        self._ends: dict[BrokerConnection, _ConnectionEnd] = {}

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> BrokerConnection:
        """Begin to make a connection; the user is notified when it is open, or lost."""
        connection = BrokerConnection(address, user, is_shared=is_shared)
        end = _ConnectionEnd(self._any_broker, next(self._numbers), connection, self._after_call)
        self._ends[connection] = end
        self._network.clients.append(end)
        self._network.connect(end, address[1], self._scheduler.clock.moment_ms)
        return connection

    def send(
        self,
        connection: BrokerConnection,
        request: Message,
        version: int,
        client_id: str,
        user: ConnectionUser,
        cache: object = None,
    ) -> None:
        """Send a request over an open connection."""
        end = self._ends[connection]
        if end.is_open:
            end.users.append(user)
            self._network.send(self._network.call(end, request, version, client_id), self._scheduler.clock.moment_ms)

    def release(self, connection: BrokerConnection, user: ConnectionUser) -> None: ...

    def fail(self, connection: BrokerConnection, why: str) -> None:
        """Close a connection as lost; its users are notified."""
        end = self._ends[connection]
        end.disconnect()
        self._scheduler.schedule(self._scheduler.clock.moment_ms, RESPONSE, end.number, end.lost)
