"""The registry of the controlled clusters: the first, with which the process was started, and clusters created later.

Manages their lifecycle; operations on a cluster are in `routes`.
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import trio

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.control.feed import Feed
from fakebroker.control.problems import Problem, not_found
from fakebroker.control.stats.group_index import GroupIndex
from fakebroker.control.stats.meter import Meter
from fakebroker.control.stats.rates import Rates, RateWindow
from fakebroker.control.steps import Pieces, Steps
from fakebroker.errors import ConfigError, DataDirectoryError
from fakebroker.server.fake_cluster import FakeCluster, internals
from fakebroker.server.lifecycle import ClusterServer
from fakebroker.server.waits import LocalOwner, LocalWatch
from fakebroker.topic_partition import is_legal_name

logger = logging.getLogger("fakebroker")

T = TypeVar("T")

DEFAULT = "default"
"""The name of the cluster that the process was started with."""

MAX_CLUSTERS = 100
MAX_SNAPSHOTS = 100
"""Maximum number of snapshots of one cluster."""

MAX_KEPT_WAITS = 1_000
"""Maximum number of waits of one cluster that have timed out and can be continued."""
_KEEP_S = 60
"""How long such a wait is kept."""

_MAX_NAME_LENGTH = 100
_LEGAL_NAME = "1 to 100 of the characters a-z A-Z 0-9 . _ -, and neither . nor .."
_SAMPLE_S = 1.0


class ServedCluster:
    """One cluster with its statistics, snapshots and waits.

    Attributes:
        name: The cluster's name in URLs.
        cluster: The cluster.
        meter: Counts of its requests.
        index: Its groups by name, and their counts.
        snapshots: Stored snapshots, by id.
        snapshots_taken: The number of snapshots so far, also the last id.
        feed: Sends events to streams; None if there are no streams.
    """

    def __init__(self, name: str, cluster: FakeCluster) -> None:
        self.name = name
        self.cluster = cluster
        self.meter = Meter(cluster)
        self.index = GroupIndex(cluster, self.meter)
        self.snapshots: dict[str, Snapshot] = {}
        self.snapshots_taken = 0
        self.feed: Feed | None = None
        self._rate_window = RateWindow()
        self._turn = trio.Lock()
        self._has_ended = False
        self._waits: list[trio.CancelScope] = []
        self._kept_waits: dict[str, tuple[LocalWatch, float]] = {}
        self._waits_begun = 0
        self.server.run(self.meter.catch_up)  # Subscribes the meter to changes of groups.
        self.server.watch(self.meter.on_change)

    @property
    def local(self) -> LocalOwner:
        """The owner of the cluster's handles."""
        return internals(self.cluster)

    @property
    def server(self) -> ClusterServer:
        """What runs the cluster."""
        return self.local.server

    @property
    def core(self) -> Cluster:
        """The state of the cluster. Use it only in the cluster's thread."""
        return self.local.cluster

    def now_ms(self) -> float:
        """Return the brokers' time in milliseconds since the Unix epoch."""
        return self.server.now_ms()

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function in the cluster's thread."""
        return await self.server.run_async(function)

    async def read(self, function: Callable[[], T]) -> T:
        """Run a read-only function in the cluster's thread."""
        return function() if self.server.is_cluster_thread else await self.run(function)

    async def run_in_steps(self, steps: Steps[T]) -> T:
        """Run a computation in the cluster's thread, in pieces between which the brokers handle requests.

        It is not canceled with its caller, because that would leave the change incomplete.
        """
        with trio.CancelScope(shield=True):
            return await self._in_pieces(steps, self.run)
        raise AssertionError("a shielded scope is not canceled")

    async def read_in_steps(self, steps: Steps[T]) -> T:
        """Run a read-only computation in the cluster's thread, in pieces between which the brokers handle requests."""
        return await self._in_pieces(steps, self.read)

    async def read_piece(self, function: Callable[[], T]) -> T:
        """Run one piece of a read-only computation in the cluster's thread, after the pieces that wait already."""
        async with self._turn:
            return await self.read(function)
        raise AssertionError("a lock suppresses no exceptions")

    async def _in_pieces(self, steps: Steps[T], run: Callable[[Callable[[], bool]], Awaitable[bool]]) -> T:
        pieces = Pieces(steps)
        is_complete = False
        while not is_complete:
            # The lock passes to the next computation in the next turn of trio's loop. So there is one piece per turn,
            # however many computations there are, and requests to the brokers wait for one piece at most.
            async with self._turn:
                is_complete = await run(pieces.run)
        return pieces.result

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Cancel the context if the cluster is deleted.

        Raises:
            Problem: The cluster was deleted.
        """
        with trio.CancelScope() as scope:
            self._waits.append(scope)
            if self._has_ended:
                scope.cancel()
            try:
                yield
            finally:
                self._waits.remove(scope)
        if self._has_ended:
            expected = "a cluster that exists until the response"
            detail = f"cluster {self.name!r} was deleted during the request: expected {expected}"
            raise Problem(404, detail, field="cluster", value=self.name, expected=expected)

    def end_waits(self) -> None:
        """Cancel all contexts of `waiting`, present and future ones, because the cluster was deleted."""
        self._has_ended = True
        for scope in self._waits:
            scope.cancel()

    def store_snapshot(self, take: Callable[[], Snapshot]) -> str:
        """Take a snapshot, store it, and return its id.

        Raises:
            Problem: The maximum number of snapshots is stored.
        """
        if len(self.snapshots) >= MAX_SNAPSHOTS:
            expected = f"at most {MAX_SNAPSHOTS}; delete one first"
            raise Problem(409, f"there are {MAX_SNAPSHOTS} snapshots: expected {expected}", expected=expected)
        self.snapshots_taken += 1
        snapshot_id = str(self.snapshots_taken)
        self.snapshots[snapshot_id] = take()
        return snapshot_id

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """Return a snapshot by its id.

        Raises:
            Problem: There is no such snapshot.
        """
        if snapshot_id not in self.snapshots:
            known = f"one of {', '.join(self.snapshots)}" if self.snapshots else "none: there are no snapshots"
            raise not_found("snapshot", snapshot_id, known)
        return self.snapshots[snapshot_id]

    def keep_wait(self, watch: LocalWatch) -> str:
        """Keep a wait that has timed out, so that another request can continue it. Return its id."""
        self._waits_begun += 1
        wait_id = str(self._waits_begun)
        self._kept_waits[wait_id] = watch, self._now_s() + _KEEP_S
        if len(self._kept_waits) > MAX_KEPT_WAITS:
            self._forget_wait(next(iter(self._kept_waits)))
        return wait_id

    def kept_wait(self, wait_id: str) -> LocalWatch:
        """Return a wait to continue, which is no longer kept.

        Raises:
            Problem: There is no such wait.
        """
        kept = self._kept_waits.pop(wait_id, None)
        if kept is None:
            raise not_found(
                "wait", wait_id, f"one that has timed out within the last {_KEEP_S} s, and is continued once"
            )
        return kept[0]

    def rates(self) -> Rates:
        """Return the current request rates. Must run in the cluster's thread."""
        self.meter.catch_up()
        return self._rate_window.rates(self._now_s(), self.meter.totals, list(self.core.brokers))

    def sample(self) -> None:
        """Record the counts for the rates. Called once a second; must run in the cluster's thread."""
        self.meter.catch_up()
        self._rate_window.record(self._now_s(), self.meter.totals)
        for wait_id, (_, until_s) in list(self._kept_waits.items()):
            if self._now_s() > until_s:
                self._forget_wait(wait_id)

    def forget_waits(self) -> None:
        """Forget all waits that could be continued, because the control server ends."""
        for wait_id in list(self._kept_waits):
            self._forget_wait(wait_id)

    def _forget_wait(self, wait_id: str) -> None:
        # Another thread may continue it now.
        if kept := self._kept_waits.pop(wait_id, None):
            kept[0].close()

    def _now_s(self) -> float:
        return self.server.clock.wire.now_ms() / 1000


class Clusters:
    """All clusters of the process, by name.

    Args:
        first: The default cluster, which cannot be deleted; its owner starts and stops it.
        data_dirs: The directory that contains the data directories of other clusters; None if they have none.
    """

    def __init__(self, first: FakeCluster, data_dirs: str | None = None) -> None:
        self._served = {DEFAULT: ServedCluster(DEFAULT, first)}
        self._data_dirs = data_dirs
        self._nursery: trio.Nursery

    def __iter__(self) -> Iterator[ServedCluster]:
        return iter(tuple(self._served.values()))

    def get(self, name: str) -> ServedCluster:
        """Return a cluster by name.

        Raises:
            Problem: There is no such cluster.
        """
        if name not in self._served:
            raise not_found("cluster", name, f"one of {', '.join(self._served)}")
        return self._served[name]

    def check_new(self, name: str) -> None:
        """Validate the name of a new cluster.

        Raises:
            Problem: The name is invalid or in use, or there are too many clusters.
        """
        if not is_legal_name(name) or len(name) > _MAX_NAME_LENGTH:
            expected = _LEGAL_NAME
            raise Problem(422, f"name={name!r}: expected {expected}", field="name", value=name, expected=expected)
        if name in self._served:
            expected = "an unused name"
            raise Problem(409, f"name={name!r}: expected {expected}", field="name", value=name, expected=expected)
        if len(self._served) >= MAX_CLUSTERS:
            expected = f"at most {MAX_CLUSTERS}; delete one first"
            raise Problem(409, f"there are {MAX_CLUSTERS} clusters: expected {expected}", expected=expected)

    def data_directory(self, name: str | None) -> str | None:
        """Return the path of the data directory of a new cluster; None if it has none.

        Args:
            name: The name of the directory. It cannot lead out of the parent of all data directories.

        Raises:
            ConfigError: The name is not valid, or clusters have no data directories.
        """
        if name is None:
            return None
        if self._data_dirs is None:
            raise ConfigError.of("data_dir", name, "none: the process was started without --control-data-dirs")
        if not is_legal_name(name) or len(name) > _MAX_NAME_LENGTH:
            raise ConfigError.of("data_dir", name, f"the name of a directory: {_LEGAL_NAME}")
        return os.path.join(self._data_dirs, name)

    async def create(self, name: str, cluster: FakeCluster) -> ServedCluster:
        """Start and register a cluster that has not been started yet.

        Raises:
            Problem: As `check_new`.
        """
        self.check_new(name)
        await trio.to_thread.run_sync(cluster.__enter__)
        try:
            self.check_new(name)  # Another request may have created one of this name.
        except Problem:
            await trio.to_thread.run_sync(internals(cluster).server.__exit__, None, None, None)
            raise
        self._served[name] = served = ServedCluster(name, cluster)
        return served

    async def delete(self, name: str) -> None:
        """Stop a cluster.

        Raises:
            Problem: There is no such cluster, or it is the default one.
        """
        served = self.get(name)
        if name == DEFAULT:
            expected = f"a cluster other than {DEFAULT!r}, which stops with the process"
            raise Problem(409, f"cluster={name!r}: expected {expected}", field="cluster", value=name, expected=expected)
        del self._served[name]
        served.end_waits()
        # Not that of the cluster: a fault that was applied to no request is an error of a test only.
        await trio.to_thread.run_sync(internals(served.cluster).server.__exit__, None, None, None)

    def start_soon(self, task: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Start a task that is canceled at the end of the context of `running`."""
        self._nursery.start_soon(task, *arguments)

    def end_feeds(self) -> None:
        """Close all streams of events."""
        for served in self:
            if served.feed is not None:
                served.feed.end()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sample request rates during the context; at its end, unsubscribe from the default cluster and stop others."""
        async with trio.open_nursery() as self._nursery:
            self.start_soon(self._sample)
            try:
                yield
            finally:
                self._nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    first = self.get(DEFAULT)
                    first.forget_waits()
                    await first.run(first.meter.unsubscribe)
                    for name in [served.name for served in self if served.name != DEFAULT]:
                        try:
                            await self.delete(name)
                        except DataDirectoryError as error:  # The disk has failed; the other clusters stop, too.
                            logger.warning("cluster %s: %s", name, error)

    async def _sample(self) -> None:
        while True:
            for served in self:
                await served.read(served.sample)
            await trio.sleep(_SAMPLE_S)
