"""Connections in virtual time. Requests and responses stay messages: encoding is most of the cost of a real one."""

from collections.abc import Callable
from typing import Any

from fakebroker.client.transport import Address, ConnectionUser
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.network import Network, VirtualConnection
from fakebroker.replay.simulation.scheduler import LATENCY_MS, RESPONSE, Scheduler


class VirtualTransport:
    """Connections in virtual time, each with one user; a `Transport`.

    Args:
        network: The way to the brokers.
        scheduler: The time.
        number_of: Returns the number of a new connection of a user, which orders its calls at the same time.
        after_call: Called after a user was called.
    """

    def __init__(
        self,
        network: Network,
        scheduler: Scheduler,
        number_of: Callable[[Any], int],
        after_call: Callable[[], None] | None = None,
    ) -> None:
        self._network, self._scheduler, self._clock = network, scheduler, scheduler.clock
        self._number_of, self._after_call = number_of, after_call

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> VirtualConnection:
        """Begin to make a connection; the user is notified when it is open, or lost."""
        connection = VirtualConnection(self._network.any_broker, address, user, self._number_of(user), self._after_call)
        self._network.connect(connection, self._clock.moment_ms)
        return connection

    def send(
        self,
        connection: VirtualConnection,
        request: Message,
        version: int,
        client_id: str,
        user: ConnectionUser,
        cache: object = None,
    ) -> None:
        """Send a request over an open connection, if it is not lost meanwhile."""
        if connection.is_closed:
            return
        network, now_ms = self._network, self._clock.moment_ms
        connection.pending.append(user)
        call = network.call(connection, request, version, client_id)
        if connection.known_response is not None:
            response, connection.known_response = connection.known_response, None
            network.send_response(call, response, now_ms + LATENCY_MS)
        elif type(request) is OffsetCommitRequest and network.is_alone_until(
            connection, now_ms, now_ms + 2 * LATENCY_MS
        ):
            network.send_response(call, network.handle_at_once(call, now_ms + LATENCY_MS), now_ms + LATENCY_MS)
        else:
            network.send(call, now_ms)

    def fail(self, connection: VirtualConnection, why: str) -> None:
        """Close a connection as lost; its users are notified."""
        self._network.abandon(connection)
        self._scheduler.schedule(self._clock.moment_ms, RESPONSE, connection.number, connection.lost, why)

    def release(self, connection: VirtualConnection, user: ConnectionUser) -> None:
        """Close a connection: responses that are under way do not arrive."""
        connection.users.pop(user, None)
        self._network.abandon(connection)
