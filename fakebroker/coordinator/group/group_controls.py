"""Manual settings for the rebalances of one group, as plain data.

`controls` sets them; the procedures in `classic/rebalance.py` and `classic/sync.py` apply them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fakebroker.coordinator.group.classic.states import GroupState


@dataclass(slots=True)
class GroupControls:
    """Manual settings for the rebalances of one group. They stay valid when the group moves to another coordinator.

    Attributes:
        held_states: The states in which the group is held, as keys. In PreparingRebalance the join phase does not end;
            in CompletingRebalance the leader's sync waits.
        next_leader: Instance id or member id of the member that leads the next generation; "" for Kafka's choice.
    """

    held_states: dict[GroupState, None] = field(default_factory=dict)
    next_leader: str = ""


NO_CONTROLS: Mapping[str, GroupControls] = MappingProxyType({})
"""An empty mapping: no group has manual settings."""
