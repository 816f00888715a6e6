"""The hook through which a protocol extension changes a classic group, and the extension that changes nothing.

The classic group asks at the points below and does not know which extension it has (see `CoordinatorConfig.extension`).
"""

from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import Protocol

from fakebroker.coordinator.group.api import JoinGroup
from fakebroker.coordinator.group.records import Procedure
from fakebroker.errors import ErrorCode


class GroupExtension(Protocol):
    """What an extension adds to one group. The group and its invariants hold without it.

    Attributes:
        timer_name: What a history calls the timer of the extension.
    """

    timer_name: str

    @property
    def deadline_ms(self) -> float:
        """When the timer of the extension expires; infinite if it does not run."""

    @property
    def reserved_places(self) -> int:
        """How many places of `group.max.size` are taken by members to come; while there are any, no group expires."""

    @property
    def waiting_joins(self) -> Collection[str]:
        """Ids of members whose JoinGroup the extension keeps. While there are any, the group is not deleted."""

    def join(
        self, request: JoinGroup, token: object, now_ms: float, new_uuid: Callable[[], str]
    ) -> Procedure[None] | None:
        """Take over a JoinGroup; None if the classic group is to handle it."""

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Take over the departure of a member in a LeaveGroup; None if the classic group is to handle it."""

    def after_leave(self, now_ms: float) -> Procedure[bool]:
        """Complete a LeaveGroup in which `leave` succeeded; returns whether that has started a rebalance."""

    def expire(self, now_ms: float) -> Procedure[None]:
        """Handle the end of the extension's timer."""

    def deliver(self, token: object, result: object, send: Callable[[object, object], None]) -> None:
        """Send the answer to a token, or take it if the token is the extension's own."""

    def supersede(self, token: object) -> None:
        """A parked join is dropped, for the same member has joined again."""

    def refuse_all(self, error: ErrorCode) -> None:
        """Answer the joins that the extension keeps with an error, for the group moves to another coordinator."""

    def stored_values(self) -> tuple[object, ...]:
        """What is stored with the group: values that are opaque to the coordinator."""

    def restore(self, values: Iterable[object], now_ms: float) -> None:
        """Take over what was stored, after the members are restored."""

    def broken_rule(self) -> str | None:
        """An invariant that does not hold, or None."""


class NoExtension:
    """Changes nothing. Has no state, so one instance serves all groups."""

    timer_name = ""
    deadline_ms = inf
    reserved_places = 0
    waiting_joins: tuple[str, ...] = ()

    def join(self, request: JoinGroup, token: object, now_ms: float, new_uuid: Callable[[], str]) -> None:
        return None

    def leave(self, member_id: str, instance_id: str | None) -> None:
        return None

    def after_leave(self, now_ms: float) -> Procedure[bool]:
        yield from ()
        return False

    def expire(self, now_ms: float) -> Procedure[None]:
        yield from ()

    def deliver(self, token: object, result: object, send: Callable[[object, object], None]) -> None:
        send(token, result)

    def supersede(self, token: object) -> None:
        pass

    def refuse_all(self, error: ErrorCode) -> None:
        pass

    def stored_values(self) -> tuple[object, ...]:
        return ()

    def restore(self, values: Iterable[object], now_ms: float) -> None:
        pass

    def broken_rule(self) -> None:
        return None


NO_EXTENSION = NoExtension()


def no_extension(group: object) -> NoExtension:
    """The extension of a group that has none."""
    return NO_EXTENSION
