"""Connections to the brokers of one cluster, opened on first use (trio)."""

from collections.abc import Sequence

import trio

from fakebroker.client.connection import Connection
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.client.transport import DEFAULT_CONNECT_TIMEOUT_MS, Address, addresses
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.errors import FakebrokerError


def check_in_trio(client: str) -> None:
    """Check that a client is opened in a trio loop, because its connections are trio tasks.

    Args:
        client: The client, for the error message.

    Raises:
        FakebrokerError: It is opened under asyncio, or outside of a loop.
    """
    if not trio.lowlevel.in_trio_run():
        raise FakebrokerError(f"{client} was opened outside of trio: expected a loop of trio.run, not one of asyncio")


class BrokerPool:
    """Connections to the brokers of one cluster, opened on first use, by node id.

    A broker has one connection per lane, so that parked requests of one lane do not delay those of another.
    The default lane is "". Requests that any broker can answer use a connection of this lane.

    Args:
        bootstrap_servers: The brokers known initially; see `transport.addresses`.
        client_id: The client id in each request.
        nursery: Runs the connections' tasks; when it is cancelled, the connections are closed.
        connect_timeout_ms: Maximum duration of connecting to one broker.
        security: How connections are encrypted and authenticated; None for neither.

    Raises:
        ConfigError: `bootstrap_servers` is malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        client_id: str,
        nursery: trio.Nursery,
        *,
        connect_timeout_ms: float = DEFAULT_CONNECT_TIMEOUT_MS,
        security: TransportSecurity | None = None,
    ) -> None:
        self._bootstrap = addresses(bootstrap_servers)
        self._client_id, self._nursery = client_id, nursery
        self._connect_timeout_ms, self._security = connect_timeout_ms, security
        self._known: dict[int, Address] = {}
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._opening: dict[tuple[Address, str], trio.Lock] = {}

    async def any(self) -> Connection:
        """Return the first open connection, or a new one to the first broker that can be reached.

        Known brokers are tried before bootstrap servers. Brokers whose connection was lost are tried last.

        Raises:
            BrokerUnreachable: No broker can be reached; the message contains the reason for each.
            AuthenticationFailed: A broker has refused this client; no further one is tried.
        """
        for (_, lane), connection in self._connections.items():
            if not (lane or connection.is_lost):
                return connection
        candidates = list(dict.fromkeys([*self._known.values(), *self._bootstrap]))
        candidates.sort(key=lambda address: (address, "") in self._connections)
        reasons = []
        for address in candidates:
            try:
                return await self._connected(address, "")
            except BrokerUnreachable as error:
                reasons.append(error)
        raise reasons[0] if len(reasons) == 1 else BrokerUnreachable.of_all(reasons)

    async def to(self, node_id: int, *, lane: str = "") -> Connection:
        """Return the connection to a broker; a lost one is reopened.

        Args:
            node_id: The broker, whose address was passed to `learn`.
            lane: Name of the lane.

        Raises:
            BrokerUnreachable: The broker cannot be reached, or its address is unknown.
            AuthenticationFailed: It has refused this client.
        """
        if node_id not in self._known:
            raise BrokerUnreachable(f"broker {node_id}", "its address is unknown")
        return await self._connected(self._known[node_id], lane)

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Set the address of a broker.

        Connections to its previous address are closed, unless another known broker has this address.
        """
        before, now = self._known.get(node_id), (host, port)
        self._known[node_id] = now
        if before is not None and before != now and before not in self._known.values():
            for key in [key for key in self._connections if key[0] == before]:
                self._nursery.start_soon(self._connections.pop(key).aclose)

    async def aclose(self) -> None:
        """Close all connections."""
        while self._connections:
            await self._connections.popitem()[1].aclose()

    async def _connected(self, address: Address, lane: str) -> Connection:
        async with self._opening.setdefault((address, lane), trio.Lock()):
            connection = self._connections.get((address, lane))
            if connection is None or connection.is_lost:
                connection = await Connection.open(
                    *address,
                    self._client_id,
                    self._nursery,
                    connect_timeout_ms=self._connect_timeout_ms,
                    security=self._security,
                )
                self._connections[address, lane] = connection
            return connection
