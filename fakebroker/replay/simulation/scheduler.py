"""The scheduler of a simulation: a heap of calls in virtual time. Does not depend on what is called.

Calls at the same time are ordered by kind, then by number (of the member, connection or event), then by the order of
scheduling.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

START_MS = 1_600_000_000_000.0
"""Start of each simulation, in milliseconds since the Unix epoch; constant, so that equal seeds give equal events."""

LATENCY_MS = 0.25
"""One-way latency of the network."""

CONNECT_MS = 4 * LATENCY_MS
"""Time to open a connection: one round trip to connect and one to negotiate versions."""

EVENT, TIMER, ARRIVAL, RESPONSE, ACTION, LOOKUP = range(6)
"""Kinds of calls, in their order at the same time: events of the timeline, timers of brokers, arrivals of requests,
responses and losses at clients, deadlines of members, look-ups and loads."""

Position = tuple[float, int, int]
"""The position of a call in the order of all calls: time in milliseconds, kind, number."""

Entry = tuple[float, int, int, int, Callable[..., None], tuple[Any, ...]]
"""A scheduled call: its position, an increasing number, the function and its arguments."""


class VirtualClock:
    """Virtual time, set by the scheduler.

    Attributes:
        moment_ms: Present time, in milliseconds since the Unix epoch.
    """

    def __init__(self, start_ms: float) -> None:
        self.moment_ms = start_ms

    def now_ms(self) -> float:
        return self.moment_ms


class Scheduler:
    """Makes scheduled calls in order.

    Calls differ in what they may change. A private call (`schedule_private`) affects one idle member only. A shared
    call (`schedule_shared`) may change the brokers' state for any member. All other calls affect one client only, or
    its broker's state about this client.

    Args:
        clock: Set to the time of each call.

    Attributes:
        position: Position of the present call.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.position: Position = (clock.moment_ms, EVENT, -1)
        self._numbers = count()
        self._heap: list[Entry] = []
        self._private: list[Entry] = []
        self._shared_ms: list[float] = []

    def schedule_shared(self, at_ms: float, kind: int, number: int, call: Callable[..., None], *args: Any) -> None:
        """Schedule a shared call."""
        heappush(self._shared_ms, at_ms)
        self.schedule(at_ms, kind, number, call, *args)

    def schedule(self, at_ms: float, kind: int, number: int, call: Callable[..., None], *args: Any) -> None:
        """Schedule a call."""
        heappush(self._heap, (at_ms, kind, number, next(self._numbers), call, args))

    def schedule_private(self, at_ms: float, number: int, call: Callable[..., None], *args: Any) -> None:
        """Schedule an action of an idle member, which affects no other member."""
        heappush(self._private, (at_ms, ACTION, number, next(self._numbers), call, args))

    def is_quiet_until(self, at_ms: float) -> bool:
        """Return whether no shared call is scheduled from now until a time, inclusive."""
        shared_ms = self._shared_ms
        while shared_ms and shared_ms[0] < self.clock.moment_ms:
            heappop(shared_ms)
        return not shared_ms or shared_ms[0] > at_ms

    def step(self, until_ms: float) -> bool:
        """Make the next call, if it is due at `until_ms` or earlier.

        Returns:
            Whether a call was made.
        """
        heap, private = self._heap, self._private
        entries = private if not heap or (private and private[0] < heap[0]) else heap
        if not entries or entries[0][0] > until_ms:
            return False
        entry = heappop(entries)
        self.clock.moment_ms = entry[0]
        self.position = entry[:3]
        entry[4](*entry[5])
        return True
