"""Runs many clients in one thread. A client is a generator, which yields requests and pauses."""

import heapq
import select
import socket
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from fakebroker.protocol.frames import read_response, request_frame
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message

_SIZE_BYTES = 4
_READ_BYTES = 256 * 1024
_CONNECT_TIMEOUT_S = 5.0
_SWEEP_S = 0.5
_CATCH_UP_S = 0.5
_MAX_BROKEN = 20


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to a broker. The generator gets the response, or None if the connection broke or the time is over."""

    node_id: int
    request: Message
    version: int
    timeout_s: float = 20.0


@dataclass(frozen=True, slots=True)
class HangUp:
    """Closes all connections of the client."""


Client = Generator[Ask | HangUp | float, Any, None]
"""A client. It yields requests, and pauses in seconds."""

Steps = Generator[Ask | HangUp | float, Any, Any]
"""A part of a client, which returns a result."""


class _Runner:
    """A client while it runs: its connections, and the request that waits for its response."""

    def __init__(self, client: Client, client_id: str) -> None:
        self.client, self.client_id = client, client_id
        self.connections: dict[int, socket.socket] = {}
        self.received = bytearray()
        self.pending: Ask | None = None
        self.deadline_s = 0.0
        self.next_s = 0.0


class Loop:
    """The clients of one process.

    Args:
        addresses: The addresses of the brokers, in the order of their node ids, from 1.
        period_s: Each client sends one request in this time, at most.

    Attributes:
        node_ids: The brokers.
        requests: How many responses were received.
        lost: How many requests got no response, because a connection broke.
        late: How many responses did not arrive in time.
        errors: Unexpected errors by API.
        broken: Descriptions of broken promises.
        checks: How many checks of promises were made, by name.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], period_s: float) -> None:
        self._addresses, self._period_s = addresses, period_s
        self.node_ids = range(1, 1 + len(addresses))
        self.requests = self.lost = self.late = 0
        self.broken: list[str] = []
        self.checks: Counter[str] = Counter()
        self._poll = select.epoll()
        self._by_fd: dict[int, tuple[_Runner, int]] = {}
        self._waiting: dict[_Runner, None] = {}
        self._due: list[tuple[float, int, _Runner, Ask | None]] = []
        self._numbers = count()

    def add(self, client: Client, client_id: str) -> None:
        """Add a client."""
        self._schedule(_Runner(client, client_id), time.monotonic())

    def check(self, name: str, holds: bool, text: str) -> None:
        """Count a check of a promise, and keep the description if it is broken."""
        self.checks[name] += 1
        if not holds and len(self.broken) < _MAX_BROKEN:
            self.broken.append(f"{name}: {text}")

    def run(self, seconds: float) -> None:
        """Run the clients for some seconds."""
        end_s = time.monotonic() + seconds
        sweep_s = 0.0
        while (now_s := time.monotonic()) < end_s:
            while self._due and self._due[0][0] <= now_s:
                _, _, runner, ask = heapq.heappop(self._due)
                if ask is None:
                    self._resume(runner, None)
                else:
                    self._send(runner, ask)
            if now_s >= sweep_s:
                sweep_s = now_s + _SWEEP_S
                self._drop_late(now_s)
            until_s = min(self._due[0][0] if self._due else end_s, end_s, sweep_s)
            for fd, _ in self._poll.poll(max(0.0, until_s - time.monotonic())):
                if fd in self._by_fd:
                    self._read(fd, *self._by_fd[fd])

    def _schedule(self, runner: _Runner, at_s: float, ask: Ask | None = None) -> None:
        heapq.heappush(self._due, (at_s, next(self._numbers), runner, ask))

    def _resume(self, runner: _Runner, result: Any) -> None:
        """Continue a client until it waits."""
        while True:
            step = runner.client.send(result)
            if isinstance(step, Ask):
                runner.next_s = max(runner.next_s + self._period_s, time.monotonic() - _CATCH_UP_S)
                self._schedule(runner, runner.next_s, step)
                return
            if isinstance(step, HangUp):
                for node_id in [*runner.connections]:
                    self._close(runner, node_id)
                result = None
                continue
            self._schedule(runner, time.monotonic() + step)
            return

    def _send(self, runner: _Runner, ask: Ask) -> None:
        try:
            connection = runner.connections.get(ask.node_id) or self._connect(runner, ask.node_id)
            sent = connection.send(request_frame(ask.request, ask.version, 1, runner.client_id))
            assert sent
        except OSError:
            self._lose(runner, ask.node_id)
            return
        runner.pending, runner.deadline_s = ask, time.monotonic() + ask.timeout_s
        runner.received.clear()
        self._waiting[runner] = None

    def _connect(self, runner: _Runner, node_id: int) -> socket.socket:
        connection = socket.create_connection(self._addresses[node_id - 1], timeout=_CONNECT_TIMEOUT_S)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        runner.connections[node_id] = connection
        self._by_fd[connection.fileno()] = runner, node_id
        self._poll.register(connection.fileno(), select.EPOLLIN)
        return connection

    def _close(self, runner: _Runner, node_id: int) -> None:
        connection = runner.connections.pop(node_id, None)
        if connection is not None:
            self._poll.unregister(connection.fileno())
            del self._by_fd[connection.fileno()]
            connection.close()

    def _lose(self, runner: _Runner, node_id: int) -> None:
        self._close(runner, node_id)
        self.lost += 1
        self._finish(runner, None)

    def _finish(self, runner: _Runner, result: Any) -> None:
        runner.pending = None
        self._waiting.pop(runner, None)
        self._resume(runner, result)

    def _read(self, fd: int, runner: _Runner, node_id: int) -> None:
        try:
            data = runner.connections[node_id].recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        ask = runner.pending
        if not data:
            if ask is not None and ask.node_id == node_id:
                self._lose(runner, node_id)
            else:
                self._close(runner, node_id)
            return
        if ask is None or ask.node_id != node_id:
            self._close(runner, node_id)  # a response that came too late
            return
        received = runner.received
        received += data
        if len(received) < _SIZE_BYTES or len(received) < _SIZE_BYTES + int.from_bytes(received[:_SIZE_BYTES], "big"):
            return
        self.requests += 1
        response = read_response(api_of(ask.request).response, ask.version, bytes(received[_SIZE_BYTES:]))[1]
        self._finish(runner, response)

    def _drop_late(self, now_s: float) -> None:
        for runner in [each for each in self._waiting if each.deadline_s <= now_s]:
            assert runner.pending is not None
            self.late += 1
            self._lose(runner, runner.pending.node_id)
