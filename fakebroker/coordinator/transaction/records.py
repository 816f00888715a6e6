"""The records that a transaction coordinator appends to `__transaction_state`, as plain data.

Does not depend on their encoding, which is in `cluster/logs/`. The key is the transactional id; only the last record of
an id is valid. A record without a value is a tombstone.
"""

import msgspec

from fakebroker.coordinator.transaction.states import TransactionState
from fakebroker.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
MAX_EPOCH = 2**15 - 1

EXHAUSTED_EPOCH = MAX_EPOCH - 1
"""The last epoch of a producer id that clients get; the one after it is for the coordinator, to fence this one."""


class TransactionValue(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id after a transition (Kafka's `TransactionLogValue`).

    Attributes:
        producer_id: The producer id.
        previous_producer_id: The producer id before the transition; -1 if there was none.
        next_producer_id: The producer id after the end of the transaction, if the epochs are exhausted; else -1.
        epoch: The producer epoch; -1 for an id that was just created.
        timeout_ms: `transaction.timeout.ms` of the producer.
        state: The state.
        partitions: The partitions of the transaction, in the order in which they were added.
        last_update_ms: Time of the transition.
        start_ms: When the transaction, or the last one, began; -1 if there was none.
        version: The transaction version of the last request that added partitions or ended the transaction: 2 if a
            broker has added them, or if the epoch was raised (KIP-890); else 0.
    """

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...] = ()
    last_update_ms: int
    start_ms: int = NO_TIME
    version: int = 0


class TransactionRecord(msgspec.Struct, frozen=True):
    """A transactional id; without a value, the id has expired."""

    transactional_id: str
    value: TransactionValue | None
