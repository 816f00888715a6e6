"""Explanations of consumer groups (KIP-848): epochs, what members have to give up, and until when."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fakebroker.cluster.inspect.timeline import short_names
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.member import LEAVING_STATIC_EPOCH, ConsumerGroupMember, Partitions
from fakebroker.coordinator.group.modern.states import STABLE, UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS
from fakebroker.topic_partition import TopicPartition, format_partitions

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_MAX_MEMBERS = 8


def named_partitions(cluster: "Cluster", partitions: Partitions) -> list[TopicPartition]:
    """Return partitions by the names of their topics, sorted; those of deleted topics are left out."""
    names = ((cluster.topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items())
    return sorted((name, index) for name, indexes in names if name is not None for index in indexes)


def explain_consumer_group(cluster: "Cluster", group: ConsumerGroup, now_ms: float) -> Iterator[str]:
    """Yield sentences on a consumer group: its state and epochs, then each member that is not where it should be."""
    count = len(group.members)
    yield f"{group.group_id} is {group.state.value}: a consumer group with {count} member{'s' * (count != 1)}."
    yield f"Its epoch is {group.group_epoch}, that of the target assignment {group.assignment_epoch}."
    if group.members and group.group_epoch > group.assignment_epoch:
        yield "The next heartbeat of a member runs the assignor."
    names = short_names([*group.members])
    moving = [each for each in group.members.values() if not each.is_reconciled_to(group.assignment_epoch)]
    for member in moving[:_MAX_MEMBERS]:
        yield _on_the_way(cluster, group, member, names[member.member_id], now_ms)
    if moving[_MAX_MEMBERS:]:
        yield f"{len(moving) - _MAX_MEMBERS} more members have not reached the target assignment."


def _on_the_way(cluster: "Cluster", group: ConsumerGroup, member: ConsumerGroupMember, name: str, now_ms: float) -> str:
    if member.member_epoch == LEAVING_STATIC_EPOCH:
        return f"{name}, static {member.instance_id!r}, has left for a while and keeps its partitions."
    if member.state is UNREVOKED_PARTITIONS:
        given_up = format_partitions(named_partitions(cluster, member.pending_revocation))
        timer = group.rebalance_deadlines.get(member.member_id)
        until = "" if timer is None else f", within {max(0.0, timer[0] - now_ms) / 1000:g} s"
        return f"{name} has to give up {given_up}{until}."
    if member.state is UNRELEASED_PARTITIONS:
        return f"{name} waits for partitions that other members have not given up."
    if member.state is STABLE:
        return f"{name} learns of the target assignment with its next heartbeat: its epoch is {member.member_epoch}."
    return f"{name} is in a state that this coordinator does not know."
