"""Failure detection by silence: a consumer has failed if it was not heard for its session timeout (1.a and 1.c)."""

from collections.abc import Iterator
from math import inf

from fakebroker.coordinator.timers import TimedValue, TimerQueue
from fakebroker.lab.designs.options.served_groups import ConsumerInfo


class _Session(TimedValue[ConsumerInfo]):
    __slots__ = ("deadline_ms",)

    def __init__(self, consumer: ConsumerInfo) -> None:
        super().__init__(consumer)
        self.deadline_ms = inf


class Sessions:
    """The sessions of the consumers of one coordinator."""

    def __init__(self) -> None:
        self._sessions: dict[ConsumerInfo, _Session] = {}
        self._timers: TimerQueue[_Session] = TimerQueue()

    def watch(self, consumer: ConsumerInfo, now_ms: float) -> None:
        """Start a session, or start it again."""
        session = self._sessions.get(consumer)
        if session is None:
            session = self._sessions[consumer] = _Session(consumer)
        session.deadline_ms = now_ms + consumer.session_timeout_ms
        self._timers.schedule(session, session.deadline_ms)

    def forget(self, consumer: ConsumerInfo) -> None:
        """End a session."""
        session = self._sessions.pop(consumer, None)
        if session is not None:
            self._timers.cancel(session)

    def heard(self, consumer: ConsumerInfo, now_ms: float) -> None:
        """Extend the session of a consumer. No effect without a session."""
        session = self._sessions.get(consumer)
        if session is not None:
            session.deadline_ms = now_ms + consumer.session_timeout_ms

    def next_deadline(self) -> float:
        """Return when a session may end."""
        due_ms = self._timers.next_deadline()
        return inf if due_ms is None else due_ms

    def expired(self, now_ms: float) -> Iterator[ConsumerInfo]:
        """Yield the consumers whose session has ended, in the order of their ends, and forget them."""
        for session, _ in self._timers.expired(now_ms):
            if session.deadline_ms > now_ms:
                self._timers.schedule(session, session.deadline_ms)
            elif self._sessions.pop(session.value, None) is not None:
                yield session.value

    def rest(self, consumer: ConsumerInfo) -> None:
        """Suspend a session."""
        self._timers.cancel(self._sessions[consumer])

    def wake(self, consumer: ConsumerInfo, last_ms: float) -> None:
        """Resume a session of a consumer that was heard last at a time."""
        session = self._sessions[consumer]
        session.deadline_ms = max(session.deadline_ms, last_ms + consumer.session_timeout_ms)
        self._timers.schedule(session, session.deadline_ms)
