"""Connections to the brokers of one cluster, opened when they are first needed (trio).

Knows where brokers are, as far as it was told; nothing of what is asked of them. It never asks by itself.
"""

from collections.abc import Sequence

import trio

from fakebroker.client.connection import DEFAULT_CONNECT_TIMEOUT_MS, BrokerUnreachable, Connection
from fakebroker.errors import ConfigError

Address = tuple[str, int]
"""Host and port."""


def addresses(bootstrap_servers: str | Sequence[str], setting: str = "bootstrap_servers") -> list[Address]:
    """The addresses in Kafka's `bootstrap.servers`; each counts once.

    Args:
        bootstrap_servers: HOST:PORT, or several with commas, or a list of such; IPv6 addresses stand in brackets.
        setting: What an error calls it.

    Raises:
        ConfigError: It is none of that.
    """
    parts = [bootstrap_servers] if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
    found: dict[Address, None] = {}
    for part in ",".join(parts).split(","):
        host, _, port = part.strip().rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f"{setting} {','.join(parts)}: expected HOST:PORT, or several with commas")
        found[host.strip("[]"), int(port)] = None
    return list(found)


class BrokerPool:
    """Connections to the brokers of one cluster, opened on first use, by node id.

    A broker's first connection, the one on the lane "", is shared with whoever asks for any broker.

    Args:
        bootstrap_servers: Where to begin; see `addresses`.
        client_id: What the brokers are told in each request.
        nursery: Where the connections are read.
        connect_timeout_ms: How long connecting to one broker may take.

    Raises:
        ConfigError: `bootstrap_servers` is no HOST:PORT.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        client_id: str,
        nursery: trio.Nursery,
        *,
        connect_timeout_ms: float = DEFAULT_CONNECT_TIMEOUT_MS,
    ) -> None:
        self._bootstrap = addresses(bootstrap_servers)
        self._client_id, self._nursery = client_id, nursery
        self._connect_timeout_ms = connect_timeout_ms
        self._known: dict[int, Address] = {}
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._opening: dict[tuple[Address, str], trio.Lock] = {}

    async def any(self) -> Connection:
        """A connection to some broker: the first that there is, else one to the first broker that answers.

        Known ones come before bootstrap ones, and those that a connection to was lost after the others.

        Raises:
            BrokerUnreachable: None answers; it says why each does not.
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
        """The connection to a broker; a lost one is opened anew.

        Args:
            node_id: The broker; where it is must have been learned.
            lane: Each has a connection of its own, so that what waits on one holds up nothing on another.

        Raises:
            BrokerUnreachable: It does not answer, or it is not known where it is.
        """
        if node_id not in self._known:
            raise BrokerUnreachable(f"broker {node_id}", "it is not known where it is")
        return await self._connected(self._known[node_id], lane)

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Take note of where a broker is; connections to where it was before are closed."""
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
                    *address, self._client_id, self._nursery, connect_timeout_ms=self._connect_timeout_ms
                )
                self._connections[address, lane] = connection
            return connection
