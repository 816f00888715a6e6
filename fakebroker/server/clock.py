"""The brokers' clock: real time, a multiple of real time, or manual."""

import time
from collections.abc import Callable
from math import inf
from typing import Literal, Protocol

import msgspec

from fakebroker.cluster.handles.environment import MAX_ADVANCE_S
from fakebroker.errors import ConfigError, check_number

_ADVANCEABLE = "'manual': other clocks cannot be advanced"

_LAST_MS = 253_402_300_799_000.0
"""The last second of the year 9999, the maximum of Python's dates; milliseconds since the Unix epoch."""


class Scaled(msgspec.Struct, frozen=True):
    """A clock that runs faster or slower than real time: `FakeCluster(clock=Scaled(10))`.

    With a factor of 10 a session of 45 s expires after 4.5 s without a heartbeat. Clients are not affected: their
    timeouts and heartbeat intervals are in real time.

    Attributes:
        factor: Seconds of the brokers' clock per second of real time, above 0.

    Raises:
        ConfigError: The factor is not above 0.
    """

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, above=0, where="Scaled")


class Clock(Protocol):
    """The brokers' time, in milliseconds since the Unix epoch; it never decreases."""

    @property
    def wire(self) -> "RealClock":
        """Real time, which clients and sockets use."""
        ...

    def now_ms(self) -> float: ...

    def seconds_until(self, deadline_ms: float | None) -> float:
        """Return the real seconds until a deadline.

        Args:
            deadline_ms: Milliseconds since the Unix epoch; None for no deadline.

        Returns:
            0 if the deadline has passed; infinity if there is no deadline, or only `advance` can reach it.
        """
        ...

    def advance(self, seconds: float) -> None:
        """Advance the clock.

        Raises:
            ConfigError: The clock is not manual, or the seconds are out of range.
        """
        ...


class RealClock:
    """Real time: the wall clock at the start, plus the time elapsed since then on a monotonic clock (see `follow`)."""

    def __init__(self) -> None:
        self._read_s: Callable[[], float] = time.monotonic
        self._offset_ms = time.time() * 1000 - self._read_s() * 1000

    @property
    def wire(self) -> "RealClock":
        return self

    def follow(self, read_s: Callable[[], float]) -> None:
        """Continue from the current time, and measure the time from now on with another clock.

        Args:
            read_s: Returns the time of that clock in seconds.
        """
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
        """Set the time at which this clock equals real time. The same arguments let clocks of several processes agree.

        Args:
            start_ms: Milliseconds since the Unix epoch.
            factor: Milliseconds of this clock per millisecond of real time.
        """
        self._started_ms, self._factor = start_ms, factor

    def now_ms(self) -> float:
        return self._started_ms + (self.wire.now_ms() - self._started_ms) * self._factor

    def seconds_until(self, deadline_ms: float | None) -> float:
        return inf if deadline_ms is None else max(0.0, (deadline_ms - self.now_ms()) / 1000 / self._factor)

    def advance(self, seconds: float) -> None:
        raise ConfigError.of("clock", Scaled(self._factor), _ADVANCEABLE)


class ManualClock:
    """A clock that stands still until it is advanced. Fetch requests still wait in real time, as clients do."""

    def __init__(self) -> None:
        self.wire = RealClock()
        self._now_ms = self.wire.now_ms()
        self._run: Callable[[Callable[[], None]], None] = lambda move: move()

    def now_ms(self) -> float:
        return self._now_ms

    def seconds_until(self, deadline_ms: float | None) -> float:
        return 0.0 if deadline_ms is not None and deadline_ms <= self._now_ms else inf

    def advance(self, seconds: float) -> None:
        """Advance the clock. Everything that is due at the new time has happened when this returns.

        The clock advances in one step, and no request is handled meanwhile, so all sessions shorter than the step
        expire. To keep some of them, advance in smaller steps and wait for heartbeats between the steps. Timers expire
        in the order of their deadlines, but all at the new time, and timers that they start count from the new time. To
        avoid that, use `FakeCluster.advance_to_next_deadline`.

        Args:
            seconds: 0 to `MAX_ADVANCE_S`.

        Raises:
            ConfigError: The seconds are out of range, or the clock would pass the year 9999.
        """
        check_number("seconds", seconds, least=0, most=int(min(MAX_ADVANCE_S, (_LAST_MS - self._now_ms) // 1000)))

        def move() -> None:
            self._now_ms += seconds * 1000

        self._run(move)

    def advance_with(self, run: Callable[[Callable[[], None]], None]) -> None:
        """Set the function that runs each advance in the cluster's thread, between two requests."""
        self._run = run


def clock_for(choice: Literal["real", "manual"] | Scaled) -> Clock:
    """Return the clock that the argument `clock` of `FakeCluster` selects."""
    if isinstance(choice, Scaled):
        return ScaledClock(choice.factor)
    return RealClock() if choice == "real" else ManualClock()
