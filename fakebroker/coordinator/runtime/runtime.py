"""The runtime of a coordinator: partitions, appends that may complete later, and timers (Kafka's `CoordinatorRuntime`).

The state of a coordinator is kept by key (such as a group id), and each key belongs to a partition of an internal
topic. Operations on one partition run in order: while an append is pending, later operations on the partition wait.
Does not depend on sockets or clocks.
"""

from collections.abc import Callable, Collection, Generator
from functools import partial
from math import inf
from typing import Generic, Protocol, TypeVar

from fakebroker.coordinator.runtime.partitions import LedPartition, Partitions
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.coordinator.runtime.timer_queue import TimerQueue
from fakebroker.errors import ErrorCode


class PartitionEntry(Protocol):
    """A timer entry (see `TimerEntry`) that belongs to a partition."""

    partition: int
    scheduled_ms: float
    timer_number: int


R = TypeVar("R")
E = TypeVar("E", bound=PartitionEntry)
T = TypeVar("T")

Append = Callable[[int, tuple[R, ...], Callable[[ErrorCode], None]], None]
"""Append a batch of records to a partition of the internal topic: all of them, or none.

Called with the index of the partition, the records and a callback, which may be called before the append returns or
later: with NONE if the records are in the log, else with the error for clients (COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR or UNKNOWN_SERVER_ERROR).
"""

WriteOperation = Generator[tuple[R, ...], ErrorCode, T]
"""An operation that appends: it yields each batch, is resumed with the error of its append, and returns its result."""


class CoordinatorRuntime(Generic[R, E]):
    """The partitions that one coordinator leads, its pending appends, and its timers.

    Operations that append records are passed to `submit` (by key) or `submit_to` (by partition), and call `run` or
    `append` when they run. Operations that only read, or change no stored state, can run at any time.

    Args:
        partition_count: The number of partitions of the internal topic.
        append: Appends to the log of a partition.
        expire: Called with an entry whose deadline has passed, that deadline, and the time.

    Attributes:
        is_busy: Whether any partition is blocked (`LedPartition.is_blocked`). While it is False, a caller for which
            speed matters may run an operation without `submit`.
    """

    def __init__(
        self,
        partition_count: int,
        append: Append[R],
        expire: Callable[[E | LedPartition, float, float], None],
    ) -> None:
        self.partition_count = partition_count
        self.is_busy = False
        self._append = append
        self._expire = expire
        self._partitions = Partitions()
        self._led = self._partitions.led
        self._timers: TimerQueue[E | LedPartition] = TimerQueue()

    # Partitions

    def partition_for(self, key: str) -> int:
        """Return the index of the partition that a key belongs to."""
        return partition_for(key, self.partition_count)

    def error_for(self, key: str) -> ErrorCode:
        """Return NONE if the partition of a key is led, else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._partitions.error(self.partition_for(key))

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded, so that not all keys are known."""
        return self._partitions.is_loading

    def led_partition(self, index: int) -> LedPartition | None:
        return self._led.get(index)

    def led_partitions(self) -> Collection[LedPartition]:
        return self._led.values()

    def lead(self, index: int, now_ms: float) -> None:
        """Lead a partition without state."""
        self._partitions.lead(index, now_ms)

    def start_loading(self, index: int) -> None:
        """Mark a partition as being loaded: its error is COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            RuntimeError: The partition is led.
        """
        self._partitions.start_loading(index)

    def finish_loading(self, index: int, now_ms: float) -> None:
        """Lead a partition that was being loaded; the caller then adds its state.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        self._partitions.end_loading(index)
        self._partitions.lead(index, now_ms)

    def fail_loading(self, index: int) -> None:
        """Stop loading a partition: its error is NOT_COORDINATOR until it is loaded again or led.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        self._partitions.end_loading(index)

    def resign(self, index: int, unload: Callable[[], None]) -> None:
        """Stop leading or loading a partition.

        First the callback of a pending append is called with NOT_COORDINATOR; a later completion of that append is
        ignored. Then the state is dropped. Then the waiting operations run, which find that the partition is not led.

        Args:
            unload: Drops the state of the partition.
        """
        partition = self._partitions.resign(index)
        if partition is not None and (done := partition.pending) is not None:
            partition.pending = None
            done(ErrorCode.NOT_COORDINATOR)
        unload()
        if partition is not None:
            partition.scheduled_ms = inf
            while partition.waiting:
                partition.waiting.popleft()()
            self._update_busy()

    # Operations

    def submit(self, key: str, operation: Callable[[], None]) -> None:
        """Run an operation on the state of a key: now, or after the earlier operations on its partition."""
        if self.is_busy:
            self.submit_to(self.partition_for(key), operation)
        else:
            operation()

    def submit_to(self, index: int, operation: Callable[[], None]) -> None:
        """Run an operation on the state of a partition: now, or after the earlier operations on it."""
        partition = self._led.get(index) if self.is_busy else None
        if partition is not None and partition.is_blocked:
            partition.waiting.append(operation)
        else:
            operation()

    def run(self, index: int, operation: WriteOperation[R, T], done: Callable[[T], None]) -> bool:
        """Run an operation that appends to a partition; `done` is called with its result, at once or later.

        Returns:
            Whether `done` was called.
        """
        return self._resume(index, operation, done, None)

    def _resume(
        self, index: int, operation: WriteOperation[R, T], done: Callable[[T], None], error: ErrorCode | None
    ) -> bool:
        while True:
            try:
                records = next(operation) if error is None else operation.send(error)
            except StopIteration as end:
                done(end.value)
                return True
            step = _OperationStep(lambda late: self._resume(index, operation, done, late))
            self.append(index, records, step)
            if step.error is None:
                step.is_late = True
                return False
            error = step.error

    def append(self, index: int, records: tuple[R, ...], done: Callable[[ErrorCode], None]) -> None:
        """Append records to a partition; `done` is called with NONE or the error, at once or later."""
        partition = self._led.get(index)
        if partition is None:
            done(ErrorCode.NOT_COORDINATOR)
            return
        assert partition.pending is None, f"partition {index}: an append is pending; operations go through submit"
        partition.pending = done
        try:
            self._append(index, records, partition.complete)
        except BaseException:
            partition.pending = None
            raise
        if partition.pending is done:
            partition.run_waiting = self._run_waiting
            self.is_busy = True

    def _run_waiting(self, partition: LedPartition) -> None:
        """Run the waiting operations of a partition, up to the first one with a pending append."""
        try:
            while partition.waiting and partition.pending is None:
                partition.waiting.popleft()()
        finally:
            if partition.waiting and partition.pending is None:  # An operation raised; the others must still run.
                self._run_waiting(partition)
            self._update_busy()

    def _update_busy(self) -> None:
        self.is_busy = any(partition.is_blocked for partition in self._led.values())

    # Timers

    def schedule(self, entry: E | LedPartition, deadline_ms: float) -> None:
        """Set the deadline of an entry, unless it already has an earlier one."""
        self._timers.schedule(entry, deadline_ms)

    def tick(self, now_ms: float) -> None:
        """Expire all entries that are due, in order of their deadlines. Those of a blocked partition expire later."""
        for entry, deadline_ms in self._timers.expired(now_ms):
            partition = self._led.get(entry.partition) if self.is_busy else None
            if partition is not None and partition.is_blocked:
                entry.scheduled_ms = deadline_ms
                partition.waiting.append(partial(self._expire_late, entry, deadline_ms, now_ms))
            else:
                self._expire(entry, deadline_ms, now_ms)

    def _expire_late(self, entry: E | LedPartition, deadline_ms: float, now_ms: float) -> None:
        if entry.scheduled_ms == deadline_ms:  # Else the entry was rescheduled to an earlier time, or canceled.
            entry.scheduled_ms = inf
            self._expire(entry, deadline_ms, now_ms)

    def next_deadline(self) -> float | None:
        """Return when to call `tick` next, or None without timers. May be early, never late."""
        return self._timers.next_deadline()


class _OperationStep:
    """The callback of an append by an operation.

    If it is called before `append` has returned, it only stores the error, and `_resume` continues in its loop. If it
    is called later (`is_late`), it resumes the operation.
    """

    __slots__ = ("_resume", "error", "is_late")

    def __init__(self, resume: Callable[[ErrorCode], object]) -> None:
        self._resume = resume
        self.error: ErrorCode | None = None
        self.is_late = False

    def __call__(self, error: ErrorCode) -> None:
        if self.is_late:
            self._resume(error)
        else:
            self.error = error
