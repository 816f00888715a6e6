"""Coordinators of the rewrite design around one registry, with a clock, topics, and writes that can be held back."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.api import GroupMetadata, JoinAnswer, JoinRequest, RewriteConfig, Stored
from fakebroker.proposals.consumer_rewrite.coordinator import RewriteCoordinator
from fakebroker.proposals.consumer_rewrite.group import RewriteGroup
from fakebroker.proposals.consumer_rewrite.group_store import GroupStore, group_path
from fakebroker.proposals.consumer_rewrite.registry import Registry
from fakebroker.proposals.consumer_rewrite.states import CoordinatorState
from fakebroker.topic_partition import TopicPartition

SHARD = 0
SESSION_MS = 10_000
GROUP = "g"


@dataclass(slots=True, eq=False)
class Join:
    """A JoinGroup and its answer."""

    request: JoinRequest
    answers: list[JoinAnswer] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> JoinAnswer:
        """The only answer."""
        (answer,) = self.answers
        return answer

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return self.answer.partitions


class RewriteLab:
    """Brokers 1 and 2 with a coordinator each, of which one coordinates all groups; initially broker 1.

    Attributes:
        now_ms: The time.
        topics: Partition counts by topic.
        registry: The registry.
        coordinators: By broker.
        current: The broker that is elected.
        broken: The connections that coordinators have broken.
        changes: The transitions of groups: names of the states before and after, and the cause.
        held: Writes that wait for `finish_write`, oldest first; None: writes complete at once.
        errors: Errors of the next writes, instead of writing.
        on_write: Called after each write, before the coordinator knows its result.
    """

    def __init__(self, config: RewriteConfig | None = None, **topics: int) -> None:
        self.now_ms = 0.0
        self.topics = topics or {"t": 4}
        self.registry: Registry[GroupMetadata | None] = Registry()
        self.broken: list[Hashable] = []
        self.changes: list[tuple[str, str, str]] = []
        self.held: list[Callable[[], None]] | None = None
        self.errors: list[ErrorCode] = []
        self.on_write: Callable[[], None] = lambda: None
        self._ids = count(1)
        self._stores = {broker: GroupStore(self.registry) for broker in (1, 2)}
        self.coordinators = {broker: self._new_coordinator(broker, config or RewriteConfig()) for broker in (1, 2)}
        self.current = 1
        self.elect(1)
        self.load(1)

    def _new_coordinator(self, broker: int, config: RewriteConfig) -> RewriteCoordinator:
        def store(group_id: str, metadata: GroupMetadata, done: Stored) -> None:
            write = partial(self._write, self._stores[broker].prepared_write(SHARD, group_id, metadata), done)
            if self.held is None:
                write()
            else:
                self.held.append(write)

        return RewriteCoordinator(
            config,
            lambda: f"id{next(self._ids)}",
            lambda topic: self.topics.get(topic, 0),
            store,
            lambda group_id: SHARD,
            self.broken.append,
            self._record_change,
        )

    def _write(self, write: Callable[[], ErrorCode], done: Stored) -> None:
        if self.errors:
            done(self.errors.pop(0), self.now_ms)
        else:
            error = write()
            self.on_write()
            done(error, self.now_ms)

    def _record_change(self, group: RewriteGroup, before: CoordinatorState, cause: str, now_ms: float) -> None:
        assert now_ms == self.now_ms
        self.changes.append((before.value, group.state.value, cause))

    # Elections

    @property
    def coordinator(self) -> RewriteCoordinator:
        return self.coordinators[self.current]

    def elect(self, broker: int) -> None:
        """Elect a broker; the previous coordinator does not notice."""
        self.current = broker
        self.coordinator.elect(SHARD)

    def load(self, broker: int) -> None:
        self.coordinators[broker].load(SHARD, self._stores[broker].read(SHARD), self.now_ms)

    def fail_over(self) -> None:
        """Stop the coordinator and let the other broker take over at once."""
        self.coordinator.resign(SHARD, self.now_ms)
        self.elect(3 - self.current)
        self.load(self.current)

    # Requests

    def join(
        self,
        consumer_id: str = "",
        topics: tuple[str, ...] = ("t",),
        strategy: str = "range",
        session_ms: int = SESSION_MS,
        connection: Hashable = None,
        group_id: str = GROUP,
    ) -> Join:
        request = JoinRequest(group_id, consumer_id, session_ms, topics, strategy, "host", connection)
        join = Join(request)
        self.coordinator.join_group(request, self.now_ms, join.answers.append)
        return join

    def error_of_join(self, *args: str, **kwargs: object) -> ErrorCode:
        return self.join(*args, **kwargs).answer.error  # type: ignore[arg-type]  # as for `join`

    def beat(self, consumer_id: str, generation_id: int, connection: Hashable = None) -> ErrorCode:
        return self.coordinator.heartbeat(GROUP, generation_id, consumer_id, self.now_ms, connection)

    def commit(self, consumer_id: str, generation_id: int) -> ErrorCode:
        return self.coordinator.error_of_commit(GROUP, generation_id, consumer_id)

    def at(self, now_ms: float) -> None:
        """Let time pass; timers expire at their deadlines."""
        while (due_ms := self.coordinator.queue.next_deadline()) is not None and due_ms <= now_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.coordinator.queue.run(self.now_ms)
        self.now_ms = now_ms

    def later(self, delay_ms: float) -> None:
        self.at(self.now_ms + delay_ms)

    def set_topic(self, topic: str, partitions: int) -> None:
        self.topics[topic] = partitions
        self.coordinator.topic_changed(topic, self.now_ms)

    def finish_write(self) -> None:
        assert self.held
        self.held.pop(0)()

    # State

    @property
    def state(self) -> CoordinatorState:
        return self.coordinator.state_of(GROUP)

    @property
    def group(self) -> RewriteGroup:
        group = self.coordinator.group(GROUP)
        assert group is not None
        return group

    @property
    def stored(self) -> GroupMetadata | None:
        """The group's metadata in the registry."""
        found = self.registry.find(group_path(SHARD, GROUP))
        return None if found is None else found[0]

    def stable_group(self, size: int, **kwargs: object) -> list[str]:
        """Let new consumers join one after the other, and return their ids. The last generation has all of them."""
        ids: list[str] = []
        for _ in range(size):
            new = self.join(**kwargs)  # type: ignore[arg-type]  # as for `join`
            others = [self.join(each, **kwargs) for each in ids]  # type: ignore[arg-type]
            assert all(not join.waits for join in [new, *others])
            ids.append(new.answer.consumer_id)
        return ids
