"""Who of a group gets which partitions: the assignors that ship with Kafka's own consumer, as pure functions.

A leader runs one of them between JoinGroup and SyncGroup. Knows neither bytes nor members' states. Racks are not looked
at: they take part only where a broker has a rack.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

TopicPartition = tuple[str, int]
"""A partition: its topic and its index."""

Assignments = dict[str, list[TopicPartition]]
"""Partitions by member id; every member is in it, those without partitions with an empty list."""


@dataclass(slots=True, kw_only=True)
class Subscription:
    """What one member of the group tells its leader.

    Attributes:
        instance_id: `group.instance.id` of a static member (KIP-345).
        owned_partitions: What it holds now, or held last where the protocol is eager.
        generation_id: The generation it was given them in; -1 if it is in none.
    """

    member_id: str
    instance_id: str | None = None
    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


class PartitionAssignor(Protocol):
    """An assignor of the application's own; all members of its group have to have it.

    Attributes:
        name: What the group's members agree on; it goes before the names in `ASSIGNORS`.
        is_cooperative: Whether members keep their partitions through a rebalance (KIP-429). It then must give nobody
            what somebody else still holds (`Subscription.owned_partitions`).
    """

    name: str
    is_cooperative: bool

    def partitions_to_consume(
        self, subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]
    ) -> Assignments:
        """Called at the group's leader; see `Assignor`."""
        ...


Assignor = Callable[[Sequence[Subscription], Mapping[str, int]], Assignments]
"""Takes the subscriptions and the partition count of each topic; topics of unknown or zero count are left out."""


def assign_range(subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]) -> Assignments:
    """Give each member one run of neighboring partitions of each of its topics (Kafka's `RangeAssignor`)."""
    assignments: Assignments = {member.member_id: [] for member in subscriptions}
    for topic, subscribers in _subscribers(subscriptions, partition_counts).items():
        share, extra = divmod(partition_counts[topic], len(subscribers))
        start = 0
        for rank, member_id in enumerate(subscribers):
            stop = start + share + (rank < extra)
            assignments[member_id] += [(topic, partition) for partition in range(start, stop)]
            start = stop
    return assignments


def assign_round_robin(subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]) -> Assignments:
    """Deal all partitions out in turn, past members that do not subscribe to them (Kafka's `RoundRobinAssignor`)."""
    assignments: Assignments = {member.member_id: [] for member in subscriptions}
    circle = sorted(subscriptions, key=_member_order)
    turn = 0
    for topic in _subscribers(subscriptions, partition_counts):
        for partition in range(partition_counts[topic]):
            while topic not in circle[turn % len(circle)].topics:
                turn += 1
            assignments[circle[turn % len(circle)].member_id].append((topic, partition))
            turn += 1
    return assignments


def assign_sticky(subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]) -> Assignments:
    """Balance the load and move as little as that allows; keeps the promises of Kafka's `StickyAssignor`.

    Equal subscriptions end within one partition of each other with the fewest moves possible. In other groups no
    partition has another subscriber with two partitions less than its owner.
    """
    subscribers = _subscribers(subscriptions, partition_counts)
    owners = _rightful_owners(subscriptions, subscribers, partition_counts)
    ranked = sorted(subscriptions, key=_member_order)
    assignments: Assignments = {member.member_id: [] for member in ranked}
    for kept, owner in owners.items():
        assignments[owner].append(kept)
    free = [
        (topic, partition)
        for topic in sorted(subscribers, key=lambda topic: len(subscribers[topic]))  # the pickiest choose first
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
    """As `assign_sticky`, but what somebody else still holds is given to nobody this time (KIP-429).

    Its holder sees that it lost it, revokes it and joins again; the round after that hands it on.
    """
    owners = _rightful_owners(subscriptions, _subscribers(subscriptions, partition_counts), partition_counts)
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
"""The assignors under the protocol names that Kafka's clients join with."""

COOPERATIVE_ASSIGNORS = ("cooperative-sticky",)
"""Those whose members keep their partitions through a rebalance (KIP-429); the others are eager."""


def _java_order(text: str) -> bytes:
    # Java compares strings by UTF-16 units, Python by code points; they differ above U+FFFF.
    return text.encode("utf-16-be", "surrogatepass")


def _member_order(member: Subscription) -> tuple[bool, bytes]:
    """Static members first, by instance id; then the others, by member id (`AbstractPartitionAssignor.MemberInfo`)."""
    return member.instance_id is None, _java_order(member.instance_id or member.member_id)


def _subscribers(subscriptions: Sequence[Subscription], partition_counts: Mapping[str, int]) -> dict[str, list[str]]:
    """The ids of each topic's subscribers in the order of the members; only topics that have partitions, in order."""
    subscribers: dict[str, list[str]] = {}
    for member in sorted(subscriptions, key=_member_order):
        for topic in dict.fromkeys(member.topics):
            if partition_counts.get(topic, 0) > 0:
                subscribers.setdefault(topic, []).append(member.member_id)
    return {topic: subscribers[topic] for topic in sorted(subscribers, key=_java_order)}


def _rightful_owners(
    subscriptions: Sequence[Subscription], subscribers: Mapping[str, list[str]], partition_counts: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """Who may keep what: of several claimants the one of the latest generation, and nobody if two are of it."""
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
    """The member with the fewest partitions; of several the first in the order of the members."""
    return min(candidates, key=lambda member_id: len(assignments[member_id]))


def _move_one(assignments: Assignments, subscribers: Mapping[str, list[str]]) -> bool:
    """Move one partition from the most loaded member that has one to give to somebody who has two less or fewer still.

    What a member got last it gives first, so that old partitions stay where they are.
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
