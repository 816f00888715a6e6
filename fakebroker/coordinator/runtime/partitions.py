"""The partitions of an internal topic that a coordinator leads or loads. Does not depend on their contents."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from fakebroker.errors import ErrorCode


@dataclass(slots=True, eq=False)
class LedPartition:
    """A partition that the coordinator leads. Also an entry of the timer queue, for periodic work on the partition.

    Attributes:
        partition: The index of the partition in the internal topic.
        led_since_ms: When the coordinator became the leader; periodic work is due at full intervals from then on.
        scheduled_ms, timer_number: See `TimerEntry`.
        pending: The callback of the append in progress; None if there is none.
        run_waiting: Called after the append in progress to run the operations in `waiting`. None if no append is in
            progress, and until the call that started the append has returned.
        waiting: Operations that run after the append in progress, in order of arrival.
    """

    partition: int
    led_since_ms: float
    scheduled_ms: float = inf
    timer_number: int = 0
    pending: Callable[[ErrorCode], None] | None = None
    run_waiting: "Callable[[LedPartition], None] | None" = None
    waiting: deque[Callable[[], None]] = field(default_factory=deque)

    def complete(self, error: ErrorCode) -> None:
        """Complete the append in progress with NONE or its error. Ignored if the partition was resigned meanwhile."""
        done = self.pending
        if done is None:
            return
        self.pending = None
        if self.run_waiting is None:
            done(error)
            return
        run_waiting, self.run_waiting = self.run_waiting, None
        try:
            done(error)
        finally:
            run_waiting(self)

    @property
    def is_blocked(self) -> bool:
        """Whether new operations have to wait: for a pending append, or behind operations that already wait."""
        return self.pending is not None or bool(self.waiting)

    def interval_end_ms(self, interval_ms: int, now_ms: float) -> float:
        """Return the end of the interval that contains `now_ms`; intervals are counted from `led_since_ms`."""
        return self.led_since_ms + ((now_ms - self.led_since_ms) // interval_ms + 1) * interval_ms


class Partitions:
    """All partitions of an internal topic. Each is led, is being loaded, or neither.

    Requests are accepted only for partitions that are led.

    Attributes:
        led: The partitions that are led, by index.
    """

    def __init__(self) -> None:
        self.led: dict[int, LedPartition] = {}
        self._loading: dict[int, None] = {}

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being loaded."""
        return bool(self._loading)

    def error(self, index: int) -> ErrorCode:
        """Return NONE if the partition is led, else COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        if index in self.led:
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._loading else ErrorCode.NOT_COORDINATOR

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

    def resign(self, index: int) -> LedPartition | None:
        """Stop leading or loading a partition. Return the partition if it was led."""
        self._loading.pop(index, None)
        return self.led.pop(index, None)
