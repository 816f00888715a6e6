"""What a group member waits for: its timers, and the responses to its requests. Does not depend on a clock."""

from dataclasses import dataclass
from enum import IntEnum, auto
from math import inf

from fakebroker.client.member.effects import GroupRequest
from fakebroker.client.member.requests import Identity


class Timer(IntEnum):
    """Timers of a group member.

    HEARTBEAT: The next heartbeat is due.
    SESSION: No heartbeat was answered for a session timeout, or for a request timeout with the consumer protocol; the
        coordinator counts as lost.
    COMMIT: The next automatic commit is due.
    REBALANCE: The last commit, JoinGroup or SyncGroup took too long.
    RETRY: The end of a back-off; the member's state decides what is retried.
    METADATA: Names of topics are looked up again.
    """

    HEARTBEAT = auto()
    SESSION = auto()
    COMMIT = auto()
    REBALANCE = auto()
    RETRY = auto()
    METADATA = auto()


class Timers:
    """The timers of one member and their deadlines, in milliseconds since the Unix epoch.

    Timers with the same deadline expire in the order in which they were set. The timers are in a dictionary, not in a
    heap: a member has only a few timers, and each heartbeat moves some of them.
    """

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        self._deadlines: dict[Timer, float] = {}

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._deadlines

    def set(self, timer: Timer, deadline_ms: float) -> None:
        """Set a timer. A timer that is already set keeps its place among timers with the same deadline."""
        self._deadlines[timer] = deadline_ms

    def set_last(self, timer: Timer, deadline_ms: float) -> None:
        """Set a timer, to expire after other timers with the same deadline."""
        self._deadlines.pop(timer, None)
        self._deadlines[timer] = deadline_ms

    def extend(self, timer: Timer, deadline_ms: float) -> None:
        """Change the deadline of a timer that is set. A timer that is not set stays so."""
        if timer in self._deadlines:
            self._deadlines[timer] = deadline_ms

    def repeat(self, timer: Timer, due_ms: float, interval_ms: float, now_ms: float) -> None:
        """Set a periodic timer to its next deadline after `due_ms`; deadlines missed by a late tick are skipped."""
        next_ms = due_ms + interval_ms
        self._deadlines[timer] = next_ms if next_ms > now_ms else now_ms + interval_ms

    def cancel_except(self, *timers: Timer) -> None:
        """Cancel all other timers."""
        self._deadlines = {timer: due_ms for timer, due_ms in self._deadlines.items() if timer in timers}

    def cancel(self, *timers: Timer) -> None:
        """Cancel these timers."""
        for timer in timers:
            self._deadlines.pop(timer, None)

    def deadline_ms(self, timer: Timer) -> float:
        """Return the deadline of a timer; infinite if it is not set."""
        return self._deadlines.get(timer, inf)

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, if a timer is set."""
        return min(self._deadlines.values()) if self._deadlines else None

    def next_deadline_except(self, *excluded: Timer) -> float:
        """Return the earliest deadline of the other timers; infinite if none is set."""
        earliest_ms = inf
        for timer, due_ms in self._deadlines.items():
            if due_ms < earliest_ms and timer not in excluded:
                earliest_ms = due_ms
        return earliest_ms

    def pop_expired(self, now_ms: float) -> tuple[Timer, float] | None:
        """Remove the expired timer with the earliest deadline and return it with the deadline; None if none expired."""
        if not self._deadlines:
            return None
        timer = min(self._deadlines, key=self._deadlines.__getitem__)
        return (timer, self._deadlines.pop(timer)) if self._deadlines[timer] <= now_ms else None


@dataclass(slots=True)
class _InFlight:
    request: GroupRequest
    sent_as: Identity


class RequestsInFlight:
    """Requests of one member whose responses are pending, each with the identity that the member had when sending.

    Requests are distinguished by `id()`, so the driver must pass the same object back with the response.
    """

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, _InFlight] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __contains__(self, request: object) -> bool:
        return id(request) in self._by_id

    def has(self, kind: type[GroupRequest]) -> bool:
        """Return whether a request of this class is in flight."""
        return any(isinstance(each.request, kind) for each in self._by_id.values())

    def add(self, request: GroupRequest, sent_as: Identity) -> None:
        self._by_id[id(request)] = _InFlight(request, sent_as)

    def pop(self, request: GroupRequest) -> Identity | None:
        """Remove a request and return the identity it was sent with; None if it is not in flight."""
        found = self._by_id.pop(id(request), None)
        return found.sent_as if found else None

    def clear(self) -> None:
        self._by_id.clear()
