"""Conditions of a cluster that a test can wait for. Their methods run in the cluster's thread."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.inspect.journal_queries import described, view_journal
from fakebroker.cluster.inspect.phrases import listed
from fakebroker.cluster.inspect.timelines import transaction_timeline_of
from fakebroker.cluster.inspect.transaction_views import TransactionView, view_of_moment, view_or_dead
from fakebroker.cluster.inspect.views import GroupView, MemberView, find_group, timeline_of, view_group, view_moment
from fakebroker.cluster.journal.journal import Journal
from fakebroker.coordinator.group_history import History, MemberChange, Moment
from fakebroker.coordinator.history import BoundedHistory, Recorded
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.coordinator.transaction.history import TransactionHistory, TransactionMoment
from fakebroker.errors import IncompleteHistoryError, nearest, printable
from fakebroker.server.waits.polling import Assignments, have_received
from fakebroker.topic_partition import TopicPartition, format_partitions

T = TypeVar("T")

Now = Callable[[], float]
"""Returns the brokers' time in milliseconds."""

_SHOWN = 20
"""Maximum number of groups, transactional ids or requests in the error of a wait."""


class Condition(Generic[T]):
    """A condition of a cluster, for one wait.

    Attributes:
        description: Describes the condition in errors: "group g in Stable".
        depends_on_clients: Whether to evaluate the condition also when a client was polled.
        observes_requests: Whether to call `observe` after each request.
    """

    depends_on_clients = False
    observes_requests = False

    def __init__(self, description: str) -> None:
        self.description = description

    def begin(self) -> None:
        """Called when the wait begins, before the first evaluation."""

    def end(self) -> None:
        """Called when the wait has ended, after `begin`."""

    def observe(self) -> None:
        """Called after each request, if `observes_requests` is set. The condition is evaluated less often."""

    def evaluate(self) -> T | None:
        """Return the result of the wait; a false value while the condition does not hold."""
        raise NotImplementedError

    def describe_state(self) -> str:
        """Return the current state as text, for errors."""
        raise NotImplementedError

    def changes(self) -> int | None:
        """Return how many changes of a group the condition has seen; None if it is not one of a group."""
        return None

    def is_settled(self, assignments: Assignments) -> bool:
        """Whether polled consumers have received what made the condition hold, given their assigned partitions."""
        return True

    def latest(self, result: T) -> T:
        """Return the result of the wait when `is_settled` has become true, given the first result."""
        return result


class PredicateCondition(Condition[T]):
    """A predicate returns a true value."""

    depends_on_clients = True

    def __init__(self, cluster: Cluster, now_ms: Now, what: str, predicate: Callable[[Cluster], T | None]) -> None:
        super().__init__(what)
        self._cluster = cluster
        self._now_ms = now_ms
        self._predicate = predicate

    def evaluate(self) -> T | None:
        return self._predicate(self._cluster)

    def describe_state(self) -> str:
        cluster, now_ms = self._cluster, self._now_ms()
        timelines: list[object] = [timeline_of(cluster, each, now_ms) for each in cluster.history.newest(_SHOWN)]
        ids = cluster.transactions.history.newest(_SHOWN)
        timelines += [transaction_timeline_of(cluster, each, now_ms) for each in ids]
        return "\n".join(map(str, timelines))


class HistoryCondition(Condition[T]):
    """A group or a transactional id is in a state, now or at any time since the wait began.

    Args:
        cluster: The cluster.
        now_ms: Returns the brokers' time.
        key: The id of the group, or the transactional id.
        description: Describes the condition: "group g in Stable".
        seen_changes: How many changes the caller knows: later ones are looked at, too. None: the caller knows all
            changes up to the beginning of the wait.
    """

    def __init__(self, cluster: Cluster, now_ms: Now, key: str, description: str, *, seen_changes: int | None) -> None:
        super().__init__(description)
        self._cluster = cluster
        self._now_ms = now_ms
        self._key = key
        self._seen_changes = seen_changes
        self._history: BoundedHistory[Any, Any]
        self._found: T | None = None

    def history_of_cluster(self) -> BoundedHistory[Any, Any]:
        """Return the history that has the changes. A reset replaces it."""
        raise NotImplementedError

    def view_of(self, moment: Any) -> T | None:
        """Return the view of a moment in which the condition held; None if it did not hold."""
        raise NotImplementedError

    def current_view(self) -> T | None:
        """Return the current view if the condition holds; else None."""
        raise NotImplementedError

    def begin(self) -> None:
        self._subscribe()
        if self._seen_changes is not None:
            self._find(self._history.since(self._key, self._seen_changes))
            if not self._history.is_complete_since(self._key, self._seen_changes) and self.evaluate() is None:
                self.end()
                raise IncompleteHistoryError(self._incomplete())

    def _incomplete(self) -> str:
        dropped = self._history.dropped_of(self._key)
        return (
            f"not decided: {self.description} since its first {self._seen_changes} changes: {dropped}, and it is not "
            "so now"
        )

    def end(self) -> None:
        self._history.listeners.remove(self._on_changes)

    def _subscribe(self) -> None:
        self._history = self.history_of_cluster()
        self._history.listeners.append(self._on_changes)

    def _on_changes(self, key: str, moments: Sequence[Recorded[Any]]) -> None:
        if key == self._key and self._found is None:
            self._find([moment.moment() for moment in moments])

    def _find(self, moments: Iterable[Any]) -> None:
        self._found = next((view for view in map(self.view_of, moments) if view is not None), None)

    def evaluate(self) -> T | None:
        if self._history is not self.history_of_cluster():  # The cluster was reset.
            self.end()
            self._subscribe()
        if self._found is None:
            self._found = self.current_view()
        return self._found

    def changes(self) -> int:
        return self.history_of_cluster().count_of(self._key)

    def latest(self, result: T) -> T:
        self._found = None
        return self.evaluate() or result


class GroupCondition(HistoryCondition[GroupView]):
    """A group is in a state, now or at any time since the wait began; see `HistoryCondition`.

    Args:
        cluster: The cluster.
        now_ms: Returns the brokers' time.
        group_id: The group.
        description: Describes the state: "in Stable".
        holds: Gets the name of the state, the generation id and the number of members.
        seen_changes: How many changes of the group the caller knows.
        is_stable: Whether the state is Stable, so that clients receive assignments.
    """

    def __init__(
        self,
        cluster: Cluster,
        now_ms: Now,
        group_id: str,
        description: str,
        holds: Callable[[str, int, int], bool],
        *,
        seen_changes: int | None,
        is_stable: bool = False,
    ) -> None:
        super().__init__(cluster, now_ms, group_id, f"group {group_id} {description}", seen_changes=seen_changes)
        self._holds = holds
        self._is_stable = is_stable

    def history_of_cluster(self) -> History:
        return self._cluster.history

    def view_of(self, moment: Moment) -> GroupView | None:
        coordinator = self._cluster.coordinator_of(self._key)
        # Other coordinators are zombies.
        if (coordinator is None or moment.coordinator_id == coordinator.node_id) and self._holds(
            moment.state_to, moment.generation_id, len(moment.members)
        ):
            return view_moment(self._cluster, self._key, moment, self._now_ms())
        return None

    def current_view(self) -> GroupView | None:
        group = find_group(self._cluster, self._key)
        if group is None:  # Or a consumer group, or Dead.
            view = view_group(self._cluster, self._key, self._now_ms())
            return view if self._holds(view.state, view.generation_id, len(view.members)) else None
        holds = self._holds(group.state.value, group.generation_id, len(group.members))
        return view_group(self._cluster, self._key, self._now_ms()) if holds else None

    def describe_state(self) -> str:
        return _explanation(self._cluster, self._key, self._now_ms())

    def is_settled(self, assignments: Assignments) -> bool:
        if not self._is_stable:
            return True
        view = view_group(self._cluster, self._key, self._now_ms())
        topics = {topic for member in view.members for topic in member.subscribed_topics or ()}
        return have_received(view, assignments, has_topics=any(topic in self._cluster.topics for topic in topics))


class MemberCondition(HistoryCondition[GroupView]):
    """A member of a consumer group (KIP-848) is in a state or an epoch, now or at any time since the wait began.

    Args:
        cluster: The cluster.
        now_ms: Returns the brokers' time.
        group_id: The group.
        member: Member id, instance id or client id.
        state: The name of the state; None for any.
        above: The member epoch must be above this number; None for any.
        seen_changes: How many changes of the group the caller knows.
    """

    def __init__(
        self,
        cluster: Cluster,
        now_ms: Now,
        group_id: str,
        member: str,
        state: str | None,
        above: int | None,
        *,
        seen_changes: int | None,
    ) -> None:
        wanted = [f"in {state}"] * (state is not None) + [f"in an epoch above {above}"] * (above is not None)
        description = " ".join([f"member {member} of group {group_id}", *wanted])
        super().__init__(cluster, now_ms, group_id, description, seen_changes=seen_changes)
        self._member, self._state, self._above = member, state, above

    def history_of_cluster(self) -> History:
        return self._cluster.history

    def view_of(self, moment: Moment) -> GroupView | None:
        coordinator = self._cluster.coordinator_of(self._key)
        # Other coordinators are zombies.
        if (coordinator is None or moment.coordinator_id == coordinator.node_id) and self._holds(moment.changes):
            return view_moment(self._cluster, self._key, moment, self._now_ms())
        return None

    def current_view(self) -> GroupView | None:
        view = view_group(self._cluster, self._key, self._now_ms())
        return view if self._holds(view.members) else None

    def _holds(self, members: Iterable[MemberView | MemberChange]) -> bool:
        return any(
            self._member in (each.member_id, each.instance_id, each.client_id)
            and each.member_epoch is not None
            and self._state in (None, each.state)
            and (self._above is None or each.member_epoch > self._above)
            for each in members
        )

    def describe_state(self) -> str:
        return _explanation(self._cluster, self._key, self._now_ms())


class TransactionCondition(HistoryCondition[TransactionView]):
    """A transactional id is in a state, now or at any time since the wait began; see `HistoryCondition`.

    Args:
        cluster: The cluster.
        now_ms: Returns the brokers' time.
        transactional_id: The transactional id.
        state: The name of the state; None for any.
        pending_state: The name of the next state, which must be pending now; None for any, and none.
        seen_changes: How many changes of the id the caller knows.
    """

    def __init__(
        self,
        cluster: Cluster,
        now_ms: Now,
        transactional_id: str,
        state: str | None,
        pending_state: str | None,
        *,
        seen_changes: int | None,
    ) -> None:
        states = [f"in {state}"] * bool(state) + [f"with {pending_state} pending"] * bool(pending_state)
        description = f"transactional id {transactional_id} {' '.join(states)}"
        super().__init__(cluster, now_ms, transactional_id, description, seen_changes=seen_changes)
        self._state, self._pending_state = state, pending_state

    def history_of_cluster(self) -> TransactionHistory:
        return self._cluster.transactions.history

    def view_of(self, moment: TransactionMoment) -> TransactionView | None:
        if self._pending_state is not None or moment.state_to != self._state:
            return None
        coordinator = self._cluster.transactions.coordinator_of(self._key)
        if coordinator is not None and moment.coordinator_id != coordinator.node_id:
            return None  # of a zombie
        return view_of_moment(self._cluster, self._key, moment, self._now_ms())

    def current_view(self) -> TransactionView | None:
        view = view_or_dead(self._cluster, self._key, self._now_ms())
        is_held = self._state in (None, view.state) and self._pending_state in (None, view.pending_state)
        return view if is_held else None

    def describe_state(self) -> str:
        now_ms = self._now_ms()
        timeline = transaction_timeline_of(self._cluster, self._key, now_ms)
        text = f"{explain_transaction(self._cluster, self._key, now_ms)}\n\n{timeline}"
        return text + _others(self._cluster.transactions.history, self._key, "transactional ids")


class CommitCondition(Condition[CommittedOffset]):
    """The committed offset of a partition is at least a number, now or after a request since the wait began."""

    observes_requests = True

    def __init__(self, cluster: Cluster, now_ms: Now, group_id: str, partition: TopicPartition, at_least: int) -> None:
        super().__init__(f"group {group_id} with at least {at_least} committed for {format_partitions([partition])}")
        self._cluster = cluster
        self._now_ms = now_ms
        self._group_id = group_id
        self._partition = partition
        self._at_least = at_least
        self._found: CommittedOffset | None = None

    def observe(self) -> None:
        committed = self._committed()
        if self._found is None and committed is not None and committed.offset >= self._at_least:
            self._found = committed

    def evaluate(self) -> CommittedOffset | None:
        self.observe()
        return self._found

    def _committed(self) -> CommittedOffset | None:
        broker = self._cluster.coordinator_of(self._group_id)
        offsets = broker.coordinator.offsets.of(self._group_id)[1] if broker else None
        return offsets.get(*self._partition) if offsets else None

    def describe_state(self) -> str:
        committed = self._committed()
        explanation = _explanation(self._cluster, self._group_id, self._now_ms())
        return f"committed: {'nothing' if committed is None else committed.offset}\n{explanation}"


class RequestCondition(Condition[list[Call]]):
    """The journal has, or had since the wait began, a number of matching requests.

    Args:
        cluster: The cluster, whose journal must be on.
        api: API by Kafka's name; None for any.
        filters: Further filters; see `journal_filters.Filters`.
        count: The number of requests.
    """

    observes_requests = True

    def __init__(self, cluster: Cluster, api: str | None, filters: Mapping[str, object], count: int) -> None:
        super().__init__(f"{count} of {described(api, filters)}")
        self._cluster = cluster
        self._matches = view_journal(cluster).matcher(api, filters)
        self._count = count
        self._start(cluster.journal)

    def _start(self, journal: Journal) -> None:
        self._journal = journal
        # Calls are numbered in the order in which they were added to the journal. The journal drops the oldest ones.
        self._seen = journal.dropped
        self._unanswered: list[tuple[int, Call]] = []
        self._found: list[tuple[int, Call]] = []

    def observe(self) -> None:
        if self._journal is not self._cluster.journal:  # The cluster was reset.
            self._start(self._cluster.journal)
        journal = self._journal
        new = journal.newest(journal.added - self._seen)
        self._seen = journal.added
        self._test(list(enumerate(new, journal.added - len(new))))

    def _test(self, numbered: Sequence[tuple[int, Call]]) -> None:
        """Test calls. Those without a response are kept, because a filter may match the response."""
        for each in numbered:
            if self._matches(each[1]):
                self._found.append(each)
            elif each[1].answered_ms is None:
                self._unanswered.append(each)

    def evaluate(self) -> list[Call] | None:
        self.observe()
        unanswered, self._unanswered = self._unanswered, []
        self._test(unanswered)
        if len(self._found) < self._count:
            return None
        return [call for _, call in sorted(self._found, key=lambda each: each[0])]

    def describe_state(self) -> str:
        return f"received: {len(self._found)}; {view_journal(self._cluster).report(_SHOWN)}"


def _explanation(cluster: Cluster, group_id: str, now_ms: float) -> str:
    text = f"{explain(cluster, group_id, now_ms)}\n\n{timeline_of(cluster, group_id, now_ms)}"
    return text + _others(cluster.history, group_id, "groups")


def _others(history: BoundedHistory[Any, Any], key: str, kind: str) -> str:
    """Return a line with the keys that have a history, if this one has none: it may be mistyped."""
    others = history.newest(_SHOWN)
    if history.count_of(key) or not others:
        return ""
    near = nearest(key, others)
    return f"\n{printable(f'other {kind}: {listed(others)}')}" + (f"; did you mean {near!r}?" if near else "")
