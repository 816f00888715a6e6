"""Commands that advance the brokers' clock."""

from typing import Annotated

from msgspec import Meta

from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import (
    command,
)
from fakebroker.cluster.commands.environment import MAX_ADVANCE_S
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines


class ClockCommands(CommandsBase):
    """Commands for the brokers' clock."""

    @command
    def advance(self, seconds: Annotated[float, Meta(ge=0, le=MAX_ADVANCE_S)]) -> None:
        """Advance the brokers' clock and process everything that is due by then.

        Requires a manual clock. No request is handled meanwhile, so every session that is shorter expires, except those
        of members with a pending response; a new member expires after 300 s of waiting. If the expiry of a timer starts
        another timer, the new timer counts from the new time; `advance_to_next_deadline` avoids that.

        Args:
            seconds: Seconds to advance by, 0 or more.

        Raises:
            ConfigError: The clock is not manual, or the number of seconds is out of range.
        """
        self._environment.advance(seconds)

    @command
    def advance_to_next_deadline(self) -> list[Deadline] | None:
        """Advance the brokers' clock to the next deadline and process it.

        Requires a manual clock.

        Returns:
            The deadlines that were reached; all have the same due time. Their `in_s` is the number of seconds by which
            the clock was advanced. None if no deadline was pending.

        Raises:
            ConfigError: The clock is not manual.
        """

        def advance() -> list[Deadline] | None:
            now_ms = self._now_ms()
            next_ms = (each.at_ms for each in pending_deadlines(self._cluster, now_ms, first=1))
            first = [each for at_ms in next_ms for each in pending_deadlines(self._cluster, now_ms, until_ms=at_ms)]
            self._environment.advance(first[0].in_s if first else 0.0)
            # If the cluster is running, `advance` has already processed what is due, and this changes nothing.
            self._cluster.tick(self._now_ms(), self._cluster.wire_ms)
            return first or None

        return self._run(advance)
