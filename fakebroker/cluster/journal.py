"""What was asked and answered, decoded, the newest so many of it."""

from collections import deque
from collections.abc import Iterator

from fakebroker.cluster.call import Call


class Journal:
    """The newest calls of a cluster, in the order in which they came.

    Args:
        max_calls: How many are kept; 0 keeps none.
        max_bytes: How many bytes of requests are kept, counted as they came over the wire.
    """

    __slots__ = ("_calls", "bytes", "max_bytes", "max_calls")

    def __init__(self, max_calls: int = 10_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.max_calls = max_calls
        self.max_bytes = max_bytes
        self.bytes = 0
        self._calls: deque[Call] = deque()

    def add(self, call: Call) -> None:
        """Keep a call, and forget the oldest ones over the limits."""
        calls = self._calls
        calls.append(call)
        self.bytes += call.size
        while self.bytes > self.max_bytes or len(calls) > self.max_calls:
            self.bytes -= calls.popleft().size

    def __iter__(self) -> Iterator[Call]:
        return iter(tuple(self._calls))

    def __len__(self) -> int:
        return len(self._calls)
