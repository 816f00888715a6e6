"""The handle of a transactional id: its views, commands and conditions."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fakebroker.cluster.handles.conditions import condition
from fakebroker.cluster.handles.definition import Handle, Owner, check_type, command, holding, view
from fakebroker.cluster.handles.faults import AppendFailureHandle, add_append_failure
from fakebroker.cluster.handles.group import others
from fakebroker.cluster.handles.local import Instant
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.inspect.timelines import TransactionTimeline, transaction_timeline_of
from fakebroker.cluster.inspect.transaction_views import STATES, TransactionView, view_of_moment, view_or_dead
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.seeding.transaction_seed import TransactionSeed, seed_transaction
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC, Partition
from fakebroker.coordinator.history import DEAD
from fakebroker.coordinator.transaction import controls as transaction_controls
from fakebroker.coordinator.transaction.coordinator import TransactionCoordinator
from fakebroker.coordinator.transaction.transaction import Transaction, TransactionState
from fakebroker.errors import ConfigError, ErrorCode, one_of
from fakebroker.topic_partition import TopicPartition, format_partitions, parse_partition
from fakebroker.validation import Positive

_HOLDABLE_STATES: Mapping[str, TransactionState] = {
    state.value: state for state in transaction_controls.HOLDABLE_STATES
}
"""The states in which transactional ids can be held, by Kafka's names."""

_STATES = (*STATES, DEAD)


def _check_state(state: str | None = None, pending: str | None = None) -> None:
    if state is None and pending is None:
        raise ConfigError.missing("state", f"{one_of(_STATES)}, or pending")
    for name, value in (("state", state), ("pending", pending)):
        if value is not None and value not in _STATES:
            raise ConfigError.of(name, value, one_of(_STATES, value))


class TransactionHandle(Handle):
    """A transactional id, which need not exist yet: `cluster.transaction("payments")`.

    Attributes:
        transactional_id: The transactional id.
    """

    _kind = "transaction"
    _keys = ("transactional_id",)
    _path = "transactions"

    def __init__(self, owner: Owner, transactional_id: str) -> None:
        super().__init__(owner)
        check_type("transactional_id", transactional_id, str, "a string")
        self.transactional_id = transactional_id

    # Views

    @view
    def describe(self) -> TransactionView:
        """Return the current state of the id, as its coordinator knows it.

        An id that does not exist is Dead; so is one whose coordinator is loading, or that has no coordinator.
        """
        local = self._local
        return local.run(lambda: view_or_dead(local.cluster, self.transactional_id, local.now_ms()))

    @view
    def timeline(self) -> TransactionTimeline:
        """Return the transitions of the id with their causes; `str()` of the result is a text diagram.

        The history is limited like the history of a group; see `GroupHandle.timeline`.
        """
        local = self._local
        return local.run(lambda: transaction_timeline_of(local.cluster, self.transactional_id, local.now_ms()))

    @view
    def explain(self) -> str:
        """Explain in a few sentences why the id is in its state, which events are pending, and until when."""
        local = self._local
        return local.run(lambda: explain_transaction(local.cluster, self.transactional_id, local.now_ms()))

    @view
    def coordinator(self) -> BrokerView:
        """Return the broker that coordinates the id.

        Raises:
            ConfigError: The id has no coordinator now.
        """
        local = self._local
        broker = local.run(lambda: local.cluster.transactions.coordinator_of(self.transactional_id))
        if broker is None:
            raise ConfigError.of("transactional_id", self.transactional_id, "an id that has a coordinator now")
        return BrokerView.of(broker)

    # Conditions

    @condition(_check_state)
    def state(self, at: Instant, state: str | None = None, *, pending: str | None = None) -> TransactionView | None:
        """The id is in a state.

        Args:
            state: Kafka's name of the state, such as "Ongoing"; "Dead" if there is no such id. None for any.
            pending: The next state, whose record is being stored, or is held. None for any, and for none.
        """
        moment, coordinator = (
            at.of_transaction(self.transactional_id),
            at.cluster.transactions.coordinator_of(self.transactional_id),
        )
        # The history has no pending states. Other coordinators are zombies.
        if (
            moment is not None
            and pending is None
            and (coordinator is None or moment.coordinator_id == coordinator.node_id)
        ):
            holds = moment.state_to == state
            return view_of_moment(at.cluster, self.transactional_id, moment, at.now_ms) if holds else None
        view = view_or_dead(at.cluster, self.transactional_id, at.now_ms)
        return view if state in (None, view.state) and pending in (None, view.pending_state) else None

    def _state_text(self, at: Instant) -> str:
        cluster, key = at.cluster, self.transactional_id
        text = f"{explain_transaction(cluster, key, at.now_ms)}\n\n{transaction_timeline_of(cluster, key, at.now_ms)}"
        return text + others(cluster.transactions.history, key, "transactional id")

    # Commands

    @command
    def seed(self, /, **options: Annotated[Any, TransactionSeed]) -> None:
        """Create the transactional id as if a producer had used it; by default with an open transaction.

        The records of the transaction are appended to the logs, and the state to __transaction_state. With
        PrepareCommit or PrepareAbort, the coordinator then writes the markers. With `producer_id` and `epoch`, also
        states near the last epoch of a producer id can be created.

        Args:
            options: State, producer and records; see `fakebroker.TransactionSeed`.

        Raises:
            ConfigError: The id exists or has no coordinator, the producer id is in use, a partition does not exist or
                has no leader, the record of the id cannot be stored, or the options contradict each other.
        """
        local = self._local
        seed = TransactionSeed(transactional_id=self.transactional_id, **options)
        local.change(lambda: seed_transaction(local.cluster, seed, local.now_ms()))

    @holding("release")
    def hold(self, state: str) -> None:
        """Hold the transactional id before a state, until `release`.

        The hold delays the record with the state, before it is written to __transaction_state. The transition stays
        pending, its request is not answered, and other requests get CONCURRENT_TRANSACTIONS. A hold of PrepareCommit
        delays the decision. A hold of CompleteCommit delays the end, after all markers were written. If the coordinator
        moves meanwhile, the record is lost and the request gets NOT_COORDINATOR. Between the two states, the markers
        are written: `hold_markers` holds them.

        Args:
            state: "Empty" (InitProducerId), "Ongoing" (a partition is added), "PrepareCommit" or "PrepareAbort" (the
                outcome is decided), "CompleteCommit" or "CompleteAbort" (all markers were written), or "Dead" (the id
                expires).

        Returns:
            A context manager that releases the id.

        Raises:
            ConfigError: The state is none of these.
        """
        held, local = _holdable_state(state), self._local
        local.run(lambda: local.cluster.transactions.holds.setdefault(self.transactional_id, {}).update({held: None}))

    @command
    def release(self, state: str | None = None) -> None:
        """Release a held transactional id. Records that were held are stored when the command returns.

        Args:
            state: The state before which it is held. None: any state.

        Raises:
            ConfigError: The id is not held, or not before this state.
        """
        local = self._local
        states = list(_HOLDABLE_STATES.values()) if state is None else [_holdable_state(state)]

        def release() -> None:
            holds = local.cluster.transactions.holds
            mine = holds.get(self.transactional_id, {})
            if not any(each in mine for each in states):
                held = [f"{key!r} in {each.value}" for key, value in holds.items() for each in value]
                where = f" in {state}" if state else ""
                expected = f"a transactional id that is held{where}, {one_of(held, none='but there is none')}"
                raise ConfigError.of("transactional_id", self.transactional_id, expected)
            for each in states:
                mine.pop(each, None)
            local.cluster.now_ms = local.now_ms()  # Records that were held are appended at this time.
            # Not only the coordinator has the id: zombies may have it, too.
            for broker in local.cluster.brokers.values():
                broker.transaction_coordinator.release(self.transactional_id, local.now_ms())

        local.run(release)

    @command
    def move_coordinator(self, /, to: int | None, **how: Annotated[Any, Failover]) -> None:
        """Move the coordinator of the transactional id to another broker.

        All ids in the same partition of __transaction_state move with it. The old coordinator resigns: requests whose
        records are held get NOT_COORDINATOR. The new coordinator loads the ids from the partition's log, and writes the
        markers of transactions that are prepared. If the log does not exist, it is created.

        Args:
            to: Node id of the new coordinator. None: the id has no coordinator (COORDINATOR_NOT_AVAILABLE) until it is
                moved again, or its previous coordinator restarts.
            how: Options of the failover; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range or without effect.
        """
        local = self._local

        def transactions_partition() -> Partition:
            local.cluster.first_use.finish(TRANSACTIONS_TOPIC, local.now_ms())
            return local.cluster.transactions_partition_of(self.transactional_id)

        local.move_leader(transactions_partition, to, Failover(**how))

    @command
    def fail_append(
        self, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: Positive | None = 1
    ) -> AppendFailureHandle:
        """Let the next appends to the log of the transactional id fail: its transitions are not stored.

        The log is the id's partition of __transaction_state; all ids of the partition are affected. Requests get the
        errors that Kafka returns: for NOT_ENOUGH_REPLICAS, COORDINATOR_NOT_AVAILABLE. If the end of a transaction
        cannot be stored after its markers were written, the coordinator tries again.

        Args:
            error: The error of the log, by Kafka's name.
            times: Number of appends that fail. None: all, until the failure is removed.

        Returns:
            As `GroupHandle.fail_append`.

        Raises:
            ConfigError: Appends do not fail with this error, or the number is below 1.
        """
        local = self._local
        return add_append_failure(
            local, lambda: local.cluster.transactions_partition_of(self.transactional_id), error, times
        )

    @holding("release_markers")
    def hold_markers(self, partition: str | None = None) -> None:
        """Hold the markers of a transactional id until `release_markers`.

        Its transactions stay in PrepareCommit or PrepareAbort, and their records invisible to read_committed consumers,
        in the held partitions. The markers of other partitions are written. The hold applies to all transactions of the
        id, now and later, and remains when its coordinator moves.

        Args:
            partition: The partition, such as "orders-0". None: all partitions.

        Returns:
            A context manager that releases the markers.

        Raises:
            ConfigError: The partition is malformed.
        """
        local, key = self._local, self._marker_key(partition)
        local.run(lambda: local.cluster.transactions.held_markers.update({key: None}))

    @command
    def release_markers(self, partition: str | None = None) -> None:
        """Release markers that are held. Those whose partitions can take them are written when the command returns.

        Args:
            partition: The partition that was given to `hold_markers`, or None if it was None.

        Raises:
            ConfigError: The markers are not held, or the partition is malformed.
        """
        local, key = self._local, self._marker_key(partition)

        def release() -> None:
            held = local.cluster.transactions.held_markers
            if key not in held:
                places = [(name, "all" if place is None else format_partitions([place])) for name, place in held]
                known = one_of((f"{name!r} in {place}" for name, place in places), none="but none is held")
                raise ConfigError.of("transactional_id", self.transactional_id, f"what hold_markers was given, {known}")
            del held[key]
            local.cluster.now_ms = local.now_ms()  # the time of the markers
            local.cluster.transactions.retry()

        local.run(release)

    @command
    def abort(self) -> None:
        """Abort the open transaction of a transactional id at its coordinator, as its timeout does.

        The epoch is raised, so that the producer is fenced; with the feature `transaction.version` 2 it recovers if it
        aborts, too. A hanging transaction, which the coordinator does not know, is aborted by an admin client instead
        (`abortTransaction`).

        Raises:
            ConfigError: The id does not exist, has no open transaction or no coordinator, a transition is pending, or
                the record could not be stored.
        """
        self._control(transaction_controls.abort)

    @command
    def fence_producer(self) -> None:
        """Fence the producer of a transactional id, as Admin.fenceProducers does: its epoch is raised.

        An open transaction is aborted. The next request of the producer gets PRODUCER_FENCED or INVALID_PRODUCER_EPOCH.

        Raises:
            ConfigError: The id does not exist or has no coordinator, a transition is pending, or the record could not
                be stored.
        """
        self._control(transaction_controls.fence)

    def _control(self, action: Callable[[TransactionCoordinator, Transaction, float], ErrorCode]) -> None:
        """Run an action on an existing transactional id at its coordinator, with the brokers' time in milliseconds."""
        local = self._local

        def act() -> None:
            broker = local.cluster.transactions.coordinator_of(self.transactional_id)
            if broker is None:
                expected = "a transactional id that has a coordinator now"
                raise ConfigError.of("transactional_id", self.transactional_id, expected)
            coordinator, now_ms = broker.transaction_coordinator, local.now_ms()
            local.cluster.now_ms = now_ms  # the time of records and markers
            transaction = transaction_controls.transaction_of(coordinator, self.transactional_id)
            if error := action(coordinator, transaction, now_ms):
                expected = f"an id whose record can be stored; it failed with {error.name}"
                raise ConfigError.of("transactional_id", self.transactional_id, expected)

        local.run(act)

    def _marker_key(self, partition: str | None) -> tuple[str, TopicPartition | None]:
        return self.transactional_id, None if partition is None else parse_partition(partition)


def _holdable_state(name: str) -> TransactionState:
    if name not in _HOLDABLE_STATES:
        raise ConfigError.of("state", name, one_of(_HOLDABLE_STATES, name))
    return _HOLDABLE_STATES[name]
