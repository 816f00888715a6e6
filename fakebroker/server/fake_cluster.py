"""FakeCluster: the public object. Sync with a thread of its own, or async in a trio nursery."""

import errno
import random
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

import trio

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.config import Config
from fakebroker.cluster.journal import Journal
from fakebroker.coordinator.coordinator import Coordinator
from fakebroker.coordinator.offsets import CommittedOffset
from fakebroker.errors import ConfigError, ErrorCode, ListenError
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.server.clock import RealClock
from fakebroker.server.reactor import (
    DEFAULT_MAX_UNSENT_BYTES,
    DEFAULT_PARTIAL_FRAME_TIMEOUT_MS,
    Reactor,
)
from fakebroker.server.views import BrokerView, GroupView

T = TypeVar("T")

DEFAULT_CONFIG: Mapping[str, object] = {"group.initial.rebalance.delay.ms": 0}
"""Where a cluster for tests differs from Kafka's defaults: the first member does not wait for others."""

_BACKLOG = 4096
_REPORTED_CALLS = 20


class FakeCluster:
    """A fake Kafka cluster that real clients connect to.

    As a context manager it runs in a thread of its own; as an async one in the caller's trio task tree. Everything may
    be called from any thread while it runs, and looked at afterwards.

    Args:
        brokers: How many brokers; their node ids are 1, 2, 3 ...
        topics: Topics that exist from the start, with their partition counts.
        config: Broker settings under Kafka's names; see `fakebroker.cluster.config.SETTINGS`.
        seed: Makes member ids, topic ids and the cluster id repeat; drawn, and kept in `seed`, if not given.
        host: The address to listen on.
        port: The port of the first broker, the others follow; 0 takes free ones.
        advertised_host: The host that clients are told; `host` if not given.
        journal_calls: How many requests the journal keeps.
        journal_bytes: How many bytes of requests the journal keeps.
        max_unsent_bytes: A client that leaves this much unread is closed.
        partial_frame_timeout_s: A client that stops in the middle of a request is closed after so long.

    Raises:
        ConfigError: A setting, topic or number of brokers cannot be.
        ListenError: On entering: an address or port cannot be had.
    """

    def __init__(
        self,
        brokers: int = 3,
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, object] | None = None,
        seed: int | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        journal_calls: int = 10_000,
        journal_bytes: int = 64 * 1024 * 1024,
        max_unsent_bytes: int = DEFAULT_MAX_UNSENT_BYTES,
        partial_frame_timeout_s: float = DEFAULT_PARTIAL_FRAME_TIMEOUT_MS / 1000,
    ) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.cluster = Cluster(
            brokers=brokers,
            topics=topics or {},
            config=Config({**DEFAULT_CONFIG, **(config or {})}),
            new_id=_id_maker(self.seed),
            journal=Journal(journal_calls, journal_bytes),
        )
        if not 0 <= port <= 65535 or (port and port + brokers - 1 > 65535):
            raise ConfigError(f"port={port} with {brokers} brokers: expected ports of 0 to 65535")
        self._address = (host, port)
        self._advertised_host = advertised_host or host
        self._reactor_limits = (max_unsent_bytes, partial_frame_timeout_s * 1000)
        self._clock = RealClock()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: threading.Thread | None = None
        self._stack: AsyncExitStack | None = None
        self._scope = trio.CancelScope()
        self._reactor: Reactor

    # Running

    def __enter__(self) -> Self:
        self._listen()
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
        await self._run(task_status.started)

    async def _run(self, started: Callable[[], None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        try:
            with self._scope:
                started()
                await self._reactor.run()
        finally:
            self._token = None

    def _listen(self) -> None:
        """Bind every broker's port, before anything runs: clients can connect from here on."""
        unsent, partial = self._reactor_limits
        self._reactor = Reactor(self.cluster, self._clock, max_unsent_bytes=unsent, partial_frame_timeout_ms=partial)
        host, port = self._address
        listeners: list[socket.socket] = []
        try:
            for index, broker in enumerate(self.cluster.brokers.values()):
                listeners.append(_listener(host, port + index if port else 0))
                broker.host, broker.port = self._advertised_host, listeners[-1].getsockname()[1]
        except ListenError:
            for listener in listeners:
                listener.close()
            raise
        for broker, listener in zip(self.cluster.brokers.values(), listeners, strict=True):
            self._reactor.listen(broker, listener)

    def _call(self, function: Callable[[], T]) -> T:
        """Run something between two requests, in the thread that the cluster runs in."""
        token = self._token
        if token is None or self._thread in (None, threading.current_thread()):
            return function()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(self._reactor.apply(function))
            except BaseException as error:
                future.set_exception(error)

        try:
            token.run_sync_soon(run)
        except trio.RunFinishedError:
            return function()
        return future.result()

    # Looking and touching

    @property
    def bootstrap_servers(self) -> str:
        """What clients call `bootstrap.servers`: host:port of every broker, comma-separated."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        """The brokers, by node id."""
        return tuple(BrokerView.of(broker) for broker in self.cluster.brokers.values())

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int | None = None) -> None:
        """Create a topic.

        Raises:
            ConfigError: It is there already, or cannot be.
        """
        self._call(lambda: self.cluster.create_new_topic(name, partitions, replication_factor))

    def coordinator_of(self, group_id: str) -> BrokerView:
        """The broker that coordinates a group."""
        return self._call(lambda: BrokerView.of(self.cluster.coordinator_of(group_id)))

    def group(self, group_id: str) -> GroupView:
        """A group as it is now; one that does not exist has the state Dead, as Kafka describes it."""
        return self._call(lambda: GroupView.of(group_id, self._coordinator(group_id).group(group_id)))

    def groups(self) -> list[GroupView]:
        """All groups as they are now, broker by broker."""

        def view() -> list[GroupView]:
            return [
                GroupView.of(group.group_id, group)
                for broker in self.cluster.brokers.values()
                for group in broker.coordinator.groups()
            ]

        return self._call(view)

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """What a group has committed, by topic and partition."""

        def view() -> dict[tuple[str, int], CommittedOffset]:
            _, offsets = self._coordinator(group_id).fetch_offsets(group_id, None, self._clock.now_ms())
            return {(topic, partition): offset for topic, partition, offset in offsets if offset is not None}

        return self._call(view)

    def requests(self, api: str | None = None, client_id: str | None = None) -> list[Call]:
        """The requests that the journal still has, oldest first, with their responses.

        Args:
            api: Only requests of this API, by Kafka's name, such as "JoinGroup".
            client_id: Only requests of this client.

        Raises:
            ConfigError: No such API.
        """
        if api is not None and api not in API_BY_NAME:
            raise ConfigError(f"unknown API {api!r}: expected one of {', '.join(API_BY_NAME)}")
        return [
            call
            for call in self._call(lambda: list(self.cluster.journal))
            if api in (None, call.api.name) and client_id in (None, call.client_id)
        ]

    def report(self) -> str:
        """The groups' states and the last requests, for a person whose test has failed."""
        calls = self.requests()
        groups = "\n".join(str(group) for group in self.groups()) or "(no groups)"
        lines = "\n".join(_line(call) for call in calls[-_REPORTED_CALLS:]) or "(no requests)"
        count = min(_REPORTED_CALLS, len(calls))
        return f"seed={self.seed}\n{groups}\n\nthe last {count} of {len(calls)} requests:\n{lines}"

    def _coordinator(self, group_id: str) -> Coordinator:
        return self.cluster.coordinator_of(group_id).coordinator


def _line(call: Call) -> str:
    if call.answered_ms is None:
        answer = "not answered yet"
    else:
        error = getattr(call.response, "error_code", None)
        answer = f"answered after {call.answered_ms - call.received_ms:.1f} ms"
        answer += f", {ErrorCode(error).name}" if error else ""
    return f"  broker {call.broker.node_id} {call.api.name} v{call.api_version} from {call.client_id!r}: {answer}"


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on host {host!r}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        in_use = error.errno == errno.EADDRINUSE
        raise ListenError(
            f"cannot listen on {host}:{port}: {'the port is in use' if in_use else error.strerror}"
        ) from None
    return listener


def _id_maker(seed: int) -> Callable[[], bytes]:
    """Makes the bytes of version 4 UUIDs that repeat with the seed."""
    source = random.Random(seed)
    return lambda: uuid.UUID(int=source.getrandbits(128), version=4).bytes
