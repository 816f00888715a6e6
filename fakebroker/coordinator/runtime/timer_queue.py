"""A queue of deadlines. Does not depend on a clock."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Generic, Protocol, TypeVar


class TimerEntry(Protocol):
    """Something that has deadlines.

    Attributes:
        scheduled_ms: The deadline at which the queue returns the entry; infinite if it is not scheduled.
        timer_number: 0 until the entry is first scheduled; it breaks ties between deadlines.
    """

    scheduled_ms: float
    timer_number: int


E = TypeVar("E", bound=TimerEntry)


class TimerQueue(Generic[E]):
    """Entries ordered by deadline; each entry has at most one deadline, its `scheduled_ms`.

    Entries with the same deadline are returned in the order in which they were first scheduled.
    """

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, E]] = []
        self._numbers = count(1)

    def schedule(self, entry: E, deadline_ms: float) -> None:
        """Set the deadline of an entry, unless it already has an earlier one."""
        if deadline_ms < entry.scheduled_ms:
            entry.scheduled_ms = deadline_ms
            entry.timer_number = entry.timer_number or next(self._numbers)
            heappush(self._heap, (deadline_ms, entry.timer_number, entry))

    def expired(self, now_ms: float) -> Iterator[tuple[E, float]]:
        """Yield expired entries with their deadlines, earliest first. Entries scheduled while iterating are included.

        An entry that is yielded is not scheduled any more.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, entry = heappop(self._heap)
            if deadline_ms == entry.scheduled_ms:  # Else it was rescheduled to an earlier time, or canceled.
                entry.scheduled_ms = inf
                yield entry, deadline_ms

    def next_deadline(self) -> float | None:
        """The earliest deadline, or None without entries. May be that of an entry that was canceled since."""
        return self._heap[0][0] if self._heap else None
