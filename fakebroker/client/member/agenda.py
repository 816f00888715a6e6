"""What a group member waits for: its timers, and the answers to its requests.

Knows no states: which timer means what, and what an answer leads to, is the member's business.
"""

from dataclasses import dataclass
from enum import IntEnum, auto
from math import inf

from fakebroker.client.member.effects import GroupRequest
from fakebroker.client.member.requests import Identity

_MAX_BACKOFF_MS = 1_000.0
_MAX_DOUBLINGS = 10


class Timer(IntEnum):
    """What a member may be waiting for.

    SESSION: No heartbeat was answered for a session timeout: the coordinator is gone.
    ROUND: The last commit, or JoinGroup and SyncGroup, took too long.
    RETRY: The end of a back-off; what is tried again follows from the state.
    """

    HEARTBEAT = auto()
    SESSION = auto()
    COMMIT = auto()
    ROUND = auto()
    RETRY = auto()


@dataclass(slots=True)
class _Sent:
    request: GroupRequest
    sent_as: Identity


class Agenda:
    """One member's timers, requests in flight and back-off.

    Args:
        retry_backoff_ms: The first back-off.
    """

    __slots__ = ("_failures", "_retry_backoff_ms", "_sent", "_timers")

    def __init__(self, retry_backoff_ms: float) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._failures = 0
        self._timers: dict[Timer, float] = {}
        self._sent: dict[int, _Sent] = {}

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._timers

    def set(self, timer: Timer, due_ms: float) -> None:
        """Set a timer, or set it anew."""
        self._timers[timer] = due_ms

    def set_anew(self, timer: Timer, due_ms: float) -> None:
        """Set a timer anew, if it is set."""
        if timer in self._timers:
            self._timers[timer] = due_ms

    def repeat(self, timer: Timer, due_ms: float, interval_ms: float, now_ms: float) -> None:
        """Set a timer to the next in a row of times; those that a late tick missed are left out."""
        next_ms = due_ms + interval_ms
        self._timers[timer] = next_ms if next_ms > now_ms else now_ms + interval_ms

    def keep(self, *timers: Timer) -> None:
        """Drop all timers but these."""
        self._timers = {timer: due_ms for timer, due_ms in self._timers.items() if timer in timers}

    def next_deadline(self) -> float | None:
        return min(self._timers.values(), default=None)

    def due_ms(self, timer: Timer) -> float:
        """When a timer is due; infinite if it is not set."""
        return self._timers.get(timer, inf)

    def next_deadline_without(self, *left_out: Timer) -> float:
        """When the first of the other timers is due; infinite if none is set."""
        earliest_ms = inf
        for timer, due_ms in self._timers.items():
            if due_ms < earliest_ms and timer not in left_out:
                earliest_ms = due_ms
        return earliest_ms

    def set_last(self, timer: Timer, due_ms: float) -> None:
        """Set a timer anew, as the one that was set last."""
        self._timers.pop(timer, None)
        self._timers[timer] = due_ms

    @property
    def expects_any(self) -> bool:
        """Whether any answer is awaited."""
        return bool(self._sent)

    def take_due(self, now_ms: float) -> tuple[Timer, float] | None:
        """Take off the timer that was due first; of two that are due at once the one that was set first."""
        if not self._timers:
            return None
        timer = min(self._timers, key=self._timers.__getitem__)
        return (timer, self._timers.pop(timer)) if self._timers[timer] <= now_ms else None

    def expect(self, request: GroupRequest, sent_as: Identity) -> None:
        """Await the answer to a request."""
        self._sent[id(request)] = _Sent(request, sent_as)

    def take(self, request: GroupRequest) -> Identity | None:
        """Who the member was when it sent this request; `None` if the answer to it is not awaited."""
        sent = self._sent.pop(id(request), None)
        return sent.sent_as if sent else None

    def awaits(self, request: object) -> bool:
        """Whether the answer to this very request is awaited."""
        return id(request) in self._sent

    def expects(self, kind: type[GroupRequest]) -> bool:
        """Whether the answer to a request of this kind is awaited."""
        return any(isinstance(sent.request, kind) for sent in self._sent.values())

    def expect_nothing(self) -> None:
        """Await no more answers."""
        self._sent.clear()

    def backoff_ms(self) -> float:
        """How long to wait after one more failure: 100, 200, 400, 800, 1000, 1000 ... without Kafka's jitter."""
        backoff_ms = min(self._retry_backoff_ms * 2.0 ** min(self._failures, _MAX_DOUBLINGS), _MAX_BACKOFF_MS)
        self._failures += 1
        return backoff_ms

    def succeeded(self) -> None:
        """The coordinator has answered without an error: the next back-off is the first again."""
        self._failures = 0
