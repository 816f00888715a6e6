"""A blocking client for tests that want to see bytes: one socket, one frame at a time."""

import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from fakebroker import FakeCluster
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.frames import read_response, request_frame
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message

M = TypeVar("M", bound=Message)

TIMEOUT_S = 20
"""How long a test waits for what must come; only a broken server makes it wait."""


class WireClient:
    """One connection to a broker."""

    def __init__(self, broker: BrokerView, client_id: str = "wire") -> None:
        self.socket = socket.create_connection((broker.host, broker.port), timeout=TIMEOUT_S)
        self.client_id = client_id
        self._next_correlation_id = 0
        self._owed: list[tuple[int, type[Message], int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, request: Message, version: int | None = None) -> None:
        """Send a request, by default in the newest version."""
        api = api_of(request)
        version = api.versions.last if version is None else version
        self._next_correlation_id += 1
        self._owed.append((self._next_correlation_id, api.response, version))
        self.socket.sendall(request_frame(request, version, self._next_correlation_id, self.client_id))

    def receive(self) -> Message:
        """The next answer, which must be the one to the oldest request that is not answered yet."""
        correlation_id, response, version = self._owed.pop(0)
        got, message = read_response(response, version, self.receive_frame())
        assert got == correlation_id
        return message

    def ask(self, request: Message, kind: type[M], version: int | None = None) -> M:
        """Send a request and wait for its answer."""
        self.send(request, version)
        message = self.receive()
        assert isinstance(message, kind)
        return message

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def is_closed_by_broker(self) -> bool:
        """Wait until the broker closes; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, f"closed after {len(data)} of {size} bytes"
            data += piece
        return data


def until(holds: Callable[[], bool], cluster: FakeCluster) -> None:
    """Wait for what must come true; each look goes through the cluster's own thread, so that it gets on."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, cluster.report()
        cluster.groups()


def find_coordinator(key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=[key])
