"""Connections that many members share (`--lanes`), and connections of their own for JoinGroup and SyncGroup.

A broker answers one connection strictly in order, so a JoinGroup or SyncGroup that it holds back would delay all other
members on the shared connection. Those two requests go over a connection that the member has to itself during one
rebalance; such connections are reused by later rebalances. Their number is limited. A group reserves all that its
members need before the first one joins, or waits until they are free: groups that reserved some each could wait for
one another until their rebalance timeouts.
"""

from typing import Any, Protocol

from fakebroker.client.transport import Address
from fakebroker.errors import FakebrokerError
from fakebroker.replay.members.sockets import SocketConnection, SocketTransport

_MAX_IDLE = 1_000
"""How many unused connections are kept for later rebalances."""


class SharingMember(Protocol):
    """A member that uses shared connections: a `ConnectionUser` of a group.

    Attributes:
        group: Group id.
        number: Among the members of the task; chooses the shared connection.
    """

    group: str
    number: int

    def admitted(self) -> None:
        """Connections for the group's rebalance are reserved."""

    def opened(self, connection: SocketConnection) -> None: ...

    def answered(self, connection: SocketConnection, response: Any) -> None: ...

    def lost(self, connection: SocketConnection, why: str) -> None: ...


class SharedConnections:
    """The shared connections of one loop.

    Args:
        transport: Makes them.
        count: How many shared connections there are to each broker.
        max_rebalance_connections: Limit of connections for rebalances, without idle ones.
        group_sizes: How many members each group can have.

    Raises:
        FakebrokerError: A group is larger than the limit.
    """

    def __init__(
        self, transport: SocketTransport, count: int, max_rebalance_connections: int, group_sizes: dict[str, int]
    ) -> None:
        largest = max(group_sizes, key=lambda group: group_sizes[group], default="")
        if group_sizes.get(largest, 0) > max_rebalance_connections:
            raise FakebrokerError(
                f"group {largest!r} has {group_sizes[largest]:,} members, which join over a connection each: "
                f"there can be {max_rebalance_connections:,} of those in one task"
            )
        self._transport, self._count, self._group_sizes = transport, count, group_sizes
        self._free = max_rebalance_connections
        self._shared: dict[tuple[Address, int], SocketConnection] = {}
        self._rebalancing: dict[str, int] = {}  # Groups with reserved connections, and how many members use theirs.
        self._waiting: dict[str, list[SharingMember]] = {}  # Groups that wait for connections, in their order.
        self._idle: dict[SocketConnection, None] = {}

    def shared(self, address: Address, member: SharingMember) -> SocketConnection:
        """Return the shared connection of a member to a broker."""
        key = address, member.number % self._count
        connection = self._shared.get(key)
        if connection is None or connection.is_closed:
            connection = self._shared[key] = self._transport.connect(address, member, is_shared=True)
        connection.users[member] = None
        return connection

    def begin_rebalance(self, address: Address, member: SharingMember) -> SocketConnection | None:
        """Return a connection for a rebalance; None if the group has to wait, and the member will be `admitted`."""
        group = member.group
        if group not in self._rebalancing:
            if self._waiting or self._group_sizes[group] > self._free:
                self._waiting.setdefault(group, []).append(member)
                return None
            self._reserve(group)
        self._rebalancing[group] += 1
        connection = next((idle for idle in self._idle if idle.address == address), None)
        if connection is None:
            return self._transport.connect(address, member)
        del self._idle[connection]
        connection.users = {member: None}
        return connection

    def end_rebalance(self, connection: SocketConnection, member: SharingMember) -> None:
        """Return the connection of a member that has its assignment, or has given up."""
        is_reusable = not (connection.is_closed or connection.versions is None or connection.has_pending())
        if is_reusable and len(self._idle) < _MAX_IDLE:
            connection.users = {self: None}
            self._idle[connection] = None
        else:
            self._transport.release(connection, member)
        self._rebalancing[member.group] -= 1
        if not self._rebalancing[member.group]:
            del self._rebalancing[member.group]
            self._free += self._group_sizes[member.group]
            self._admit()

    def stop_waiting(self, member: SharingMember) -> None:
        """Remove a member that gave up while its group waits."""
        members = self._waiting[member.group]
        members.remove(member)
        if not members:
            del self._waiting[member.group]
            self._admit()

    # As the user of idle connections

    def opened(self, connection: SocketConnection) -> None:
        """Not called: an idle connection was open before."""

    def answered(self, connection: SocketConnection, response: Any) -> None:
        """Not called: an idle connection has no pending requests."""

    def lost(self, connection: SocketConnection, why: str) -> None:
        del self._idle[connection]

    def _admit(self) -> None:
        while self._waiting:
            group = next(iter(self._waiting))
            if self._group_sizes[group] > self._free:
                return
            members = self._waiting.pop(group)
            self._reserve(group)
            for member in members:
                member.admitted()

    def _reserve(self, group: str) -> None:
        self._rebalancing[group] = 0
        self._free -= self._group_sizes[group]
