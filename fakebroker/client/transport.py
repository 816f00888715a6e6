"""The interface of transports: connections to brokers, and requests over them. Does not depend on sockets or clocks.

There are three implementations: trio's streams (`stream_transport.py`), nonblocking sockets and virtual time (both in
`fakebroker.replay`). A transport enforces the connect timeout. Its users enforce request timeouts by calling
`Transport.fail`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from fakebroker.client.versions import NegotiatedVersions
from fakebroker.errors import ConfigError
from fakebroker.host_port import expected_host_port, parse_host_port
from fakebroker.protocol.schema import Message

Address = tuple[str, int]
"""Host and port."""

DEFAULT_CONNECT_TIMEOUT_MS = 10_000
"""Kafka's default of `socket.connection.setup.timeout.ms`; here it includes version negotiation."""


def addresses(bootstrap_servers: str | Sequence[str], setting: str = "bootstrap_servers") -> list[Address]:
    """Parse Kafka's `bootstrap.servers`; duplicates are removed.

    Args:
        bootstrap_servers: "HOST:PORT", several separated by commas, or a list of them; IPv6 addresses in brackets.
        setting: The setting's name in errors.

    Raises:
        ConfigError: The value is malformed.
    """
    parts = [bootstrap_servers] if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
    found: dict[Address, None] = {}
    for part in ",".join(parts).split(","):
        address = parse_host_port(part.strip())
        if address is None or address[1] == 0:
            expected = expected_host_port(part, "HOST:PORT, or several with commas")
            raise ConfigError.of(setting, ",".join(parts), expected)
        found[address] = None
    return list(found)


class TransportConnection(Protocol):
    """One connection, made by `Transport.connect`.

    Attributes:
        address: Host and port of the broker.
        users: Notified when the connection opens or is lost.
        versions: None until the connection is open.
        is_closed: Whether the connection is closed. Its users may not have been notified yet.
        is_refused: Whether the broker has refused the client, or the client the broker's certificate: connecting again
            would fail, too.
    """

    address: Address
    users: "dict[ConnectionUser, None]"
    versions: NegotiatedVersions | None
    is_closed: bool
    is_refused: bool


class ConnectionUser(Protocol):
    """Sends requests over a connection and receives their responses."""

    def opened(self, connection: Any) -> None:
        """The connection is open: requests can be sent."""

    def answered(self, connection: Any, response: Any) -> None:
        """The oldest pending request of this user was answered; `response` may be shared and must not be changed."""

    def lost(self, connection: Any, why: str) -> None:
        """The connection is closed, or could not be made; pending requests will not be answered."""


class Transport(Protocol):
    """Makes connections and sends requests over them."""

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> TransportConnection:
        """Start to connect; the user is notified when the connection is open, or lost.

        Args:
            address: Host and port.
            user: The first user.
            is_shared: Whether more users will be added, whose requests should be written together.
        """

    def send(
        self, connection: Any, request: Message, version: int, client_id: str, user: ConnectionUser, cache: Any = None
    ) -> None:
        """Send a request; ignored if the connection has been lost.

        Args:
            connection: An open connection.
            request: The request in the layout of its newest version.
            version: The version to send, from the connection's negotiated versions.
            client_id: `client.id` in the request.
            user: Receives the response.
            cache: A `FrameCache` for a request that is sent repeatedly.

        Raises:
            ProtocolError: The version cannot represent the request; nothing was sent.
        """

    def fail(self, connection: Any, why: str) -> None:
        """Close a connection, for example after a request timeout; its users are notified of the loss."""

    def release(self, connection: Any, user: ConnectionUser) -> None:
        """Remove a user and its pending requests from a connection. A connection without users is closed."""
