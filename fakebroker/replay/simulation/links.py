"""Connections between clients and brokers in virtual time, and what is delivered over them.

Does not depend on what is sent, or on what clients and brokers are.
"""

from collections.abc import Callable
from typing import Any

from fakebroker.replay.simulation.scheduler import ARRIVAL, RESPONSE, Scheduler

Deliver = Callable[..., None]
"""Receives what was sent."""


class Link:
    """A connection between a client and a broker.

    Args:
        number: Number in the `Position` of its deliveries; orders deliveries at the same time.
        node_id: The broker.
        latency_ms: The time from one side to the other.

    Attributes:
        number, node_id, latency_ms: See the arguments. A change of the latency applies to what is sent later.
        is_open_at_client, is_open_at_broker: Whether this side has not closed the connection.
    """

    __slots__ = (
        "_at_broker_ms",
        "_at_client_ms",
        "is_open_at_broker",
        "is_open_at_client",
        "latency_ms",
        "node_id",
        "number",
    )

    def __init__(self, number: int, node_id: int, latency_ms: float) -> None:
        self.number, self.node_id, self.latency_ms = number, node_id, latency_ms
        self.is_open_at_client = True
        self.is_open_at_broker = False
        self._at_broker_ms = self._at_client_ms = 0.0

    def arrival_at_broker(self, now_ms: float) -> float:
        """Return when something sent now arrives at the broker: after everything that was sent before."""
        self._at_broker_ms = max(self._at_broker_ms, now_ms + self.latency_ms)
        return self._at_broker_ms

    def arrival_at_client(self, now_ms: float) -> float:
        """Return when something sent now arrives at the client: after everything that was sent before."""
        self._at_client_ms = max(self._at_client_ms, now_ms + self.latency_ms)
        return self._at_client_ms


class Links:
    """Delivers in both directions, in order. What arrives at a side that has closed the connection is dropped.

    Args:
        scheduler: The scheduler of the simulation.
        refuse: Called with a link when something arrives at a broker that does not have it open.
    """

    def __init__(self, scheduler: Scheduler, refuse: Callable[[Any], None]) -> None:
        self._scheduler, self._refuse = scheduler, refuse

    def to_broker(self, link: Link, deliver: Deliver, *args: Any) -> None:
        """Send from the client; `deliver` is called with the link and the arguments on arrival."""
        at_ms = link.arrival_at_broker(self._scheduler.clock.moment_ms)
        self._scheduler.schedule(at_ms, ARRIVAL, link.number, self._arrive_at_broker, link, deliver, args)

    def to_client(self, link: Link, deliver: Deliver, *args: Any) -> None:
        """Send from the broker; `deliver` is called with the link and the arguments on arrival."""
        at_ms = link.arrival_at_client(self._scheduler.clock.moment_ms)
        self._scheduler.schedule(at_ms, RESPONSE, link.number, self._arrive_at_client, link, deliver, args)

    def _arrive_at_broker(self, link: Link, deliver: Deliver, args: tuple[Any, ...]) -> None:
        if link.is_open_at_broker:
            deliver(link, *args)
        else:
            self._refuse(link)

    @staticmethod
    def _arrive_at_client(link: Link, deliver: Deliver, args: tuple[Any, ...]) -> None:
        if link.is_open_at_client:
            deliver(link, *args)
