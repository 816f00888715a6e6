"""Consumer groups (KIP-848) for readers: the names of partitions, and the holders of those that others wait for."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from fakebroker.cluster.inspect.timelines.timeline import short_names
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Partitions
from fakebroker.coordinator.group_history import Moment
from fakebroker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fakebroker.cluster.broker import BrokerNode
    from fakebroker.cluster.cluster import Cluster


class AwaitedPartition(msgspec.Struct, frozen=True):
    """A partition that a member is to get, and that another member still holds.

    Attributes:
        holder_id: The member id of the other member.
        is_revoked: Whether the holder has been told to give it up. If not, its next heartbeat tells it.
        until_ms: When the holder is removed, by the brokers' clock, unless it gives the partition up (`is_revoked`), or
            sends a heartbeat before.
    """

    topic: str
    partition: int
    holder_id: str
    is_revoked: bool
    until_ms: float


class ConsumerGroupReader:
    """A consumer group with the names of its partitions.

    Args:
        cluster: The cluster.
        broker: The coordinator of the group.
        group: The group, which must not change while it is read.
    """

    def __init__(self, cluster: "Cluster", broker: "BrokerNode", group: ConsumerGroup) -> None:
        self.cluster = cluster
        self.broker = broker
        self.group = group
        groups = broker.coordinator.groups.consumer
        self.assignor = groups.assignor_of(group)
        self.session_timeout_ms = groups.session_timeout_ms(group.group_id)

    def named(self, partitions: Partitions) -> tuple[TopicPartition, ...]:
        """Return partitions by the names of their topics, sorted; those of deleted topics are left out."""
        names = ((self.cluster.topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items())
        return tuple(sorted((name, index) for name, indexes in names if name is not None for index in indexes))

    def session_timeout_of(self, member: ConsumerGroupMember) -> int:
        """Return the session timeout of a member in milliseconds."""
        return self.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms

    def target_of(self, member: ConsumerGroupMember) -> Partitions:
        """Return the part of the target assignment that a member has."""
        return self.group.target.get(member.member_id, NO_PARTITIONS)

    def awaited_by(self, member: ConsumerGroupMember) -> tuple[AwaitedPartition, ...]:
        """Return the partitions of a member's target that other members hold, sorted."""
        awaited = []
        for topic_id, indexes in self.target_of(member).items():
            name = self.cluster.topics.name_of(topic_id)
            wanted = indexes - member.assigned.get(topic_id, frozenset())
            if name is None or not wanted:
                continue
            for index in sorted(wanted):
                holder = self._holders.get((topic_id, index))
                if holder is not None and holder is not member:
                    is_revoked = index in holder.pending_revocation.get(topic_id, frozenset())
                    until_ms = self.removed_ms(holder, is_revoked=is_revoked)
                    awaited.append(AwaitedPartition(name, index, holder.member_id, is_revoked, until_ms))
        return tuple(sorted(awaited, key=lambda each: (each.topic, each.partition)))

    @cached_property
    def _holders(self) -> dict[tuple[bytes, int], ConsumerGroupMember]:
        """The member that has a partition, or has to give it up and has not confirmed."""
        return {
            (topic_id, index): member
            for member in self.group.members.values()
            for partitions in (member.assigned, member.pending_revocation)
            for topic_id, indexes in partitions.items()
            for index in indexes
        }

    def removed_ms(self, holder: ConsumerGroupMember, *, is_revoked: bool) -> float:
        """Return when a member is removed unless it gives partitions up (`is_revoked`), or sends a heartbeat before."""
        session_ms = self.group.session_deadlines[holder.member_id]
        timer = self.group.rebalance_deadlines.get(holder.member_id) if is_revoked else None
        return session_ms if timer is None else timer[0]


def member_names(group: ConsumerGroup, others: Iterable[str] = (), moments: Sequence[Moment] = ()) -> dict[str, str]:
    """Return a short name for each member and each former member, with its client id if its id is a UUID.

    Args:
        group: The group.
        others: The ids of former members.
        moments: The history of the group, oldest first, from which the client ids of former members are known.
    """
    client_ids = {member.member_id: member.client_id for member in group.members.values()}
    ids = dict.fromkeys((*client_ids, *others))
    former = ids.keys() - client_ids
    for moment in reversed(moments):
        if not former:
            break
        found = {change.member_id: change.client_id for change in moment.changes if change.member_id in former}
        client_ids |= found
        former -= found.keys()
    return short_names(ids, client_ids)
