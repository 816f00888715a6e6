"""A cluster's time, seen as what it will bring about, and how to get there."""

from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.server.lifecycle import RunningCluster


class Timekeeping(RunningCluster):
    """What is pending, with any clock; and going there, with the manual one."""

    def pending_deadlines(self) -> list[Deadline]:
        """What time alone will bring about, the earliest first.

        Exact as of now: each heartbeat moves its member's session.
        """
        return self._call(lambda: pending_deadlines(self.cluster, self.clock.now_ms()))

    def advance(self, seconds: float) -> None:
        """Let time pass for the brokers; see `fakebroker.server.clock.ManualClock.advance`.

        Raises:
            ConfigError: The clock is not the manual one, or time would go back.
        """
        self.clock.advance(seconds)

    def advance_to_next_deadline(self) -> list[Deadline] | None:
        """Let the manual clock go on until the next thing happens.

        Returns:
            What has happened, all at the same time; `in_s` tells how far the clock went. None if nothing is pending.

        Raises:
            ConfigError: The clock is not the manual one.
        """

        def advance() -> list[Deadline] | None:
            pending = pending_deadlines(self.cluster, self.clock.now_ms())
            first = [deadline for deadline in pending if deadline.at_ms == pending[0].at_ms]
            self.clock.advance(first[0].in_s if first else 0.0)
            # Here, for nothing else lets it happen in a cluster that does not run.
            self.cluster.tick(self.clock.now_ms(), self.cluster.wire_ms)
            return first or None

        return self._call(advance)
