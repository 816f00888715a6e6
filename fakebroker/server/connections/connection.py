"""One client connection: its socket, queued requests, the pending request, and unsent responses."""

import ipaddress
import socket
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.listeners import Listener
from fakebroker.cluster.request_secrets import NO_SECRETS
from fakebroker.protocol.frames import FrameBuffer

if TYPE_CHECKING:  # Few clusters need it.
    from fakebroker.cluster.authentication import Authentication
    from fakebroker.server.tls.tls_listener import TlsListener
    from fakebroker.server.tls.tls_socket import TlsSocket


def client_host(address: str) -> str:
    """Return the address of a client as Java's `InetAddress.toString`, such as "/127.0.0.1" or "/0:0:0:0:0:0:0:1"."""
    if ":" not in address:
        return f"/{address}"
    ip, percent, scope = address.partition("%")
    found = ipaddress.IPv6Address(ip)
    if found.ipv4_mapped is not None:  # A client with IPv4, on a socket for both.
        return f"/{found.ipv4_mapped}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in found.exploded.split(":")) + percent + scope


class Blocked(Enum):
    """Why requests of a connection are not handled although no response is pending: network faults and quotas.

    `NetworkFaults` sets these values, also after a failed authentication; the reactor sets THROTTLED and HANGING_UP for
    quotas. The reactor clears NOT_ACCEPTED and THROTTLED when their delay has passed. HALF_OPEN and HANGING_UP remain
    until the connection is closed.
    """

    NOT_ACCEPTED = auto()
    HALF_OPEN = auto()
    THROTTLED = auto()
    HANGING_UP = auto()


UnsentResponse = tuple[str, float, int]
"""A response whose wire time is measured: the API, when the request was read in real time, and how many bytes of it the
socket has not accepted yet. A tuple, because there is one per heartbeat.
"""


class Connection(Peer):
    """One client connection.

    Attributes:
        socket: The socket, non-blocking.
        tls: The same socket, if connections are encrypted; otherwise None.
        authentication: The authentication that the client has to complete before its requests are handled; None if
            there is none, or it is completed.
        frames: Splits the received bytes into frames.
        queued: Frames that wait for the response to an earlier one: Kafka handles a connection's requests in order.
        pending: The call whose response is pending, or why the connection is blocked; None if the next queued request
            can be handled.
        unsent: Bytes of responses that the socket has not accepted yet.
        read_ms: When the last request was read, or taken from `queued`: real time, in milliseconds since the epoch.
        unsent_responses: The responses in `unsent` whose wire times are measured.
        is_dirty: Whether it is in the reactor's list of connections with new bytes to send.
        is_resumable: Whether it is in the reactor's list of connections whose queued frames can be handled.
        is_closed: Whether it has been closed.
        interest: The readiness flags that the poller watches for.
        active_ms: When it was opened, or bytes of an incomplete request or response were last read or sent: real time.
    """

    __slots__ = (
        "active_ms",
        "authentication",
        "frames",
        "interest",
        "is_closed",
        "is_dirty",
        "is_resumable",
        "pending",
        "queued",
        "read_ms",
        "socket",
        "tls",
        "unsent",
        "unsent_responses",
    )

    def __init__(
        self, sock: socket.socket, broker: BrokerNode, listener: Listener, connection_id: int, max_request_bytes: int
    ) -> None:
        super().__init__(broker, client_host(sock.getpeername()[0]), connection_id, listener)
        self.socket: socket.socket | TlsSocket = sock
        self.tls: TlsSocket | None = None
        self.authentication: Authentication | None = None
        self.frames = FrameBuffer(max_request_bytes)
        self.queued: deque[bytes] = deque()
        self.pending: Call | Blocked | None = None
        self.unsent = bytearray()
        self.read_ms = 0.0
        self.unsent_responses: list[UnsentResponse] = []
        self.is_dirty = False
        self.is_resumable = False
        self.is_closed = False
        self.interest = 0
        self.active_ms = 0.0

    def start_tls(self, listener: "TlsListener", on_unsent: Callable[[], None]) -> None:
        """Encrypt it from the first byte on. The principal is set when the handshake is complete, unless SASL sets it.

        Args:
            listener: Makes the encrypted socket.
            on_unsent: See `TlsSocket`.
        """

        def set_principal(certificate: bytes | None) -> None:
            if not self.listener.has_sasl:
                self.principal = listener.principal_of(certificate)

        assert isinstance(self.socket, socket.socket)
        self.socket = self.tls = listener.encrypted(self.socket, set_principal, on_unsent)

    def close_socket(self) -> None:
        """Close the socket, and drop what TLS needs: the journal's calls still refer to the connection."""
        self.socket.close()
        if self.tls is not None:
            self.socket, self.tls = self.tls.raw, None

    def release_memory(self) -> None:
        """Drop received and unsent bytes when it is closed: the journal's calls still refer to it."""
        self.memo_call = self.last_dropped = self.authentication = None
        self.memo_head = self.memo_tail = b""
        self.secrets = NO_SECRETS
        self.frames = FrameBuffer(self.frames.max_bytes)
        self.queued.clear()
        self.unsent = bytearray()
        self.unsent_responses.clear()

    def __repr__(self) -> str:
        return f"connection {self.connection_id} from {self.client_host[1:]} to broker {self.broker.node_id}"
