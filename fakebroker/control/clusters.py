"""The clusters that are controlled: the one that the process began with, and those that were asked for later.

Knows how they come and go; what is done to them is the resources' business.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import trio

from fakebroker.cluster.command_types import FaultHandle
from fakebroker.cluster.faults.injection import ActiveFault
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.control.problems import Problem, not_found
from fakebroker.control.stats.census import Census
from fakebroker.control.stats.meter import Meter
from fakebroker.control.stats.rates import Rates, Recent
from fakebroker.server.fake_cluster import FakeCluster

T = TypeVar("T")

DEFAULT = "default"
"""The name of the cluster that the process began with."""

MAX_CLUSTERS = 100
MAX_SNAPSHOTS = 100
"""Of one cluster."""

_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,100}")
_SAMPLE_S = 1.0


class Served:
    """One cluster, and what is kept of it for those who control it.

    Attributes:
        name: What it is called in addresses.
        cluster: The cluster.
        meter: What it was asked.
        census: Its groups.
        snapshots: Those that were taken, by their ids.
    """

    def __init__(self, name: str, cluster: FakeCluster) -> None:
        self.name = name
        self.cluster = cluster
        self.meter = Meter(cluster)
        self.census = Census(cluster, self.meter)
        self.snapshots: dict[str, Snapshot] = {}
        self.snapshots_taken = 0
        self._rules: dict[ActiveFault, str] = {}
        self._rules_seen = 0
        self._recent = Recent()
        self._waits: list[trio.CancelScope] = []
        cluster.call(self.meter.catch_up)  # From here on it hears of what groups do.
        cluster.watch(self.meter.look)

    async def ask(self, function: Callable[[], T]) -> T:
        """Run something in the cluster's thread."""
        return await self.cluster.call_async(function)

    async def look(self, function: Callable[[], T]) -> T:
        """Run something in the cluster's thread that changes nothing."""
        return function() if self.cluster.is_cluster_thread else await self.ask(function)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for the cluster in this block.

        Raises:
            Problem: It has been deleted meanwhile.
        """
        with trio.CancelScope() as scope:
            self._waits.append(scope)
            try:
                yield
            finally:
                self._waits.remove(scope)
        if scope.cancelled_caught:
            raise not_found("cluster", self.name, "one that is not deleted meanwhile")

    def end_waits(self) -> None:
        """Let nobody wait for the cluster any longer: it is no more."""
        for scope in self._waits:
            scope.cancel()

    def keep(self, take: Callable[[], Snapshot]) -> str:
        """Take a snapshot and keep it; its id.

        Raises:
            Problem: There are as many as there may be.
        """
        if len(self.snapshots) >= MAX_SNAPSHOTS:
            expected = f"at most {MAX_SNAPSHOTS}; one that is deleted makes room"
            raise Problem(409, f"there are {MAX_SNAPSHOTS} snapshots: expected {expected}", expected=expected)
        self.snapshots_taken += 1
        snapshot_id = str(self.snapshots_taken)
        self.snapshots[snapshot_id] = take()
        return snapshot_id

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """A snapshot by its id.

        Raises:
            Problem: There is none such.
        """
        if snapshot_id not in self.snapshots:
            known = f"one of {', '.join(self.snapshots)}" if self.snapshots else "none: there are no snapshots"
            raise not_found("snapshot", snapshot_id, known)
        return self.snapshots[snapshot_id]

    def rules(self) -> dict[str, ActiveFault]:
        """The faults in force, each under an id that it keeps; in the cluster's thread."""
        there = self.cluster.cluster.faults.active
        for rule in there:
            if rule not in self._rules:
                self._rules_seen += 1
                self._rules[rule] = str(self._rules_seen)
        self._rules = {rule: self._rules[rule] for rule in there}
        return {rule_id: rule for rule, rule_id in self._rules.items()}

    def fault_id(self, handle: FaultHandle) -> str:
        """The id of a fault in force; in the cluster's thread."""
        return next(rule_id for rule_id, rule in self.rules().items() if handle.is_of(rule))

    def rates(self) -> Rates:
        """What it is asked now; in the cluster's thread."""
        self.meter.catch_up()
        return self._recent.rates(self._now_s(), self.meter.totals, list(self.cluster.cluster.brokers))

    def sample(self) -> None:
        """Remember what has been counted, once a second; in the cluster's thread."""
        self.meter.catch_up()
        self._recent.keep(self._now_s(), self.meter.totals)

    def _now_s(self) -> float:
        return self.cluster.clock.wire.now_ms() / 1000


class Clusters:
    """All clusters of the process, by name.

    Args:
        first: The one that is there from the start and to the end; somebody else lets it run.
    """

    def __init__(self, first: FakeCluster) -> None:
        self._served = {DEFAULT: Served(DEFAULT, first)}

    def __iter__(self) -> Iterator[Served]:
        return iter(tuple(self._served.values()))

    def get(self, name: str) -> Served:
        """A cluster by name.

        Raises:
            Problem: There is none such.
        """
        if name not in self._served:
            raise not_found("cluster", name, f"one of {', '.join(self._served)}")
        return self._served[name]

    def check_new(self, name: str) -> None:
        """Refuse a name that no further cluster can have.

        Raises:
            Problem: Why.
        """
        if not _NAME.fullmatch(name):
            expected = "1 to 100 of the characters a-z A-Z 0-9 . _ -, and neither . nor .."
            raise Problem(422, f"name={name!r}: expected {expected}", field="name", value=name, expected=expected)
        if name in self._served:
            expected = "a name that no cluster has"
            raise Problem(409, f"name={name!r}: expected {expected}", field="name", value=name, expected=expected)
        if len(self._served) >= MAX_CLUSTERS:
            raise Problem(409, f"there are {MAX_CLUSTERS} clusters: expected no further one")

    async def create(self, name: str, cluster: FakeCluster) -> Served:
        """Let a further cluster run, which nobody has entered yet.

        Raises:
            Problem: The name cannot be.
        """
        self.check_new(name)
        await trio.to_thread.run_sync(cluster.__enter__)
        try:
            self.check_new(name)  # Another caller may have been faster.
        except Problem:
            await trio.to_thread.run_sync(cluster.__exit__, None, None, None)
            raise
        self._served[name] = served = Served(name, cluster)
        return served

    async def delete(self, name: str) -> None:
        """End a cluster.

        Raises:
            Problem: There is none such, or it is the one that the process began with.
        """
        served = self.get(name)
        if name == DEFAULT:
            expected = "another cluster: this one ends with the process"
            raise Problem(409, f"cluster={name!r}: expected {expected}", field="cluster", value=name, expected=expected)
        del self._served[name]
        served.end_waits()
        await trio.to_thread.run_sync(served.cluster.__exit__, None, None, None)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Take samples of what the clusters are asked, and end those that are left at the end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sample)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()
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
