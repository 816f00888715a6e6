"""A transport in virtual time. Messages are not encoded, because encoding would be most of the cost of a request."""

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
        network: Sends requests to the brokers.
        scheduler: The scheduler of the simulation.
        number_of: Returns the number of a user's new connection, which orders calls of the same time and kind.
        after_call: Called after each call of a user.
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
        """Start to connect; the user is notified when the connection is open, or lost."""
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
        """Send a request over an open connection; no effect on a closed one, whose user is notified of the loss."""
        if connection.is_closed:
            return
        network, now_ms = self._network, self._clock.moment_ms
        connection.pending.append(user)
        call = network.call(connection, request, version, client_id)
        if type(request) is OffsetCommitRequest and network.can_commit_at_once(
            connection, now_ms, now_ms + 2 * LATENCY_MS
        ):
            network.send_response(call, network.commit_at_once(call, now_ms + LATENCY_MS), now_ms + LATENCY_MS)
        else:
            network.send(call, now_ms)

    def fail(self, connection: VirtualConnection, why: str) -> None:
        """Close a connection; its user is notified of the loss."""
        self._network.abandon(connection)
        self._scheduler.schedule(self._clock.moment_ms, RESPONSE, connection.number, connection.lost, why)

    def release(self, connection: VirtualConnection, user: ConnectionUser) -> None:
        """Remove the user and close the connection: responses in flight do not arrive."""
        connection.users.pop(user, None)
        self._network.abandon(connection)
