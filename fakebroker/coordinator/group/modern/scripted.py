"""A target assignment that a test has chosen, instead of the assignor's result."""

from collections import Counter
from collections.abc import Mapping

from fakebroker.coordinator.group.group_controls import Assignment
from fakebroker.coordinator.group.modern.member import ConsumerGroupMember, Partitions
from fakebroker.coordinator.group.modern.subscription.topics import TopicImage


def scripted_target(
    assignment: Assignment, members: Mapping[str, ConsumerGroupMember], topics: TopicImage
) -> dict[str, Partitions]:
    """Return the target of members, by member id.

    Args:
        assignment: The chosen partitions by member id, instance id, or client id if it is unique. Names of others are
            ignored, and so are topics that do not exist.
        members: The members of the group, by member id.
        topics: The topics.
    """
    clients = Counter(member.client_id for member in members.values())
    named = {member.client_id: member.member_id for member in members.values() if clients[member.client_id] == 1}
    named |= {member.instance_id: member.member_id for member in members.values() if member.instance_id is not None}
    named |= {member_id: member_id for member_id in members}
    target: dict[str, dict[bytes, set[int]]] = {}
    for name, partitions in assignment.items():
        for topic, index in partitions:
            found = topics.named(topic)
            if name in named and found is not None and index < found.partition_count:
                target.setdefault(named[name], {}).setdefault(found.topic_id, set()).add(index)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
        for member_id, partitions in target.items()
    }
