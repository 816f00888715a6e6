"""Start and stop of a cluster: its listeners, and the thread or trio nursery in which its reactor runs."""

import errno
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import trio

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.handles.environment import NetworkConditions
from fakebroker.errors import DataDirectoryError, FakebrokerError, ListenError, check_integer
from fakebroker.host_port import format_host_port
from fakebroker.server.clock import Clock, ManualClock
from fakebroker.server.connections.refusals import Refusals
from fakebroker.server.event_loops import LoopEvent
from fakebroker.server.reactor import Reactor

if TYPE_CHECKING:  # Few clusters need them.
    from fakebroker.server.persistence import Persistence
    from fakebroker.server.tls.tls_listeners import TlsListeners

T = TypeVar("T")

logger = logging.getLogger("fakebroker")

_BACKLOG = 4096
_LINGER_S = 0.0005
"""In a thread of its own, the reactor polls this long before it sleeps, because waking up takes longer."""


_NOT_RUNNING = "the cluster is not running: expected a use within 'with' or 'async with'"


class ClusterServer:
    """Runs a cluster, once: `with` in a new thread, `async with` in a task of the caller's trio loop.

    Under asyncio, `async with` runs it in a new thread, too. It starts and stops the thread without blocking the loop.

    Implements `fakebroker.cluster.handles.environment.Environment` for the cluster's commands. The methods of that
    interface must be called in the cluster's thread, except `run`, `now_ms` and `advance`.

    Args:
        cluster: The cluster.
        clock: The brokers' clock.
        persistence: Stores the state of the cluster, and is closed at its end; None if it is only in memory.
        host: Address to listen on.
        port: Port of the first broker, the others use the ports that follow; 0 selects free ports.
        advertised_host: Host in Metadata and FindCoordinator responses.
        max_unsent_bytes: A connection with more unsent bytes than this is closed.
        partial_frame_timeout_ms: A connection that has sent an incomplete frame is closed after this time without
            further bytes, in real time.
        tls_listeners: Certificates and settings of the listeners with TLS; None if there are none.

    Attributes:
        reactor: Serves the connections; set by the start.
        refusals: Why brokers have closed connections.
        on_stop: Functions that are called in the cluster's thread when the cluster has stopped.

    Raises:
        ConfigError: A port or limit is out of range.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        persistence: "Persistence | None" = None,
        *,
        host: str,
        port: int,
        advertised_host: str,
        max_unsent_bytes: int,
        partial_frame_timeout_ms: float,
        tls_listeners: "TlsListeners | None" = None,
    ) -> None:
        brokers = len(cluster.brokers)
        ports = brokers * len(cluster.listeners)
        listeners = len(cluster.listeners)
        where = f"{brokers} brokers" + (f" with {listeners} listeners each" if listeners > 1 else "")
        check_integer("port", port, least=0, most=65536 - ports, where=where)
        check_integer("max_unsent_bytes", max_unsent_bytes, least=0)
        self.cluster = cluster
        self.clock = clock
        self.host, self.advertised_host, self._first_port = host, advertised_host, port
        self.reactor: Reactor
        self.refusals = Refusals()
        self.on_stop: list[Callable[[], None]] = []
        self._persistence = persistence
        self._reactor_limits = (max_unsent_bytes, partial_frame_timeout_ms)
        self._tls_listeners = tls_listeners
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: threading.Thread | None = None
        self._thread_id: int | None = None
        self._failure: BaseException | None = None
        self._stack: AsyncExitStack | None = None
        self._scope = trio.CancelScope()
        self._starting = threading.Lock()  # Several threads may enter the cluster at once; all but one must fail.
        self._has_started = self._has_stopped = False
        self._reserved_ports: dict[tuple[int, str], socket.socket] = {}
        # By node id and listener, also of removed brokers: `restore` may add them again.
        self._ports: dict[tuple[int, str], int] = {}
        self._nursery: trio.Nursery
        if isinstance(clock, ManualClock):
            clock.advance_with(self.run)

    # Start and stop

    def __enter__(self) -> Self:
        with self._starting:
            self._listen()
        self.reactor.linger_s = _LINGER_S
        started = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, args=(started,), name="fakebroker", daemon=True)
        self._thread.start()
        started.wait()
        if self._failure is not None:
            self.reactor.stop()
            self._raise_failure()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.check_started()
        self._request_stop()
        if self._thread is not None:
            self._thread.join()
        if error is None:
            self._raise_failure()

    def _run_thread(self, started: threading.Event) -> None:
        try:
            trio.run(self._serve, started.set)
        except BaseException as error:  # Raised in the thread that starts or stops the cluster.
            leaves = list(_leaves(error))
            self._failure, self._has_stopped = leaves[0] if len(leaves) == 1 else error, True
            if isinstance(self._failure, DataDirectoryError):
                logger.error("the cluster has stopped: %s", self._failure)  # noqa: TRY400  # not a bug
            else:
                logger.exception("the cluster has stopped because of an internal error")
        finally:
            started.set()

    def _raise_failure(self) -> None:
        """Raise the error that has stopped the cluster's thread. Return if no error has stopped it."""
        if isinstance(self._failure, DataDirectoryError):
            raise self._failure
        if self._failure is not None:
            raise FakebrokerError(f"the cluster has stopped because of an internal error: {self._failure!r}") from (
                self._failure
            )

    def _request_stop(self) -> None:
        token = self._token
        if token is not None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._scope.cancel)

    async def __aenter__(self) -> Self:
        if not trio.lowlevel.in_trio_run():
            return await self._enter_from_asyncio()
        with self._starting:
            self._listen()
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            await nursery.start(self._serve_in_nursery)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.check_started()
        if self._stack is None:
            import asyncio  # not at the top: see event_loops.py

            await asyncio.get_running_loop().run_in_executor(None, self.__exit__, kind, error, trace)
            return
        self._scope.cancel()
        try:
            await self._stack.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            # trio puts the exception of the body in another group, even if nothing else has failed.
            if error is None or list(_leaves(group)) != list(_leaves(error)):
                raise

    async def _enter_from_asyncio(self) -> Self:
        import asyncio

        starting = asyncio.get_running_loop().run_in_executor(None, self.__enter__)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(lambda _: self._request_stop())  # `__aexit__` will not be called.
            raise

    async def _serve_in_nursery(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        # The clock of this trio run may be a test's clock, such as trio.testing.MockClock.
        self.clock.wire.follow(trio.lowlevel.current_clock().current_time)
        await self._serve(task_status.started)

    async def _serve(self, started: Callable[[], None]) -> None:
        self._token, self._thread_id = trio.lowlevel.current_trio_token(), threading.get_ident()
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    started()
                    await self.reactor.run()
        finally:
            self._token, self._has_stopped = None, True
            try:
                if self._persistence is not None:
                    self._persistence.close(self.clock.wire.now_ms())
            finally:
                for function in self.on_stop:
                    function()
                for reserved in self._reserved_ports.values():
                    reserved.close()

    def _listen(self) -> None:
        """Listen on the ports of all brokers. Clients can connect from then on, before the reactor runs.

        Raises:
            FakebrokerError: The cluster runs already, or has stopped.
            ListenError: An address or port is not available. The start can be tried again.
        """
        if self._has_started:
            state = "has stopped" if self._has_stopped else "runs already"
            raise FakebrokerError(f"the cluster {state}: expected a new FakeCluster, because each can be entered once")
        unsent, partial = self._reactor_limits
        self.reactor = Reactor(
            self.cluster,
            self.clock,
            self.refusals,
            self._persistence,
            max_unsent_bytes=unsent,
            partial_frame_timeout_ms=partial,
            tls_listeners=self._tls_listeners,
        )
        try:
            for index, broker in enumerate(self.cluster.brokers.values()):
                self._open(broker, self._first_port + index if self._first_port else 0)
        except ListenError:
            self.reactor.stop()
            raise
        self._has_started = True
        if self._persistence is not None:
            self._persistence.note_command()  # There may have been commands before.

    # Calls into the cluster's thread

    @property
    def is_running(self) -> bool:
        """Whether the cluster has been started and not stopped."""
        return self._token is not None

    def check_started(self) -> None:
        """Check that the cluster has been started, and therefore has ports.

        Raises:
            FakebrokerError: It has not.
        """
        if not self._has_started:
            raise FakebrokerError(f"{_NOT_RUNNING}; it has not been started")

    def check_running(self) -> None:
        """Check that the cluster is running.

        Raises:
            FakebrokerError: It has not been started, or has stopped.
        """
        self.check_started()
        if self._has_stopped:
            raise FakebrokerError(f"{_NOT_RUNNING}; it has stopped")

    @property
    def is_cluster_thread(self) -> bool:
        """Whether the calling thread is the thread that the cluster runs in."""
        return self._thread_id == threading.get_ident()

    def run(self, step: Callable[[], T]) -> T:
        """Run a function in the cluster's thread, between two requests, and then handle what is due.

        May be called from any thread. If the cluster is not running, the function runs in the calling thread.

        Returns:
            The result of the function. Its exceptions are raised in the calling thread.
        """
        token = self._token
        if token is None:
            return step()
        if self.is_cluster_thread:
            return self.reactor.apply(step)
        try:
            return self._send(token, step).result()
        except trio.RunFinishedError:
            return step()

    async def run_async(self, step: Callable[[], T]) -> T:
        """Run a function like `run`, from a task of trio or asyncio in any thread, without blocking that thread."""
        token = self._token
        if token is None or self.is_cluster_thread:
            return self.run(step)
        done = LoopEvent()
        try:
            future = self._send(token, step)
        except trio.RunFinishedError:
            return step()
        future.add_done_callback(lambda _: done.set())
        await done.wait()
        return future.result()

    def run_soon(self, step: Callable[[], None]) -> None:
        """Run a function like `run`, without waiting for it in another thread than the cluster's."""
        token = self._token
        if token is None or self.is_cluster_thread:
            self.run(step)
            return
        try:
            self._send(token, step)
        except trio.RunFinishedError:
            step()

    def _send(self, token: trio.lowlevel.TrioToken, step: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(self.reactor.apply(step))
            except BaseException as error:
                future.set_exception(error)

        token.run_sync_soon(run)
        return future

    def start_task(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task in the cluster's trio loop; it is canceled when the cluster stops.

        Args:
            task: An async function, which must not block the loop.

        Raises:
            FakebrokerError: The cluster is not running.
        """
        self.check_running()
        self.run(lambda: self._nursery.start_soon(task))

    def watch(self, watcher: Callable[[], bool]) -> None:
        """Call a function in the cluster's thread after each change, until it returns True.

        Raises:
            FakebrokerError: The cluster has not been started.
        """
        self.check_started()
        self.run(lambda: self.reactor.watchers.append(watcher))

    # The environment of commands

    def now_ms(self) -> float:
        """Return the brokers' time: milliseconds since the Unix epoch."""
        return self.clock.now_ms()

    def advance(self, seconds: float) -> None:
        """Advance the brokers' clock; see `fakebroker.server.clock`."""
        self.clock.advance(seconds)

    def closed_connections(self) -> str:
        """Return why brokers have closed connections, as text."""
        return self.refusals.text()

    def open_listener(self, broker: BrokerNode) -> None:
        """Listen for a broker on the ports that are reserved for it, or on free ones."""
        self.check_running()
        self._open(broker, 0)

    def _open(self, broker: BrokerNode, first_port: int) -> None:
        """Listen for a broker.

        With `first_port` 0, the broker gets its former ports back; without former ports, it gets free ports. Otherwise
        `first_port` is the port of the broker's first listener. The ports of one listener are consecutive: with two
        brokers from port 9000 on, the first listener has the ports 9000 and 9001, the second has 9002 and 9003.
        """
        brokers, ports = len(self.cluster.brokers), {}
        for index, listener in enumerate(self.cluster.listeners):
            key = broker.node_id, listener.name
            port = first_port + index * brokers if first_port else self._ports.get(key, 0)
            sock = self._reserved_ports.pop(key, None) or bound(self.host, port)
            start_listening(sock, _BACKLOG)
            ports[listener.name] = self._ports[key] = sock.getsockname()[1]
            self.reactor.listen(broker, listener, sock)
        broker.host, broker.port = self.advertised_host, next(iter(ports.values()))
        broker.ports = ports if len(ports) > 1 else {}

    def close_listener(self, broker: BrokerNode, *, keep_port: bool) -> None:
        """Close a broker's listeners and connections.

        Args:
            broker: The broker.
            keep_port: Whether to reserve the ports, for `open_listener`.
        """
        self.check_running()
        self.reactor.disconnect(broker)
        if keep_port:
            self._reserve_port(broker)

    def renew_certificates(self, *, expired: bool) -> None:
        """Give the listeners new certificates; see `Environment`."""
        self.check_running()
        self.reactor.renew_certificates(expired=expired)

    def _reserve_port(self, broker: BrokerNode) -> None:
        """Bind a broker's ports without listening: connections are refused, and no other process can use them."""
        for listener in self.cluster.listeners:
            key = broker.node_id, listener.name
            if key not in self._reserved_ports:
                self._reserved_ports[key] = bound(self.host, broker.endpoint(listener).port)

    def network_conditions(self, broker: BrokerNode) -> NetworkConditions:
        """Return the network conditions of a broker."""
        self.check_running()
        return self.reactor.network_faults.conditions.get(broker.node_id, NetworkConditions())

    def set_network_conditions(self, broker: BrokerNode, conditions: NetworkConditions) -> None:
        """Change the network conditions of a broker, which must be up."""
        self._refuse(broker, conditions.accept == "refuse")
        self.reactor.network_faults.conditions[broker.node_id] = conditions

    def _refuse(self, broker: BrokerNode, refuse: bool) -> None:
        """Close a broker's listeners, or open them again; existing connections remain."""
        if refuse:
            self.reactor.close_listeners(broker)
            self._reserve_port(broker)
        elif (broker.node_id, self.cluster.listeners[0].name) in self._reserved_ports:
            self.open_listener(broker)

    @contextmanager
    def replacing_brokers(self, brokers: Mapping[int, BrokerNode], *, cut_all: bool) -> Iterator[None]:
        """Close listeners before the caller replaces the cluster's brokers, and open listeners afterwards.

        A broker that is up before and after keeps its listener and connections, unless `cut_all`.

        Args:
            brokers: The brokers after the replacement, by node id.
            cut_all: Whether to close all connections.
        """
        if not self._has_started:
            yield
            return
        self.check_running()
        kept = []
        for node_id, broker in self.cluster.brokers.items():
            if node_id not in brokers:
                self._release_port(broker)
            elif broker.up and (cut_all or not brokers[node_id].up):
                self.close_listener(broker, keep_port=True)
            elif broker.up:
                self._refuse(broker, False)
                kept.append(node_id)
        self.reactor.network_faults.conditions.clear()
        if cut_all:
            self.refusals.clear()
        yield
        for node_id, broker in self.cluster.brokers.items():
            if broker.up and node_id not in kept:
                self._open(broker, 0)

    def _release_port(self, broker: BrokerNode) -> None:
        self.close_listener(broker, keep_port=False)
        for listener in self.cluster.listeners:
            reserved = self._reserved_ports.pop((broker.node_id, listener.name), None)
            if reserved is not None:
                reserved.close()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in nested groups, or the exception itself if it is not a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address and does not listen yet.

    Args:
        host: Host name or address.
        port: Port; 0 selects a free one.

    Raises:
        ListenError: The address or port is not available.
    """
    # The first conversion of a str imports the codec of internationalized names, which takes longer than a whole start.
    name = host.encode() if host.isascii() else host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on host {host!r}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _listen_error(host, port, error) from None
    return listener


def start_listening(listener: socket.socket, backlog: int) -> None:
    """Accept connections on a bound socket.

    Args:
        listener: The socket. If it cannot listen, it is closed.
        backlog: Maximum number of connections that wait to be accepted.

    Raises:
        ListenError: Another process listens on the port: several can bind it before one of them listens.
    """
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise _listen_error(host, port, error) from None


def _listen_error(host: str, port: int, error: OSError) -> ListenError:
    why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
    return ListenError(f"cannot listen on {format_host_port(host, port)}: {why}")
