"""Which offsets partitions a coordinator leads or loads, and what requests for all the others get.

Knows nothing of what groups do.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from fakebroker.errors import ErrorCode


@dataclass(slots=True, eq=False)
class LedPartition:
    """A partition of `__consumer_offsets` whose groups are served.

    Attributes:
        led_since_ms: At each full interval from here on, the coordinator looks for expired offsets.
        wakeup_ms, wakeup_number: When it will next do so; infinite while there are no groups. See `Wakeups`.
    """

    index: int
    led_since_ms: float
    wakeup_ms: float = inf
    wakeup_number: int = 0

    def next_look_ms(self, interval_ms: int, now_ms: float) -> float:
        """When the interval that runs now is over."""
        return self.led_since_ms + ((now_ms - self.led_since_ms) // interval_ms + 1) * interval_ms


class Partitions:
    """All partitions: each is led, or being loaded, or neither, as one is whose loading failed."""

    def __init__(self) -> None:
        self._led: dict[int, LedPartition] = {}
        self._loading: dict[int, None] = {}

    def led(self, index: int) -> LedPartition:
        return self._led[index]

    def all_led(self) -> Collection[LedPartition]:
        return self._led.values()

    @property
    def is_loading(self) -> bool:
        """Whether any is."""
        return bool(self._loading)

    def error(self, index: int) -> ErrorCode:
        """NONE if the partition is led."""
        if index in self._led:
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._loading else ErrorCode.NOT_COORDINATOR

    def lead(self, index: int, now_ms: float) -> None:
        self._loading.pop(index, None)
        self._led.setdefault(index, LedPartition(index, now_ms))

    def start_loading(self, index: int) -> None:
        if index in self._led:
            raise RuntimeError(f"offsets partition {index} is led; it has to be resigned before it can be loaded")
        self._loading[index] = None

    def end_loading(self, index: int) -> None:
        if index not in self._loading:
            raise RuntimeError(f"offsets partition {index} is not being loaded")
        del self._loading[index]

    def resign(self, index: int) -> None:
        self._loading.pop(index, None)
        if led := self._led.pop(index, None):
            led.wakeup_ms = inf
