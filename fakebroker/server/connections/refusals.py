"""Why brokers have closed connections, for the errors of waits and for reports. Does not depend on sockets."""

from fakebroker.errors import cut_lines

_MAX_REASONS = 10
"""Maximum number of reasons that are kept: those that occurred last."""


class Refusals:
    """Counts the connections that brokers have closed, by reason, such as a failed authentication.

    The last requests on such a connection may not have been handled. Then the journal does not contain them.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, why: str) -> None:
        """Count a connection. `why` must not contain secrets."""
        reason = cut_lines(why)
        self._counts[reason] = self._counts.pop(reason, 0) + 1
        if len(self._counts) > _MAX_REASONS:
            del self._counts[next(iter(self._counts))]

    def clear(self) -> None:
        """Forget all connections."""
        self._counts.clear()

    def text(self) -> str:
        """Return a line for each reason, the last one last; an empty text if there is none."""
        lines = [f"  {count} x {reason}" for reason, count in self._counts.items()]
        return "\n".join(["connections that brokers closed:", *lines]) if lines else ""
