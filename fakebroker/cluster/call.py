"""One request on its way to its answer: read from a frame, carried through the handlers, kept by the journal.

Knows frames and messages; not what a request means, and no socket.
"""

import struct
from typing import TYPE_CHECKING, Any

from fakebroker.cluster.exchange import Exchange
from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode
from fakebroker.protocol.frames import read_request_header
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.registry import API_BY_KEY, Api
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Broker
    from fakebroker.cluster.faults.rule import Fault

_START = struct.Struct(">hhi")
_MEMO_BYTES = 1024


class Peer:
    """The client at the other end of one connection, as the cluster sees it.

    It remembers the last small request read: a client that repeats itself (heartbeats, polls) is not decoded again.
    That is why nobody may change a request.
    """

    __slots__ = ("broker", "client_host", "connection_id", "memo_call", "memo_head", "memo_tail")

    def __init__(self, broker: "Broker", client_host: str, connection_id: int) -> None:
        self.broker = broker
        self.client_host = client_host
        self.connection_id = connection_id
        self.memo_head = self.memo_tail = b""
        self.memo_call: Call | None = None


class Call(Exchange):
    """One request, and its response once there is one.

    Attributes:
        peer: The connection it came on.
        api: The API asked.
        api_version: The version asked.
        correlation_id: The client's number for it.
        client_id: The client's name for itself, "" where it gives none.
        request: The decoded request; nobody may change it.
        size: The bytes of its frame.
        received_ms: When it came, in milliseconds since the epoch.
        response: The response; None while it is owed, and where none is due (Produce with acks=0).
        response_version: The version it is answered in: that of the request, where that is one we know.
        answered_ms: When its answer was known, None while it is owed.
        answered_after: How many calls had come when it was answered; 0 if it was at once.
        fault: What went wrong with it on purpose; None if nothing did.
        closes_connection: Whether its connection is to be closed, as Kafka does when a Produce with acks=0 fails.
    """

    __slots__ = (
        "answered_after",
        "answered_ms",
        "api",
        "api_version",
        "client_id",
        "closes_connection",
        "correlation_id",
        "fault",
        "peer",
        "received_ms",
        "request",
        "response",
        "response_version",
        "size",
    )

    def __init__(
        self, peer: Peer, api: Api, api_version: int, correlation_id: int, client_id: str, request: Any, size: int
    ) -> None:
        self.peer = peer
        self.api = api
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request = request
        self.size = size
        self.received_ms = 0.0
        self.response: Any = None
        self.response_version = api_version
        self.answered_ms: float | None = None
        self.answered_after = 0
        self.closes_connection = False
        self.fault: Fault | None = None

    @property
    def broker(self) -> "Broker":
        return self.peer.broker

    @property
    def connection_id(self) -> int:
        return self.peer.connection_id

    @property
    def is_supported(self) -> bool:
        """Whether its version is one that its broker answers; only an ApiVersions request gets here with another."""
        return self.api_version in self.peer.broker.versions[self.api.key]

    def __repr__(self) -> str:
        return f"<{self.api.name} v{self.api_version} from {self.client_id!r} at broker {self.broker.node_id}>"


def read_call(peer: Peer, frame: bytes) -> Call:
    """Read a request.

    Args:
        peer: Who sent it.
        frame: Its frame, without the size.

    Raises:
        ProtocolError: The API or its version is unknown, or the frame is malformed. Kafka closes such a connection.
    """
    if len(frame) < 8:
        raise ProtocolError(f"request of {len(frame)} bytes, expected a header of 10 or more")
    api_key, api_version, correlation_id = _START.unpack_from(frame)
    head, tail, last = frame[:4], frame[8:], peer.memo_call
    if last is not None and tail == peer.memo_tail and head == peer.memo_head:
        return Call(peer, last.api, api_version, correlation_id, last.client_id, last.request, len(frame))
    api, versions = API_BY_KEY.get(api_key), peer.broker.versions.get(api_key)
    if api is None or versions is None:
        raise ProtocolError(f"unknown API key {api_key} (version {api_version})")
    is_supported = api_version in versions
    if not is_supported and api.request is not ApiVersionsRequest:
        raise ProtocolError(f"{api.name} version {api_version}, expected {versions}")
    header, position = read_request_header(frame, api_version in api.request.FLEXIBLE)
    request: Message = ApiVersionsRequest()
    if is_supported:
        # As Kafka does: what follows the message is not looked at.
        request = decode(api.request, frame, api_version, position, fills_data=False)
    call = Call(peer, api, api_version, correlation_id, header.client_id or "", request, len(frame))
    if len(frame) <= _MEMO_BYTES:
        peer.memo_head, peer.memo_tail, peer.memo_call = head, tail, call
    return call
