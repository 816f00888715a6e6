"""Which partitions of an internal topic a coordinator leads or loads. Does not know what the partitions hold."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from fakebroker.errors import ErrorCode


@dataclass(slots=True, eq=False)
class LedPartition:
    """A partition whose state is served. It is itself an entry of the timer queue, for periodic work.

    Attributes:
        partition: Its index in the internal topic.
        led_since_ms: When the partition was taken over; periodic work is due at full intervals from then on.
        scheduled_ms, timer_number: See `TimerQueue`.
        pending: What continues when the append in progress has completed, or None.
        run_waiting: Runs the waiting operations after the append in progress; None until it is known not to complete at
            once.
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
        """Complete the append in progress; ignored if the partition was resigned since."""
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
        """Whether operations have to wait: an append is pending, or operations that came earlier are waiting."""
        return self.pending is not None or bool(self.waiting)

    def interval_end_ms(self, interval_ms: int, now_ms: float) -> float:
        """When the interval that contains `now_ms` ends."""
        return self.led_since_ms + ((now_ms - self.led_since_ms) // interval_ms + 1) * interval_ms


class Partitions:
    """All partitions of an internal topic: each is led, is being loaded, or is refused.

    Attributes:
        led: The partitions that are led, by their index.
    """

    def __init__(self) -> None:
        self.led: dict[int, LedPartition] = {}
        self._loading: dict[int, None] = {}

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being loaded."""
        return bool(self._loading)

    def error(self, index: int) -> ErrorCode:
        """NONE if the partition is led, else COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        if index in self.led:
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._loading else ErrorCode.NOT_COORDINATOR

    def lead(self, index: int, now_ms: float) -> None:
        self._loading.pop(index, None)
        self.led.setdefault(index, LedPartition(index, now_ms))

    def start_loading(self, index: int) -> None:
        if index in self.led:
            raise RuntimeError(f"offsets partition {index} is led; it has to be resigned before it can be loaded")
        self._loading[index] = None

    def end_loading(self, index: int) -> None:
        if index not in self._loading:
            raise RuntimeError(f"offsets partition {index} is not being loaded")
        del self._loading[index]

    def resign(self, index: int) -> LedPartition | None:
        """Stop leading or loading a partition; returns it if it was led."""
        self._loading.pop(index, None)
        return self.led.pop(index, None)
