"""What a request or timer changes in a consumer group, for its history."""

from collections.abc import Collection

import msgspec

from fakebroker.coordinator.group.history import RecordedMoment
from fakebroker.coordinator.group.modern.member import ConsumerGroupMember

UPGRADED = "upgrade of a classic group"
"""The cause of the first moment of a consumer group that was a classic one."""


class ConsumerGroupChange(msgspec.Struct):
    """The changes of a consumer group by the request or timer in progress.

    Attributes:
        cause: Set before the first change.
        before: The members that were added, replaced or removed since the last moment, as they were before it, by
            member id; None for those that were not in the group.
        known: Member ids of the classic group that the group has just replaced.
        moments: The complete moments, oldest first.
    """

    cause: str = ""
    before: dict[str, ConsumerGroupMember | None] = msgspec.field(default_factory=dict)
    known: Collection[str] = ()
    moments: list[RecordedMoment] = msgspec.field(default_factory=list)


def is_visible(before: ConsumerGroupMember | None, after: ConsumerGroupMember) -> bool:
    """Return whether a change of a member concerns its epoch, state or partitions."""
    return before is None or (
        (before.member_epoch, before.state) != (after.member_epoch, after.state)
        or before.assigned != after.assigned
        or before.pending_revocation != after.pending_revocation
    )
