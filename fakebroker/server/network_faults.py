"""Injected latency, throttling and disconnects: decides what happens to connections, and when.

The reactor calls it and carries out its decisions. All times are wall-clock time. Does not depend on sockets.
"""

from collections.abc import Iterator
from enum import Enum, auto

from fakebroker.cluster.environment import NetworkConditions
from fakebroker.cluster.faults.rule import Fault
from fakebroker.coordinator.runtime.timer_queue import TimedValue, TimerQueue
from fakebroker.server.connection import Blocked, Connection


class Action(Enum):
    """What the reactor has to do to a connection."""

    SEND = auto()
    UNBLOCK = auto()
    HANG_UP = auto()
    """Send what is pending, as far as the client takes it, and close."""


class NetworkFaults:
    """Delayed actions on the connections of one cluster.

    Actions on one connection keep their order, even if a later one would be due earlier. Actions that are due at the
    same time are returned in the order in which they were scheduled.

    Attributes:
        conditions: Network conditions of brokers by node id; brokers that are not in it have normal ones.
    """

    def __init__(self) -> None:
        self.conditions: dict[int, NetworkConditions] = {}
        self._actions: TimerQueue[TimedValue[tuple[Connection, Action, bytearray]]] = TimerQueue()
        self._last_due_ms: dict[Connection, float] = {}

    def accept(self, connection: Connection, now_ms: float) -> None:
        """Block a new connection as the conditions of its broker require."""
        conditions = self.conditions.get(connection.broker.node_id)
        if conditions is None:
            return
        if conditions.accept == "half_open":
            connection.pending = Blocked.HALF_OPEN
        elif conditions.accept == "slow":
            connection.pending = Blocked.NOT_ACCEPTED
            self._schedule(connection, now_ms + conditions.accept_delay_ms, Action.UNBLOCK)

    def delay(self, connection: Connection, frame: bytearray, now_ms: float) -> None:
        """Delay a response by the round trip of its broker, which must have conditions."""
        round_trip_ms = self.conditions[connection.broker.node_id].round_trip_ms
        self._schedule(connection, now_ms + round_trip_ms, Action.SEND, frame)

    def after_response(self, connection: Connection, fault: Fault, now_ms: float) -> None:
        """Block a connection as a fault requires after a response, or in place of it."""
        if fault.drop or fault.cut_bytes is not None:
            connection.pending = Blocked.HANGING_UP
            self._schedule(connection, now_ms, Action.HANG_UP)
        elif fault.throttle_time_ms is not None:
            connection.pending = Blocked.THROTTLED
            self._schedule(connection, now_ms + fault.throttle_time_ms, Action.UNBLOCK)

    def _schedule(self, connection: Connection, due_ms: float, action: Action, frame: bytearray | None = None) -> None:
        due_ms = max(due_ms, self._last_due_ms.get(connection, 0.0))
        self._last_due_ms[connection] = due_ms
        self._actions.schedule(TimedValue((connection, action, frame or bytearray())), due_ms)

    def due(self, now_ms: float) -> Iterator[tuple[Connection, Action, bytearray]]:
        """Yield the actions that are due, with the response to send, if any. Closed connections are skipped."""
        for timer, due_ms in self._actions.expired(now_ms):
            connection, action, frame = timer.value
            if self._last_due_ms.get(connection) == due_ms:
                del self._last_due_ms[connection]
            if not connection.is_closed:
                yield connection, action, frame

    def next_deadline(self) -> float | None:
        """Return when the next action is due, if any is scheduled."""
        return self._actions.next_deadline()
