"""The memory for incomplete requests: while it is used up, no others are read (`queued.max.request.bytes`)."""

from fakebroker.server.connection import Connection


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
        """Return whether a connection may read the rest of its incomplete request, which uses memory from now on."""
        if connection not in self._held:
            needed_bytes = connection.frames.held_bytes + connection.frames.missing_bytes
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
