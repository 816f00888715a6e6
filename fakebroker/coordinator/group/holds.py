"""What somebody outside wants of the rebalances of one group, and what a group keeps while it is held.

The procedures ask here where a wish may change what they do. Knows not who has the wishes, and does nothing by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from fakebroker.coordinator.group.api import SyncGroup

if TYPE_CHECKING:
    from fakebroker.coordinator.group.classic.group import Group, GroupState


@dataclass(slots=True)
class Wishes:
    """What is wanted of one group, whoever coordinates it; perhaps before there is such a group.

    Attributes:
        holds: The states that the group does not leave by completing them.
        next_leader: Who is to lead the next generation: an instance id or a member id; "" if nobody is to.
    """

    holds: dict["GroupState", None] = field(default_factory=dict)
    next_leader: str = ""


NO_WISHES: Mapping[str, Wishes] = MappingProxyType({})


@dataclass(slots=True)
class Script:
    """The wishes for a group, and what they keep from happening in it.

    Attributes:
        is_overdue: The timer of the state has run out while the group was held in it.
        held_sync: The leader's sync and its token, while the group is held in CompletingRebalance.
    """

    wishes: Wishes
    is_overdue: bool = False
    held_sync: tuple[SyncGroup, object] | None = None


def script_for(wishes: Wishes | None) -> Script | None:
    """The script of a group that has just been made."""
    return None if wishes is None else Script(wishes)


def is_held(group: "Group") -> bool:
    """Whether somebody wants that the group stays in the state that it is in."""
    return group.script is not None and group.state in group.script.wishes.holds


def is_sync_held(group: "Group", member_id: str) -> bool:
    """Whether this member is the leader and its sync is kept for later."""
    held = None if group.script is None else group.script.held_sync
    return held is not None and held[0].member_id == member_id


def take_held_sync(group: "Group", member_id: str) -> list[tuple[SyncGroup, object]]:
    """The leader's sync and its token, if it is kept for later and this member's; it is not kept any more."""
    if group.script is None or group.script.held_sync is None or not is_sync_held(group, member_id):
        return []
    held, group.script.held_sync = group.script.held_sync, None
    return [held]
