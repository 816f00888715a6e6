"""The brokers' clock: real time, a multiple of real time, or a time that only the test advances."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol

from fakebroker.errors import ConfigError, check_number

MAX_ADVANCE_S = 1e9
"""The longest advance, in seconds: about thirty years."""

_ADVANCEABLE = "'manual': other clocks run by themselves and cannot be advanced"

_LAST_MS = 253_402_300_799_000.0
"""The last second of the year 9999, where dates end, in milliseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """For `FakeCluster(clock=Scaled(10))`: the brokers' clock runs ten times as fast as real time.

    A session of 45 s then ends after 4.5 s without a heartbeat. Clients are not affected: their timeouts and heartbeat
    intervals are real time.

    Raises:
        ConfigError: The factor is not above 0.
    """

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, above=0, where="Scaled")


class Clock(Protocol):
    """The brokers' time: milliseconds since the Unix epoch, never going back."""

    @property
    def wire(self) -> "RealClock":
        """The clients' clock."""
        ...

    def now_ms(self) -> float: ...

    def seconds_until(self, deadline_ms: float | None) -> float:
        """Return the real seconds until a deadline; infinite without a deadline, or if the clock stands still."""
        ...

    def advance(self, seconds: float) -> None:
        """Advance the clock.

        Raises:
            ConfigError: This clock runs by itself.
        """
        ...


class RealClock:
    """Real time: starts at the wall clock and then follows the monotonic clock, or another one."""

    def __init__(self) -> None:
        self._read_s: Callable[[], float] = time.monotonic
        self._offset_ms = time.time() * 1000 - self._read_s() * 1000

    @property
    def wire(self) -> "RealClock":
        return self

    def follow(self, read_s: Callable[[], float]) -> None:
        """Continue from the present time with another clock, which returns seconds."""
        now_ms = self.now_ms()
        self._read_s = read_s
        self._offset_ms = now_ms - read_s() * 1000

    def now_ms(self) -> float:
        return self._read_s() * 1000 + self._offset_ms

    def seconds_until(self, deadline_ms: float | None) -> float:
        return inf if deadline_ms is None else max(0.0, (deadline_ms - self.now_ms()) / 1000)

    def advance(self, seconds: float) -> None:
        raise ConfigError.of("clock", "real", _ADVANCEABLE)


class ScaledClock:
    """A multiple of real time."""

    def __init__(self, factor: float = 1.0) -> None:
        self.wire = RealClock()
        self.run_from(self.wire.now_ms(), factor)

    def run_from(self, start_ms: float, factor: float) -> None:
        """Show real time at a moment, and a multiple of it before and after; clocks of several processes then agree."""
        self._started_ms, self._factor = start_ms, factor

    def now_ms(self) -> float:
        return self._started_ms + (self.wire.now_ms() - self._started_ms) * self._factor

    def seconds_until(self, deadline_ms: float | None) -> float:
        return inf if deadline_ms is None else max(0.0, (deadline_ms - self.now_ms()) / 1000 / self._factor)

    def advance(self, seconds: float) -> None:
        raise ConfigError.of("clock", Scaled(self._factor), _ADVANCEABLE)


class ManualClock:
    """A clock that stands still until it is advanced. Clients' time, and the waits of their Fetch requests, go on."""

    def __init__(self) -> None:
        self.wire = RealClock()
        self._now_ms = self.wire.now_ms()
        self._move: Callable[[Callable[[], None]], None] = lambda move: move()

    def now_ms(self) -> float:
        return self._now_ms

    def seconds_until(self, deadline_ms: float | None) -> float:
        return 0.0 if deadline_ms is not None and deadline_ms <= self._now_ms else inf

    def advance(self, seconds: float) -> None:
        """Advance the clock; everything that is due by then is done when this returns.

        It advances at once, and no request is handled in between: all sessions shorter than this end. To keep some of
        them, advance in steps and wait for heartbeats in between. What is due happens in its order, but at the new
        time, and timers that it starts begin then; `FakeCluster.advance_to_next_deadline` is exact.

        Raises:
            ConfigError: The seconds are negative, or more than `MAX_ADVANCE_S`, or exceed the year 9999.
        """
        check_number("seconds", seconds, least=0, most=int(min(MAX_ADVANCE_S, (_LAST_MS - self._now_ms) // 1000)))

        def move() -> None:
            self._now_ms += seconds * 1000

        self._move(move)

    def moved_by(self, run: Callable[[Callable[[], None]], None]) -> None:
        """Have `run` execute each advance: in the cluster's thread, between two requests."""
        self._move = run


def clock_for(choice: Literal["real", "manual"] | Scaled) -> Clock:
    """Return the clock for an argument of `FakeCluster`."""
    if isinstance(choice, Scaled):
        return ScaledClock(choice.factor)
    return RealClock() if choice == "real" else ManualClock()
