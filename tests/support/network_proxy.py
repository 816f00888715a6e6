"""A network between clients and a broker that can be cut and delayed, and whose connections can be reset."""

import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

PROXY_HOST = "127.0.0.2"
"""Where proxies listen, at the ports of the brokers. Give it to `FakeCluster` as `advertised_host`. Linux only."""

_BROKER_HOST = "127.0.0.1"
_READ_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with which close() sends RST."""


@dataclass(eq=False)
class _Side:
    """One side of a connection: its socket, the other side, and bytes on their way to this side, with their times."""

    socket: socket.socket
    other: "_Side" = field(init=False)
    incoming: deque[tuple[float, bytes]] = field(default_factory=deque)


class Proxy:
    """Forwards connections to one listener of a broker. A context manager.

    While the network is cut, nothing is forwarded or accepted. Bytes that were sent meanwhile arrive afterwards, as
    TCP repeats what was lost.

    Args:
        port: The port of the broker, and of the proxy.

    Attributes:
        delay_s: How long bytes are on their way, in each direction.
    """

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        self._port = port
        self._is_cut = False
        self._listening = socket.create_server((PROXY_HOST, port))
        self._listening.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._sides: set[_Side] = set()
        self._wake, self._woken = socket.socketpair()
        self._tasks: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=f"proxy {port}")

    def __enter__(self) -> Self:
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._end)
        self._thread.join()
        for each in (self._listening, self._wake, self._woken, self._selector):
            each.close()

    def cut(self) -> None:
        """Cut the network. Nothing arrives after this returns, until `heal`."""
        self._do(self._stop)

    def heal(self) -> None:
        """Connect the network again."""
        self._do(self._start)

    def reset(self) -> None:
        """Reset all connections (RST), on both sides."""
        self._do(self._reset)

    def _do(self, task: Callable[[], None]) -> None:
        """Run a function in the proxy's thread, and wait for it."""
        is_done = threading.Event()
        self._tasks.append((task, is_done))
        self._wake.send(b"x")
        is_done.wait()

    def _stop(self) -> None:
        self._is_cut = True
        for each in (self._listening, *(side.socket for side in self._sides)):
            self._selector.unregister(each)

    def _start(self) -> None:
        self._is_cut = False
        self._selector.register(self._listening, selectors.EVENT_READ)
        for side in self._sides:
            self._selector.register(side.socket, selectors.EVENT_READ, side)

    def _reset(self) -> None:
        for side in [*self._sides]:
            self._close(side)

    def _end(self) -> None:
        self._is_over = True
        self._reset()

    def _run(self) -> None:
        while not self._is_over:
            due_s = min((side.incoming[0][0] for side in self._sides if side.incoming), default=None)
            wait_s = None if due_s is None or self._is_cut else max(0.0, due_s - time.monotonic())
            for key, _ in self._selector.select(wait_s):
                if key.fileobj is self._woken:
                    self._woken.recv(_READ_BYTES)
                elif key.fileobj is self._listening:
                    self._accept()
                elif key.data in self._sides:
                    self._read(key.data)
            while self._tasks:
                task, is_done = self._tasks.popleft()
                task()
                is_done.set()
            if not self._is_cut:
                self._deliver()

    def _accept(self) -> None:
        accepted, _ = self._listening.accept()
        try:
            broker = socket.create_connection((_BROKER_HOST, self._port))
        except ConnectionRefusedError:  # The broker is stopped.
            accepted.close()
            return
        client, server = _Side(accepted), _Side(broker)
        client.other, server.other = server, client
        for side in (client, server):
            side.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sides.add(side)
            self._selector.register(side.socket, selectors.EVENT_READ, side)

    def _read(self, side: _Side) -> None:
        try:
            data = side.socket.recv(_READ_BYTES)
        except OSError:
            data = b""
        if data:
            side.other.incoming.append((time.monotonic() + self.delay_s, data))
        else:
            self._close(side)

    def _deliver(self) -> None:
        now_s = time.monotonic()
        for side in [*self._sides]:
            while side.incoming and side.incoming[0][0] <= now_s:
                try:
                    side.socket.sendall(side.incoming.popleft()[1])
                except OSError:
                    self._close(side)
                    break

    def _close(self, side: _Side) -> None:
        """Close both sides with RST. What is on its way is lost."""
        for each in (side, side.other):
            if each in self._sides:
                self._sides.discard(each)
                if not self._is_cut:
                    self._selector.unregister(each.socket)
                each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                each.socket.close()
