"""The partitions of an internal topic that a coordinator leads or loads. Does not depend on their contents."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ErrorCode

R = TypeVar("R")

Append = Callable[[int, tuple[R, ...]], ErrorCode]
"""Append a batch of records to a partition of the internal topic: all of them, or none.

Called with the index of the partition and the records. Returns NONE if the records are in the log, else the error.
"""


@dataclass(slots=True, eq=False)
class LedPartition:
    """A partition that the coordinator leads. Also an entry of the timer queue, for periodic work on the partition.

    Attributes:
        partition: The index of the partition in the internal topic.
        led_since_ms: When the coordinator became the leader; periodic work is due at full intervals from then on.
        scheduled_ms, timer_number: See `TimerEntry`.
    """

    partition: int
    led_since_ms: float
    scheduled_ms: float = inf
    timer_number: int = 0

    def interval_end_ms(self, interval_ms: int, now_ms: float) -> float:
        """Return the end of the interval that contains `now_ms`; intervals are counted from `led_since_ms`."""
        return self.led_since_ms + ((now_ms - self.led_since_ms) // interval_ms + 1) * interval_ms


class Partitions:
    """All partitions of an internal topic. Each is led, is being loaded, or neither.

    The state of a coordinator is kept by key (such as a group id), and each key belongs to a partition. Requests are
    accepted only for partitions that are led.

    Args:
        count: The number of partitions.

    Attributes:
        count: The number of partitions; changes only while none is led or loaded.
        led: The partitions that are led, by index.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.led: dict[int, LedPartition] = {}
        self._loading: dict[int, None] = {}

    def partition_for(self, key: str) -> int:
        """Return the index of the partition that a key belongs to."""
        return partition_for(key, self.count)

    def error_for(self, key: str) -> ErrorCode:
        """Return NONE if the partition of a key is led, else COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        index = partition_for(key, self.count)
        if index in self.led:
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._loading else ErrorCode.NOT_COORDINATOR

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being loaded, so that not all keys are known."""
        return bool(self._loading)

    def lead(self, index: int, now_ms: float) -> None:
        """Lead a partition, which may have been loading. Does nothing if it is already led."""
        self._loading.pop(index, None)
        self.led.setdefault(index, LedPartition(index, now_ms))

    def start_loading(self, index: int) -> None:
        """Mark a partition as being loaded.

        Raises:
            RuntimeError: The partition is led.
        """
        if index in self.led:
            raise RuntimeError(f"offsets partition {index} is led; it has to be resigned before it can be loaded")
        self._loading[index] = None

    def end_loading(self, index: int) -> None:
        """Remove the mark of `start_loading`; the caller leads the partition if loading has succeeded.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        if index not in self._loading:
            raise RuntimeError(f"offsets partition {index} is not being loaded")
        del self._loading[index]

    def resign(self, index: int) -> None:
        """Stop leading or loading a partition."""
        self._loading.pop(index, None)
        if (led := self.led.pop(index, None)) is not None:
            led.scheduled_ms = inf
