"""When to look again at what: at groups and offsets partitions. Knows not what is due in them, and no clock."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Generic, Protocol, TypeVar


class _Sleeper(Protocol):
    wakeup_ms: float
    wakeup_number: int


T = TypeVar("T", bound=_Sleeper)


class Wakeups(Generic[T]):
    """What is to be looked at, each with one time at most: its `wakeup_ms`, infinite if there is none.

    At its first time each gets the `wakeup_number` that it keeps, which is 0 before.
    """

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._numbers = count(1)

    def note(self, sleeper: T, at_ms: float) -> None:
        """Looks at it at this time, unless an earlier one is noted already."""
        if at_ms < sleeper.wakeup_ms:
            sleeper.wakeup_ms = at_ms
            sleeper.wakeup_number = sleeper.wakeup_number or next(self._numbers)
            heappush(self._heap, (at_ms, sleeper.wakeup_number, sleeper))

    def due(self, now_ms: float) -> Iterator[tuple[T, float]]:
        """What is due, and since when: the earliest first, then the lowest number; what is noted meanwhile too."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, sleeper = heappop(self._heap)
            if at_ms == sleeper.wakeup_ms:  # Else an earlier time has taken its place, or it is gone.
                sleeper.wakeup_ms = inf
                yield sleeper, at_ms

    def next_ms(self) -> float | None:
        """The earliest time noted; there may be nothing left to look at then."""
        return self._heap[0][0] if self._heap else None
