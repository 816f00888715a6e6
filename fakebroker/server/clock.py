"""What time it is for the brokers."""

import time

import trio


class RealClock:
    """Real time: it starts at the wall clock and then follows the monotonic one, so it never goes back."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def now_ms(self) -> float:
        """Milliseconds since the Unix epoch."""
        return time.monotonic() * 1000 + self._offset_ms

    def scope_until(self, deadline_ms: float | None) -> trio.CancelScope:
        """A scope that is cancelled at a time of this clock; never, where there is none."""
        if deadline_ms is None:
            return trio.CancelScope()
        return trio.move_on_after(max(0.0, (deadline_ms - self.now_ms()) / 1000))
