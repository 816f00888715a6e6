"""Manual settings for the rebalances of one group of either kind, as plain data.

`controls` sets them; the functions in `classic/rebalance.py` and `consumer/heartbeat.py` apply them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.topic_partition import TopicPartition

Assignment = Mapping[str, Sequence[TopicPartition]]
"""Partitions by instance id, member id or client id."""


@dataclass(slots=True)
class GroupControls:
    """Manual settings for the rebalances of one group. They stay valid when the group moves to another coordinator.

    Attributes:
        held_states: The states in which the group is held, as keys. In PreparingRebalance the join phase does not end;
            in CompletingRebalance the leader's sync waits; in Assigning the assignor does not run; in Reconciling no
            member is believed to have given up partitions.
        held_members: Instance ids or member ids of members of a consumer group that alone are not believed to have
            given up partitions, as keys.
        next_leader: Instance id or member id of the member that leads the next generation; "" for Kafka's choice.
        next_assignment: The result of the assignor when it runs next; None for its own.
    """

    held_states: dict[GroupState | ConsumerGroupState, None] = field(default_factory=dict)
    held_members: dict[str, None] = field(default_factory=dict)
    next_leader: str = ""
    next_assignment: Assignment | None = None

    def states(self) -> list[GroupState | ConsumerGroupState]:
        """Return the states in which the group, or a member of it, is held."""
        members = [ConsumerGroupState.RECONCILING] if self.held_members else []
        return list(dict.fromkeys([*self.held_states, *members]))

    def holds_revocation_of(self, member_id: str, instance_id: str | None) -> bool:
        """Whether a member is not believed to have given up partitions."""
        return (
            ConsumerGroupState.RECONCILING in self.held_states
            or member_id in self.held_members
            or (instance_id is not None and instance_id in self.held_members)
        )


NO_CONTROLS: Mapping[str, GroupControls] = MappingProxyType({})
"""An empty mapping: no group has manual settings."""
