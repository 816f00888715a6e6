"""Conditions of a cluster that a test can wait for. Their methods run in the cluster's thread."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.journal_filters import described
from fakebroker.cluster.inspect.journal_queries import view_journal
from fakebroker.cluster.inspect.views import GroupView, find_group, timeline_of, view_group, view_moment
from fakebroker.cluster.journal.journal import Journal
from fakebroker.coordinator.group.history import History, Moment, RecordedMoment
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import IncompleteHistoryError
from fakebroker.server.polling import Assignments, have_received
from fakebroker.topic_partition import TopicPartition, format_partitions

T = TypeVar("T")

Now = Callable[[], float]
"""Returns the brokers' time in milliseconds."""

_SHOWN = 20
"""Maximum number of groups, or of requests, in the error of a wait."""


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
        now_ms, group_ids = self._now_ms(), self._cluster.history.newest(_SHOWN)
        return "\n".join(str(timeline_of(self._cluster, group_id, now_ms)) for group_id in group_ids)


class GroupCondition(Condition[GroupView]):
    """A group is in a state, now or at any time since the wait began.

    Args:
        cluster: The cluster.
        now_ms: Returns the brokers' time.
        group_id: The group.
        description: Describes the state: "in Stable".
        holds: Gets the name of the state, the generation id and the number of members.
        seen_changes: How many changes of the group the caller knows: later ones are looked at, too. None: the caller
            knows all changes up to the beginning of the wait.
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
        super().__init__(f"group {group_id} {description}")
        self._cluster = cluster
        self._now_ms = now_ms
        self._group_id = group_id
        self._holds = holds
        self._seen_changes = seen_changes
        self._is_stable = is_stable
        self._history: History
        self._found: GroupView | None = None

    def begin(self) -> None:
        self._subscribe()
        if self._seen_changes is not None:
            self._find(self._history.since(self._group_id, self._seen_changes))
            if not self._history.is_complete_since(self._group_id, self._seen_changes) and self.evaluate() is None:
                self.end()
                raise IncompleteHistoryError(self._incomplete())

    def _incomplete(self) -> str:
        dropped = self._history.dropped_of(self._group_id)
        return (
            f"not decided: {self.description} since its first {self._seen_changes} changes: {dropped}, and it is not "
            "so now"
        )

    def end(self) -> None:
        self._history.listeners.remove(self._on_changes)

    def _subscribe(self) -> None:
        self._history = self._cluster.history
        self._history.listeners.append(self._on_changes)

    def _on_changes(self, group_id: str, moments: Sequence[RecordedMoment]) -> None:
        if group_id == self._group_id and self._found is None:
            self._find([moment.moment() for moment in moments])

    def _find(self, moments: Sequence[Moment]) -> None:
        coordinator = self._cluster.coordinator_of(self._group_id)
        for moment in moments:
            # Other coordinators are zombies.
            if (coordinator is None or moment.coordinator_id == coordinator.node_id) and self._holds(
                moment.state_to, moment.generation_id, len(moment.members)
            ):
                self._found = view_moment(self._cluster, self._group_id, moment, self._now_ms())
                return

    def evaluate(self) -> GroupView | None:
        if self._history is not self._cluster.history:  # The cluster was reset.
            self.end()
            self._subscribe()
        if self._found is None:
            group = find_group(self._cluster, self._group_id)
            state = ("Dead", 0, 0) if group is None else (group.state.value, group.generation_id, len(group.members))
            if self._holds(*state):
                self._found = view_group(self._cluster, self._group_id, self._now_ms())
        return self._found

    def describe_state(self) -> str:
        return _explanation(self._cluster, self._group_id, self._now_ms())

    def changes(self) -> int:
        return self._cluster.history.count_of(self._group_id)

    def is_settled(self, assignments: Assignments) -> bool:
        group = find_group(self._cluster, self._group_id)
        if not self._is_stable or group is None:
            return True
        has_topics = any(topic in self._cluster.topics for topic in group.subscribed_topics or ())
        return have_received(GroupView.of(self._group_id, group), assignments, has_topics=has_topics)

    def latest(self, result: GroupView) -> GroupView:
        self._found = None
        return self.evaluate() or result


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
        group = find_group(self._cluster, self._group_id)
        return group.offsets.get(*self._partition) if group else None

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
    return f"{explain(cluster, group_id, now_ms)}\n\n{timeline_of(cluster, group_id, now_ms)}"
