"""The history of transactional ids: each transition, and each that could not be stored, with its cause."""

import msgspec

from fakebroker.coordinator.history import BoundedHistory
from fakebroker.coordinator.transaction.transaction import Transaction, TransactionValue
from fakebroker.topic_partition import TopicPartition, parse_partitions, partition_names


class TransactionMoment(msgspec.Struct, frozen=True):
    """One transition of a transactional id.

    Attributes:
        at_ms: The time of the transition, by the brokers' clock.
        coordinator_id: The node id of the broker that coordinated the id.
        cause: Human-readable cause.
        state_from: Kafka's name of the state before; Dead if the id has just been created or loaded.
        state_to: Kafka's name of the state afterwards; equals `state_from` if partitions were added, if a producer was
            initialized again, or if the transition could not be stored.
        producer_id: The producer id afterwards.
        producer_epoch: The producer epoch afterwards.
        partition_names: The names of `partitions`, such as "orders-0"; in JSON they are `partitions`.
    """

    at_ms: float
    coordinator_id: int
    cause: str
    state_from: str
    state_to: str
    producer_id: int
    producer_epoch: int
    partition_names: tuple[str, ...] = msgspec.field(name="partitions")

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the transaction afterwards, in the order in which they were added."""
        return parse_partitions(self.partition_names)

    @property
    def is_transition(self) -> bool:
        return self.state_from != self.state_to

    @property
    def size(self) -> int:
        return len(self.partition_names)

    def moment(self) -> "TransactionMoment":
        return self


class RecordedTransactionMoment(msgspec.Struct, frozen=True):
    """A moment that was not read yet. It shares the partitions with the transactional id and has no names of them."""

    at_ms: float
    coordinator_id: int
    cause: str
    state_from: str
    state_to: str
    value: TransactionValue

    @property
    def is_transition(self) -> bool:
        return self.state_from != self.state_to

    @property
    def size(self) -> int:
        return len(self.value.partitions)

    def moment(self) -> TransactionMoment:
        """Return the moment."""
        return TransactionMoment(
            at_ms=self.at_ms,
            coordinator_id=self.coordinator_id,
            cause=self.cause,
            state_from=self.state_from,
            state_to=self.state_to,
            producer_id=self.value.producer_id,
            producer_epoch=self.value.epoch,
            partition_names=partition_names(self.value.partitions),
        )


class TransactionHistory(BoundedHistory[RecordedTransactionMoment, TransactionMoment]):
    """The newest moments of all transactional ids. The size of a moment is its number of partitions."""

    def record(
        self, transaction: Transaction, state_from: str, state_to: str, cause: str, now_ms: float, coordinator_id: int
    ) -> None:
        """Record a transition of a transactional id."""
        moment = RecordedTransactionMoment(now_ms, coordinator_id, cause, state_from, state_to, transaction.value)
        self.keep(transaction.transactional_id, [moment])
