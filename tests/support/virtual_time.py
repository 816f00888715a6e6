"""Virtual time for tests: calls that are scheduled, between parts that have deadlines of their own."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from fakebroker.replay.simulation.scheduler import ACTION, Scheduler, VirtualClock


class VirtualTime(ABC):
    """Everything in it happens at some time. Calls at the same time are made in the order of their scheduling."""

    def __init__(self, start_ms: float) -> None:
        self.scheduler = Scheduler(VirtualClock(start_ms))

    @property
    def now_ms(self) -> float:
        return self.scheduler.clock.moment_ms

    @abstractmethod
    def _settle(self) -> None:
        """Do what is due."""

    @abstractmethod
    def _next_deadline(self) -> float:
        """When anything is due beside the calls; infinite for never."""

    def at(self, delay_ms: float, act: Callable[[], None]) -> None:
        """Have something done, so long from now."""
        self.scheduler.schedule(self.now_ms + delay_ms, ACTION, 0, act)

    def run(self, duration_ms: float) -> None:
        """Let time pass."""
        clock = self.scheduler.clock
        end_ms = clock.moment_ms + duration_ms
        self._settle()
        while True:
            due_ms = max(self._next_deadline(), clock.moment_ms)
            if not self.scheduler.step(min(due_ms, end_ms)):
                if due_ms > end_ms:
                    break
                clock.moment_ms = due_ms
            self._settle()
        clock.moment_ms = end_ms
