"""Injected latency, throttling and disconnects: a schedule of actions on connections.

The reactor reports new connections and responses to `NetworkFaults`, and performs the actions that are due. All times
are real time, in milliseconds since the Unix epoch. Does not depend on sockets.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple

from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.handles.environment import NetworkConditions
from fakebroker.coordinator.timers import Rank, TimedValue, TimerQueue, Timers
from fakebroker.server.connections.connection import Blocked, Connection, UnsentResponse


class Action(Enum):
    """An action of the reactor on a connection."""

    SEND = auto()
    """Send a response."""
    UNBLOCK = auto()
    """Handle requests again."""
    HANG_UP = auto()
    """Send the pending bytes that the socket accepts at once, and close the connection."""


class DelayedAction(NamedTuple):
    """A delayed action on a connection.

    Attributes:
        connection: The connection.
        action: The action.
        frame: The response to send; may be empty.
        response: The response, if its wire time is measured.
    """

    connection: Connection
    action: Action
    frame: bytearray
    response: UnsentResponse | None


class NetworkFaults:
    """Delayed actions on the connections of one cluster.

    Actions on one connection are performed in the order in which they were scheduled, even if a later one has a shorter
    delay. Actions that are due at the same time are performed in that order, too.

    Args:
        queue: The timers of the cluster by the clients' clock.
        perform: Performs an action.

    Attributes:
        conditions: Network conditions by node id; brokers that are not in it have normal conditions.
    """

    def __init__(self, queue: TimerQueue[Any], perform: Callable[[DelayedAction], None]) -> None:
        self.conditions: dict[int, NetworkConditions] = {}
        self._perform = perform
        self._actions: Timers[TimedValue[DelayedAction]] = queue.service(Rank.NETWORK, self._end)
        self._last_due_ms: dict[Connection, float] = {}

    def accept(self, connection: Connection, now_ms: float) -> None:
        """Block a new connection if the network conditions of its broker require that."""
        conditions = self.conditions.get(connection.broker.node_id)
        if conditions is None:
            return
        if conditions.accept == "half_open":
            connection.pending = Blocked.HALF_OPEN
        elif conditions.accept == "slow":
            connection.pending = Blocked.NOT_ACCEPTED
            self._schedule(connection, now_ms + conditions.accept_delay_ms, Action.UNBLOCK)

    def delay(
        self, connection: Connection, frame: bytearray, now_ms: float, response: UnsentResponse | None = None
    ) -> None:
        """Schedule a response after the round trip time of its broker, which must be in `conditions`."""
        round_trip_ms = self.conditions[connection.broker.node_id].round_trip_ms
        self._schedule(connection, now_ms + round_trip_ms, Action.SEND, frame, response)

    def hang_up(self, connection: Connection, frame: bytearray, due_ms: float) -> None:
        """Handle no more requests of a connection; send a last response, which may be empty, and close it at a time."""
        connection.pending = Blocked.HANGING_UP
        self._schedule(connection, due_ms, Action.HANG_UP, frame)

    def after_response(self, connection: Connection, fault: Fault, now_ms: float) -> None:
        """Block or close a connection if the fault that applied to its last request requires that."""
        if fault.drop or fault.cut_bytes is not None:
            self.hang_up(connection, bytearray(), now_ms)
        elif fault.throttle_time_ms is not None:
            connection.pending = Blocked.THROTTLED
            self._schedule(connection, now_ms + fault.throttle_time_ms, Action.UNBLOCK)

    def _schedule(
        self,
        connection: Connection,
        due_ms: float,
        action: Action,
        frame: bytearray | None = None,
        response: UnsentResponse | None = None,
    ) -> None:
        due_ms = max(due_ms, self._last_due_ms.get(connection, 0.0))
        self._last_due_ms[connection] = due_ms
        self._actions.schedule(TimedValue(DelayedAction(connection, action, frame or bytearray(), response)), due_ms)

    def _end(self, timer: TimedValue[DelayedAction], due_ms: float, now_ms: float) -> None:
        connection = timer.value.connection
        if self._last_due_ms.get(connection) == due_ms:
            del self._last_due_ms[connection]
        if not connection.is_closed:
            self._perform(timer.value)
