"""The rebalancer threads of a coordinator, and the rebalances that they execute (options 1.b and 1.c).

A thread is busy with one group until its rebalance has ended: it blocks on the registry, on appends, and on the
responses of consumers. Tasks of a group that has a rebalancer are added to the queue of that one, so that no two
threads rebalance the same group.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from itertools import count

from fakebroker.lab.design import CoordinatorPort, CoordinatorSettings
from fakebroker.lab.designs.options.messages import (
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    from_wire,
)
from fakebroker.lab.designs.options.offset_cache import OffsetCache
from fakebroker.lab.designs.options.purgatory import Purgatory
from fakebroker.lab.designs.options.registered_ownership import Ownership, ownership_of, read_ownership, write_ownership
from fakebroker.lab.designs.options.served_groups import Assignment, ConsumerInfo, GroupInfo, assignment_of
from fakebroker.topic_partition import TopicPartition


class RebalanceState(Enum):
    """The states of one rebalance.

    READING_OWNERSHIP: The registry is asked for the present ownership.
        Transitions: the new assignment is the same -> NOT_NECESSARY; else -> STOPPING_FETCHERS.
    STOPPING_FETCHERS: Waiting for the StopFetcherResponse of each consumer.
        Transitions: all have responded -> COMMITTING_OFFSETS.
    COMMITTING_OFFSETS: The consumed offsets of the responses are being appended.
        Transitions: they are stored -> STARTING_FETCHERS.
    STARTING_FETCHERS: Waiting for the StartFetcherResponse of each consumer.
        Transitions: all have responded -> WRITING_OWNERSHIP.
    WRITING_OWNERSHIP: The new ownership is being written to the registry.
        Transitions: it is written -> DONE.
    NOT_NECESSARY, DONE, FAILED: The thread is free. A failed rebalance is not repeated.

    In all but the last three: a consumer of the group fails, does not respond in time or responds with an error, or the
    offsets could not be stored -> FAILED.
    """

    READING_OWNERSHIP = "Reading ownership"
    STOPPING_FETCHERS = "Stopping fetchers"
    COMMITTING_OFFSETS = "Committing offsets"
    STARTING_FETCHERS = "Starting fetchers"
    WRITING_OWNERSHIP = "Writing ownership"
    NOT_NECESSARY = "Not necessary"
    DONE = "Done"
    FAILED = "Failed"


READING_OWNERSHIP = RebalanceState.READING_OWNERSHIP
STOPPING_FETCHERS = RebalanceState.STOPPING_FETCHERS
COMMITTING_OFFSETS = RebalanceState.COMMITTING_OFFSETS
STARTING_FETCHERS = RebalanceState.STARTING_FETCHERS
WRITING_OWNERSHIP = RebalanceState.WRITING_OWNERSHIP
NOT_NECESSARY = RebalanceState.NOT_NECESSARY
DONE = RebalanceState.DONE
FAILED = RebalanceState.FAILED

TRANSITIONS: Mapping[RebalanceState, tuple[RebalanceState, ...]] = {
    READING_OWNERSHIP: (STOPPING_FETCHERS, NOT_NECESSARY, FAILED),
    STOPPING_FETCHERS: (COMMITTING_OFFSETS, FAILED),
    COMMITTING_OFFSETS: (STARTING_FETCHERS, FAILED),
    STARTING_FETCHERS: (WRITING_OWNERSHIP, FAILED),
    WRITING_OWNERSHIP: (DONE, FAILED),
    NOT_NECESSARY: (),
    DONE: (),
    FAILED: (),
}
"""The states that may follow each state; every other transition is a bug."""


class RebalancedGroup(GroupInfo):
    """A group.

    Attributes:
        is_rebalance_bit_set: Whether a rebalance waits in the queue of a rebalancer.
        rebalancer: The thread that has a rebalance of the group in its queue, or executes it; None without one.
        rebalance: The executed rebalance; None without one.
    """

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.is_rebalance_bit_set = False
        self.rebalancer: Rebalancer | None = None
        self.rebalance: FetcherRebalance | None = None


class Rebalancer:
    """One thread. Attributes: the groups in its queue, and the rebalance that it executes."""

    def __init__(self) -> None:
        self.queue: deque[RebalancedGroup] = deque()
        self.rebalance: FetcherRebalance | None = None

    @property
    def load(self) -> int:
        """The number of rebalances that it has to end before it is free."""
        return len(self.queue) + (self.rebalance is not None)


class FetcherRebalance:
    """One rebalance.

    Attributes:
        group, rebalancer: Where it is executed.
        state: The present state; written only by `enter`.
        consumers: The consumers of the group when it has read the ownership.
        assignment: Their new partitions.
        consumed: The consumed offsets of StopFetcherResponses.
        pending: The consumers that have not responded in this phase.
    """

    def __init__(self, group: RebalancedGroup, rebalancer: Rebalancer) -> None:
        self.group, self.rebalancer = group, rebalancer
        self.state = READING_OWNERSHIP
        self.consumers: list[ConsumerInfo] = []
        self.assignment: Assignment = {}
        self.consumed: dict[TopicPartition, int] = {}
        self.pending: set[ConsumerInfo] = set()

    def enter(self, state: RebalanceState) -> None:
        """Change the state; the only method that does."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"rebalance of {self.group.group_id!r}: no transition from {self.state} to {state}")
        self.state = state


class Rebalancers:
    """The rebalancer threads of one coordinator.

    Args:
        settings: Their number, and the timeout of a phase.
        port: Carries out their actions.
        offsets: The offsets of the groups.
    """

    def __init__(self, settings: CoordinatorSettings, port: CoordinatorPort, offsets: OffsetCache) -> None:
        self._port, self._offsets = port, offsets
        self._timeout_ms = settings.rebalance_phase_timeout_ms
        self._threads = [Rebalancer() for _ in range(settings.rebalancer_threads)]
        self._stops, self._starts = Purgatory(), Purgatory()
        self._correlation_ids = count(1)

    def handle_group_rebalance(self, group: RebalancedGroup) -> None:
        """Queue a rebalance of a group, unless one waits already."""
        if group.is_rebalance_bit_set:
            return
        group.is_rebalance_bit_set = True
        rebalancer = group.rebalancer or min(self._threads, key=lambda thread: thread.load)
        group.rebalancer = rebalancer
        rebalancer.queue.append(group)
        self._work(rebalancer)

    def fail(self, group: RebalancedGroup) -> None:
        """Let the rebalance of a group fail, if one is being executed."""
        if group.rebalance is not None:
            self._end(group.rebalance, FAILED)

    def received(self, consumer: ConsumerInfo, group: RebalancedGroup, message: object) -> None:
        """Take the response of a consumer to StopFetcher or StartFetcher. Late ones are ignored."""
        rebalance = group.rebalance
        match message:
            case StopFetcherResponse() if self._stops.clear(consumer, message.correlation_id):
                assert rebalance is not None
                rebalance.consumed.update(from_wire(message.consumed_so_far))
                self._responded(rebalance, consumer, message.error_code, self._commit)
            case StartFetcherResponse() if self._starts.clear(consumer, message.correlation_id):
                assert rebalance is not None
                self._responded(rebalance, consumer, message.error_code, self._write)

    def _responded(
        self,
        rebalance: FetcherRebalance,
        consumer: ConsumerInfo,
        error: int,
        proceed: Callable[[FetcherRebalance], None],
    ) -> None:
        if error:
            self._end(rebalance, FAILED)
            return
        rebalance.pending.discard(consumer)
        if not rebalance.pending:
            proceed(rebalance)

    def next_deadline(self) -> float:
        """Return when a response is due."""
        return min(self._stops.next_deadline(), self._starts.next_deadline())

    def tick(self, now_ms: float, group_of: Callable[[ConsumerInfo], RebalancedGroup]) -> None:
        """Let rebalances fail whose consumers have not responded in time."""
        for purgatory in (self._stops, self._starts):
            for watcher in purgatory.expired(now_ms):
                self.fail(group_of(watcher.consumer))

    # One thread

    def _work(self, rebalancer: Rebalancer) -> None:
        """Begin the next rebalance of a queue, if the thread is free."""
        while rebalancer.rebalance is None and rebalancer.queue:
            group = rebalancer.queue.popleft()
            group.is_rebalance_bit_set = False
            if not group.consumers:
                self._unassign(group)
                continue
            rebalance = group.rebalance = rebalancer.rebalance = FetcherRebalance(group, rebalancer)
            group_id = group.group_id
            self._port.access(partial(read_ownership, group_id=group_id), partial(self._compare, rebalance))

    def _end(self, rebalance: FetcherRebalance, state: RebalanceState) -> None:
        for consumer in rebalance.pending:
            self._stops.clear_all(consumer)
            self._starts.clear_all(consumer)
        rebalance.enter(state)
        rebalance.rebalancer.rebalance = rebalance.group.rebalance = None
        self._unassign(rebalance.group)
        self._work(rebalance.rebalancer)

    @staticmethod
    def _unassign(group: RebalancedGroup) -> None:
        """Let any thread take the next rebalance of a group, unless it waits in a queue already."""
        if not group.is_rebalance_bit_set:
            group.rebalancer = None

    def _compare(self, rebalance: FetcherRebalance, ownership: Ownership | None) -> None:
        """Compute the new ownership; if it differs from the registered one, stop all fetchers."""
        if rebalance.state is not READING_OWNERSHIP:
            return
        rebalance.consumers = list(rebalance.group.consumers.values())
        rebalance.assignment = assignment_of(rebalance.consumers, self._port.partition_counts())
        if ownership == ownership_of(rebalance.assignment):
            self._end(rebalance, NOT_NECESSARY)
            return
        rebalance.enter(STOPPING_FETCHERS)
        self._await_all(
            rebalance,
            self._stops,
            lambda consumer, correlation_id: StopFetcherRequest(
                correlation_id=correlation_id, consumer_id=consumer.consumer_id
            ),
        )

    def _await_all(
        self,
        rebalance: FetcherRebalance,
        purgatory: Purgatory,
        request: Callable[[ConsumerInfo, int], StopFetcherRequest | StartFetcherRequest],
    ) -> None:
        """Send a request to each consumer, and wait for the responses."""
        deadline_ms = self._port.now_ms() + self._timeout_ms
        rebalance.pending = set(rebalance.consumers)
        for consumer in rebalance.consumers:
            correlation_id = next(self._correlation_ids)
            purgatory.watch(consumer, correlation_id, deadline_ms)
            self._port.send(consumer.link, request(consumer, correlation_id))

    def _commit(self, rebalance: FetcherRebalance) -> None:
        rebalance.enter(COMMITTING_OFFSETS)
        self._offsets.commit(rebalance.group.group_id, rebalance.consumed, partial(self._start, rebalance))

    def _start(self, rebalance: FetcherRebalance, is_stored: bool) -> None:
        if rebalance.state is not COMMITTING_OFFSETS:
            return
        if not is_stored:
            self._end(rebalance, FAILED)
            return
        rebalance.enter(STARTING_FETCHERS)
        group_id = rebalance.group.group_id
        self._await_all(
            rebalance,
            self._starts,
            lambda consumer, correlation_id: StartFetcherRequest(
                correlation_id=correlation_id,
                consumer_id=consumer.consumer_id,
                partitions_to_own=self._offsets.with_offsets(group_id, rebalance.assignment[consumer.consumer_id]),
            ),
        )

    def _write(self, rebalance: FetcherRebalance) -> None:
        rebalance.enter(WRITING_OWNERSHIP)
        group_id, assignment = rebalance.group.group_id, rebalance.assignment
        self._port.access(
            lambda registry: write_ownership(registry, group_id, assignment), lambda _: self._written(rebalance)
        )

    def _written(self, rebalance: FetcherRebalance) -> None:
        if rebalance.state is WRITING_OWNERSHIP:
            self._end(rebalance, DONE)
