"""Exponential back-off between attempts. Does not depend on a clock."""

from dataclasses import dataclass

_MAX_DOUBLINGS = 30


@dataclass(slots=True)
class Backoff:
    """Delays that double with each failure up to a limit (KIP-580, without its jitter).

    Attributes:
        first_ms: The first delay (`retry.backoff.ms`).
        max_ms: The longest delay (`retry.backoff.max.ms`).
        failures: Failures counted by `next_delay_ms` since the last `reset`.
    """

    first_ms: float
    max_ms: float = 1_000.0
    failures: int = 0

    def delay_ms(self, failures: int) -> float:
        """Return the delay after a failure, by the number of failures before it; for 0 it is `first_ms`."""
        return min(self.first_ms * 2.0 ** min(failures, _MAX_DOUBLINGS), self.max_ms)

    def next_delay_ms(self) -> float:
        """Count a failure and return the delay before the next attempt."""
        self.failures += 1
        return self.delay_ms(self.failures - 1)

    def reset(self) -> None:
        """Forget earlier failures; called after a success."""
        self.failures = 0
