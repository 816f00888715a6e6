"""A transaction coordinator with a log in memory, markers that a test writes, and transitions that a test holds."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from fakebroker.coordinator.transaction.coordinator import TransactionCoordinator
from fakebroker.coordinator.transaction.transaction import (
    Markers,
    Transaction,
    TransactionConfig,
    TransactionRecord,
    TransactionState,
    TransactionValue,
)
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import TopicPartition

ID = "txn-1"
P0, P1 = ("orders", 0), ("orders", 1)
FIRST_PRODUCER_ID = 4000
TIMEOUT_MS = 60_000


@dataclass
class TransactionLab:
    """One coordinator that leads all partitions.

    Attributes:
        config: Its settings.
        now_ms: The time; only tests change it.
        log: All records, in order.
        holds_markers: Whether markers wait for `write_markers`.
        holds: The states whose records are held until `release`, by transactional id.
        append_error: The error of the next appends.
        causes: The causes of all transitions.
    """

    config: TransactionConfig = field(default_factory=TransactionConfig)
    now_ms: float = 0.0
    log: list[TransactionRecord] = field(default_factory=list)
    holds_markers: bool = False
    holds: dict[str, list[TransactionState]] = field(default_factory=dict)
    append_error: ErrorCode = ErrorCode.NONE
    causes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._producer_ids = count(FIRST_PRODUCER_ID)
        self.sent: list[Markers] = []
        self.coordinator = self.new_coordinator(leader_epoch=5)

    def new_coordinator(self, leader_epoch: int) -> TransactionCoordinator:
        """Return a coordinator that has loaded the log."""
        coordinator = TransactionCoordinator(
            self.config,
            lambda: next(self._producer_ids),
            self._send_markers,
            self._append,
            on_change=lambda transaction, state_from, state_to, cause, now_ms: self.causes.append(cause),
            holds=self.holds,
        )
        for partition in range(self.config.partition_count):
            coordinator.start_loading(partition)
        for partition in range(self.config.partition_count):
            of_partition = [
                each for each in self.log if coordinator.partition_for(each.key.transactional_id) == partition
            ]
            self.coordinator = coordinator
            coordinator.finish_loading(partition, of_partition, leader_epoch, self.now_ms)
        return coordinator

    def fail_over(self, leader_epoch: int = 6) -> None:
        """Replace the coordinator by another one, which loads the log."""
        old = self.coordinator
        for partition in range(self.config.partition_count):
            old.resign(partition, self.now_ms)
        self.new_coordinator(leader_epoch)

    def _append(self, partition: int, records: tuple[TransactionRecord, ...]) -> ErrorCode:
        if not self.append_error:
            self.log.extend(records)
        return self.append_error

    def release(self) -> Any:
        """Store the transition that is held; return the result of its request."""
        self.holds.clear()
        self.coordinator.release(ID, self.now_ms)
        return self.answer()

    def answer(self) -> Any:
        """Return the result of the only parked request."""
        ((_, result),) = self.coordinator.answers
        self.coordinator.answers = []
        return result

    def _send_markers(self, markers: Markers) -> None:
        self.sent.append(markers)
        if not self.holds_markers:
            for partition in markers.partitions:
                self.coordinator.marker_written(markers, partition, ErrorCode.NONE, self.now_ms)

    def write_markers(self, *partitions: TopicPartition, error: ErrorCode = ErrorCode.NONE) -> None:
        """Write the last markers to these partitions, or to all of them."""
        markers = self.sent[-1]
        for partition in partitions or markers.partitions:
            self.coordinator.marker_written(markers, partition, error, self.now_ms)

    @property
    def transaction(self) -> Transaction:
        found = self.coordinator.transaction(ID)
        assert found is not None
        return found

    @property
    def value(self) -> TransactionValue:
        return self.transaction.value

    # Requests: each returns the result; None if it is not known yet

    def init(self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = TIMEOUT_MS, name: str = ID) -> Any:
        return self.coordinator.init_producer_id(name, timeout_ms, producer_id, epoch, self.now_ms, "init")

    def add(
        self, *partitions: TopicPartition, producer_id: int = FIRST_PRODUCER_ID, epoch: int = 0, name: str = ID
    ) -> Any:
        return self.coordinator.add_partitions(name, producer_id, epoch, partitions, self.now_ms, "add")

    def end(
        self,
        *,
        commit: bool = True,
        producer_id: int = FIRST_PRODUCER_ID,
        epoch: int = 0,
        raises_epoch: bool = False,
        name: str = ID,
    ) -> Any:
        return self.coordinator.end(
            name,
            producer_id,
            epoch,
            is_commit=commit,
            raises_epoch=raises_epoch,
            now_ms=self.now_ms,
            token="end",
        )

    def advance(self, seconds: float) -> None:
        """Advance the time, and run the timers that are due, each at its time."""
        end_ms = self.now_ms + 1000 * seconds
        while (due_ms := self.coordinator.queue.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.coordinator.queue.run(self.now_ms)
        self.now_ms = end_ms
        self.coordinator.queue.run(end_ms)
