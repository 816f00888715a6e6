"""Range and round-robin assignment of partitions, as pure functions over members in their order.

Used by the leader of a classic group and by coordinators that assign partitions themselves.
"""

from collections.abc import Collection, Mapping, Sequence

from fakebroker.topic_partition import TopicPartition

RankedMembers = Sequence[tuple[str, Collection[str]]]
"""Members in the order in which partitions are assigned: member id and topics, each topic once."""

MemberPartitions = dict[str, list[TopicPartition]]
"""Partitions by member id; members without partitions have an empty list."""


def java_order(text: str) -> bytes:
    """Return a sort key that orders strings as Java does: by UTF-16 units. Python's order differs above U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")


def subscribers_by_topic(members: RankedMembers, partition_counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the subscribers' member ids of each topic that has partitions, in the members' order.

    Topics are in Java's order of their names.
    """
    subscribers: dict[str, list[str]] = {}
    for member_id, topics in members:
        for topic in topics:
            if partition_counts.get(topic, 0) > 0:
                subscribers.setdefault(topic, []).append(member_id)
    return {topic: subscribers[topic] for topic in sorted(subscribers, key=java_order)}


def assign_ranges(members: RankedMembers, partition_counts: Mapping[str, int]) -> MemberPartitions:
    """Assign each member one contiguous range of the partitions of each of its topics (Kafka's `RangeAssignor`)."""
    assigned: MemberPartitions = {member_id: [] for member_id, _ in members}
    for topic, subscribers in subscribers_by_topic(members, partition_counts).items():
        share, extra = divmod(partition_counts[topic], len(subscribers))
        start = 0
        for rank, member_id in enumerate(subscribers):
            stop = start + share + (rank < extra)
            assigned[member_id] += [(topic, partition) for partition in range(start, stop)]
            start = stop
    return assigned


def assign_in_turn(members: RankedMembers, partition_counts: Mapping[str, int]) -> MemberPartitions:
    """Assign partitions in turn, skipping members without their topic (Kafka's `RoundRobinAssignor`)."""
    assigned: MemberPartitions = {member_id: [] for member_id, _ in members}
    turn = 0
    for topic in subscribers_by_topic(members, partition_counts):
        for partition in range(partition_counts[topic]):
            while topic not in members[turn % len(members)][1]:
                turn += 1
            assigned[members[turn % len(members)][0]].append((topic, partition))
            turn += 1
    return assigned
