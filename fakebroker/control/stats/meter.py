"""Counts requests, errors, latencies and rebalances of a cluster, from its journal, its history and its reactor.

There are two latencies of a request. The broker time is the time by the brokers' clock from when the request was
received until its response was known: it includes the waiting of a JoinGroup or SyncGroup for other members and the
delays of faults, and is 0 for requests that are answered at once. The wire time is the real time from when the request
was read until the operating system accepted the last byte of the response (`ResponseTimes`). With the real clock it
contains the broker time; injected latency of the network and slow clients are in the wire time only.

Requests are counted in the cluster's thread in batches: after every 2000 requests at most, and when the counts are
read. Handling a request does no counting, except that the reactor records wire times. Does not depend on HTTP.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.heartbeat import ALIVE
from fakebroker.cluster.inspect.views import GroupType
from fakebroker.cluster.journal.journal import Journal
from fakebroker.control.stats.sketch import Sketch
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.consumer.group import UPGRADED
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.group_history import History, Moment, RecordedMoment
from fakebroker.coordinator.history import DEAD, LOADED, MAX_SIZE
from fakebroker.coordinator.transaction.history import RecordedTransactionMoment, TransactionHistory
from fakebroker.coordinator.transaction.transaction import PREPARE_ABORT, PREPARE_COMMIT
from fakebroker.server.connections.connection import Connection
from fakebroker.server.fake_cluster import FakeCluster, internals

_BATCH_SIZE = 2_000
_CALLS_FOR_LOAD = 1_000
_MAX_MOMENTS = 10_000
_PREPARING = GroupState.PREPARING_REBALANCE.value
_COMPLETING = GroupState.COMPLETING_REBALANCE.value
_SETTLED = (ConsumerGroupState.STABLE.value, ConsumerGroupState.EMPTY.value)
_CONTINUED = (LOADED, UPGRADED)
"""The causes of first moments after which a group has an epoch without a rebalance."""
_OUTCOMES = {PREPARE_COMMIT.value: "commit", PREPARE_ABORT.value: "abort"}
"""The outcome of a transaction by the state before its end."""


@dataclass(slots=True)
class Totals:
    """Counts since the start.

    Attributes:
        requests: Requests by API and node id.
        errors: Responses by API, node id and name of the error.
        broker_times: Broker times by API.
        wire_times: Wire times by API.
    """

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    errors: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    broker_times: dict[str, Sketch] = field(default_factory=dict)
    wire_times: dict[str, Sketch] = field(default_factory=dict)

    def copy(self) -> "Totals":
        """Return an independent copy."""
        return Totals(
            Counter(self.requests),
            Counter(self.errors),
            {api: times.copy() for api, times in self.broker_times.items()},
            {api: times.copy() for api, times in self.wire_times.items()},
        )


class Meter:
    """The counts of one cluster. All methods but `__init__` must run in the cluster's thread.

    Attributes:
        totals: Counts of requests.
        missed: Requests dropped by the journal before they could be counted.
        dropped_before: Requests dropped by journals before the last reset.
        rebalances: Number of started rebalances by type of the group. A consumer group's rebalance starts when the
            group's epoch rises.
        rebalance_durations: Times from the start of a rebalance until the group is Stable or Empty, by type.
        rebalances_of: Number of rebalances by group, for existing groups.
        changes: Number of moments of all groups.
        removals: Number of groups that were removed.
        ended_transactions: Number of transactions that have ended, by outcome: "commit" or "abort".
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._server, self._core = internals(cluster).server, internals(cluster).cluster
        self._journal: Journal | None = None
        self._history: History | None = None
        self._seen = 0
        self._pending: list[Call] = []
        # Broker times that are added together: of responses by API.
        self._new_times: dict[str, list[float]] = {}
        self._started_ms: dict[str, float] = {}
        # The group epochs of consumer groups.
        self._epochs: dict[str, int] = {}
        self.totals = Totals()
        self.missed = 0
        self.dropped_before = 0
        self.rebalances: Counter[GroupType] = Counter()
        self.rebalance_durations: dict[GroupType, Sketch] = {"classic": Sketch(), "consumer": Sketch()}
        self.rebalances_of: dict[str, int] = {}
        self.changes = 0
        self.removals = 0
        self.ended_transactions: Counter[str] = Counter()
        self._transaction_history: TransactionHistory | None = None
        self._has_unsubscribed = False
        self._moments: deque[tuple[str, RecordedMoment]] = deque(maxlen=_MAX_MOMENTS)
        self._moments_ids = 0

    def on_change(self) -> bool:
        """Count if a batch is complete. The cluster calls it after each change; it returns whether to stop that."""
        if self._has_unsubscribed:
            return True
        journal = self._core.journal
        if journal is not self._journal or journal.added - self._seen >= min(_BATCH_SIZE, journal.max_calls // 2):
            self.catch_up()
        return False

    @property
    def is_subscribed(self) -> bool:
        """Whether the meter receives all changes of groups; not between a reset and the next `catch_up`."""
        return self._history is self._core.history and not self._has_unsubscribed

    def unsubscribe(self) -> None:
        """Stop counting; the cluster may continue without a control server."""
        self._has_unsubscribed = True
        self._server.reactor.response_times.stop()
        if self._history is not None:
            self._history.listeners.remove(self._on_moments)
        if self._transaction_history is not None:
            self._transaction_history.listeners.remove(self._on_transaction_moments)

    def catch_up(self) -> None:
        """Count the requests since the last call. After a reset, subscribe to the new journal and history."""
        core = self._core
        if core.journal is not self._journal:
            self._count_new()
            if self._journal is None:
                self._server.reactor.response_times.start()
            else:
                self.dropped_before += self._journal.dropped
            self._journal, self._seen = core.journal, 0
        if core.history is not self._history:
            self._history = core.history
            for by_group in (self._started_ms, self._epochs, self.rebalances_of):
                by_group.clear()
            core.history.listeners.append(self._on_moments)
        if core.transactions.history is not self._transaction_history:
            self._transaction_history = core.transactions.history
            core.transactions.history.listeners.append(self._on_transaction_moments)
        self._count_new()
        if self._pending:
            self._pending = [call for call in self._pending if not self._count_response(call)]
        for api, times_ms in self._new_times.items():
            _sketch(self.totals.broker_times, api).add(times_ms)
        self._new_times.clear()
        for api, times_ms in self._server.reactor.response_times.take().items():
            _sketch(self.totals.wire_times, api).add(times_ms)

    def _count_new(self) -> None:
        """Count new requests in the journal; those that it has already dropped are missed."""
        journal = self._journal
        if journal is None:
            return
        new = journal.added - self._seen
        in_journal = min(new, len(journal))
        self.missed += new - in_journal
        self._seen = journal.added
        if in_journal:
            self._count_newest(journal, in_journal)

    def _count_newest(self, journal: Journal, number: int) -> None:
        """Count the newest calls of the journal."""
        # There are hundreds of thousands of successful heartbeats, so they are counted without Python code per call.
        newest = islice(reversed(journal), number)
        alive = Counter([call.peer for call in newest if call.response is ALIVE and not call.answered_after])
        for peer, count in alive.items():
            self.totals.requests["Heartbeat", peer.broker.node_id] += count
        if alive:
            _sketch(self.totals.broker_times, "Heartbeat").add_zeros(alive.total())
        if number == alive.total():
            return
        for call in journal.newest(number):
            if call.response is ALIVE and not call.answered_after:
                continue
            self.totals.requests[call.api.name, call.node_id] += 1
            if not self._count_response(call):
                self._pending.append(call)

    def _count_response(self, call: Call) -> bool:
        """Count the response to a call; return whether there is one, or can be none because the client disconnected."""
        if call.latency_ms is None:
            return isinstance(call.peer, Connection) and call.peer.is_closed
        self._new_times.setdefault(call.api.name, []).append(call.latency_ms)
        for error in call.errors:
            self.totals.errors[call.api.name, call.node_id, error.name] += 1
        return True

    # Rebalances

    def _on_moments(self, group_id: str, moments: Sequence[RecordedMoment]) -> None:
        for moment in moments:
            if moment.assignment_epoch is not None:
                self._count_epochs(group_id, moment)
            elif moment.is_transition:
                self._count_transition(group_id, moment)
            if moment.state_to == DEAD:
                self._count_removal(group_id)
            if len(self._moments) == _MAX_MOMENTS:
                self._moments_ids -= self._moments[0][1].size
            self._moments.append((group_id, moment))
            self._moments_ids += moment.size
        while self._moments_ids > MAX_SIZE:
            self._moments_ids -= self._moments.popleft()[1].size
        self.changes += len(moments)

    def _on_transaction_moments(self, transactional_id: str, moments: Sequence[RecordedTransactionMoment]) -> None:
        for moment in moments:
            if moment.is_transition and moment.state_from in _OUTCOMES:
                self.ended_transactions[_OUTCOMES[moment.state_from]] += 1

    def changed_since(self, changes: int) -> dict[str, list[Moment]]:
        """Return the moments by group since `self.changes` had this value; at most the last 10,000 are kept."""
        by_group: dict[str, list[Moment]] = {}
        for group_id, moment in list(islice(reversed(self._moments), self.changes - changes))[::-1]:
            by_group.setdefault(group_id, []).append(moment.moment())
        return by_group

    def _count_transition(self, group_id: str, moment: RecordedMoment) -> None:
        if moment.state_to == _PREPARING:
            self._count_start("classic", group_id, moment)
        elif moment.state_to not in (_COMPLETING, DEAD):
            self._count_end("classic", group_id, moment)

    def _count_epochs(self, group_id: str, moment: RecordedMoment) -> None:
        """Count rebalances of a consumer group: changes of its epoch, except by the removal of its last member."""
        before = moment.generation_id if moment.cause in _CONTINUED else self._epochs.get(group_id, 0)
        self._epochs[group_id] = moment.generation_id
        if moment.generation_id > before and moment.members:
            self._count_start("consumer", group_id, moment)
        if moment.state_to in _SETTLED:
            self._count_end("consumer", group_id, moment)

    def _count_start(self, group_type: GroupType, group_id: str, moment: RecordedMoment) -> None:
        self.rebalances[group_type] += 1
        self.rebalances_of[group_id] = self.rebalances_of.get(group_id, 0) + 1
        self._started_ms.setdefault(group_id, moment.at_ms)

    def _count_end(self, group_type: GroupType, group_id: str, moment: RecordedMoment) -> None:
        started_ms = self._started_ms.pop(group_id, None)
        if started_ms is not None:
            self.rebalance_durations[group_type].add([moment.at_ms - started_ms])

    def _count_removal(self, group_id: str) -> None:
        self.removals += 1
        self.rebalances_of.pop(group_id, None)
        self._started_ms.pop(group_id, None)
        self._epochs.pop(group_id, None)

    # Groups

    def load(self) -> Counter[str]:
        """Return the number of requests by group among the latest 1000, an estimate of their load."""
        requests: Counter[str] = Counter()
        for call in self._core.journal.newest(_CALLS_FOR_LOAD):
            requests.update(call.group_ids)
        return requests


def _sketch(by_api: dict[str, Sketch], api: str) -> Sketch:
    if api not in by_api:
        by_api[api] = Sketch()
    return by_api[api]
