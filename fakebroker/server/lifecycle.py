"""Running a cluster: its ports, and the thread or nursery that its reactor lives in."""

import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

import trio

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.errors import ConfigError, ListenError
from fakebroker.server.clock import Clock, ManualClock
from fakebroker.server.connection import Connection
from fakebroker.server.reactor import Reactor

T = TypeVar("T")

_BACKLOG = 4096
_LINGER_S = 0.0005
"""In a thread of its own the reactor has nobody to make way for; going to sleep and waking up cost more than this."""


class RunningCluster:
    """A cluster that can be entered: with a thread of its own, or as a part of the caller's trio tasks.

    Args:
        cluster: What runs.
        clock: The brokers' time.
        host: The address to listen on; it and `advertised_host` are kept as attributes.
        port: The port of the first broker, the others follow; 0 takes free ones.
        advertised_host: The host that clients are told.
        max_unsent_bytes: A client that leaves this much unread is closed.
        partial_frame_timeout_ms: A client that stops in the middle of a request is closed after so long.

    Raises:
        ConfigError: The ports are none.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        host: str,
        port: int,
        advertised_host: str,
        max_unsent_bytes: int,
        partial_frame_timeout_ms: float,
    ) -> None:
        brokers = len(cluster.brokers)
        if not 0 <= port <= 65535 or (port and port + brokers - 1 > 65535):
            raise ConfigError(f"port={port} with {brokers} brokers: expected ports of 0 to 65535")
        self.cluster = cluster
        self.clock = clock
        self.host, self.advertised_host, self._first_port = host, advertised_host, port
        self._reactor_limits = (max_unsent_bytes, partial_frame_timeout_ms)
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: threading.Thread | None = None
        self._home: int | None = None
        self._stack: AsyncExitStack | None = None
        self._scope = trio.CancelScope()
        self._held_ports: dict[int, socket.socket] = {}
        self._ports: dict[int, int] = {}  # The last one of each node id, of brokers that have been removed, too.
        self._reactor: Reactor
        self._beside: trio.Nursery
        if isinstance(clock, ManualClock):
            clock.moved_by(self._call)

    def __enter__(self) -> Self:
        self._listen()
        self._reactor.linger_s = _LINGER_S
        started = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run, started.set), name="fakebroker", daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        assert self._token is not None
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join()

    async def __aenter__(self) -> Self:
        self._listen()
        self._stack = AsyncExitStack()
        nursery = await self._stack.enter_async_context(trio.open_nursery())
        await nursery.start(self._run_in_nursery)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stack is not None
        self._scope.cancel()
        await self._stack.__aexit__(kind, error, trace)

    async def _run_in_nursery(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        # trio's clock may be one of a test, such as trio.testing.MockClock: real time is what trio takes for it.
        self.clock.wire.follow(trio.lowlevel.current_clock().current_time)
        await self._run(task_status.started)

    async def _run(self, started: Callable[[], None]) -> None:
        self._token, self._home = trio.lowlevel.current_trio_token(), threading.get_ident()
        try:
            with self._scope:
                async with trio.open_nursery() as self._beside:
                    started()
                    await self._reactor.run()
        finally:
            self._token = None
            for held in self._held_ports.values():
                held.close()

    def _listen(self) -> None:
        """Bind every broker's port, before anything runs: clients can connect from here on."""
        unsent, partial = self._reactor_limits
        self._reactor = Reactor(self.cluster, self.clock, max_unsent_bytes=unsent, partial_frame_timeout_ms=partial)
        try:
            for index, broker in enumerate(self.cluster.brokers.values()):
                self._open(broker, self._first_port + index if self._first_port else 0)
        except ListenError:
            self._reactor.stop()
            raise

    def _open(self, broker: BrokerNode, port: int = 0) -> None:
        """Let a broker listen: at the port that it had, or else at this one; 0 is any."""
        held = self._held_ports.pop(broker.node_id, None)
        listener = held or bound(self.host, port)
        listener.listen(_BACKLOG)
        broker.host, broker.port = self.advertised_host, listener.getsockname()[1]
        self._ports[broker.node_id] = broker.port
        self._reactor.listen(broker, listener)

    def _shut(self, broker: BrokerNode, *, keep_port: bool) -> None:
        """Close a broker's port and connections; a port that is kept refuses connections until it opens again."""
        self._reactor.cut_off(broker)
        if keep_port:
            self._hold_port(broker)

    def _refuse(self, broker: BrokerNode, refuses: bool) -> None:
        """Close a broker's port, or open it again; its connections remain."""
        if refuses:
            self._reactor.close_port(broker)
            self._hold_port(broker)
        elif broker.node_id in self._held_ports:
            self._open(broker)

    def _hold_port(self, broker: BrokerNode) -> None:
        if broker.node_id not in self._held_ports:
            self._held_ports[broker.node_id] = bound(self.host, broker.port)

    def _call(self, function: Callable[[], T]) -> T:
        """Run something between two requests, in the thread that the cluster runs in."""
        token = self._token
        if token is None:
            return function()
        if self._home == threading.get_ident():
            return self._reactor.apply(function)
        try:
            return self._send(token, function).result()
        except trio.RunFinishedError:
            return function()

    async def call_async(self, function: Callable[[], T]) -> T:
        """Run something between two requests, for a trio task of another thread."""
        token = self._token
        if token is None or self._home == threading.get_ident():
            return self._call(function)
        done, home = trio.Event(), trio.lowlevel.current_trio_token()
        try:
            future = self._send(token, function)
        except trio.RunFinishedError:
            return function()
        future.add_done_callback(lambda _: home.run_sync_soon(done.set))
        await done.wait()
        return future.result()

    def _send(self, token: trio.lowlevel.TrioToken, function: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(self._reactor.apply(function))
            except BaseException as error:
                future.set_exception(error)

        token.run_sync_soon(run)
        return future

    def call(self, function: Callable[[], T]) -> T:
        """Run something between two requests, in the thread that the cluster runs in."""
        return self._call(function)

    @property
    def is_at_home(self) -> bool:
        """Whether the caller's thread is the one that the cluster runs in."""
        return self._home == threading.get_ident()

    def run_beside(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task in the trio loop of the cluster, until the cluster ends; it has to make way."""
        self._call(lambda: self._beside.start_soon(task))

    def watch(self, look: Callable[[], bool]) -> None:
        """Let something look each time that something has happened, in the cluster's thread, until it returns True."""
        self._call(lambda: self._reactor.watchers.append(look))

    @property
    def connections(self) -> Collection[Connection]:
        """The clients' connections; for the cluster's thread."""
        return self._reactor.connections.values()


def bound(host: str, port: int) -> socket.socket:
    """A socket that is to listen there; port 0 is any.

    Raises:
        ListenError: The address or port cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on host {host!r}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        in_use = error.errno == errno.EADDRINUSE
        raise ListenError(
            f"cannot listen on {host}:{port}: {'the port is in use' if in_use else error.strerror}"
        ) from None
    return listener
