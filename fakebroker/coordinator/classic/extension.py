"""The hook for protocol extensions of a classic group, and the default extension, which changes nothing.

The classic group calls the methods of `GroupExtension` and does not depend on any extension.
`CoordinatorConfig.extension` sets the extension of each group.
"""

from collections.abc import Callable, Collection, Iterator
from math import inf
from typing import Any, Protocol

import msgspec

from fakebroker.coordinator.context import RequestContext
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.schema import Message

TaggedFields = tuple[tuple[int, bytes], ...]
"""Tagged fields of a message, such as `GroupMetadataValue.unknown_tags`."""


class ReservedPlace(msgspec.Struct, frozen=True):
    """A place in a group for a static member that has not joined yet.

    Attributes:
        client_id, client_host, session_timeout_ms: "" and 0 unless the extension holds back its JoinGroup.
    """

    member_id: str
    instance_id: str
    rebalance_timeout_ms: int
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int = 0


class GroupExtension(Protocol):
    """The extension of one group. The functions that change the group call its methods, and so does the coordinator.

    Attributes:
        timer_name: The name of the extension's timer in histories (`group_history.Timer.what`).
    """

    timer_name: str

    @property
    def deadline_ms(self) -> float:
        """When the timer of the extension expires; infinite if it does not run."""

    @property
    def reserved_places(self) -> Collection[ReservedPlace]:
        """The places in `group.max.size` that are reserved. While there are any, the group does not expire."""

    @property
    def waiting_joins(self) -> Collection[str]:
        """Ids of members whose JoinGroup the extension holds back. While there are any, the group is not deleted."""

    def join(
        self, request: JoinGroupRequest, context: RequestContext, now_ms: float, new_uuid: Callable[[], str]
    ) -> bool:
        """Handle a JoinGroup, or return False to let the classic group handle it."""

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Handle one member of a LeaveGroup, or return None to let the classic group handle it."""

    def after_leave(self, now_ms: float) -> bool:
        """Complete a LeaveGroup in which `leave` has returned NONE; return whether a rebalance was started."""

    def expire(self, now_ms: float) -> None:
        """Handle the expiry of the extension's timer."""

    def deliver(
        self, context: RequestContext, response: Message, send: Callable[[RequestContext, Message], None]
    ) -> None:
        """Call `send` with a context and its response, or keep the response to a context of the extension itself."""

    def supersede(self, context: RequestContext) -> None:
        """Handle that a parked join is dropped because the same member has joined again."""

    def reject_waiting(self, error: ErrorCode) -> None:
        """Answer the joins that are held back with an error, because the coordinator drops the group."""

    def stored_tags(self) -> TaggedFields:
        """Return tagged fields to store in the record of the group."""

    def restore(self, tags: TaggedFields, now_ms: float) -> None:
        """Restore the state of the extension from the record; called after the members are restored."""

    def copied(self, group: Any) -> "GroupExtension":
        """Return a copy for a copy of the group, which is used to find out what its timers will do."""

    def awaited(self) -> tuple[str, ...]:
        """Return the ids of the members that the timer of the extension waits for."""

    def explain(self, left: Callable[[float], str]) -> Iterator[str]:
        """Yield English sentences on the extension; `left` returns the text of the time until a deadline."""

    def explain_expiry(self, removed: Collection[str], outcome: str) -> str:
        """Return an English sentence on what happens when the timer expires.

        Args:
            removed: The ids of the members that are removed.
            outcome: What happens to the group, as a clause.
        """

    def broken_rule(self) -> str | None:
        """Return the description of an invariant of the extension that does not hold, or None."""


class NoExtension:
    """The extension that changes nothing. It has no state, so all groups share one instance."""

    timer_name = ""
    deadline_ms = inf
    reserved_places: tuple[ReservedPlace, ...] = ()
    waiting_joins: tuple[str, ...] = ()

    def join(
        self, request: JoinGroupRequest, context: RequestContext, now_ms: float, new_uuid: Callable[[], str]
    ) -> bool:
        return False

    def leave(self, member_id: str, instance_id: str | None) -> None:
        return None

    def after_leave(self, now_ms: float) -> bool:
        return False

    def expire(self, now_ms: float) -> None:
        pass

    def deliver(
        self, context: RequestContext, response: Message, send: Callable[[RequestContext, Message], None]
    ) -> None:
        send(context, response)

    def supersede(self, context: RequestContext) -> None:
        pass

    def reject_waiting(self, error: ErrorCode) -> None:
        pass

    def stored_tags(self) -> TaggedFields:
        return ()

    def restore(self, tags: TaggedFields, now_ms: float) -> None:
        pass

    def copied(self, group: object) -> "NoExtension":
        return self

    def awaited(self) -> tuple[str, ...]:
        return ()

    def explain(self, left: Callable[[float], str]) -> Iterator[str]:
        return iter(())

    def explain_expiry(self, removed: Collection[str], outcome: str) -> str:
        return ""

    def broken_rule(self) -> None:
        return None


NO_EXTENSION = NoExtension()


def no_extension(group: object) -> NoExtension:
    """Return the extension that changes nothing, for any group."""
    return NO_EXTENSION
