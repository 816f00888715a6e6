"""The scheduler of a simulation: a heap of calls in virtual time. Does not depend on what is called.

Calls at the same time are ordered by kind, then by number (of the member, connection or event), then by the order of
scheduling.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
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


_SPAN_MS = 1_024.0
"""The length of the spans of time whose calls are ordered together. Multiples of a power of two are exact."""


class Scheduler:
    """Makes scheduled calls in order.

    Calls of the present span of time are in a heap. Later calls are only collected by their span. This is much cheaper
    than one large heap: most deadlines of members are far away, and many move before they are due.

    A shared call (`schedule_shared`) may change the brokers' state for any member. Any other call affects only one
    client, or its broker's state about this client.

    Args:
        clock: Set to the time of each call.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._numbers = count()
        self._entry: Entry = (clock.moment_ms, EVENT, -1, next(self._numbers), _nothing, ())  # Of the present call.
        self._heap: list[Entry] = []  # Of all calls before `_end_ms`.
        self._end_ms = -inf
        self._later: dict[float, list[Entry]] = {}  # Later calls, by the number of their span.
        self._spans: list[float] = []  # A heap of these numbers.
        self._shared_ms: list[float] = []

    @property
    def position(self) -> Position:
        """The position of the present call."""
        return self._entry[:3]

    def schedule_shared(self, at_ms: float, kind: int, number: int, call: Callable[..., None], *args: Any) -> None:
        """Schedule a shared call."""
        heappush(self._shared_ms, at_ms)
        self.schedule(at_ms, kind, number, call, *args)

    def schedule(self, at_ms: float, kind: int, number: int, call: Callable[..., None], *args: Any) -> None:
        """Schedule a call."""
        entry = (at_ms, kind, number, next(self._numbers), call, args)
        if at_ms < self._end_ms:
            heappush(self._heap, entry)
            return
        span = at_ms // _SPAN_MS if at_ms < inf else inf
        if span in self._later:
            self._later[span].append(entry)
        else:
            self._later[span] = [entry]
            heappush(self._spans, span)

    def is_quiet_until(self, at_ms: float) -> bool:
        """Return whether no shared call is scheduled from now until a time, inclusive."""
        shared_ms = self._shared_ms
        while shared_ms and shared_ms[0] < self.clock.moment_ms:
            heappop(shared_ms)
        return not shared_ms or shared_ms[0] > at_ms

    def step(self, until_ms: float) -> bool:
        """Make the next call if it is due at `until_ms` or earlier.

        Returns:
            Whether a call was made.
        """
        heap = self._heap or self._next_span()
        if not heap or heap[0][0] > until_ms:
            return False
        entry = self._entry = heappop(heap)
        self.clock.moment_ms = entry[0]
        entry[4](*entry[5])
        return True

    def _next_span(self) -> list[Entry]:
        """Continue with the calls of the next span, and return them."""
        if self._spans:
            span = heappop(self._spans)
            self._end_ms = (span + 1) * _SPAN_MS
            self._heap = self._later.pop(span)
            heapify(self._heap)
        return self._heap


def _nothing() -> None:
    """The call before the first one."""
