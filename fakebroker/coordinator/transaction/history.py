"""The history of transactional ids: each transition, and each that could not be stored, with its cause."""

import msgspec

from fakebroker.coordinator.history import BoundedHistory
from fakebroker.coordinator.transaction.transaction import Transaction
from fakebroker.topic_partition import TopicPartition


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
        partitions: The partitions of the transaction afterwards, in the order in which they were added.
    """

    at_ms: float
    coordinator_id: int
    cause: str
    state_from: str
    state_to: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_transition(self) -> bool:
        return self.state_from != self.state_to

    @property
    def size(self) -> int:
        return len(self.partitions)

    def moment(self) -> "TransactionMoment":
        return self


class TransactionHistory(BoundedHistory[TransactionMoment, TransactionMoment]):
    """The newest moments of all transactional ids. The size of a moment is its number of partitions."""

    def record(
        self, transaction: Transaction, state_from: str, state_to: str, cause: str, now_ms: float, coordinator_id: int
    ) -> None:
        """Record a transition of a transactional id."""
        value = transaction.value
        moment = TransactionMoment(
            at_ms=now_ms,
            coordinator_id=coordinator_id,
            cause=cause,
            state_from=state_from,
            state_to=state_to,
            producer_id=value.producer_id,
            producer_epoch=value.epoch,
            partitions=value.partitions,
        )
        self.keep(transaction.transactional_id, [moment])
