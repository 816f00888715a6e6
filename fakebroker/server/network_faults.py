"""Where answers and connections do not take the straight way: brokers hard to reach, and faults on the wire.

All of it goes by the clients' time. Knows connections and frames; not what any request means.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from fakebroker.cluster.faults.rule import Fault
from fakebroker.server.connection import Connection, Hold

if TYPE_CHECKING:
    from fakebroker.server.reactor import Reactor

Accept = Literal["normal", "slow", "half_open", "refuse"]
ACCEPTS: tuple[Accept, ...] = get_args(Accept)


@dataclass(frozen=True, slots=True)
class Reach:
    """How clients reach one broker.

    Attributes:
        accept: How it takes new connections; see `Faulting.set_broker`.
        accept_delay_ms: How late it takes them up, if it is slow.
        round_trip_ms: How much later its answers come.
    """

    accept: Accept = "normal"
    accept_delay_ms: float = 0.0
    round_trip_ms: float = 0.0


class Detours:
    """What is to happen later to the connections of a reactor.

    What is put off for one connection is done in that order, even if what comes later would be due earlier. What is due
    at the same time is done in the order in which it was put off.

    Args:
        reactor: Has the connections.

    Attributes:
        reach: How clients reach brokers, by their node ids, where that is out of the ordinary.
    """

    def __init__(self, reactor: "Reactor") -> None:
        self.reach: dict[int, Reach] = {}
        self._reactor = reactor
        self._heap: list[tuple[float, int, Connection, Callable[[Connection], None]]] = []
        self._last_due_ms: dict[Connection, float] = {}
        self._added = 0

    def greet(self, connection: Connection) -> None:
        """Take a new connection as its broker does now."""
        reach = self.reach.get(connection.broker.node_id, Reach())
        if reach.accept == "half_open":
            connection.owed = Hold.HALF_OPEN
        elif reach.accept == "slow":
            connection.owed = Hold.NOT_TAKEN_UP
            self._put_off(connection, reach.accept_delay_ms, self._free)

    def carry(self, connection: Connection, frame: bytearray) -> None:
        """Send an answer of a broker that is, or was, far away."""

        def arrive(connection: Connection) -> None:
            connection.unsent += frame
            self._reactor.send(connection)

        self._put_off(connection, self.reach[connection.broker.node_id].round_trip_ms, arrive)

    def follow_up(self, connection: Connection, fault: Fault) -> None:
        """Do to a connection what a fault does after an answer, or in place of it."""
        if fault.drop or fault.cut_bytes is not None:
            connection.owed = Hold.HANGING_UP
            self._put_off(connection, 0.0, self._hang_up)
        elif fault.throttle_time_ms is not None:
            connection.owed = Hold.THROTTLED
            self._put_off(connection, fault.throttle_time_ms, self._free)

    def _put_off(self, connection: Connection, by_ms: float, action: Callable[[Connection], None]) -> None:
        due_ms = max(self._reactor.wire_clock.now_ms() + by_ms, self._last_due_ms.get(connection, 0.0))
        self._last_due_ms[connection] = due_ms
        self._added += 1
        heapq.heappush(self._heap, (due_ms, self._added, connection, action))

    def _hang_up(self, connection: Connection) -> None:
        """Close a connection behind what it was sent so far, as far as the client takes that."""
        self._reactor.send(connection)
        self._reactor.close(connection)

    def _free(self, connection: Connection) -> None:
        """Take up what a connection has asked meanwhile."""
        connection.owed = None
        self._reactor.take_later(connection)

    def run(self, now_ms: float) -> None:
        """Do what is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, _, connection, action = heapq.heappop(self._heap)
            if self._last_due_ms.get(connection) == due_ms:
                del self._last_due_ms[connection]
            if not connection.is_closed:
                action(connection)

    def next_deadline(self) -> float | None:
        """When something is due next."""
        return self._heap[0][0] if self._heap else None
