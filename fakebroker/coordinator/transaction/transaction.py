"""One transactional id at its coordinator: settings, states, stored and pending values, and transitions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil, floor, inf
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fakebroker.coordinator.records import CoordinatorRecord
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from fakebroker.topic_partition import TopicPartition, by_topic

# Settings


KIP_890 = 2
"""The first transaction version (`transaction.version`) in which each end of a transaction raises the epoch."""


class TransactionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker settings that a transaction coordinator uses, with Kafka's defaults.

    Attributes:
        partition_count: `transaction.state.log.num.partitions`.
        max_timeout_ms: `transaction.max.timeout.ms`.
        id_expiration_ms: `transactional.id.expiration.ms`.
        abort_check_interval_ms: `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
        expiration_check_interval_ms: `transaction.remove.expired.transaction.cleanup.interval.ms`.
        version: The finalized level of the feature `transaction.version`.
        checks_pending_first: Whether AddPartitionsToTxn looks for a pending transition before the epoch, as since 4.0.
        rotates_when_fenced: Whether an aborted producer without an epoch left gets a new producer id, as since 4.3.
    """

    partition_count: int = 50
    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_check_interval_ms: int = 10_000
    expiration_check_interval_ms: int = 3_600_000
    version: int = KIP_890
    checks_pending_first: bool = True
    rotates_when_fenced: bool = True


# The states of a transaction, the answers to requests in each state, and the transitions between states


class TransactionState(Enum):
    """The states of a transactional id (Kafka's `TransactionState`), named as Kafka names them to clients.

    In every state these faults are rejected: another producer id (INVALID_PRODUCER_ID_MAPPING; InitProducerId:
    PRODUCER_FENCED) and another epoch (PRODUCER_FENCED). A request that changes the transaction gets
    CONCURRENT_TRANSACTIONS while a transition is pending, which it is until its record is stored. The answers to
    requests without these faults are listed below.

    EMPTY: The id has a producer id, and no transaction.
        InitProducerId: the next epoch, or a new producer id with epoch 0 if the epochs are exhausted.
        AddPartitionsToTxn, AddOffsetsToTxn: accepted.
        EndTxn: INVALID_TXN_STATE; with KIP-890, an abort is accepted.
        Transitions:
            InitProducerId -> EMPTY.
            A partition is added -> ONGOING.
            KIP-890: EndTxn with an abort -> PREPARE_ABORT.
            The id expires -> DEAD.
    ONGOING: Partitions have been added.
        InitProducerId: the transaction is aborted in a higher epoch; CONCURRENT_TRANSACTIONS once this is stored.
        AddPartitionsToTxn, AddOffsetsToTxn: accepted.
        EndTxn: accepted.
        In epoch 32767, EndTxn with KIP-890, and before 4.3 InitProducerId: UNKNOWN_SERVER_ERROR, as there is no higher
        epoch.
        Transitions:
            A partition is added -> ONGOING.
            EndTxn -> PREPARE_COMMIT or PREPARE_ABORT.
            InitProducerId, or the transaction times out -> PREPARE_EPOCH_FENCE, then PREPARE_ABORT.
    PREPARE_COMMIT, PREPARE_ABORT: The outcome is decided, and markers are written to the partitions.
        InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn: CONCURRENT_TRANSACTIONS.
        EndTxn: CONCURRENT_TRANSACTIONS, since the next transition is pending from the start.
        Transitions:
            All markers are written -> COMPLETE_COMMIT or COMPLETE_ABORT.
    COMPLETE_COMMIT, COMPLETE_ABORT: The last transaction has ended, and there is no other.
        InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn: as in EMPTY.
        EndTxn: NONE if it repeats the last one, else INVALID_TXN_STATE; with KIP-890, an abort in the new epoch is
        accepted, as in EMPTY.
        Transitions: as in EMPTY.
    DEAD: The tombstone of an expired id is being stored. Only ever pending.
    PREPARE_EPOCH_FENCE: The producer is being fenced. Only ever pending, until PREPARE_ABORT is.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

TRANSITIONS: Mapping[TransactionState, tuple[TransactionState, ...]] = {
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT, DEAD),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT, DEAD),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT, DEAD),
    DEAD: (),
    PREPARE_EPOCH_FENCE: (PREPARE_ABORT,),
}

STORED_STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
"""The states in which a transactional id is stored."""

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
"""The states in which markers are written."""

IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""The states without a transaction."""


# What is stored of a transactional id


TransactionRecord = CoordinatorRecord[TransactionLogKey, TransactionLogValue | None]
"""A record in `__transaction_state`."""

_BY_NUMBER = tuple(TransactionState)
"""The states in the order of their numbers in the log."""

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
MAX_EPOCH = 2**15 - 1

EXHAUSTED_EPOCH = MAX_EPOCH - 1
"""The last epoch of a producer id that clients get; the one after it is for the coordinator, to fence this one."""


class TransactionValue(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id after a transition (Kafka's `TxnTransitMetadata`).

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

    @classmethod
    def of(cls, stored: TransactionLogValue) -> "TransactionValue":
        """Return the value in a record."""
        return cls(
            producer_id=stored.producer_id,
            previous_producer_id=stored.previous_producer_id,
            next_producer_id=stored.next_producer_id,
            epoch=stored.producer_epoch,
            timeout_ms=stored.transaction_timeout_ms,
            state=_BY_NUMBER[stored.transaction_status],
            partitions=tuple(
                (each.topic, index) for each in stored.transaction_partitions or () for index in each.partition_ids
            ),
            last_update_ms=stored.transaction_last_update_timestamp_ms,
            start_ms=stored.transaction_start_timestamp_ms,
            version=stored.client_transaction_version,
        )


def transaction_record(transactional_id: str, value: TransactionValue | None) -> TransactionRecord:
    """Return the record of a transactional id; None deletes it.

    The previous and the next producer id are not written, as in Kafka up to 4.2.
    """
    key = TransactionLogKey(transactional_id=transactional_id)
    if value is None:
        return CoordinatorRecord(key, None)
    partitions = None
    if value.state is not EMPTY:
        topics = by_topic(value.partitions).items()
        partitions = [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics]
    stored = TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=_BY_NUMBER.index(value.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=value.last_update_ms,
        transaction_start_timestamp_ms=value.start_ms,
        client_transaction_version=value.version,
    )
    return CoordinatorRecord(key, stored)


# Results and effects. Handlers replace PRODUCER_FENCED by INVALID_PRODUCER_EPOCH in versions without it (KIP-588).


class ProducerResult(msgspec.Struct, frozen=True):
    """The result of InitProducerId or EndTxn: an error, or the producer id and the epoch to use next."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class Markers(msgspec.Struct, frozen=True):
    """The control records that end a transaction in its partitions.

    Attributes:
        transactional_id: The transactional id.
        producer_id: The producer id of the records.
        epoch: The producer epoch of the markers. With KIP-890, it is higher than the epoch of the records.
        is_commit: Whether the transaction is committed, else aborted.
        coordinator_epoch: The leader epoch of the partition of `__transaction_state`.
        version: The transaction version, see `TransactionValue`.
        partitions: The partitions.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int
    partitions: tuple[TopicPartition, ...]


SendMarkers = Callable[[Markers], None]
"""Write markers to their partitions: at once, or when the partitions can take them.

For each partition, the sender calls `TransactionCoordinator.marker_written`. It retries itself after errors that pass.
"""


# Transactional ids


class Transition(NamedTuple):
    """A transition that takes effect when its record is stored: at once, unless a test holds the record.

    Attributes:
        value: The value after the transition; None if the id is removed.
        last_epoch: `Transaction.last_epoch` after the transition.
        cause: What causes the transition, for the history.
        token: The token of the request that causes the transition; None if no request is answered.
        result: The result of the request if the record is stored; None if the request returns only an error code.
        is_fence: Whether the transition fences the producer.
        is_repeated: Whether an earlier attempt to store the record failed. The history does not note further failures.
    """

    value: TransactionValue | None
    last_epoch: int
    cause: str
    token: object = None
    result: ProducerResult | None = None
    is_fence: bool = False
    is_repeated: bool = False


@dataclass(slots=True, eq=False)
class Transaction:
    """A transactional id (Kafka's `TransactionMetadata`). Also an entry of the timer queue.

    Attributes:
        transactional_id: The id.
        partition: The index of its partition of `__transaction_state`.
        value: The id after its last transition.
        last_epoch: The epoch before `value.epoch` that a repeated InitProducerId may have; not stored, so -1 after the
            coordinator has moved.
        pending: The state whose record is being stored, or that follows when all markers are written; None if no
            transition is pending.
        has_failed_fence: Whether the epoch was raised to fence a producer, but the record could not be stored. Then the
            next attempt does not raise it again.
        held: The transition whose record is held back, if any. Its request waits here until it is released.
        markers: The markers that were sent and are not all written.
        awaits_markers: The partitions to which they are still to be written.
        refused_markers: The partitions that have refused a marker. The id then stays as it is until it is loaded again.
        scheduled_ms, timer_number: See `TimerEntry`.
    """

    transactional_id: str
    partition: int
    value: TransactionValue
    last_epoch: int = NO_EPOCH
    pending: TransactionState | None = None
    has_failed_fence: bool = False
    held: Transition | None = None
    markers: Markers | None = None
    awaits_markers: dict[TopicPartition, None] | None = None
    refused_markers: tuple[TopicPartition, ...] = ()
    scheduled_ms: float = inf
    timer_number: int = 0

    @property
    def state(self) -> TransactionState:
        return self.value.state

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a new producer."""
        return self.value.epoch >= EXHAUSTED_EPOCH

    def next_check_ms(self, config: TransactionConfig, started_ms: float) -> float | None:
        """Return the first check at which the transaction has timed out, or the id has expired; None while it ends.

        Checks are at full intervals since the broker has started, at `started_ms`.
        """
        if self.state is ONGOING:
            due_ms = self.value.start_ms + self.value.timeout_ms
            interval_ms = config.abort_check_interval_ms
            intervals = floor((due_ms - started_ms) / interval_ms) + 1  # not at the time of the timeout itself
        elif self.state in IDLE:
            due_ms = self.value.last_update_ms + config.id_expiration_ms
            interval_ms = config.expiration_check_interval_ms
            intervals = ceil((due_ms - started_ms) / interval_ms)
        else:
            return None
        return started_ms + max(1, intervals) * interval_ms

    def begin(self, state: TransactionState) -> None:
        """Mark a transition as pending."""
        assert self.pending is None, f"{self.transactional_id}: {self.pending} is pending"
        assert state in TRANSITIONS[self.state], f"{self.transactional_id}: {self.state} -> {state}"
        self.pending = state

    def complete(self, value: TransactionValue, last_epoch: int) -> None:
        """Complete the pending transition."""
        assert self.pending is value.state, f"{self.transactional_id}: {self.pending} is pending, not {value.state}"
        self.pending = None
        self.value, self.last_epoch = value, last_epoch

    # The values after a transition, with the epoch that a repeated InitProducerId may have

    def initialized(self, timeout_ms: int, epoch: int, now_ms: float, producer_id: int) -> TransactionValue:
        """Return the value after InitProducerId."""
        return TransactionValue(
            producer_id=producer_id,
            previous_producer_id=self.value.producer_id,
            epoch=epoch,
            timeout_ms=timeout_ms,
            state=EMPTY,
            last_update_ms=int(now_ms),
            version=self.value.version,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], version: int, now_ms: float) -> TransactionValue:
        """Return the value after partitions were added."""
        old = self.value
        return replace(
            old,
            previous_producer_id=old.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=ONGOING,
            partitions=tuple(dict.fromkeys((*old.partitions, *partitions))),
            start_ms=int(now_ms) if old.state in IDLE else old.start_ms,
            last_update_ms=int(now_ms),
            version=version,
        )

    def prepared(self, state: TransactionState, version: int, next_producer_id: int, now_ms: float) -> TransactionValue:
        """Return the value after the outcome was decided. With KIP-890 this raises the epoch."""
        old = self.value
        raises_epoch = version >= KIP_890
        return replace(
            old,
            previous_producer_id=old.producer_id,
            next_producer_id=next_producer_id,
            epoch=min(old.epoch + raises_epoch, MAX_EPOCH),
            state=state,
            start_ms=int(now_ms) if old.state in IDLE else old.start_ms,
            last_update_ms=int(now_ms),
            version=version,
        )

    def completed(self, now_ms: float) -> TransactionValue:
        """Return the value after all markers were written."""
        old = self.value
        rotates = old.version >= KIP_890 and old.next_producer_id != NO_PRODUCER_ID
        return replace(
            old,
            producer_id=old.next_producer_id if rotates else old.producer_id,
            previous_producer_id=old.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            epoch=0 if rotates else old.epoch,
            state=COMPLETE_COMMIT if old.state is PREPARE_COMMIT else COMPLETE_ABORT,
            partitions=(),
            last_update_ms=int(now_ms),
        )
