"""Assignors with Kafka's order of members and topics: that of Java's hash tables.

The fake cluster has them in the order of their ids, so that test authors can predict assignments. A history can only be
compared if both sides have the same order.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from fakebroker.coordinator.consumer.assignors import Assignment, Assignor, GroupSpec

T = TypeVar("T")

_BUCKETS = 16


def _string_hash(text: str) -> int:
    found = 0
    for unit in text.encode("utf-16-be")[1::2]:  # ids are ASCII
        found = (31 * found + unit) & 0xFFFFFFFF
    return found


def _uuid_hash(topic_id: bytes) -> int:
    both = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    return (both >> 32) ^ (both & 0xFFFFFFFF)


def have_no_order(topic_ids: Iterable[bytes]) -> bool:
    """Return whether topic ids share a place in a hash table. Then their order is that of their insertion."""
    places = [_bucket(_uuid_hash(each), _BUCKETS) for each in topic_ids]
    return len(places) != len(set(places))


def _bucket(hashed: int, buckets: int) -> int:
    return (hashed ^ hashed >> 16) & (buckets - 1)


def _ordered(items: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Return items in the order in which `java.util.HashMap` iterates over them."""
    found = list(items)
    buckets = _BUCKETS
    while len(found) * 4 > buckets * 3:
        buckets *= 2
    return sorted(found, key=lambda item: _bucket(hash_of(item), buckets))


def in_hash_order(assign: Assignor) -> Assignor:
    """Return an assignor that sees members, and the topics of a homogeneous group, in Kafka's order."""

    def assign_in_order(group: GroupSpec) -> dict[str, Assignment]:
        members = {member_id: group.members[member_id] for member_id in _ordered(group.members, _string_hash)}
        group = group._replace(members=members)
        if not group.homogeneous:
            return assign(group)
        # Assignors sort topics by their ids: each gets an id that says its place.
        known = {topic_id for member in members.values() for topic_id in member.assignment}
        ranks = {
            topic_id: rank.to_bytes(16, "big")
            for rank, topic_id in enumerate(_ordered({*group.partition_counts, *known}, _uuid_hash))
        }
        ranked = GroupSpec(
            {
                member_id: member._replace(
                    topic_ids=frozenset(ranks[each] for each in member.topic_ids),
                    assignment={ranks[each]: partitions for each, partitions in member.assignment.items()},
                )
                for member_id, member in members.items()
            },
            {ranks[each]: count for each, count in group.partition_counts.items()},
            homogeneous=True,
        )
        ids = {rank: topic_id for topic_id, rank in ranks.items()}
        target = assign(ranked)
        return {
            member_id: {ids[each]: partitions for each, partitions in assigned.items()}
            for member_id, assigned in target.items()
        }

    return assign_in_order
