"""The members' clock: real time, or as many times as fast from the start of the replay on."""

import time


class Clock:
    """Milliseconds since the Unix epoch that never go back: the machine's time at first, then its steady clock.

    It is real time until `run_from` says otherwise.
    """

    def __init__(self) -> None:
        self._speed = 1.0
        self._zero_ms = time.time() * 1000 - time.monotonic() * 1000  # what it shows when the steady clock shows 0

    def run_from(self, start_s: float, speed: float) -> None:
        """Let it show the start when that has come in real time, and run `speed` times as fast as real time."""
        steady_ms = start_s * 1000 - self._zero_ms
        self._zero_ms = start_s * 1000 - steady_ms * speed
        self._speed = speed

    def now_ms(self) -> float:
        return time.monotonic() * 1000 * self._speed + self._zero_ms

    def seconds_until(self, moment_ms: float) -> float:
        """How many real seconds it takes until then; 0 if it is over, infinite for never."""
        return max(0.0, (moment_ms - self.now_ms()) / 1000 / self._speed)
