"""A queue of deadlines. Does not depend on a clock."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Generic, Protocol, TypeVar

_SLACK = 64
"""Outdated items are removed when the heap has this many items more than twice its size after the last removal."""


class TimerEntry(Protocol):
    """An object with a deadline. The queue keeps its state in the entry itself.

    Attributes:
        scheduled_ms: The deadline at which the queue returns the entry; infinite if it is not scheduled.
        timer_number: 0 until the entry is first scheduled; it breaks ties between deadlines.
    """

    scheduled_ms: float
    timer_number: int


E = TypeVar("E", bound=TimerEntry)
T = TypeVar("T")


class TimedValue(Generic[T]):
    """A timer entry around a value that is not a `TimerEntry`, or that needs several deadlines."""

    __slots__ = ("scheduled_ms", "timer_number", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        self.scheduled_ms = inf
        self.timer_number = 0


class TimerQueue(Generic[E]):
    """Entries ordered by deadline; each entry has at most one deadline, its `scheduled_ms`.

    Entries with the same deadline are returned in the order in which they were first scheduled.
    """

    __slots__ = ("_heap", "_numbers", "_sweep_size")

    def __init__(self) -> None:
        # An item is outdated if its entry was rescheduled or canceled: its deadline differs from `scheduled_ms` of the
        # entry. Outdated items stay in the heap until they come first or until `_sweep`.
        self._heap: list[tuple[float, int, E]] = []
        self._numbers = count(1)
        self._sweep_size = _SLACK

    def schedule(self, entry: E, deadline_ms: float) -> None:
        """Set the deadline of an entry, unless it already has an earlier one. Ignores an infinite deadline."""
        if deadline_ms < entry.scheduled_ms:
            entry.scheduled_ms = deadline_ms
            entry.timer_number = entry.timer_number or next(self._numbers)
            if len(self._heap) >= self._sweep_size:
                self._sweep()
            heappush(self._heap, (deadline_ms, entry.timer_number, entry))

    def cancel(self, entry: E) -> None:
        """Remove the deadline of an entry, if it has one."""
        entry.scheduled_ms = inf

    def expired(self, now_ms: float) -> Iterator[tuple[E, float]]:
        """Yield expired entries with their deadlines, earliest first. Entries scheduled while iterating are included.

        A yielded entry is no longer scheduled.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, entry = heappop(self._heap)
            if deadline_ms == entry.scheduled_ms:
                entry.scheduled_ms = inf
                yield entry, deadline_ms

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, or None without entries."""
        heap = self._heap
        while heap:
            deadline_ms, _, entry = heap[0]
            if deadline_ms == entry.scheduled_ms:
                return deadline_ms
            heappop(heap)
        return None

    def __iter__(self) -> Iterator[tuple[E, float]]:
        """Iterate over the scheduled entries with their deadlines, earliest first."""
        current = {
            number: (entry, deadline_ms)
            for deadline_ms, number, entry in self._heap
            if deadline_ms == entry.scheduled_ms
        }
        return iter(sorted(current.values(), key=lambda item: (item[1], item[0].timer_number)))

    def _sweep(self) -> None:
        """Remove outdated items."""
        self._heap = [item for item in self._heap if item[0] == item[2].scheduled_ms]
        heapify(self._heap)
        self._sweep_size = 2 * len(self._heap) + _SLACK
