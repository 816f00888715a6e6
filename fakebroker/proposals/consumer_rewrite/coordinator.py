"""The coordinator of the consumer rewrite design for one broker (section "Group management protocol").

`RewriteCoordinator` answers requests, detects failures and assigns partitions. Does not depend on wire formats,
sockets, clocks or random numbers.

Where the document is silent or contradicts itself, these readings are implemented:

- A JoinGroup while groups are loaded gets IllegalProtocolState, as the section on failover demands, not
  CoordinatorStartupNotComplete, as the list of the coordinator's tasks says.
- Groups are loaded per shard (such as a partition of the offsets topic), not all groups of a broker together: a broker
  that takes over another one's groups keeps serving its own.
- A heartbeat or commit is checked for its consumer id before its generation, as in Kafka: UnknownConsumer comes first.
- An unknown id in a JoinGroup is rejected and starts no rebalance, as "Consumer id assignment" says; "Co-ordinator
  failure during rebalance" says the opposite in one clause. Only an empty id makes the consumer a new one.
- A rebalance proceeds when all known consumers have joined by id. If a join with an empty id arrives before that, no
  missing consumer is given up before the session timeout in that join has passed. Later such joins do not extend it,
  since a stream of new consumers would defer the rebalance forever. It makes no difference whether the consumer is new.
- In a rebalance the first heartbeat that a consumer sends is answered with IllegalGeneration and restarts its session:
  it has one session timeout to join. Later heartbeats do not, so that no consumer defers the rebalance forever.
- A heartbeat with an older generation is answered with IllegalGeneration. The rebalance starts with the JoinGroup that
  this causes (failover phase 4).
- A late heartbeat counts if no consumer that is alive has sent a heartbeat, no JoinGroup waits, and only expired
  sessions have caused the rebalance. It is answered with no error, and the consumer is alive again. The last expired
  consumer that returns cancels the rebalance; until then the next heartbeat of a consumer that is alive, also of one
  that has returned, is answered with IllegalGeneration.
- If all consumers of a group have expired, no consumer can be notified: the rebalance waits for a late heartbeat, which
  cancels it, or for a JoinGroup, with which it proceeds. Generations without consumers do not exist, and groups are
  never deleted, so that generation ids keep rising.
- An expired consumer may join by its id as long as the rebalance is not complete: if the generation is being written,
  the join waits, and the next rebalance follows at once. Afterwards its id is unknown.
- The connection of an expired consumer is closed, except if a JoinGroup waits on it. Such a JoinGroup is from the same
  consumer with an empty id, or from another consumer.
- Consumers of a group may have different session timeouts. A timeout that is not positive gets SessionTimeoutTooHigh.
- The consumers that are alive decide the strategy of the group. A consumer that is alone may change it.
- A JoinGroup replaces a waiting JoinGroup of the same consumer. The replaced JoinGroup gets IllegalGeneration.
- The generation counts as incremented from the start of the write: commits with the previous one are rejected.
- Commits do not keep a session alive; only heartbeats do. An expired consumer may commit until the rebalance proceeds.
- A commit with no consumer id and generation -1 is accepted if the group does not exist: such consumers assign
  partitions manually, and commit without group management.
- A write that fails is answered with its error; members join again. If another coordinator has loaded the groups, this
  one has been demoted: the registry rejects the write, and it resigns the shard. Therefore the next coordinator writes
  to the registry before it reads the groups, once for all groups of the shard.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from functools import partial
from math import inf
from typing import Any

from fakebroker.assignment import java_order
from fakebroker.coordinator.timers import Rank, TimerQueue
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.api import (
    ConsumerMetadata,
    GroupMetadata,
    JoinAnswer,
    JoinRequest,
    RewriteConfig,
    Store,
)
from fakebroker.proposals.consumer_rewrite.errors import (
    COORDINATOR_STARTUP_NOT_COMPLETE,
    ILLEGAL_GENERATION,
    ILLEGAL_PROTOCOL_STATE,
    INCONSISTENT_PARTITIONING_STRATEGY,
    NONE,
    NOT_COORDINATOR_FOR_GROUP,
    SESSION_TIMEOUT_TOO_HIGH,
    UNKNOWN_CONSUMER,
    UNKNOWN_PARTITIONING_STRATEGY,
)
from fakebroker.proposals.consumer_rewrite.group import Consumer, Generation, PendingJoin, RewriteGroup, Shard
from fakebroker.proposals.consumer_rewrite.states import (
    CATCH_UP,
    DOWN,
    PREPARE_FOR_REBALANCE,
    READY,
    REBALANCING,
    STEADY,
    CoordinatorState,
)

Changed = Callable[[RewriteGroup, CoordinatorState, str, float], None]
"""Called after each transition of a group: with the group, its state before, the cause, and the time in ms."""


def _ignore_change(group: RewriteGroup, before: CoordinatorState, cause: str, now_ms: float) -> None: ...


def _ignore_expiry(consumer: Consumer) -> None: ...


def _keep_connection(connection: Hashable) -> None: ...


class RewriteCoordinator:
    """All groups that one broker coordinates. It starts without any shard.

    `now_ms` is the only source of the time. Sessions expire when the queue runs.

    Args:
        config: The settings.
        new_id: Returns a new UUID as text.
        partition_count: Returns the number of partitions of a topic; 0 if it does not exist.
        store: Writes the metadata of a group.
        shard_of: Returns the shard of a group.
        disconnect: Breaks the connection of an expired consumer.
        on_change: Called after each transition of a group.
        on_expiry: Called with each consumer whose session has expired, before the rebalance that this causes.
        queue: The queue of its timers, if it shares one with other services.
        node_id: The node id of its broker.

    Attributes:
        queue: The queue of its timers.
    """

    def __init__(
        self,
        config: RewriteConfig,
        new_id: Callable[[], str],
        partition_count: Callable[[str], int],
        store: Store,
        shard_of: Callable[[str], Hashable],
        disconnect: Callable[[Hashable], None] = _keep_connection,
        on_change: Changed = _ignore_change,
        on_expiry: Callable[[Consumer], None] = _ignore_expiry,
        queue: TimerQueue[Any] | None = None,
        node_id: int = 0,
    ) -> None:
        self.config = config
        self._new_id = new_id
        self._partition_count = partition_count
        self._store = store
        self._shard_of = shard_of
        self._disconnect = disconnect
        self._on_change, self._on_expiry = on_change, on_expiry
        self._shards: dict[Hashable, Shard] = {}
        self._groups_by_topic: dict[str, dict[RewriteGroup, None]] = {}
        self.queue: TimerQueue[Any] = TimerQueue() if queue is None else queue
        self._timers = self.queue.service(Rank.PROPOSALS, self._session_ends, node_id)

    # Election

    def elect(self, shard: Hashable) -> None:
        """Become the coordinator of a shard, whose groups the caller reads from the registry and passes to `load`."""
        elected = self._shards.setdefault(shard, Shard())
        if elected.state is DOWN:
            elected.enter(CATCH_UP)

    def load(self, shard: Hashable, groups: Mapping[str, GroupMetadata], now_ms: float) -> None:
        """Serve an elected shard with its groups in the registry.

        Sessions start. If the partition counts of a group's topics have changed, it starts a rebalance.

        Raises:
            AssertionError: The shard is not in CATCH_UP.
        """
        loaded = self._shards[shard]
        loaded.enter(READY)
        for group_id, stored in groups.items():
            group = loaded.groups[group_id] = RewriteGroup(group_id, shard)
            group.load(stored)
            for consumer in group.consumers.values():
                self._restart_session(consumer, now_ms)
            self._index_topics(group, {})
        for group in loaded.groups.values():
            self._rebalance_if_topics_differ(group, now_ms)

    def resign(self, shard: Hashable, now_ms: float) -> None:
        """Stop coordinating a shard; waiting joins get NotCoordinatorForGroup. Ignored if it is not coordinated."""
        demoted = self._shards.pop(shard, None)
        if demoted is None:
            return
        demoted.enter(DOWN)
        for group in demoted.groups.values():
            self._forget(group, "the coordinator was demoted", now_ms)
        for group in demoted.groups.values():
            for join in group.waiting_joins():
                join.done(JoinAnswer(NOT_COORDINATOR_FOR_GROUP))

    def coordinates(self, shard: Hashable) -> bool:
        """Return whether a shard is coordinated here, and loaded."""
        found = self._shards.get(shard)
        return found is not None and found.state is READY

    def shards(self) -> Collection[Hashable]:
        """Return the shards that are coordinated or being loaded here, in the order of their election."""
        return self._shards.keys()

    def group(self, group_id: str) -> RewriteGroup | None:
        """Return a group, or None if it does not exist here."""
        shard = self._shards.get(self._shard_of(group_id))
        return None if shard is None else shard.groups.get(group_id)

    def state_of(self, group_id: str) -> CoordinatorState:
        """Return the state of this coordinator for a group, whether or not the group exists."""
        shard = self._shards.get(self._shard_of(group_id))
        return DOWN if shard is None else shard.state_of(group_id)

    # Requests

    def join_group(self, request: JoinRequest, now_ms: float, done: Callable[[JoinAnswer], None]) -> None:
        """Join a consumer: start a rebalance, or take part in it. `done` is called when it is complete."""
        shard = self._shards.get(self._shard_of(request.group_id))
        if shard is None or shard.state is CATCH_UP:
            done(JoinAnswer(NOT_COORDINATOR_FOR_GROUP if shard is None else ILLEGAL_PROTOCOL_STATE))
            return
        group = shard.groups.get(request.group_id)
        if error := self._error_of_join(group, request):
            done(JoinAnswer(error))
            return
        if group is None:
            group = RewriteGroup(request.group_id, self._shard_of(request.group_id))
            shard.groups[group.group_id] = group
        self._add_join(group, PendingJoin(request, done), now_ms)

    def _error_of_join(self, group: RewriteGroup | None, request: JoinRequest) -> ErrorCode:
        if not 0 < request.session_timeout_ms <= self.config.max_session_timeout_ms:
            return SESSION_TIMEOUT_TOO_HIGH
        if request.strategy not in self.config.strategies:
            return UNKNOWN_PARTITIONING_STRATEGY
        if request.consumer_id and (group is None or request.consumer_id not in group):
            return UNKNOWN_CONSUMER
        if group is not None and request.strategy != group.strategy and group.is_joined_by_others(request.consumer_id):
            return INCONSISTENT_PARTITIONING_STRATEGY
        return NONE

    def heartbeat(
        self, group_id: str, generation_id: int, consumer_id: str, now_ms: float, connection: Hashable = None
    ) -> ErrorCode:
        """Keep the session of a consumer alive. IllegalGeneration announces a rebalance."""
        shard = self._shards.get(self._shard_of(group_id))
        if shard is None or shard.state is CATCH_UP:
            return NOT_COORDINATOR_FOR_GROUP if shard is None else COORDINATOR_STARTUP_NOT_COMPLETE
        group = shard.groups.get(group_id)
        if group is None:
            return UNKNOWN_CONSUMER
        consumer = group.consumers.get(consumer_id)
        if consumer is None:
            late = group.expired.get(consumer_id)
            return UNKNOWN_CONSUMER if late is None else self._late_heartbeat(late, generation_id, connection, now_ms)
        if connection is not None:
            consumer.connection = connection
        if group.state is PREPARE_FOR_REBALANCE:
            return self._announce(consumer, now_ms)
        if group.state is REBALANCING:
            return ILLEGAL_GENERATION
        self._restart_session(consumer, now_ms)
        if generation_id != group.generation_id:
            return ILLEGAL_GENERATION
        if group.state is READY:
            self._hear(consumer, now_ms)
        return NONE

    def error_of_commit(self, group_id: str, generation_id: int, consumer_id: str) -> ErrorCode:
        """Return the error of an OffsetCommit; NONE if the caller may store its offsets."""
        shard = self._shards.get(self._shard_of(group_id))
        if shard is None or shard.state is CATCH_UP:
            return NOT_COORDINATOR_FOR_GROUP if shard is None else COORDINATOR_STARTUP_NOT_COMPLETE
        group = shard.groups.get(group_id)
        if group is None:
            return NONE if not consumer_id and generation_id < 0 else UNKNOWN_CONSUMER
        if consumer_id not in group:
            return UNKNOWN_CONSUMER
        if generation_id != group.generation_id or group.state is REBALANCING:
            return ILLEGAL_GENERATION
        return NONE

    # Notifications and time

    def topic_changed(self, topic: str, now_ms: float) -> None:
        """React to a topic that was created or deleted, or whose number of partitions has changed."""
        for group in list(self._groups_by_topic.get(topic, ())):
            self._rebalance_if_topics_differ(group, now_ms)

    def _session_ends(self, consumer: Consumer, due_ms: float, now_ms: float) -> None:
        """Mark a consumer dead if its session has ended; it may have been extended."""
        group, deadline_ms = consumer.group, consumer.deadline_ms
        if group.state is PREPARE_FOR_REBALANCE:
            deadline_ms = max(deadline_ms, group.wait_until_ms)
        if deadline_ms > now_ms:
            self._timers.schedule(consumer, deadline_ms)
        else:
            self._expire(consumer, now_ms)

    # Sessions

    def _restart_session(self, consumer: Consumer, now_ms: float) -> None:
        consumer.deadline_ms = now_ms + consumer.session_timeout_ms
        if consumer.scheduled_ms > consumer.deadline_ms:  # else the timer fires earlier, and is set again
            self._timers.schedule(consumer, consumer.deadline_ms)

    def resume_session(self, consumer: Consumer, deadline_ms: float) -> None:
        """Resume a session that a simulation has suspended by an infinite deadline, or let it end later."""
        consumer.deadline_ms = deadline_ms
        self._timers.schedule(consumer, deadline_ms)

    def _hear(self, consumer: Consumer, now_ms: float) -> None:
        group = consumer.group
        if not consumer.is_heard:
            consumer.is_heard = True
            group.unheard -= 1
            if not group.unheard:
                self._enter(group, STEADY, "all consumers of the generation are connected", now_ms)

    def _announce(self, consumer: Consumer, now_ms: float) -> ErrorCode:
        group = consumer.group
        group.is_cancelable = False
        if consumer.announced_in != group.rebalances and consumer.join is None:
            consumer.announced_in = group.rebalances
            self._restart_session(consumer, now_ms)
        return ILLEGAL_GENERATION

    def _expire(self, consumer: Consumer, now_ms: float) -> None:
        """Mark a consumer dead, break its connection, and start or continue the rebalance without it."""
        group = consumer.group
        del group.consumers[consumer.consumer_id]
        group.expired[consumer.consumer_id] = consumer
        self._on_expiry(consumer)
        if group.state is PREPARE_FOR_REBALANCE:
            group.missing -= 1
        else:
            self._prepare(group, f"the session of {consumer.consumer_id!r} has expired", now_ms)
            group.is_cancelable = True
        connection = consumer.connection
        if connection is not None and not (group.has_joins and group.has_join_on(connection)):
            self._disconnect(connection)
        self._proceed_if_complete(group, now_ms)

    def _late_heartbeat(self, consumer: Consumer, generation_id: int, connection: Hashable, now_ms: float) -> ErrorCode:
        """Handle the heartbeat of a consumer that was marked dead in the present rebalance."""
        group = consumer.group
        if generation_id != group.generation_id or not group.is_cancelable:
            return ILLEGAL_GENERATION
        consumer.connection = connection
        self._return(consumer, now_ms)
        if not group.expired:
            self._enter(group, STEADY, f"a late heartbeat of {consumer.consumer_id!r} canceled the rebalance", now_ms)
        return NONE

    def _return(self, consumer: Consumer, now_ms: float) -> None:
        """Make an expired consumer part of the rebalance again."""
        group = consumer.group
        del group.expired[consumer.consumer_id]
        group.consumers[consumer.consumer_id] = consumer
        group.missing += 1
        self._restart_session(consumer, now_ms)

    # Rebalances

    def _enter(self, group: RewriteGroup, state: CoordinatorState, cause: str, now_ms: float) -> None:
        before = group.state
        group.enter(state)
        self._on_change(group, before, cause, now_ms)

    def _prepare(self, group: RewriteGroup, cause: str, now_ms: float) -> None:
        group.missing = len(group.consumers)
        group.rebalances += 1
        group.wait_until_ms = 0.0
        group.is_cancelable = False
        self._enter(group, PREPARE_FOR_REBALANCE, cause, now_ms)

    def _rebalance_if_topics_differ(self, group: RewriteGroup, now_ms: float) -> None:
        """Start a rebalance if the partition count of one of the group's topics has changed."""
        if group.state is REBALANCING:
            return  # compared again when the generation is written
        for topic, count in group.partition_counts.items():
            if self._partition_count(topic) != count:
                if group.state is PREPARE_FOR_REBALANCE:
                    group.is_cancelable = False
                else:
                    self._prepare(group, f"the partitions of topic {topic!r} have changed", now_ms)
                return

    def _add_join(self, group: RewriteGroup, join: PendingJoin, now_ms: float) -> None:
        if group.state is REBALANCING:
            group.later_joins.append(join)
        else:
            self._wait(group, join, now_ms)
            self._proceed_if_complete(group, now_ms)

    def _wait(self, group: RewriteGroup, join: PendingJoin, now_ms: float) -> None:
        """Let a join wait for the present rebalance, which it starts if there is none."""
        request = join.request
        name = repr(request.consumer_id) if request.consumer_id else "a new consumer"
        if group.state is not PREPARE_FOR_REBALANCE:
            self._prepare(group, f"JoinGroup of {name}", now_ms)
        group.is_cancelable = False
        group.strategy = request.strategy
        if not request.consumer_id:
            group.new_joins.append(join)
            if group.missing and not group.wait_until_ms:
                group.wait_until_ms = now_ms + request.session_timeout_ms
            return
        if request.consumer_id in group.expired:
            self._return(group.expired[request.consumer_id], now_ms)
        consumer = group.consumers[request.consumer_id]
        replaced, consumer.join = consumer.join, join
        consumer.deadline_ms = inf
        if replaced is None:
            group.missing -= 1
        else:
            replaced.done(JoinAnswer(ILLEGAL_GENERATION))

    def _proceed_if_complete(self, group: RewriteGroup, now_ms: float) -> None:
        if group.state is not PREPARE_FOR_REBALANCE or group.missing or not group.has_joins:
            return
        self._enter(group, REBALANCING, "all consumers have joined", now_ms)
        generation = self._next_generation(group)
        self._store(group.group_id, generation.metadata, partial(self._stored, group, generation))

    def _next_generation(self, group: RewriteGroup) -> Generation:
        """Assign ids to new consumers, and partitions to all."""
        joins: dict[str, PendingJoin] = {}
        for consumer_id, consumer in group.consumers.items():
            assert consumer.join is not None
            joins[consumer_id] = consumer.join
        for join in group.new_joins:
            joins[f"{group.group_id}-{self._new_id()}"] = join
        ranked = [(each, dict.fromkeys(joins[each].request.topics)) for each in sorted(joins, key=java_order)]
        counts = {topic: self._partition_count(topic) for _, topics in ranked for topic in topics}
        owned = self.config.strategies[group.strategy](ranked, counts)
        consumers = tuple(
            ConsumerMetadata(
                consumer_id,
                join.request.host,
                join.request.session_timeout_ms,
                tuple(dict.fromkeys(join.request.topics)),
                tuple(owned[consumer_id]),
            )
            for consumer_id, join in joins.items()
        )
        metadata = GroupMetadata(group.generation_id + 1, group.strategy, consumers, counts)
        return Generation(metadata, list(joins.values()))

    def _stored(self, group: RewriteGroup, generation: Generation, error: ErrorCode, now_ms: float) -> None:
        if group.state is DOWN:
            return  # resigned meanwhile; the joins are answered
        if error is NOT_COORDINATOR_FOR_GROUP:
            self.resign(group.shard, now_ms)
        elif error:
            self._fail(group, generation, error, now_ms)
        else:
            self._complete(group, generation, now_ms)

    def _complete(self, group: RewriteGroup, generation: Generation, now_ms: float) -> None:
        """Answer the joins of a generation that is in the registry, then start the next rebalance if joins wait."""
        metadata = generation.metadata
        former = group.consumers
        group.generation_id = metadata.generation_id
        group.consumers, group.new_joins, later = {}, [], group.later_joins
        group.later_joins = []
        returning = {join.request.consumer_id for join in later}
        group.expired = {name: each for name, each in group.expired.items() if name in returning}
        for stored, join in zip(metadata.consumers, generation.joins, strict=True):
            consumer = former.get(stored.consumer_id) or Consumer(group, stored.consumer_id, "", 0, ())
            group.consumers[stored.consumer_id] = consumer
            consumer.host, consumer.session_timeout_ms = stored.host, stored.session_timeout_ms
            consumer.topics, consumer.partitions = stored.topics, stored.partitions
            consumer.connection, consumer.join = join.request.connection, None
            self._restart_session(consumer, now_ms)
        before, group.partition_counts = group.partition_counts, dict(metadata.partition_counts)
        self._index_topics(group, before)
        self._enter(group, STEADY, f"generation {group.generation_id} is in the registry", now_ms)
        for stored, join in zip(metadata.consumers, generation.joins, strict=True):
            join.done(JoinAnswer(NONE, metadata.generation_id, stored.consumer_id, stored.partitions))
        self._rebalance_if_topics_differ(group, now_ms)
        for join in later:
            self._wait(group, join, now_ms)
        self._proceed_if_complete(group, now_ms)

    def _fail(self, group: RewriteGroup, generation: Generation, error: ErrorCode, now_ms: float) -> None:
        """Answer the joins of a generation that could not be stored; the consumers join again."""
        later, group.later_joins, group.new_joins = group.later_joins, [], []
        for consumer in group.consumers.values():
            consumer.join = None
            self._restart_session(consumer, now_ms)
        if group.generation_id:
            self._prepare(group, f"the generation could not be stored: {error.name}", now_ms)
        else:
            del self._shards[group.shard].groups[group.group_id]
            self._forget(group, f"the first generation could not be stored: {error.name}", now_ms)
        for join in generation.joins:
            join.done(JoinAnswer(error))
        for join in later:
            self.join_group(join.request, now_ms, join.done)

    # Book-keeping

    def _forget(self, group: RewriteGroup, cause: str, now_ms: float) -> None:
        for consumer in group.consumers.values():
            self._timers.cancel(consumer)
        before, group.partition_counts = group.partition_counts, {}
        self._index_topics(group, before)
        self._enter(group, DOWN, cause, now_ms)

    def _index_topics(self, group: RewriteGroup, before: Mapping[str, int]) -> None:
        """Keep the groups by topic up to date after the topics of a group have changed."""
        for topic in before:
            if topic not in group.partition_counts:
                groups = self._groups_by_topic[topic]
                del groups[group]
                if not groups:
                    del self._groups_by_topic[topic]
        for topic in group.partition_counts:
            if topic not in before:
                self._groups_by_topic.setdefault(topic, {})[group] = None
