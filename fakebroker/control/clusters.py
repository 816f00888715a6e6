"""The registry of the controlled clusters: the one the process was started with, and those created later.

Manages their lifecycle; operations on a cluster are in `routes`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import trio

from fakebroker.cluster.command import FaultHandle
from fakebroker.cluster.faults.injection import ActiveFault
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.control.problems import Problem, not_found
from fakebroker.control.stats.census import Census
from fakebroker.control.stats.meter import Meter
from fakebroker.control.stats.rates import Rates, Recent
from fakebroker.control.steps import Pieces, Steps
from fakebroker.control.streams import Feed
from fakebroker.server.fake_cluster import FakeCluster
from fakebroker.topic_partition import is_legal_name

T = TypeVar("T")

DEFAULT = "default"
"""The name of the cluster that the process was started with."""

MAX_CLUSTERS = 100
MAX_SNAPSHOTS = 100
"""Maximum number of snapshots of one cluster."""

_MAX_NAME_LENGTH = 100
_SAMPLE_S = 1.0


class Served:
    """One cluster with its statistics, snapshots and fault ids.

    Attributes:
        name: The cluster's name in URLs.
        cluster: The cluster.
        meter: Counts of its requests.
        census: Counts of its groups.
        snapshots: Stored snapshots, by id.
        snapshots_taken: The number of snapshots taken, from which ids are made.
        feed: Sends events to streams, if there are any.
    """

    def __init__(self, name: str, cluster: FakeCluster) -> None:
        self.name = name
        self.cluster = cluster
        self.meter = Meter(cluster)
        self.census = Census(cluster, self.meter)
        self.snapshots: dict[str, Snapshot] = {}
        self.snapshots_taken = 0
        self.feed: Feed | None = None
        self._rules: dict[ActiveFault, str] = {}
        self._rules_seen = 0
        self._recent = Recent()
        self._turn = trio.Lock()
        self._has_ended = False
        self._waits: list[trio.CancelScope] = []
        cluster.call(self.meter.catch_up)  # From here on, the meter receives changes of groups.
        cluster.watch(self.meter.look)

    async def ask(self, function: Callable[[], T]) -> T:
        """Run a function in the cluster's thread."""
        return await self.cluster.call_async(function)

    async def look(self, function: Callable[[], T]) -> T:
        """Run a read-only function in the cluster's thread."""
        return function() if self.cluster.is_cluster_thread else await self.ask(function)

    async def ask_in_steps(self, steps: Steps[T]) -> T:
        """Run a computation in the cluster's thread, with requests to the brokers between its steps.

        It is not canceled with its caller, because half a change would be left.
        """
        with trio.CancelScope(shield=True):
            return await self._in_pieces(steps, self.ask)
        raise AssertionError("a shielded scope is not canceled")

    async def look_in_steps(self, steps: Steps[T]) -> T:
        """Run a read-only computation in the cluster's thread, with requests to the brokers between its steps."""
        return await self._in_pieces(steps, self.look)

    async def look_in_turn(self, function: Callable[[], T]) -> T:
        """Run a piece of a read-only computation in the cluster's thread, when no other piece runs."""
        async with self._turn:
            return await self.look(function)
        raise AssertionError("a lock suppresses no exceptions")

    async def _in_pieces(self, steps: Steps[T], run: Callable[[Callable[[], bool]], Awaitable[bool]]) -> T:
        pieces = Pieces(steps)
        is_complete = False
        while not is_complete:
            # The lock passes to the next computation in the scheduler's next round, so that the brokers wait for one
            # piece, however many computations there are.
            async with self._turn:
                is_complete = await run(pieces.run)
        return pieces.result

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for the cluster in this block.

        Raises:
            Problem: The cluster was deleted meanwhile.
        """
        with trio.CancelScope() as scope:
            self._waits.append(scope)
            if self._has_ended:
                scope.cancel()
            try:
                yield
            finally:
                self._waits.remove(scope)
        if scope.cancelled_caught:
            raise not_found("cluster", self.name, "one that is not deleted meanwhile")

    def end_waits(self) -> None:
        """Cancel all waits, also later ones, because the cluster was deleted."""
        self._has_ended = True
        for scope in self._waits:
            scope.cancel()

    def keep(self, take: Callable[[], Snapshot]) -> str:
        """Take a snapshot, store it, and return its id.

        Raises:
            Problem: The maximum number of snapshots is stored.
        """
        if len(self.snapshots) >= MAX_SNAPSHOTS:
            expected = f"at most {MAX_SNAPSHOTS}; one that is deleted makes room"
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

    def rules(self) -> dict[str, ActiveFault]:
        """Return the active faults by their ids, which are stable. Must run in the cluster's thread."""
        there = self.cluster.cluster.faults.active
        for rule in there:
            if rule not in self._rules:
                self._rules_seen += 1
                self._rules[rule] = str(self._rules_seen)
        self._rules = {rule: self._rules[rule] for rule in there}
        return {rule_id: rule for rule, rule_id in self._rules.items()}

    def fault_id(self, handle: FaultHandle) -> str:
        """Return the id of an active fault. Must run in the cluster's thread."""
        return next(rule_id for rule_id, rule in self.rules().items() if handle.is_of(rule))

    def rates(self) -> Rates:
        """Return the current request rates. Must run in the cluster's thread."""
        self.meter.catch_up()
        return self._recent.rates(self._now_s(), self.meter.totals, list(self.cluster.cluster.brokers))

    def sample(self) -> None:
        """Record the counts for the rates, once a second. Must run in the cluster's thread."""
        self.meter.catch_up()
        self._recent.keep(self._now_s(), self.meter.totals)

    def _now_s(self) -> float:
        return self.cluster.clock.wire.now_ms() / 1000


class Clusters:
    """All clusters of the process, by name.

    Args:
        first: The default cluster, which cannot be deleted; its owner starts and stops it.
    """

    def __init__(self, first: FakeCluster) -> None:
        self._served = {DEFAULT: Served(DEFAULT, first)}
        self._nursery: trio.Nursery

    def __iter__(self) -> Iterator[Served]:
        return iter(tuple(self._served.values()))

    def get(self, name: str) -> Served:
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
            expected = "1 to 100 of the characters a-z A-Z 0-9 . _ -, and neither . nor .."
            raise Problem(422, f"name={name!r}: expected {expected}", field="name", value=name, expected=expected)
        if name in self._served:
            expected = "a name that no cluster has"
            raise Problem(409, f"name={name!r}: expected {expected}", field="name", value=name, expected=expected)
        if len(self._served) >= MAX_CLUSTERS:
            raise Problem(409, f"there are {MAX_CLUSTERS} clusters: expected no further one")

    async def create(self, name: str, cluster: FakeCluster) -> Served:
        """Start and register a cluster that has not been started yet.

        Raises:
            Problem: As `check_new`.
        """
        self.check_new(name)
        await trio.to_thread.run_sync(cluster.__enter__)
        try:
            self.check_new(name)  # Another request may have taken the name meanwhile.
        except Problem:
            await trio.to_thread.run_sync(cluster.__exit__, None, None, None)
            raise
        self._served[name] = served = Served(name, cluster)
        return served

    async def delete(self, name: str) -> None:
        """Stop a cluster.

        Raises:
            Problem: There is no such cluster, or it is the default one.
        """
        served = self.get(name)
        if name == DEFAULT:
            expected = "another cluster: this one ends with the process"
            raise Problem(409, f"cluster={name!r}: expected {expected}", field="cluster", value=name, expected=expected)
        del self._served[name]
        served.end_waits()
        await trio.to_thread.run_sync(served.cluster.__exit__, None, None, None)

    def start_soon(self, task: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Start a task that is canceled at the end of the context of `watched`."""
        self._nursery.start_soon(task, *arguments)

    def end_feeds(self) -> None:
        """Close all streams of events."""
        for served in self:
            if served.feed is not None:
                served.feed.end()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Sample the clusters' request rates within the context, and stop the clusters that were created at its end."""
        async with trio.open_nursery() as self._nursery:
            self.start_soon(self._sample)
            try:
                yield
            finally:
                self._nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    first = self.get(DEFAULT)
                    await first.ask(first.meter.end)
                    for name in [served.name for served in self if served.name != DEFAULT]:
                        await self.delete(name)

    async def _sample(self) -> None:
        while True:
            for served in self:
                await served.look(served.sample)
            await trio.sleep(_SAMPLE_S)
