"""What happens when, in virtual time: a heap of moments.

What happens at the same time is in the order of `Kind`, then of the number of whom it happens to, then as it was noted.
Knows nothing of what happens.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from fakebroker.replay.simulation.virtual_cluster import VirtualClock

START_MS = 1_600_000_000_000.0
"""When a replay in memory starts: always at the same time, so that equal seeds give equal events."""

DELAY_MS = 0.25
"""How long anything takes from one end of the network to the other."""

CONNECT_MS = 4 * DELAY_MS
"""How long a new connection takes: a round trip for itself and one for the versions."""

EVENT, TIMER, ARRIVAL, REACH, DEED, ASK = range(6)
"""What happens first at one time: what the timeline says, what the brokers' timers bring, what arrives at brokers, what
reaches clients, what members do by themselves, what is looked up."""

Place = tuple[float, int, int]
"""In the order of all that happens: the time, the kind, the number."""

Entry = tuple[float, int, int, int, Callable[..., None], tuple[Any, ...]]


class Agenda:
    """What is still to happen.

    Args:
        clock: Follows it.

    Attributes:
        place: Of what happens now.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.place: Place = (clock.moment_ms, EVENT, -1)
        self._numbers = count()
        self._heap: list[Entry] = []
        self._alone: list[Entry] = []
        self._grave_ms: list[float] = []

    def note_grave(self, at_ms: float, kind: int, number: int, do: Callable[..., None], *about: Any) -> None:
        """Something is to happen at the brokers that may concern any member."""
        heappush(self._grave_ms, at_ms)
        self.note(at_ms, kind, number, do, *about)

    def note(self, at_ms: float, kind: int, number: int, do: Callable[..., None], *about: Any) -> None:
        """Something is to happen."""
        heappush(self._heap, (at_ms, kind, number, next(self._numbers), do, about))

    def note_alone(self, at_ms: float, number: int, do: Callable[..., None], *about: Any) -> None:
        """A member is to do something that concerns nobody else."""
        heappush(self._alone, (at_ms, DEED, number, next(self._numbers), do, about))

    def is_quiet_until(self, at_ms: float) -> bool:
        """Whether nothing is to happen from now until then that may concern any member."""
        grave_ms = self._grave_ms
        while grave_ms and grave_ms[0] < self.clock.moment_ms:
            heappop(grave_ms)
        return not grave_ms or grave_ms[0] > at_ms

    def step(self, until_ms: float) -> bool:
        """Let the next thing happen, if there is one until then.

        Returns:
            Whether there was.
        """
        heap, alone = self._heap, self._alone
        entries = alone if not heap or (alone and alone[0] < heap[0]) else heap
        if not entries or entries[0][0] > until_ms:
            return False
        entry = heappop(entries)
        self.clock.moment_ms = entry[0]
        self.place = entry[:3]
        entry[4](*entry[5])
        return True
