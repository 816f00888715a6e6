"""What time it is for the brokers: real time, real time at another pace, or a time that only the test moves.

Knows how to let time go by; not what happens then.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol

from fakebroker.errors import ConfigError

MAX_ADVANCE_S = 1e9
"""How far a clock can be advanced at once: about thirty years."""

_LAST_MS = 253_402_300_799_000.0
"""Where dates end: the last second of the year 9999."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """For `FakeCluster(clock=Scaled(10))`: the brokers' time runs so many times as fast as real time.

    A session of 45 s then ends after 4.5 s without a heartbeat. Clients know nothing of it: they wait, send heartbeats
    and give up in real time.

    Raises:
        ConfigError: The factor is not above 0.
    """

    factor: float

    def __post_init__(self) -> None:
        if not (isinstance(self.factor, int | float) and 0 < self.factor < inf):
            raise ConfigError(f"Scaled({self.factor!r}): expected a number above 0")


class Clock(Protocol):
    """The brokers' time: milliseconds since the Unix epoch, never going back."""

    @property
    def wire(self) -> "RealClock":
        """The time by which clients wait."""
        ...

    def now_ms(self) -> float: ...

    def seconds_until(self, deadline_ms: float | None) -> float:
        """How many real seconds it takes until then; infinite without a deadline, or if the time does not run."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass for the brokers.

        Raises:
            ConfigError: This clock runs by itself.
        """
        ...


class RealClock:
    """Real time: it starts at the wall clock and then follows the monotonic one, or another."""

    def __init__(self) -> None:
        self._read_s: Callable[[], float] = time.monotonic
        self._offset_ms = time.time() * 1000 - self._read_s() * 1000

    @property
    def wire(self) -> "RealClock":
        return self

    def follow(self, read_s: Callable[[], float]) -> None:
        """Go on from now as another clock does, which tells its time in seconds."""
        now_ms = self.now_ms()
        self._read_s = read_s
        self._offset_ms = now_ms - read_s() * 1000

    def now_ms(self) -> float:
        return self._read_s() * 1000 + self._offset_ms

    def seconds_until(self, deadline_ms: float | None) -> float:
        return inf if deadline_ms is None else max(0.0, (deadline_ms - self.now_ms()) / 1000)

    def advance(self, seconds: float) -> None:
        raise ConfigError('the clock is real; only FakeCluster(clock="manual") can be advanced')


class ScaledClock:
    """Real time at another pace."""

    def __init__(self, factor: float) -> None:
        self.wire = RealClock()
        self._factor = factor
        self._started_ms = self.wire.now_ms()

    def now_ms(self) -> float:
        return self._started_ms + (self.wire.now_ms() - self._started_ms) * self._factor

    def seconds_until(self, deadline_ms: float | None) -> float:
        return inf if deadline_ms is None else max(0.0, (deadline_ms - self.now_ms()) / 1000 / self._factor)

    def advance(self, seconds: float) -> None:
        raise ConfigError(
            f'the clock runs by itself, {self._factor:g} times as fast as real time; only FakeCluster(clock="manual") '
            "can be advanced"
        )


class ManualClock:
    """A time that stands still until it is advanced. Clients' time runs on meanwhile, and so do their Fetch waits."""

    def __init__(self) -> None:
        self.wire = RealClock()
        self._now_ms = self.wire.now_ms()
        self._move: Callable[[Callable[[], None]], None] = lambda move: move()

    def now_ms(self) -> float:
        return self._now_ms

    def seconds_until(self, deadline_ms: float | None) -> float:
        return 0.0 if deadline_ms is not None and deadline_ms <= self._now_ms else inf

    def advance(self, seconds: float) -> None:
        """Let time pass for the brokers; what is due by then is done when this returns.

        It passes all at once. No client gets a word in: every session ends that is shorter than this, so advance in
        steps, with a wait for heartbeats in between, where some are to go on. What is due happens in its order, but at
        the new time, and timers that begin with it begin then; `FakeCluster.advance_to_next_deadline` is exact.

        Raises:
            ConfigError: Time does not go back, nor further than `MAX_ADVANCE_S`, nor to where dates end.
        """
        most_s = min(MAX_ADVANCE_S, (_LAST_MS - self._now_ms) // 1000)
        if not 0 <= seconds <= most_s:
            raise ConfigError(f"seconds={seconds!r}: expected 0 to {most_s:.0f}")

        def move() -> None:
            self._now_ms += seconds * 1000

        self._move(move)

    def moved_by(self, run: Callable[[Callable[[], None]], None]) -> None:
        """Let `run` do each move: it knows where and when one may be done, and what follows from it."""
        self._move = run


def clock_for(choice: Literal["real", "manual"] | Scaled) -> Clock:
    """The clock that a test has asked for.

    Raises:
        ConfigError: There is none such.
    """
    if isinstance(choice, Scaled):
        return ScaledClock(choice.factor)
    if choice not in ("real", "manual"):
        raise ConfigError(f"clock={choice!r}: expected 'real' or 'manual', or a pace such as Scaled(10)")
    return RealClock() if choice == "real" else ManualClock()
