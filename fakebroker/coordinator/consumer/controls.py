"""Manual control of consumer groups (KIP-848): force an assignment, expire and fence members.

The functions for groups of both kinds are in `controls.py`.
"""

from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import JOINING_EPOCH, LEAVING_STATIC_EPOCH, ConsumerGroupMember
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.context import OwnContext
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_FORCEABLE = (ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE)


def force_assignment(coordinator: Coordinator, group: ConsumerGroup, now_ms: float) -> None:
    """Start the next group epoch: the next heartbeat of a member runs the assignor.

    Raises:
        ConfigError: There are no members, or the assignor is about to run.
    """
    if group.state not in _FORCEABLE:
        expected = f"a group in state Reconciling or Stable, not {group.state.value}"
        raise ConfigError.of("group_id", group.group_id, expected)
    coordinator.groups.consumer.next_epoch(group)
    coordinator.groups.changed(group, now_ms)


def expire(coordinator: Coordinator, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: float) -> None:
    """Expire a member's session."""
    cause = f"session of {member.member_id} expired"
    coordinator.groups.consumer.remove(group, [member.member_id], now_ms, cause)
    coordinator.groups.changed(group, now_ms)


def fence_epoch(coordinator: Coordinator, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: float) -> None:
    """Forget the epoch of a member, as a coordinator that has lost records: its next heartbeat is fenced."""
    coordinator.groups.consumer.forget_epoch(group, member, now_ms)
    coordinator.groups.changed(group, now_ms)


def fence(coordinator: Coordinator, group: ConsumerGroup, instance_id: str, now_ms: float) -> None:
    """Replace a static member, as if it had left for a while and another process had returned with its instance id."""
    member = group.members[group.static_members[instance_id]]
    epochs = [JOINING_EPOCH] if member.classic is not None else [LEAVING_STATIC_EPOCH, JOINING_EPOCH]
    for epoch in epochs:
        is_joining = epoch == JOINING_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id="" if is_joining else member.member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            subscribed_topic_names=list(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            topic_partitions=[] if is_joining else None,
        )
        # Version 0 lets the coordinator choose the member id.
        coordinator.consumer_group_heartbeat(request, OwnContext(0, member.client_id, member.client_host), now_ms)
