"""The `range` assignor of consumer groups (KIP-848). For that of classic groups, see `fakebroker.assignment`."""

from fakebroker.assignment import java_order
from fakebroker.coordinator.group.modern.assignors.group_spec import (
    Assignment,
    GroupSpec,
    MemberSpec,
    TopicId,
    uuid_order,
)


def assign_ranges(group: GroupSpec) -> dict[str, Assignment]:
    """Assign each member one contiguous range of the partitions of each of its topics (Kafka's `RangeAssignor`).

    Static members come first, by instance id; dynamic ones follow, by member id. If a topic's partitions cannot be
    divided evenly, the first of its subscribers have one more. The assignment so far does not matter.
    """
    subscribers = _subscribers(group)
    target: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in group.members}
    for topic_id in sorted(subscribers, key=uuid_order):
        share, extra = divmod(group.partition_counts[topic_id], len(subscribers[topic_id]))
        start = 0
        for rank, member_id in enumerate(subscribers[topic_id]):
            stop = start + share + (rank < extra)
            if start == stop:
                break
            target[member_id][topic_id] = frozenset(range(start, stop))
            start = stop
    return dict(target)


def _subscribers(group: GroupSpec) -> dict[TopicId, list[str]]:
    """Return the subscribers of each topic in the order of ranges."""
    ranked = sorted(group.members.items(), key=_rank)
    if ranked and group.homogeneous:
        member_ids = [member_id for member_id, _ in ranked]
        return dict.fromkeys(ranked[0][1].topic_ids, member_ids)
    subscribers: dict[TopicId, list[str]] = {}
    for member_id, member in ranked:
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers


def _rank(item: tuple[str, MemberSpec]) -> tuple[bool, bytes]:
    member_id, member = item
    return member.instance_id is None, java_order(member_id if member.instance_id is None else member.instance_id)
