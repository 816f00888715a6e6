"""Partition assignors: those that ship with Kafka's consumer, as pure functions.

The leader of a group runs one of them between JoinGroup and SyncGroup. Racks are ignored; in Kafka they matter only
if brokers have a `broker.rack`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fakebroker.assignment import RankedMembers, assign_in_turn, assign_ranges, java_order, subscribers_by_topic
from fakebroker.protocol.consumer_protocol import Subscription
from fakebroker.topic_partition import TopicPartition

Assignments = dict[str, list[TopicPartition]]
"""Partitions by member id; members without partitions have an empty list."""


class PartitionAssignor(Protocol):
    """A custom assignor; all members of the group must use it.

    Attributes:
        name: The protocol name in JoinGroup; takes precedence over the names in `ASSIGNORS`.
        is_cooperative: Whether members keep their partitions through a rebalance (KIP-429). If so, the assignor must
            not assign a partition that another member still owns (`Subscription.owned_partitions`).
    """

    name: str
    is_cooperative: bool

    def partitions_to_consume(
        self, subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        """Assign partitions to members; called at the group's leader. See `Assignor`."""
        ...


Assignor = Callable[[Sequence[Subscription], Mapping[str, int]], Assignments]
"""Maps subscriptions and partition counts to assignments; topics with an unknown or zero count are not assigned."""


def assign_range(subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]) -> Assignments:
    """Assign each member one contiguous range of the partitions of each of its topics (Kafka's `RangeAssignor`)."""
    return _no_partitions(subscriptions) | assign_ranges(_ranked(subscriptions), partition_counts)


def assign_round_robin(subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]) -> Assignments:
    """Assign partitions in turn, skipping members that do not subscribe to the topic (Kafka's `RoundRobinAssignor`)."""
    return _no_partitions(subscriptions) | assign_in_turn(_ranked(subscriptions), partition_counts)


def assign_sticky(subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]) -> Assignments:
    """Balance partitions with few moves; gives the guarantees of Kafka's `StickyAssignor`.

    With equal subscriptions, members differ by at most one partition, and the number of moves is minimal. With
    different subscriptions, an owner of a partition has at most one partition more than any other subscriber of that
    topic.
    """
    subscribers = _subscribers(subscriptions, partition_counts)
    owners = _valid_owners(subscriptions, subscribers, partition_counts)
    ranked = sorted(subscriptions, key=_member_order)
    assignments: Assignments = {member.member_id: [] for member in ranked}
    for kept, owner in owners.items():
        assignments[owner].append(kept)
    free = [
        (topic, partition)
        for topic in sorted(subscribers, key=lambda topic: len(subscribers[topic]))  # fewest subscribers first
        for partition in range(partition_counts[topic])
        if (topic, partition) not in owners
    ]
    for topic, partition in free:
        assignments[_least_loaded(subscribers[topic], assignments)].append((topic, partition))
    while _move_one(assignments, subscribers):
        pass
    return assignments


def assign_cooperative_sticky(
    subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]
) -> Assignments:
    """Assign as `assign_sticky` does, but leave out partitions that another member still owns (KIP-429).

    Their owner revokes them and rejoins; the next rebalance assigns them.
    """
    owners = _valid_owners(subscriptions, _subscribers(subscriptions, partition_counts), partition_counts)
    holders: dict[TopicPartition, list[str]] = {}
    for member in subscriptions:
        for partition in member.owned_partitions:
            holders.setdefault(partition, []).append(member.member_id)
    return {
        member_id: [
            partition
            for partition in partitions
            if owners.get(partition) == member_id or set(holders.get(partition, ())) <= {member_id}
        ]
        for member_id, partitions in assign_sticky(subscriptions, partition_counts).items()
    }


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative_sticky,
}
"""The assignors by their protocol names in Kafka."""

COOPERATIVE_ASSIGNORS = ("cooperative-sticky",)
"""Assignors whose members keep their partitions through a rebalance (KIP-429); the others are eager."""


def _member_order(member: Subscription) -> tuple[bool, bytes]:
    """Static members by instance id, then the others by member id (`AbstractPartitionAssignor.MemberInfo`)."""
    return member.instance_id is None, java_order(member.instance_id or member.member_id)


def _ranked(subscriptions: Sequence[Subscription]) -> RankedMembers:
    ranked = sorted(subscriptions, key=_member_order)
    return [(member.member_id, dict.fromkeys(member.topics)) for member in ranked]


def _no_partitions(subscriptions: Sequence[Subscription]) -> Assignments:
    return {member.member_id: [] for member in subscriptions}


def _subscribers(subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]) -> dict[str, list[str]]:
    return subscribers_by_topic(_ranked(subscriptions), partition_counts)


def _valid_owners(
    subscriptions: Sequence[Subscription], subscribers: Mapping[str, list[str]], partition_counts: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """Return the owner of each partition: the member that claims it in the latest generation, unless several do."""
    claims: dict[TopicPartition, list[Subscription]] = {}
    for member in sorted(subscriptions, key=_member_order):
        for topic, partition in dict.fromkeys(member.owned_partitions):
            if member.member_id in subscribers.get(topic, ()) and 0 <= partition < partition_counts[topic]:
                claims.setdefault((topic, partition), []).append(member)
    owners = {}
    for claimed, claimants in claims.items():
        latest = max(member.generation_id for member in claimants)
        current = [member.member_id for member in claimants if member.generation_id == latest]
        if len(current) == 1:
            owners[claimed] = current[0]
    return owners


def _least_loaded(candidates: Sequence[str], assignments: Assignments) -> str:
    """Return the candidate with the fewest partitions; ties go to the first in member order."""
    return min(candidates, key=lambda member_id: len(assignments[member_id]))


def _move_one(assignments: Assignments, subscribers: Mapping[str, list[str]]) -> bool:
    """Move one partition from the most loaded member possible to a subscriber with at least two partitions fewer.

    The partition added last is moved first, so that a member keeps its earlier partitions.

    Returns:
        Whether a partition was moved.
    """
    for giver in sorted(assignments, key=lambda member_id: -len(assignments[member_id])):
        partitions = assignments[giver]
        for topic in dict.fromkeys(topic for topic, _ in reversed(partitions)):
            taker = _least_loaded(subscribers[topic], assignments)
            if len(partitions) - len(assignments[taker]) >= 2:
                moved = next(partition for partition in reversed(partitions) if partition[0] == topic)
                partitions.remove(moved)
                assignments[taker].append(moved)
                return True
    return False
