"""A group of the rewrite design's coordinator: its consumers, its generation, and the joins that wait."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from math import inf

from fakebroker.proposals.consumer_rewrite.api import GroupMetadata, JoinAnswer, JoinRequest
from fakebroker.proposals.consumer_rewrite.states import DOWN, READY, CoordinatorState, StateMachine
from fakebroker.topic_partition import TopicPartition


@dataclass(slots=True, eq=False)
class PendingJoin:
    """A JoinGroup without an answer yet, and the callback for the answer."""

    request: JoinRequest
    done: Callable[[JoinAnswer], None]


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer of a group. Also the entry of its session timer.

    Attributes:
        group: Its group.
        consumer_id: Its id, `<group>-<uuid>`.
        host, session_timeout_ms, topics: From its last JoinGroup that completed.
        partitions: The partitions that it owns.
        connection: The connection of its last request, if known.
        deadline_ms: The end of its session; infinite while its join waits. The timer may fire earlier.
        join: Its waiting join in the present rebalance.
        announced_in: The number of the last rebalance that it was notified of; see `RewriteGroup.rebalances`.
        is_heard: Whether it has sent a heartbeat since the group was loaded.
        scheduled_ms, timer_number: See `TimerEntry`.
    """

    group: "RewriteGroup"
    consumer_id: str
    host: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...] = ()
    connection: Hashable = None
    deadline_ms: float = inf
    join: PendingJoin | None = None
    announced_in: int = 0
    is_heard: bool = False
    scheduled_ms: float = inf
    timer_number: int = 0


class RewriteGroup(StateMachine):
    """One group at its coordinator. Only `RewriteCoordinator` changes it.

    Attributes:
        group_id: Its id.
        shard: The key of its `Shard`.
        state: See `CoordinatorState`.
        generation_id: The generation in the registry; 0 before the first.
        strategy: The strategy of its consumers.
        consumers: The consumers that are alive, by id.
        expired: Consumers that were marked dead, by id, until the rebalance is complete or a late heartbeat or join.
        new_joins: The joins with an empty id that wait for the present rebalance, in order of arrival.
        later_joins: The joins that arrived while the generation was written; they wait for the next rebalance.
        missing: The number of consumers that are alive and have not joined the present rebalance.
        wait_until_ms: Missing consumers do not expire before this time, because a join with an empty id waits.
        is_cancelable: Whether a late heartbeat cancels the present rebalance.
        rebalances: The number of rebalances that have started here.
        partition_counts: The partition count of each subscribed topic at the last assignment.
        unheard: The number of loaded consumers without a heartbeat yet, in READY.
    """

    __slots__ = (
        *("consumers", "expired", "generation_id", "group_id", "is_cancelable", "later_joins", "missing", "new_joins"),
        *("partition_counts", "rebalances", "shard", "strategy", "unheard", "wait_until_ms"),
    )

    def __init__(self, group_id: str, shard: Hashable) -> None:
        super().__init__(READY)
        self.group_id, self.shard = group_id, shard
        self.generation_id, self.strategy = 0, ""
        self.consumers: dict[str, Consumer] = {}
        self.expired: dict[str, Consumer] = {}
        self.new_joins: list[PendingJoin] = []
        self.later_joins: list[PendingJoin] = []
        self.missing = self.rebalances = self.unheard = 0
        self.wait_until_ms = 0.0
        self.is_cancelable = False
        self.partition_counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<group {self.group_id!r}, {self.state.value}, generation {self.generation_id}>"

    def __contains__(self, consumer_id: object) -> bool:
        """Whether a consumer id is in the group. The ids of expired consumers stay until the rebalance is complete."""
        return consumer_id in self.consumers or consumer_id in self.expired

    @property
    def has_joins(self) -> bool:
        """Whether a join waits for the present rebalance."""
        return bool(self.new_joins) or self.missing < len(self.consumers)

    def is_joined_by_others(self, consumer_id: str) -> bool:
        """Whether the group has consumers that are alive, or new ones that wait, other than this one."""
        return bool(self.new_joins) or len(self.consumers) > (consumer_id in self.consumers)

    def waiting_joins(self) -> Iterator[PendingJoin]:
        """Yield all joins that wait: joins by id, then joins with an empty id, then joins for the next rebalance."""
        for consumer in self.consumers.values():
            if consumer.join is not None:
                yield consumer.join
        yield from self.new_joins
        yield from self.later_joins

    def has_join_on(self, connection: Hashable) -> bool:
        """Whether a join waits on a connection."""
        return any(join.request.connection == connection for join in self.waiting_joins())

    def load(self, stored: GroupMetadata) -> None:
        """Take the metadata of a group over from the registry."""
        self.generation_id, self.strategy = stored.generation_id, stored.strategy
        for each in stored.consumers:
            self.consumers[each.consumer_id] = Consumer(
                self, each.consumer_id, each.host, each.session_timeout_ms, each.topics, each.partitions
            )
        self.unheard = len(self.consumers)
        self.partition_counts = dict(stored.partition_counts)


class Shard(StateMachine):
    """Groups that get a coordinator and are loaded together, such as the groups of one offsets partition.

    Attributes:
        state: DOWN, CATCH_UP or READY.
        groups: The groups, by id; empty before READY.
    """

    __slots__ = ("groups",)

    def __init__(self) -> None:
        super().__init__(DOWN)
        self.groups: dict[str, RewriteGroup] = {}

    def state_of(self, group_id: str) -> CoordinatorState:
        """Return the state of a group, or the state of the shard if the group does not exist."""
        group = self.groups.get(group_id)
        return self.state if group is None else group.state


@dataclass(slots=True, eq=False)
class Generation:
    """A generation that is being written: its metadata, and the join of each of its consumers, in the same order."""

    metadata: GroupMetadata
    joins: list[PendingJoin] = field(default_factory=list)
