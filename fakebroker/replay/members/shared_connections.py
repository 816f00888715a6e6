"""Connections that many members share (`--lanes`), and separate ones for their JoinGroup and SyncGroup requests.

A broker answers the requests of a connection in order, so a JoinGroup that waits for a rebalance would delay all other
members on a shared connection. Therefore a member sends JoinGroup and SyncGroup over a separate connection, which later
rebalances reuse. The number of separate connections is limited. Two groups would wait for each other forever if each
had only some of the connections that it needs. Therefore a group reserves connections for all its members before the
first member joins. If there are too few, the group waits.
"""

from typing import Any, Protocol

from fakebroker.client.transport import Address
from fakebroker.errors import FakebrokerError
from fakebroker.replay.members.sockets import SocketConnection, SocketTransport

_MAX_IDLE = 1_000
"""Maximum number of unused separate connections that are kept for later rebalances."""


class SharingMember(Protocol):
    """A member that uses shared connections: a `ConnectionUser` with a group.

    Attributes:
        group: Group id.
        number: Index among the members of the task; selects the shared connection.
    """

    group: str
    number: int

    def admitted(self) -> None:
        """Continue after waiting: the group's connections are reserved, and `begin_rebalance` will return one."""

    def opened(self, connection: SocketConnection) -> None: ...

    def answered(self, connection: SocketConnection, response: Any) -> None: ...

    def lost(self, connection: SocketConnection, why: str) -> None: ...


class SharedConnections:
    """The shared and separate connections of one loop.

    Args:
        transport: Makes connections.
        count: Number of shared connections to each broker.
        max_rebalance_connections: Limit of separate connections, idle ones excluded.
        group_sizes: Number of members by group.

    Raises:
        FakebrokerError: A group is larger than the limit.
    """

    def __init__(
        self, transport: SocketTransport, count: int, max_rebalance_connections: int, group_sizes: dict[str, int]
    ) -> None:
        largest = max(group_sizes, key=lambda group: group_sizes[group], default="")
        if group_sizes.get(largest, 0) > max_rebalance_connections:
            raise FakebrokerError(
                f"group {largest!r} has {group_sizes[largest]:,} members: with --lanes, expected at most "
                f"{max_rebalance_connections:,}, because each member joins over a separate connection"
            )
        self._transport, self._count, self._group_sizes = transport, count, group_sizes
        self._free = max_rebalance_connections
        self._shared: dict[tuple[Address, int], SocketConnection] = {}
        self._rebalancing: dict[str, int] = {}  # Groups with a reservation, and how many of its connections are used.
        self._waiting: dict[str, list[SharingMember]] = {}  # Groups that wait for a reservation, in order of arrival.
        self._idle: dict[SocketConnection, None] = {}

    def shared(self, address: Address, member: SharingMember) -> SocketConnection:
        """Return the shared connection of a member to a broker, a new one if needed."""
        key = address, member.number % self._count
        connection = self._shared.get(key)
        if connection is None or connection.is_closed:
            connection = self._shared[key] = self._transport.connect(address, member, is_shared=True)
        connection.users[member] = None
        return connection

    def begin_rebalance(self, address: Address, member: SharingMember) -> SocketConnection | None:
        """Return a separate connection for a rebalance, idle or new.

        Returns:
            None if the group has to wait for a reservation; `admitted` is called when it has one.
        """
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
        """Give back the separate connection of a member that has its assignment, or no longer tries to join."""
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
        """Remove a member that no longer tries to join from its waiting group."""
        members = self._waiting[member.group]
        members.remove(member)
        if not members:
            del self._waiting[member.group]
            self._admit()

    # ConnectionUser, of idle connections

    def opened(self, connection: SocketConnection) -> None:
        """Never called: an idle connection is open already."""

    def answered(self, connection: SocketConnection, response: Any) -> None:
        """Never called: an idle connection has no pending requests."""

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
