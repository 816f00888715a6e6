"""Requests of the coordinator whose responses are pending, with their expiration (options 1.b and 1.c)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from fakebroker.coordinator.timers import TimerQueue
from fakebroker.lab.designs.options.served_groups import ConsumerInfo


@dataclass(slots=True, eq=False)
class Watcher:
    """A pending request: its consumer and correlation id, and the attributes of a timer entry."""

    consumer: ConsumerInfo
    correlation_id: int
    scheduled_ms: float = inf
    timer_number: int = 0


class Purgatory:
    """The pending requests of one kind: heartbeats, StopFetcher or StartFetcher."""

    def __init__(self) -> None:
        self._watchers: dict[ConsumerInfo, dict[int, Watcher]] = {}
        self._timers: TimerQueue[Watcher] = TimerQueue()

    def watch(self, consumer: ConsumerInfo, correlation_id: int, deadline_ms: float) -> None:
        """Wait for the response of a consumer."""
        watcher = Watcher(consumer, correlation_id)
        self._watchers.setdefault(consumer, {})[correlation_id] = watcher
        self._timers.schedule(watcher, deadline_ms)

    def clear(self, consumer: ConsumerInfo, correlation_id: int) -> bool:
        """Remove one watcher; return whether there was one."""
        watchers = self._watchers.get(consumer, {})
        watcher = watchers.pop(correlation_id, None)
        if watcher is None:
            return False
        self._timers.cancel(watcher)
        if not watchers:
            del self._watchers[consumer]
        return True

    def clear_all(self, consumer: ConsumerInfo) -> None:
        """Remove all watchers of a consumer."""
        for watcher in self._watchers.pop(consumer, {}).values():
            self._timers.cancel(watcher)

    def is_waiting_for(self, consumer: ConsumerInfo) -> bool:
        """Return whether a response of a consumer is pending."""
        return consumer in self._watchers

    def expired(self, now_ms: float) -> Iterator[Watcher]:
        """Yield watchers that have expired, earliest first, and remove them."""
        for watcher, _ in self._timers.expired(now_ms):
            self.clear(watcher.consumer, watcher.correlation_id)
            yield watcher

    def next_deadline(self) -> float:
        """Return when a watcher expires."""
        due_ms = self._timers.next_deadline()
        return inf if due_ms is None else due_ms
