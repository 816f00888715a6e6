"""The handle of a whole cluster: commands, views and conditions that concern all of it, and the handles of its parts.

`FakeCluster`, `fakebroker.control.Client` and the simulation of replays extend or use it.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Unpack

from msgspec import Meta

from fakebroker.cluster import snapshot as snapshots
from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.handles.acls import AclsHandle
from fakebroker.cluster.handles.brokers import BrokerHandle, BrokersHandle
from fakebroker.cluster.handles.conditions import Condition, condition, found_at, handle_conditions
from fakebroker.cluster.handles.definition import Handle, check_type, command, state_text, view
from fakebroker.cluster.handles.environment import MAX_ADVANCE_S
from fakebroker.cluster.handles.faults import SHOWN_REQUESTS, FaultHandle, FaultView, add_fault, fault_view
from fakebroker.cluster.handles.group import GroupHandle
from fakebroker.cluster.handles.local import Instant
from fakebroker.cluster.handles.topic import TopicHandle, TopicView, topic_view
from fakebroker.cluster.handles.transaction import TransactionHandle
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.cluster.inspect.journal_queries import Filters, Matcher, view_journal
from fakebroker.cluster.inspect.reports import report
from fakebroker.cluster.inspect.transaction_views import (
    HangingTransaction,
    TransactionView,
    checked_filters,
    hanging_transactions,
    view_transactions,
)
from fakebroker.cluster.inspect.views import GroupView, view_groups
from fakebroker.cluster.journal.journal import Journal
from fakebroker.cluster.seeding.seed import GroupTable, seed_groups
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.errors import ConditionNotMet, check_integer, cut_lines
from fakebroker.validation import Positive


class _Matching:
    """The requests that match filters, from the journal and received later."""

    def __init__(self, at: Instant, api: str | None, filters: dict[str, Any]) -> None:
        self.journal: Journal = at.cluster.journal
        self._matches = view_journal(at.cluster).matcher(api, filters)
        # Calls are numbered in the order in which they were added to the journal. The journal drops the oldest ones.
        self._seen = self.journal.dropped
        self._unanswered: list[tuple[int, Call]] = []
        self._found: list[tuple[int, Call]] = []

    def found(self) -> list[Call]:
        new = self.journal.newest(self.journal.added - self._seen)
        self._seen = self.journal.added
        # A filter may match the response. So calls without a response are tested again.
        unanswered, self._unanswered = self._unanswered, []
        for each in [*unanswered, *enumerate(new, self.journal.added - len(new))]:
            if self._matches(each[1]):
                self._found.append(each)
            elif each[1].answered_ms is None:
                self._unanswered.append(each)
        return [call for _, call in sorted(self._found, key=lambda each: each[0])]


def _check_request(api: str | None = None, client_id: str | None = None, count: int = 1, **filters: Any) -> None:
    """Check filters that do not depend on a cluster; node ids do."""
    if filters.get("broker") is not None:
        check_integer("broker", filters["broker"])
    Matcher(api, {"client_id": client_id, **filters, "broker": None}, (), lambda topic_id: None)


class ClusterHandle(Handle):
    """A cluster. Its methods that need no name are events without a prefix, such as `{"do": "clear_faults"}`."""

    _kind = ""

    # The parts of a cluster

    def group(self, group_id: str) -> GroupHandle:
        """Return the handle of a group, which need not exist yet."""
        return GroupHandle(self._owner, group_id)

    def topic(self, topic: str) -> TopicHandle:
        """Return the handle of a topic, which need not exist yet."""
        return TopicHandle(self._owner, topic)

    def transaction(self, transactional_id: str) -> TransactionHandle:
        """Return the handle of a transactional id, which need not exist yet."""
        return TransactionHandle(self._owner, transactional_id)

    def broker(self, node_id: int) -> BrokerHandle:
        """Return the handle of a broker."""
        return BrokerHandle(self._owner, node_id)

    @property
    def brokers(self) -> BrokersHandle:
        """All brokers: a sequence of `BrokerView`, with commands for all brokers."""
        return BrokersHandle(self._owner)

    @property
    def acls(self) -> AclsHandle:
        """The ACLs: `cluster.acls.deny("ANONYMOUS", "READ", group="billing")`."""
        return AclsHandle(self._owner)

    # Views

    @view
    def groups(self) -> list[GroupView]:
        """Return the current state of all groups, ordered by the node id of their coordinator."""
        local = self._local
        return local.run(lambda: view_groups(local.cluster, local.now_ms()))

    @view
    def topics(self) -> list[TopicView]:
        """Return all topics, in the order of their creation."""
        local = self._local
        return local.run(lambda: [topic_view(local.cluster, topic) for topic in local.cluster.topics])

    @view
    def transactions(
        self, *, state: str | None = None, producer_id: int | None = None, longer_than_s: float | None = None
    ) -> list[TransactionView]:
        """Return the current state of the transactional ids that match all filters, ordered by their coordinators.

        Args:
            state: Only ids in this state, by Kafka's name, such as "Ongoing".
            producer_id: Only the id with this producer id.
            longer_than_s: Only ids whose transaction has begun more than this number of seconds ago and has not ended.

        Raises:
            ConfigError: There is no such state, or a number has the wrong type or is negative.
        """
        local, filters = self._local, checked_filters(state, producer_id, longer_than_s)
        return local.run(lambda: view_transactions(local.cluster, local.now_ms(), **filters))

    @view
    def hanging_transactions(self) -> list[HangingTransaction]:
        """Return the transactions that are open in partitions, but not at a coordinator (KIP-664).

        Their records, and later ones of their partitions, stay invisible to read_committed consumers until an admin
        client aborts them. While a coordinator is loading, its open transactions are among them.
        """
        local = self._local
        return local.run(lambda: hanging_transactions(local.cluster))

    @view
    def deadlines(self, limit: Positive | None = None) -> list[Deadline]:
        """Return the pending timers of all groups, transactional ids and brokers, earliest first.

        Each heartbeat changes them, since it extends a session.

        Args:
            limit: The maximum number; None for all, which takes time with thousands of groups.
        """
        local = self._local
        return local.run(lambda: pending_deadlines(local.cluster, local.now_ms(), limit))

    @view
    def faults(self) -> list[FaultView]:
        """Return the faults that were not removed, oldest first, including those whose `times` are used up."""
        local = self._local
        return local.run(lambda: [fault_view(local, each) for each in local.cluster.faults.active])

    @view
    def action_errors(self) -> list[str]:
        """Return the last errors of actions of faults (`Fault.before` and `Fault.then`) since the last reset."""
        local = self._local
        return local.run(lambda: list(local.cluster.faults.actions.errors))

    @view
    def report(self) -> str:
        """Return what a failed test shows, as text: errors, partitions, records, groups, timelines and requests.

        The report has the groups and transactional ids that changed last, the last requests without idle heartbeats and
        fetches, and the first 200 characters of each line. It mentions omissions.
        """
        local = self._local

        def text() -> str:
            cluster = local.cluster
            found = report(cluster, local.seed, local.now_ms())
            errors = [cut_lines(f"an action of a fault failed: {error}") for error in cluster.faults.actions.errors]
            refusals = local.environment.closed_connections()
            return "\n".join([found, *errors, *(["", refusals] if refusals else [])])

        return local.run(text)

    # Conditions

    @condition(_check_request, after_requests=True)
    def requested(
        self,
        at: Instant,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: Positive = 1,
        **filters: Unpack[Filters],
    ) -> list[Call] | None:
        """At least this many matching requests have arrived since the start or the last reset.

        Requests that the journal had dropped before the wait do not count.

        Args:
            api: Only requests of this API, by Kafka's name, such as "JoinGroup".
            client_id: Only requests of this client.
            count: The number of requests.
            filters: Only requests that match all of these filters; see `Filters`.
        """
        given = {"client_id": client_id, **filters}
        matching = at.remembered(lambda: _Matching(at, api, given))
        if matching.journal is not at.cluster.journal:  # The cluster was reset.
            at.forget()
            matching = at.remembered(lambda: _Matching(at, api, given))
        found = matching.found()
        return found if len(found) >= count else None

    def _state_text(self, at: Instant) -> str:
        return view_journal(at.cluster).report(SHOWN_REQUESTS)

    # Commands

    @command
    def holds(self, condition: Any) -> bool:
        """Return whether a condition holds now.

        Args:
            condition: The condition, such as `cluster.group("billing").stable()`; in JSON `{"is": "group.stable",
                "group_id": "billing"}`.

        Raises:
            ConfigError: It is not a condition.
        """
        local = self._local
        return local.run(lambda: found_at(condition, Instant(local))) is not None

    @command
    def expect(self, condition: Any) -> None:
        """Require that a condition holds now. As an event of a workload or a transcript, it fails otherwise.

        Args:
            condition: As for `holds`.

        Raises:
            ConditionNotMet: The condition does not hold. The message describes the actual state.
            ConfigError: It is not a condition.
        """
        local = self._local

        def check() -> None:
            if found_at(condition, Instant(local)) is None:
                raise ConditionNotMet(f"{condition}: it does not hold\n{description_of(condition, Instant(local))}")

        local.run(check)

    @command
    def inject_fault(self, /, api: str | None, **options: Annotated[Any, Fault]) -> FaultHandle:
        """Inject a fault into requests: `inject_fault("OffsetCommit", group="g", error="NOT_COORDINATOR", times=2)`.

        Instead of a fault, or in addition, commands or functions can run before or after a request is handled:
        `inject_fault("OffsetCommit", nth=3, then=actions.broker(1).stop())`. Their errors are logged, and are in the
        journal and in `FaultHandle.errors`; the pytest plugin fails the test.

        A request can also be handled late. `inject_fault("Heartbeat", member="a", nth=2, delay_before_s=60)` delays a
        heartbeat by 60 s of the brokers' clock: the session expires, and the heartbeat gets UNKNOWN_MEMBER_ID.

        An error of a fault is only a response. With `error="UNKNOWN_MEMBER_ID"`, the group still has the member. To
        remove it before the request, use `before=actions.group("billing").evict("a")`.

        If several faults match a request, only the oldest of them applies. A fault that is applied to no request raises
        `ConditionNotMet` at the end of its `with` and of the cluster, and a test with the pytest plugin fails, unless
        `may_miss=True`.

        Args:
            api: Name of the API, as in Kafka. None: all APIs.
            options: Which requests of the API match, and what happens to them; see `fakebroker.Fault`.

        Returns:
            A handle that counts the affected requests (`hits`) and removes the fault, also as a context manager.

        Raises:
            ConfigError: The fault could never take effect: an API, version, broker, error or option does not exist, or
                options contradict each other.
        """
        return add_fault(self._local, Fault(api=api, **options))

    @command
    def clear_faults(self) -> None:
        """Remove all faults, and failures of appends. Requests and responses that they delay still arrive when due."""
        local = self._local

        def clear() -> None:
            local.cluster.faults.active.clear()
            local.cluster.append_failures.active.clear()

        local.run(clear)

    @command
    def seed_groups(self, groups: Sequence[GroupTable]) -> None:
        """Create several groups, or none if one of them cannot be created.

        Args:
            groups: The groups, each with `group_id` and the options of `GroupHandle.seed`.

        Raises:
            ConfigError: As `GroupHandle.seed`.
        """
        local = self._local
        local.change(lambda: seed_groups(local.cluster, groups, local.now_ms()))

    @command
    def advance(self, seconds: Annotated[float, Meta(ge=0, le=MAX_ADVANCE_S)]) -> None:
        """Advance the brokers' clock and process everything that is due by then.

        Requires a manual clock. No request is handled meanwhile, so every session that is shorter expires, except those
        of members with a pending response; a new member expires after 300 s of waiting. If the expiry of a timer starts
        another timer, the new timer counts from the new time; `advance_to_next_deadline` avoids that.

        Args:
            seconds: Seconds to advance by, 0 or more.

        Raises:
            ConfigError: The clock is not manual, or the number of seconds is out of range.
        """
        self._local.environment.advance(seconds)

    @command
    def advance_to_next_deadline(self) -> list[Deadline] | None:
        """Advance the brokers' clock to the next deadline and process it.

        Requires a manual clock.

        Returns:
            The deadlines that were reached; all have the same due time. Their `in_s` is the number of seconds by which
            the clock was advanced. None if no deadline was pending.

        Raises:
            ConfigError: The clock is not manual.
        """

        local = self._local

        def advance() -> list[Deadline] | None:
            now_ms = local.now_ms()
            next_ms = (each.at_ms for each in pending_deadlines(local.cluster, now_ms, first=1))
            first = [each for at_ms in next_ms for each in pending_deadlines(local.cluster, now_ms, until_ms=at_ms)]
            local.environment.advance(first[0].in_s if first else 0.0)
            # If the cluster is running, `advance` has already processed what is due, and this changes nothing.
            local.cluster.tick(local.now_ms(), local.cluster.wire_ms)
            return first or None

        return local.run(advance)

    @command
    def reset(self) -> None:
        """Return the cluster to its initial state, with the same topics, brokers and ids.

        Removes groups, offsets, records, holds and faults, empties the journal, and closes all connections. Ports and
        the clock do not change.
        """

        local = self._local

        def reset() -> None:
            fresh = local.new_cluster()
            with local.environment.replacing_brokers(fresh.brokers, cut_all=True):
                snapshots.start_over(local.cluster, fresh, local.now_ms())

        local.change(reset)


class LocalCluster(ClusterHandle):
    """A cluster in this process. Its snapshots are values."""

    def snapshot(self) -> Snapshot:
        """Take a snapshot, for `restore`.

        It contains topics with their records, brokers, leaders, configs, groups with their offsets, and transactional
        ids. Groups and ids are saved as their last record describes them; a rebalance in progress is not saved.
        """
        local = self._local
        return local.run(lambda: snapshots.take(local.cluster))

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this cluster.

        Groups and transactional ids are loaded from their logs, and all sessions start again. Parked joins and syncs
        get NOT_COORDINATOR. Holds, delays and faults are removed. Connections to brokers that are not in the snapshot,
        or stopped in it, are closed; others remain open. The clock and the sequences of ids are not set back. The
        timeouts of open transactions count from their start.

        Args:
            snapshot: A snapshot of this cluster.

        Raises:
            ConfigError: The snapshot was taken of another cluster.
            ListenError: The port of a broker that was removed after the snapshot is not available.
        """
        check_type("snapshot", snapshot, Snapshot, "a Snapshot")
        local = self._local
        cluster = local.cluster
        snapshots.check(cluster, snapshot)

        def restore() -> None:
            with local.environment.replacing_brokers(snapshot.brokers, cut_all=False):
                snapshots.restore(cluster, snapshot, local.now_ms())

        local.change(restore, snapshots.stored_bytes(cluster, snapshot))


def description_of(condition: Condition[Any], at: Instant) -> str:
    """Return the state of the things that a condition is about, as text."""
    texts = {}
    for leaf in handle_conditions(condition):
        handle = leaf.definition.of(at.local, leaf.key)
        texts[repr(handle)] = state_text(handle, at)
    return "\n".join(texts.values())
