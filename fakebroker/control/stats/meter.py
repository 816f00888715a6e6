"""Counts requests, errors and latencies of a cluster, from its journal and history. Does not depend on HTTP.

The cluster's thread counts after every few thousand requests, and when the numbers are read; request handling itself
does no counting.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.heartbeat import ALIVE
from fakebroker.cluster.journal import Journal
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.history import DEAD, History, Moment
from fakebroker.server.connection import Connection
from fakebroker.server.fake_cluster import FakeCluster

BOUNDS_MS = (0.0, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4, 3e5)
"""Upper bounds of the buckets of durations; the first one is for immediate responses, and one more for all the rest."""

_MOST_AT_ONCE = 2_000
_LOOKED_AT = 1_000
_MOMENTS_KEPT = 10_000
_PREPARING = GroupState.PREPARING_REBALANCE.value
_COMPLETING = GroupState.COMPLETING_REBALANCE.value


class Histogram:
    """Number of durations in each bucket, and their sum."""

    __slots__ = ("buckets", "sum_ms")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def copy(self) -> "Histogram":
        """Return an independent copy."""
        twin = Histogram()
        twin.buckets, twin.sum_ms = self.buckets.copy(), self.sum_ms
        return twin

    def add(self, duration_ms: float, count: int = 1) -> None:
        self.buckets[bisect_left(BOUNDS_MS, duration_ms)] += count
        self.sum_ms += duration_ms * count

    @property
    def count(self) -> int:
        return sum(self.buckets)


def quantile(buckets: Sequence[int], share: float) -> float | None:
    """Return the estimated quantile of durations in buckets, in milliseconds; None if there are none."""
    wanted, seen = sum(buckets) * share, 0
    if not wanted:
        return None
    for index, count in enumerate(buckets):
        if seen + count >= wanted:
            low = BOUNDS_MS[index - 1] if index else 0.0
            high = BOUNDS_MS[min(index, len(BOUNDS_MS) - 1)]
            return low + (high - low) * (wanted - seen) / count
        seen += count
    raise AssertionError("a share is at most 1")


@dataclass(slots=True)
class Totals:
    """Counts since the start.

    Attributes:
        requests: Requests by API and node id.
        errors: Responses by API, node id and name of the error.
        latencies: Durations by API, by the brokers' time.
    """

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    errors: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    latencies: dict[str, Histogram] = field(default_factory=dict)

    def copy(self) -> "Totals":
        """Return an independent copy."""
        latencies = {api: histogram.copy() for api, histogram in self.latencies.items()}
        return Totals(Counter(self.requests), Counter(self.errors), latencies)


class Meter:
    """The counts of one cluster. All methods but `__init__` must run in the cluster's thread.

    Attributes:
        totals: Counts of requests.
        missed: Requests dropped by the journal before they could be counted.
        rebalances: Number of rebalances that began.
        rebalance_durations: From the beginning of a rebalance until the group is Stable or Empty.
        rebalances_of: Number of rebalances by group, for existing groups.
        changes: Number of moments of all groups.
        removals: Number of groups that were removed.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._journal: Journal | None = None
        self._history: History | None = None
        self._seen = 0
        self._owed: list[Call] = []
        self._began_ms: dict[str, float] = {}
        self.totals = Totals()
        self.missed = 0
        self.rebalances = 0
        self.rebalance_durations = Histogram()
        self.rebalances_of: dict[str, int] = {}
        self.changes = 0
        self.removals = 0
        self._has_ended = False
        self._moments: deque[tuple[str, Moment]] = deque(maxlen=_MOMENTS_KEPT)

    def look(self) -> bool:
        """Called after each change of the cluster; returns whether to stop calling it."""
        if self._has_ended:
            return True
        journal = self._cluster.cluster.journal
        if journal is not self._journal or journal.added - self._seen >= min(_MOST_AT_ONCE, journal.max_calls // 2):
            self.catch_up()
        return False

    @property
    def hears(self) -> bool:
        """Whether changes of groups are received."""
        return self._history is self._cluster.cluster.history and not self._has_ended

    def end(self) -> None:
        """Unsubscribe from the cluster, which may continue without control."""
        self._has_ended = True
        if self._history is not None:
            self._history.listeners.remove(self._note)

    def catch_up(self) -> None:
        """Count the requests since the last call."""
        core = self._cluster.cluster
        if core.journal is not self._journal:  # after a reset
            self._count_new()
            self._journal, self._seen = core.journal, 0
        if core.history is not self._history:
            self._history = core.history
            core.history.listeners.append(self._note)
        self._count_new()
        if self._owed:
            self._owed = [call for call in self._owed if not self._is_over(call)]

    def _count_new(self) -> None:
        """Count new requests in the journal; those that it has already dropped are missed."""
        journal = self._journal
        if journal is None:
            return
        come = journal.added - self._seen
        kept = min(come, len(journal))
        self.missed += come - kept
        self._seen = journal.added
        if kept:
            self._count(journal, kept)

    def _count(self, journal: Journal, kept: int) -> None:
        """Count the newest `kept` calls."""
        # Heartbeats come by the hundred thousand, so they are counted by built-in functions only.
        newest = islice(reversed(journal), kept)
        alive = Counter([call.peer for call in newest if call.response is ALIVE and not call.answered_after])
        for peer, count in alive.items():
            self.totals.requests["Heartbeat", peer.broker.node_id] += count
        if alive:
            self._latency("Heartbeat").add(0.0, alive.total())
        if kept == alive.total():
            return
        for call in journal.newest(kept):
            if call.response is ALIVE and not call.answered_after:
                continue
            self.totals.requests[call.api.name, call.node_id] += 1
            if not self._is_over(call):
                self._owed.append(call)

    def _is_over(self, call: Call) -> bool:
        """Return whether no response is pending any more; count the response if there is one."""
        if call.latency_ms is None:
            return isinstance(call.peer, Connection) and call.peer.is_closed
        self._latency(call.api.name).add(call.latency_ms)
        for error in call.errors:
            self.totals.errors[call.api.name, call.node_id, error.name] += 1
        return True

    def _latency(self, api: str) -> Histogram:
        return self.totals.latencies.setdefault(api, Histogram())

    # Rebalances

    def _note(self, group_id: str, moments: Sequence[Moment]) -> None:
        for moment in moments:
            if moment.is_transition:
                self._transition(group_id, moment)
            self._moments.append((group_id, moment))
        self.changes += len(moments)

    def changed_since(self, changes: int) -> dict[str, list[Moment]]:
        """Return the moments of groups after the first `changes` ones, as far as they are kept."""
        found: dict[str, list[Moment]] = {}
        for group_id, moment in list(islice(reversed(self._moments), self.changes - changes))[::-1]:
            found.setdefault(group_id, []).append(moment)
        return found

    def _transition(self, group_id: str, moment: Moment) -> None:
        if moment.state_to == _PREPARING:
            self.rebalances += 1
            self.rebalances_of[group_id] = self.rebalances_of.get(group_id, 0) + 1
            self._began_ms.setdefault(group_id, moment.at_ms)
        elif moment.state_to != _COMPLETING:
            began_ms = self._began_ms.pop(group_id, None)
            if began_ms is not None and moment.state_to != DEAD:
                self.rebalance_durations.add(moment.at_ms - began_ms)
        if moment.state_to == DEAD:
            self.removals += 1
            self.rebalances_of.pop(group_id, None)

    # Groups

    def busiest(self) -> Counter[str]:
        """Return how often groups are named in the latest requests, an estimate of their load."""
        found: Counter[str] = Counter()
        for call in self._cluster.cluster.journal.newest(_LOOKED_AT):
            found.update(call.group_ids)
        return found
