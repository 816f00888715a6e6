"""A blocking Kafka client: sends single requests over a socket and reads their responses, or the bytes of frames."""

import socket
import ssl
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TypeVar

from fakebroker import FakeCluster
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.frames import read_response, request_frame
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message

M = TypeVar("M", bound=Message)

TIMEOUT_S = 20
"""Maximum wait for something that must happen; reached only if a test fails."""


class Address(Protocol):
    """Where a broker listens."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class WireClient:
    """One connection to a broker. A context manager that closes it.

    Args:
        broker: The broker.
        client_id: Client id in the header of requests.
        tls: What the client trusts, and its certificate, if the connection is encrypted.
        host: The address of the client; "" for any.
    """

    def __init__(
        self, broker: Address, client_id: str = "wire", tls: ssl.SSLContext | None = None, host: str = ""
    ) -> None:
        self.socket = socket.create_connection(
            (broker.host, broker.port), timeout=TIMEOUT_S, source_address=(host, 0) if host else None
        )
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=broker.host)
        self.client_id = client_id
        self._next_correlation_id = 0
        self._pending: list[tuple[int, type[Message], int]] = []  # correlation id, response, version

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, request: Message, version: int | None = None) -> None:
        """Send a request without waiting for the response; the newest version by default."""
        api = api_of(request)
        version = api.versions.last if version is None else version
        self._next_correlation_id += 1
        self._pending.append((self._next_correlation_id, api.response, version))
        self.socket.sendall(self.frame(request, version, self._next_correlation_id))

    def frame(self, request: Message, version: int, correlation_id: int) -> bytes:
        """Return the bytes of a request, with their size. Subclasses may change them."""
        return request_frame(request, version, correlation_id, self.client_id)

    def receive(self) -> Message:
        """Return the next response, which must belong to the oldest pending request."""
        correlation_id, response, version = self._pending.pop(0)
        received_id, message = read_response(response, version, self.receive_frame())
        assert received_id == correlation_id
        return message

    def ask(self, request: Message, kind: type[M], version: int | None = None) -> M:
        """Send a request and return its response, which must be of a type."""
        self.send(request, version)
        message = self.receive()
        assert isinstance(message, kind)
        return message

    def receive_frame(self) -> bytes:
        """Return the bytes of the next frame, without its size."""
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def is_closed_by_broker(self) -> bool:
        """Wait until the broker closes the connection; return False if it sends bytes instead."""
        try:
            return self.socket.recv(1) == b""
        except (ConnectionResetError, ssl.SSLError):  # An alert of TLS closes the connection.
            return True

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)


def until(holds: Callable[[], bool], cluster: FakeCluster) -> None:
    """Poll until a predicate holds. Each poll waits for one call in the cluster's thread instead of sleeping."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, cluster.report()
        cluster.groups()


def broker_of(cluster: FakeCluster, node_id: int) -> BrokerView:
    """Return the broker with a node id."""
    return next(broker for broker in cluster.brokers if broker.node_id == node_id)


def find_coordinator(key: str) -> FindCoordinatorRequest:
    """Return the request for the coordinator of a group."""
    return FindCoordinatorRequest(coordinator_keys=[key])
