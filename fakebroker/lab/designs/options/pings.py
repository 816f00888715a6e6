"""The pings that a consumer sends to its coordinator (options 1.a and 1.c)."""

from math import inf

from fakebroker.lab.design import Beat
from fakebroker.lab.designs.options.messages import PingRequest, PingResponse

_ACKNOWLEDGED = PingResponse(correlation_id=0)


class Pings:
    """Sends one ping each interval, and expects its response within the session timeout.

    Args:
        group_id, consumer_id: The consumer.
        interval_ms: Time from one ping to the next.
        timeout_ms: The session timeout.
    """

    def __init__(self, group_id: str, consumer_id: str, interval_ms: float, timeout_ms: float) -> None:
        self._group_id, self._consumer_id = group_id, consumer_id
        self._interval_ms, self._timeout_ms = interval_ms, timeout_ms
        self._due_ms = self._expires_ms = inf
        self._pending_id: int | None = None

    def begin(self, now_ms: float) -> None:
        """Start to ping: the consumer is registered."""
        self.end()
        self._due_ms = now_ms + self._interval_ms

    def end(self) -> None:
        """Send no more pings, and expect no response."""
        self._due_ms = self._expires_ms = inf
        self._pending_id = None

    def heard(self) -> None:
        """The coordinator is alive: clear the expiration of the pending ping."""
        self._expires_ms = inf

    def answered(self, response: PingResponse) -> bool:
        """Take a response; return whether it answers the pending ping."""
        if response.correlation_id != self._pending_id:
            return False
        self._pending_id = None
        self.heard()
        return True

    def next_deadline(self) -> float:
        """Return when a ping is due, or expires."""
        return min(self._due_ms, self._expires_ms)

    def is_expired(self, now_ms: float) -> bool:
        """Return whether the coordinator has not responded in time."""
        return self._expires_ms <= now_ms

    def is_due(self, now_ms: float) -> bool:
        """Return whether to send a ping."""
        return self._due_ms <= now_ms

    def next_request(self, correlation_id: int, now_ms: float) -> PingRequest | None:
        """Return the ping to send now; None while the response to the previous one is pending."""
        self._due_ms = now_ms + self._interval_ms
        if self._pending_id is not None:
            return None
        self._pending_id, self._expires_ms = correlation_id, now_ms + self._timeout_ms
        return self._request(correlation_id)

    def _request(self, correlation_id: int) -> PingRequest:
        return PingRequest(correlation_id=correlation_id, group_id=self._group_id, consumer_id=self._consumer_id)

    def beat(self) -> Beat | None:
        """Return what is repeated; None while a response is pending, or without pings."""
        if self._pending_id is not None or self._due_ms == inf:
            return None
        return Beat(self._due_ms, self._interval_ms, self._request(0), _ACKNOWLEDGED)

    def skipped(self, next_due_ms: float) -> None:
        """Pings were exchanged without this object."""
        self._due_ms = next_due_ms
