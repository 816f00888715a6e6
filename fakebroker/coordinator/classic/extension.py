"""The hook for protocol extensions of a classic group, and the default extension, which changes nothing.

The classic group calls the methods of `GroupExtension` and does not depend on any extension.
`CoordinatorConfig.extension` sets the extension of each group.
"""

from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import Protocol

from fakebroker.coordinator.api import JoinGroup
from fakebroker.errors import ErrorCode


class GroupExtension(Protocol):
    """The extension of one group. The functions that change the group call its methods, and so does the coordinator.

    Attributes:
        timer_name: The name of the extension's timer in histories (`history.Timer.what`).
    """

    timer_name: str

    @property
    def deadline_ms(self) -> float:
        """When the timer of the extension expires; infinite if it does not run."""

    @property
    def reserved_places(self) -> int:
        """The number of reserved places in `group.max.size`. While there are any, the group does not expire."""

    @property
    def waiting_joins(self) -> Collection[str]:
        """Ids of members whose JoinGroup the extension holds back. While there are any, the group is not deleted."""

    def join(self, request: JoinGroup, token: object, now_ms: float, new_uuid: Callable[[], str]) -> bool:
        """Handle a JoinGroup, or return False to let the classic group handle it."""

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Handle one member of a LeaveGroup, or return None to let the classic group handle it."""

    def after_leave(self, now_ms: float) -> bool:
        """Complete a LeaveGroup in which `leave` has returned NONE; return whether a rebalance was started."""

    def expire(self, now_ms: float) -> None:
        """Handle the expiry of the extension's timer."""

    def deliver(self, token: object, result: object, send: Callable[[object, object], None]) -> None:
        """Call `send` with a token and its result, or keep the result if the extension has created the token."""

    def supersede(self, token: object) -> None:
        """Handle that a parked join is dropped because the same member has joined again."""

    def reject_waiting(self, error: ErrorCode) -> None:
        """Answer the joins that are held back with an error, because the coordinator drops the group."""

    def stored_values(self) -> tuple[object, ...]:
        """Return the values to store with the group (`GroupValue.extension_values`)."""

    def restore(self, values: Iterable[object], now_ms: float) -> None:
        """Restore the state of the extension from stored values; called after the members are restored."""

    def broken_rule(self) -> str | None:
        """Return the description of an invariant of the extension that does not hold, or None."""


class NoExtension:
    """The extension that changes nothing. It has no state, so all groups share one instance."""

    timer_name = ""
    deadline_ms = inf
    reserved_places = 0
    waiting_joins: tuple[str, ...] = ()

    def join(self, request: JoinGroup, token: object, now_ms: float, new_uuid: Callable[[], str]) -> bool:
        return False

    def leave(self, member_id: str, instance_id: str | None) -> None:
        return None

    def after_leave(self, now_ms: float) -> bool:
        return False

    def expire(self, now_ms: float) -> None:
        pass

    def deliver(self, token: object, result: object, send: Callable[[object, object], None]) -> None:
        send(token, result)

    def supersede(self, token: object) -> None:
        pass

    def reject_waiting(self, error: ErrorCode) -> None:
        pass

    def stored_values(self) -> tuple[object, ...]:
        return ()

    def restore(self, values: Iterable[object], now_ms: float) -> None:
        pass

    def broken_rule(self) -> None:
        return None


NO_EXTENSION = NoExtension()


def no_extension(group: object) -> NoExtension:
    """Return the extension that changes nothing, for any group."""
    return NO_EXTENSION
