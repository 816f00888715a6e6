"""Requests that have arrived only in part: their deadlines, and the memory for them.

While the memory is used up, no further requests are read (`queued.max.request.bytes`). Times are real time in
milliseconds.
"""

from collections.abc import Callable
from typing import Any

from fakebroker.coordinator.timers import Rank, TimedValue, TimerQueue, Timers
from fakebroker.protocol.frames import SIZE_BYTES
from fakebroker.server.connections.connection import Connection


class IncompleteRequests:
    """The connections that have sent a part of a request, or of a TLS handshake or record.

    Args:
        timeout_ms: Time without further bytes after which they are closed.
        max_bytes: Memory for the requests; see `RequestMemory`.
        set_interest: Is called with connections that may be read again, or no longer (`is_waiting`).
        queue: The timers of the cluster by the clients' clock.
        close: Closes a connection whose deadline has passed, for a reason.

    Attributes:
        deadlines: When to close a connection; the earliest comes first, because all have the same timeout.
    """

    def __init__(
        self,
        timeout_ms: float,
        max_bytes: int,
        set_interest: Callable[[Connection], None],
        queue: TimerQueue[Any],
        close: Callable[[Connection, str], None],
    ) -> None:
        self.deadlines: dict[Connection, float] = {}
        self._timeout_ms = timeout_ms
        self._memory = RequestMemory(max_bytes)
        self._set_interest = set_interest
        self._close = close
        self.is_waiting = self._memory.is_waiting
        self._timer = TimedValue("incomplete requests")
        self._timers: Timers[TimedValue[str]] = queue.service(Rank.NETWORK, self._expire, 3)

    def watch(self, connection: Connection, now_ms: float, *, has_completed: bool = False) -> None:
        """Update the deadline and the memory of a connection that has received bytes.

        Args:
            connection: The connection.
            now_ms: The time.
            has_completed: Whether the bytes have completed a request. Its memory is freed before the next request gets
                memory.
        """
        self.deadlines.pop(connection, None)
        if self._memory.is_limited:
            if has_completed:
                self._release(connection, now_ms)
            if not self._memory.may_read(connection):
                self._set_interest(connection)
        is_incomplete = connection.tls is not None and connection.tls.is_incomplete
        if is_incomplete or (connection.frames.held_bytes and not self.is_waiting(connection)):
            connection.active_ms = now_ms
            self._set_deadline(connection, now_ms)

    def _set_deadline(self, connection: Connection, now_ms: float) -> None:
        self.deadlines[connection] = now_ms + self._timeout_ms
        self._timers.schedule(self._timer, now_ms + self._timeout_ms)

    def closed(self, connection: Connection, now_ms: float) -> None:
        """Forget a connection. Its memory becomes free for other connections."""
        self.deadlines.pop(connection, None)
        if self._memory.is_limited:
            self._release(connection, now_ms)

    def _expire(self, timer: TimedValue[str], due_ms: float, now_ms: float) -> None:
        """Close the connections whose deadline has passed. The timer is early if the first one has got more bytes."""
        while self.deadlines:
            connection, deadline_ms = next(iter(self.deadlines.items()))
            if deadline_ms > now_ms:
                self._timers.schedule(self._timer, deadline_ms)
                return
            what = "request" if connection.tls is None or connection.tls.is_established else "TLS handshake"
            self._close(connection, f"incomplete {what} after {self._timeout_ms / 1000:g} s")

    def _release(self, connection: Connection, now_ms: float) -> None:
        """Free the memory of a connection, and read from the connections that have waited for it."""
        for ready in self._memory.release(connection):
            self._set_interest(ready)
            self._set_deadline(ready, now_ms)


class RequestMemory:
    """Which connections may read the rest of a request.

    As in Kafka (SimpleMemoryPool), a request gets its memory if any is left, so that the limit is exceeded by at most
    one request.

    Args:
        limit_bytes: The limit; unlimited if it is not positive.

    Attributes:
        is_limited: Whether there is a limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.is_limited = limit_bytes > 0
        self._used_bytes = 0
        self._held: dict[Connection, int] = {}
        self._waiting: dict[Connection, int] = {}

    def may_read(self, connection: Connection) -> bool:
        """Return whether a connection may read the rest of its incomplete request, which uses memory from now on.

        A request needs memory when all bytes of its size are there. Before the next one, `release` has to be called.
        """
        frames = connection.frames
        if connection not in self._held and frames.held_bytes >= SIZE_BYTES:
            needed_bytes = frames.held_bytes + frames.missing_bytes
            if self._used_bytes >= self._limit_bytes:
                self._waiting[connection] = needed_bytes
                return False
            self._take(connection, needed_bytes)
        return True

    def release(self, connection: Connection) -> list[Connection]:
        """Free the memory of a connection. Return the connections that have waited for it and may read now."""
        self._waiting.pop(connection, None)
        self._used_bytes -= self._held.pop(connection, 0)
        ready = []
        for waiting, needed_bytes in list(self._waiting.items()):
            if self._used_bytes >= self._limit_bytes:
                break
            del self._waiting[waiting]
            self._take(waiting, needed_bytes)
            ready.append(waiting)
        return ready

    def is_waiting(self, connection: Connection) -> bool:
        """Return whether a connection must not be read, because it waits for memory."""
        return connection in self._waiting

    def _take(self, connection: Connection, needed_bytes: int) -> None:
        self._held[connection] = needed_bytes
        self._used_bytes += needed_bytes
