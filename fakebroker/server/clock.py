"""What time it is for the brokers: real time, or a time that only the test moves."""

import time
from collections.abc import Callable
from math import inf
from typing import Protocol

from fakebroker.errors import ConfigError


class Clock(Protocol):
    """The brokers' time: milliseconds since the Unix epoch, never going back."""

    def now_ms(self) -> float: ...

    def seconds_until(self, deadline_ms: float | None) -> float:
        """How many real seconds it takes until then; infinite without a deadline, or if the time does not run."""
        ...

    def advance(self, seconds: float) -> None: ...


class RealClock:
    """Real time: it starts at the wall clock and then follows the monotonic one."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def now_ms(self) -> float:
        return time.monotonic() * 1000 + self._offset_ms

    def seconds_until(self, deadline_ms: float | None) -> float:
        return inf if deadline_ms is None else max(0.0, (deadline_ms - self.now_ms()) / 1000)

    def advance(self, seconds: float) -> None:
        """Real time cannot be advanced.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError('the clock is real; only FakeCluster(clock="manual") can be advanced')


class ManualClock:
    """A time that stands still until it is advanced. Clients' time runs on meanwhile, and so do their Fetch waits."""

    def __init__(self) -> None:
        self._now_ms = time.time() * 1000
        self._move: Callable[[Callable[[], None]], None] = lambda move: move()

    def now_ms(self) -> float:
        return self._now_ms

    def seconds_until(self, deadline_ms: float | None) -> float:
        return 0.0 if deadline_ms is not None and deadline_ms <= self._now_ms else inf

    def advance(self, seconds: float) -> None:
        """Let time pass for the brokers; what is due by then is done when this returns.

        Raises:
            ConfigError: Time does not go back.
        """
        if seconds < 0:
            raise ConfigError(f"advance({seconds}): expected 0 or more seconds")

        def move() -> None:
            self._now_ms += seconds * 1000

        self._move(move)

    def moved_by(self, run: Callable[[Callable[[], None]], None]) -> None:
        """Let `run` do each move: it knows where and when one may be done, and what follows from it."""
        self._move = run
