"""The registry in virtual time: latency, one operation at a time, outages, and sessions that brokers renew."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from fakebroker.lab.placement.placement_plan import LookupPlan
from fakebroker.proposals.consumer_rewrite.registry import (
    EventKind,
    Registry,
    RegistryError,
    RegistryErrorCode,
    RegistryEvent,
)
from fakebroker.replay.simulation.links import Link
from fakebroker.replay.simulation.scheduler import ARRIVAL, EVENT, RESPONSE, TIMER, Scheduler

Operation = Callable[[Registry[Any], int], Any]
"""What a broker asks of the registry, called with the registry and the broker's session."""

Done = Callable[[Any], None]
"""Called with the result of an operation, or with a `RegistryErrorCode`."""

_PINGS_PER_TIMEOUT = 3
"""ZooKeeper's clients renew their sessions three times within a timeout."""


class Outage(msgspec.Struct, frozen=True):
    """The registry cannot be reached: requests, responses and pings are lost, and events wait.

    While no broker can reach it, sessions do not expire; afterwards their timeouts start again, as with a new leader of
    ZooKeeper's servers.

    Attributes:
        from_ms, until_ms: Its time, from the start of the simulation.
        node_id: The broker that cannot reach it; None for all.
    """

    from_ms: float
    until_ms: float
    node_id: int | None = None


def drawn_latency_ms(plan: LookupPlan, random: Random) -> float:
    """Return the latency of one message."""
    return plan.latency_ms * random.uniform(1 - plan.jitter, 1 + plan.jitter)


class RegistryService:
    """Serves the operations of brokers one by one, in the order of arrival. Unanswered operations are repeated.

    Args:
        scheduler: The scheduler.
        plan: Latencies and times.
        random: Draws latencies, and when each broker sends its first ping.
        outages: The outages.

    Attributes:
        registry: The registry.
        messages: Number of requests, responses and events so far; without pings.
        busy_ms: Time for which it has served operations.
        pending: Number of operations and events whose effects are not complete.
        expired_ms: When a session has expired last; the start of the simulation if none has.
    """

    def __init__(self, scheduler: Scheduler, plan: LookupPlan, random: Random, outages: Sequence[Outage] = ()) -> None:
        self.registry: Registry[Any] = Registry()
        self.messages = self.pending = 0
        self.busy_ms = 0.0
        self._scheduler, self._plan, self._random = scheduler, plan, random
        self.expired_ms = self._start_ms = self._idle_ms = scheduler.clock.moment_ms
        self._outages = outages
        self._links: dict[int, Link] = {}
        self._sessions: dict[int, int] = {}
        self._handlers: dict[int, Callable[[RegistryEvent], None]] = {}
        for outage in outages:
            if outage.node_id is None:
                scheduler.schedule(self._start_ms + outage.until_ms, EVENT, 0, self._recover)

    def open(self, node_id: int, on_event: Callable[[RegistryEvent], None]) -> int:
        """Open a session for a broker that starts, without messages, and return its id."""
        self._links[node_id] = Link(node_id, node_id, 0.0)
        self._handlers[node_id] = on_event
        session_id = self._open(node_id)
        self._schedule_ping(node_id, self._random.random())
        self._schedule_expiry()
        return session_id

    def _open(self, node_id: int) -> int:
        session_id = self.registry.open_session(self._plan.session_timeout_ms, self._scheduler.clock.moment_ms)
        self._sessions[node_id] = session_id
        return session_id

    def stop(self, node_id: int) -> None:
        """End the process of a broker, which does not close its session."""
        del self._handlers[node_id]

    def call(self, node_id: int, operation: Operation, done: Done, *, is_write: bool) -> None:
        """Run an operation for a broker; `done` is called with the result after a round trip."""
        self.pending += 1
        self._send(node_id, operation, done, is_write)

    # Operations

    def _send(self, node_id: int, operation: Operation, done: Done, is_write: bool) -> None:
        if node_id not in self._handlers:
            self.pending -= 1
            return
        self.messages += 1
        now_ms, link = self._scheduler.clock.moment_ms, self._links[node_id]
        link.latency_ms = drawn_latency_ms(self._plan, self._random)
        at_ms = link.arrival_at_broker(now_ms)
        self._scheduler.schedule(at_ms, ARRIVAL, node_id, self._arrive, node_id, operation, done, is_write)

    def _arrive(self, node_id: int, operation: Operation, done: Done, is_write: bool) -> None:
        now_ms = self._scheduler.clock.moment_ms
        if self._unreachable_until(node_id) is not None:
            self._repeat(node_id, operation, done, is_write)
            return
        cost_ms = self._plan.write_ms if is_write else self._plan.read_ms
        self._idle_ms = max(self._idle_ms, now_ms) + cost_ms
        self.busy_ms += cost_ms
        self._scheduler.schedule(self._idle_ms, TIMER, node_id, self._serve, node_id, operation, done, is_write)

    def _serve(self, node_id: int, operation: Operation, done: Done, is_write: bool) -> None:
        if self._unreachable_until(None) is not None:
            self._repeat(node_id, operation, done, is_write)
            return
        try:
            result = operation(self.registry, self._sessions[node_id])
        except RegistryError as error:
            result = error.code
        self._send_events()
        if self._unreachable_until(node_id) is not None:
            self._repeat(node_id, operation, done, is_write)
            return
        self.messages += 1
        self._to_broker(node_id, self._respond, node_id, done, result)

    def _repeat(self, node_id: int, operation: Operation, done: Done, is_write: bool) -> None:
        at_ms = self._scheduler.clock.moment_ms + self._plan.retry_ms
        self._scheduler.schedule(at_ms, TIMER, node_id, self._send, node_id, operation, done, is_write)

    def _respond(self, node_id: int, done: Done, result: Any) -> None:
        self.pending -= 1
        if node_id in self._handlers and result is not RegistryErrorCode.SESSION_EXPIRED:
            done(result)

    def _to_broker(self, node_id: int, deliver: Callable[..., None], *args: Any, wait_ms: float = 0.0) -> None:
        link = self._links[node_id]
        link.latency_ms = drawn_latency_ms(self._plan, self._random)
        at_ms = link.arrival_at_client(self._scheduler.clock.moment_ms + wait_ms)
        self._scheduler.schedule(at_ms, RESPONSE, node_id, deliver, *args)

    # Sessions and events

    def _send_events(self) -> None:
        events, self.registry.events = self.registry.events, []
        by_session = {session_id: node_id for node_id, session_id in self._sessions.items()}
        for event in events:
            node_id = by_session[event.session_id]
            if event.kind is EventKind.SESSION_EXPIRED:
                self.expired_ms = self._scheduler.clock.moment_ms
            if node_id not in self._handlers:
                continue
            self.messages += 1
            self.pending += 1
            now_ms = self._scheduler.clock.moment_ms
            until_ms = self._unreachable_until(node_id)
            self._to_broker(node_id, self._notify, node_id, event, wait_ms=(until_ms or now_ms) - now_ms)

    def _notify(self, node_id: int, event: RegistryEvent) -> None:
        self.pending -= 1
        if (handle := self._handlers.get(node_id)) is not None:
            if event.kind is EventKind.SESSION_EXPIRED:
                self._open(node_id)
                self._schedule_expiry()
            handle(event)

    def _schedule_ping(self, node_id: int, intervals: float = 1.0) -> None:
        interval_ms = self._plan.session_timeout_ms / _PINGS_PER_TIMEOUT
        at_ms = self._scheduler.clock.moment_ms + intervals * interval_ms
        self._scheduler.schedule(at_ms, TIMER, node_id, self._ping, node_id)

    def _ping(self, node_id: int) -> None:
        if node_id in self._handlers:
            session_id = self._sessions[node_id]
            if self._unreachable_until(node_id) is None and self.registry.is_open(session_id):
                self.registry.renew_session(session_id, self._scheduler.clock.moment_ms)
            self._schedule_ping(node_id)

    def _schedule_expiry(self) -> None:
        if (deadline_ms := self.registry.next_deadline()) is not None:
            self._scheduler.schedule(deadline_ms, TIMER, 0, self._expire)

    def _expire(self) -> None:
        if self._unreachable_until(None) is None:
            self.registry.tick(self._scheduler.clock.moment_ms)
            self._send_events()
            self._schedule_expiry()

    def _recover(self) -> None:
        for session_id in self._sessions.values():
            if self.registry.is_open(session_id):
                self.registry.renew_session(session_id, self._scheduler.clock.moment_ms)
        self._expire()

    def _unreachable_until(self, node_id: int | None) -> float | None:
        """Return the end of the outage that concerns a broker now; None if there is none. With None, of all brokers."""
        now_ms = self._scheduler.clock.moment_ms
        for outage in self._outages:
            if outage.node_id in (None, node_id):
                end_ms = self._start_ms + outage.until_ms
                if self._start_ms + outage.from_ms <= now_ms < end_ms:
                    return end_ms
        return None
