"""A queue of deadlines, which the services of a cluster share. Does not depend on a clock."""

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Generic, Protocol, TypeVar

_SLACK = 64
"""Outdated items are removed when the heap has this many items more than twice its size after the last removal."""

MOST_REPEATS = 1000
"""How often an entry may become due again at once in one run of the queue. More repetitions count as endless.

A few repetitions are normal: for example, a session ends and starts a rebalance with a timeout of 0.
"""


class Rank(IntEnum):
    """The order of services whose entries are due at the same time.

    Within a rank, the service with the lower number comes first: the number of a coordinator is its node id. Within a
    service, the entry that was first scheduled earlier comes first. The order decides what a later event finds, and the
    order of responses on a connection. Responses to parked joins and syncs leave after both queues have run, or before
    a delayed request is handled (`RequestPath.settle`).

    Entries by the clients' clock (from FETCHES on) are in a second queue, which runs after the queue of the brokers.
    """

    FIRST_USE = 0  # Creates internal topics, before their coordinators can load.
    CONTROLLER = 1  # Ends copies, and the loading of coordinators, whose sessions start then.
    GROUPS = 2  # Sessions, joins, syncs and expiring offsets of the group coordinators.
    PROPOSALS = 3  # Sessions in groups of a proposal.
    TRANSACTIONS = 4  # Time-outs and expiring ids of the transaction coordinators.
    MARKERS = 5  # Markers that are tried again.
    VERIFICATIONS = 6  # Produce requests that ask a transaction coordinator again.
    LEADER_BALANCE = 7  # After the timers of groups, because sessions start over when their coordinator moves.
    DELAYED_SYNCS = 8  # Responses of groups that a test delays (`SyncDelays`).
    FAULTS = 9  # Responses that an injected fault delays.
    LOGS = 10  # Retention and compaction.
    QUOTAS = 11  # Connections that were muted.
    DELAYED_REQUESTS = 12  # Requests that an injected fault delays, as if they arrived now: after all that was due.
    FETCHES = 13
    NETWORK = 14  # Latency, closed connections, incomplete requests.


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

Order = tuple[int, int]
"""The rank of a service, and its number within the rank: the node id of a coordinator, or a fixed number."""

Expire = Callable[[E, float, float], None]
"""Called with an entry that is due, its deadline, and the time."""


class TimedValue(Generic[T]):
    """A timer entry around a value that is not a `TimerEntry`, or that needs several deadlines."""

    __slots__ = ("scheduled_ms", "timer_number", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        self.scheduled_ms = inf
        self.timer_number = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class TimerQueue(Generic[E]):
    """Entries ordered by deadline; each entry has at most one deadline, its `scheduled_ms`.

    A queue with one owner is read with `expired`. A shared queue gives each service `Timers`, and `run` calls the
    service of each entry that is due. Entries with the same deadline follow the order of their services (`Rank`), and
    then the order in which they were first scheduled.
    """

    __slots__ = ("_expire", "_heap", "_last_number", "_now_ms", "_repeats", "_sweep_size")

    def __init__(self) -> None:
        # An item is outdated if its entry was rescheduled or canceled: its deadline differs from `scheduled_ms` of the
        # entry. Outdated items stay in the heap until they come first or until `_sweep`.
        self._heap: list[tuple[float, Order, int, E]] = []
        self._last_number = 0
        self._sweep_size = _SLACK
        self._expire: dict[Order, Expire[Any]] = {}
        self._now_ms = -inf  # While entries are being returned: the deadline of the last one.
        self._repeats: dict[int, int] = {}

    def service(self, rank: Rank, expire: Expire[E], number: int = 0) -> "Timers[E]":
        """Return the timers of a service.

        The service replaces a service with the same rank and number, whose timers must be canceled.
        """
        order = (int(rank), number)
        self._expire[order] = expire
        return Timers(self, order)

    def schedule(self, entry: E, deadline_ms: float, order: Order = (0, 0)) -> None:
        """Set the deadline of an entry, unless it already has an earlier one. Ignores an infinite deadline.

        Raises:
            RuntimeError: The queue runs, and the entry has become due again at once more than `MOST_REPEATS` times.
        """
        if deadline_ms < entry.scheduled_ms:
            entry.scheduled_ms = deadline_ms
            number = entry.timer_number
            if not number:
                self._last_number = number = entry.timer_number = self._last_number + 1
            if deadline_ms <= self._now_ms:
                self._count_repeat(entry, deadline_ms)
            if len(self._heap) >= self._sweep_size:
                self._sweep()
            heappush(self._heap, (deadline_ms, order, number, entry))

    def cancel(self, entry: E) -> None:
        """Remove the deadline of an entry. Has no effect without a deadline."""
        entry.scheduled_ms = inf

    def run(self, now_ms: float) -> None:
        """Call the services of all entries that are due, in order. Entries that become due in the run are included."""
        for deadline_ms, order, entry in self._due(now_ms):
            self._expire[order](entry, deadline_ms, now_ms)

    def expired(self, now_ms: float) -> Iterator[tuple[E, float]]:
        """Yield expired entries with their deadlines, in order. Entries scheduled while iterating are included.

        A yielded entry is no longer scheduled.
        """
        for deadline_ms, _, entry in self._due(now_ms):
            yield entry, deadline_ms

    def _due(self, now_ms: float) -> Iterator[tuple[float, Order, E]]:
        before_ms, before = self._now_ms, self._repeats  # Not the first values if an entry runs the queue.
        self._repeats = {}
        try:
            while self._heap and self._heap[0][0] <= now_ms:
                deadline_ms, order, _, entry = heappop(self._heap)
                if deadline_ms == entry.scheduled_ms:
                    entry.scheduled_ms = inf
                    self._now_ms = deadline_ms
                    yield deadline_ms, order, entry
        finally:
            self._now_ms, self._repeats = before_ms, before

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, or None without entries."""
        heap = self._heap
        while heap:
            deadline_ms, _, _, entry = heap[0]
            if deadline_ms == entry.scheduled_ms:
                return deadline_ms
            heappop(heap)
        return None

    def __iter__(self) -> Iterator[tuple[E, float]]:
        """Iterate over the scheduled entries with their deadlines, earliest first."""
        return self.entries(None)

    def entries(self, order: Order | None) -> Iterator[tuple[E, float]]:
        """Iterate over the scheduled entries of one service, or of all, with their deadlines, earliest first."""
        current = {
            number: (deadline_ms, of, number, entry)
            for deadline_ms, of, number, entry in self._heap
            if deadline_ms == entry.scheduled_ms and order in (None, of)
        }
        for deadline_ms, _, _, entry in sorted(current.values(), key=lambda item: item[:3]):
            yield entry, deadline_ms

    def _count_repeat(self, entry: E, deadline_ms: float) -> None:
        repeats = self._repeats[entry.timer_number] = self._repeats.get(entry.timer_number, 0) + 1
        if repeats > MOST_REPEATS:
            raise RuntimeError(
                f"timers are endless at {deadline_ms} ms: {entry!r} was due again at once {repeats} times, "
                f"expected at most {MOST_REPEATS}"
            )

    def _sweep(self) -> None:
        """Remove outdated items."""
        self._heap = [item for item in self._heap if item[0] == item[3].scheduled_ms]
        heapify(self._heap)
        self._sweep_size = 2 * len(self._heap) + _SLACK


class Timers(Generic[E]):
    """The entries of one service in a queue, see `TimerQueue.service`."""

    __slots__ = ("_order", "_queue")

    def __init__(self, queue: TimerQueue[Any], order: Order) -> None:
        self._queue, self._order = queue, order

    def schedule(self, entry: E, deadline_ms: float) -> None:
        """Set the deadline of an entry, unless it already has an earlier one. Ignores an infinite deadline."""
        self._queue.schedule(entry, deadline_ms, self._order)

    def set(self, entry: E, deadline_ms: float) -> None:
        """Set the deadline of an entry, earlier or later than before. An infinite deadline removes it."""
        if deadline_ms != entry.scheduled_ms:
            entry.scheduled_ms = inf
            self._queue.schedule(entry, deadline_ms, self._order)

    def cancel(self, entry: E) -> None:
        """Remove the deadline of an entry. Has no effect without a deadline."""
        entry.scheduled_ms = inf

    def __iter__(self) -> Iterator[tuple[E, float]]:
        """Iterate over the scheduled entries with their deadlines, earliest first."""
        return self._queue.entries(self._order)
