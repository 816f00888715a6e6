"""Commands for transactions: hold their markers, abort them, fence producers."""

from collections.abc import Callable

from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import (
    command,
)
from fakebroker.cluster.commands.handles import Hold
from fakebroker.coordinator.transaction import controls as transaction_controls
from fakebroker.coordinator.transaction.coordinator import TransactionCoordinator
from fakebroker.coordinator.transaction.transaction import Transaction
from fakebroker.errors import ConfigError, ErrorCode, one_of
from fakebroker.topic_partition import TopicPartition, format_partitions, parse_partition


class TransactionCommands(CommandsBase):
    """Commands for transactions."""

    @command
    def hold_markers(self, transactional_id: str, partition: str | None = None) -> Hold:
        """Hold the markers of a transactional id until `release_markers`.

        Its transactions stay in PrepareCommit or PrepareAbort, and their records invisible to read_committed consumers,
        in the held partitions. The markers of other partitions are written. The hold applies to all transactions of the
        id, now and later, and remains when its coordinator moves.

        Args:
            transactional_id: The transactional id, which need not exist.
            partition: The partition, such as "orders-0". None: all partitions.

        Returns:
            A context manager that releases the markers.

        Raises:
            ConfigError: The partition is malformed.
        """
        key = _marker_key(transactional_id, partition)
        self._run(lambda: self._cluster.transactions.held_markers.update({key: None}))
        return Hold(lambda: self._run(lambda: self._release_markers(key)))

    @command
    def release_markers(self, transactional_id: str, partition: str | None = None) -> None:
        """Release markers that are held. Those whose partitions can take them are written when the command returns.

        Args:
            transactional_id: The transactional id.
            partition: The partition that was given to `hold_markers`, or None if it was None.

        Raises:
            ConfigError: The markers are not held, or the partition is malformed.
        """
        key = _marker_key(transactional_id, partition)

        def release() -> None:
            held = self._cluster.transactions.held_markers
            if key not in held:
                places = [(name, "all" if place is None else format_partitions([place])) for name, place in held]
                known = one_of((f"{name!r} in {place}" for name, place in places), none="but none is held")
                raise ConfigError.of("transactional_id", transactional_id, f"what hold_markers was given, {known}")
            self._release_markers(key)

        self._run(release)

    def _release_markers(self, key: tuple[str, TopicPartition | None]) -> None:
        self._cluster.transactions.held_markers.pop(key, None)
        self._cluster.now_ms = self._now_ms()  # the time of the markers
        self._cluster.transactions.retry()

    @command
    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id at its coordinator, as its timeout does.

        The epoch is raised, so that the producer is fenced; with the feature `transaction.version` 2 it recovers if it
        aborts, too. A hanging transaction, which the coordinator does not know, is aborted by an admin client instead
        (`abortTransaction`).

        Args:
            transactional_id: The transactional id.

        Raises:
            ConfigError: The id does not exist, has no open transaction or no coordinator, a transition is pending, or
                the record could not be stored.
        """
        self._control_transaction(transactional_id, transaction_controls.abort)

    @command
    def fence_producer(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as Admin.fenceProducers does: its epoch is raised.

        An open transaction is aborted. The next request of the producer gets PRODUCER_FENCED or INVALID_PRODUCER_EPOCH.

        Args:
            transactional_id: The transactional id.

        Raises:
            ConfigError: The id does not exist or has no coordinator, a transition is pending, or the record could not
                be stored.
        """
        self._control_transaction(transactional_id, transaction_controls.fence)

    def _control_transaction(
        self, transactional_id: str, action: Callable[[TransactionCoordinator, Transaction, float], ErrorCode]
    ) -> None:
        """Run an action on an existing transactional id at its coordinator, with the brokers' time in milliseconds."""

        def act() -> None:
            broker = self._cluster.transactions.coordinator_of(transactional_id)
            if broker is None:
                expected = "a transactional id that has a coordinator now"
                raise ConfigError.of("transactional_id", transactional_id, expected)
            coordinator, now_ms = broker.transaction_coordinator, self._now_ms()
            self._cluster.now_ms = now_ms  # the time of records and markers
            transaction = transaction_controls.transaction_of(coordinator, transactional_id)
            if error := action(coordinator, transaction, now_ms):
                expected = f"an id whose record can be stored; it failed with {error.name}"
                raise ConfigError.of("transactional_id", transactional_id, expected)

        self._run(act)


def _marker_key(transactional_id: str, partition: str | None) -> tuple[str, TopicPartition | None]:
    return transactional_id, None if partition is None else parse_partition(partition)
