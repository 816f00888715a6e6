"""What a test wants of the rebalances of one group, as plain data. `controls` sets it, and the procedures obey it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fakebroker.coordinator.group.classic.states import GroupState


@dataclass(slots=True)
class GroupControls:
    """What is wanted of one group, whichever broker coordinates it; may be set before there is such a group.

    Attributes:
        held_states: The states that the group does not leave by completing them.
        next_leader: Instance id or member id of the member that leads the next generation; "" for Kafka's choice.
    """

    held_states: dict[GroupState, None] = field(default_factory=dict)
    next_leader: str = ""


NO_CONTROLS: Mapping[str, GroupControls] = MappingProxyType({})
"""No group is controlled."""
