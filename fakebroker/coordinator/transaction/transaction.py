"""One transactional id at its coordinator: what is stored, what is pending, and the values of its next transitions."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import NamedTuple

from msgspec.structs import replace

from fakebroker.coordinator.transaction.api import Markers, ProducerResult
from fakebroker.coordinator.transaction.config import KIP_890, TransactionConfig
from fakebroker.coordinator.transaction.records import (
    EXHAUSTED_EPOCH,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionValue,
)
from fakebroker.coordinator.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    IDLE,
    ONGOING,
    PREPARE_COMMIT,
    TRANSITIONS,
    TransactionState,
)
from fakebroker.topic_partition import TopicPartition


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
