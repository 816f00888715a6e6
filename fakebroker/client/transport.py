"""The interface of transports: connections to brokers, and requests over them. Does not depend on sockets or clocks.

There are three: trio's streams (`stream_transport.py`), nonblocking sockets behind a poller, and virtual time (both in
`fakebroker.replay`). A transport enforces the deadline of connecting; deadlines of requests are up to users, which call
`Transport.fail` when one has passed.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from fakebroker.client.versions import NegotiatedVersions
from fakebroker.errors import ConfigError
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
        host, _, port = part.strip().rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError.of(setting, ",".join(parts), "HOST:PORT, or several with commas")
        found[host.strip("[]"), int(port)] = None
    return list(found)


class TransportConnection(Protocol):
    """One connection, made by `Transport.connect`.

    Attributes:
        address: Host and port of the broker.
        users: Notified when the connection opens or is lost.
        versions: None until the connection is open.
        is_closed: Whether the connection is over. Its users may not be notified yet.
    """

    address: Address
    users: "dict[ConnectionUser, None]"
    versions: NegotiatedVersions | None
    is_closed: bool


class ConnectionUser(Protocol):
    """Sends requests over a connection and receives their responses."""

    def opened(self, connection: Any) -> None:
        """Requests can be sent from now on."""

    def answered(self, connection: Any, response: Any) -> None:
        """The oldest pending request of this user was answered; `response` may be shared and must not be changed."""

    def lost(self, connection: Any, why: str) -> None:
        """The connection is closed, or could not be made; pending requests will not be answered."""


class Transport(Protocol):
    """Makes connections and sends requests over them."""

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> TransportConnection:
        """Begin to make a connection; the user is notified when it is open, or lost.

        Args:
            address: Host and port.
            user: The first user.
            is_shared: Whether there will be more, whose requests are to be written together.
        """

    def send(
        self, connection: Any, request: Message, version: int, client_id: str, user: ConnectionUser, cache: Any = None
    ) -> None:
        """Send a request over an open connection, if it is not lost meanwhile.

        Args:
            connection: The connection.
            request: In its newest shape.
            version: As the negotiated versions say.
            client_id: `client.id` of the request.
            user: Receives the response.
            cache: A `FrameCache` for a request that is sent repeatedly.

        Raises:
            ProtocolError: The version cannot carry the request; nothing was sent.
        """

    def fail(self, connection: Any, why: str) -> None:
        """Close a connection as lost, such as after a deadline; its users are notified."""

    def release(self, connection: Any, user: ConnectionUser) -> None:
        """Remove a user of a connection, with its pending requests. Without users the connection is closed."""
