"""The `uniform` assignor of consumer groups (KIP-848)."""

from collections.abc import Iterable
from itertools import islice

from fakebroker.coordinator.group.modern.assignors.group_spec import (
    Assignment,
    GroupSpec,
    PartitionAssignorError,
    TopicId,
    uuid_order,
)
from fakebroker.coordinator.group.modern.assignors.hash_set import hash_set_order
from fakebroker.coordinator.group.modern.assignors.uniform_heterogeneous import assign_heterogeneous


def assign_uniformly(group: GroupSpec, *, first_get_extra: bool = False) -> dict[str, Assignment]:
    """Assign members equally many partitions, and move few of them (Kafka's `UniformAssignor`).

    In homogeneous groups, sizes differ by at most one, and no balanced assignment moves fewer partitions. For others,
    see `assign_heterogeneous`.

    Args:
        group: The group. Ties between members are decided by its order of members, those between topics by
            `uuid_order`. (Kafka has the topics of homogeneous groups in the order of a hash map.)
        first_get_extra: Whether a remainder in a homogeneous group goes to the first members even if others own more
            partitions, as in Kafka 4.0.0.

    Raises:
        PartitionAssignorError: Members own partitions that do not exist, of topics that they subscribe to.
    """
    if group.homogeneous:
        return _assign_homogeneous(group, first_get_extra=first_get_extra)
    return assign_heterogeneous(group)


def _assign_homogeneous(group: GroupSpec, *, first_get_extra: bool) -> dict[str, Assignment]:
    """Let members keep partitions up to their quotas (Kafka's `UniformHomogeneousAssignmentBuilder`)."""
    if not group.members:
        return {}
    topic_ids = next(iter(group.members.values())).topic_ids
    free = _free_partitions(group, sorted(topic_ids, key=uuid_order))
    total = sum(group.partition_counts[topic_id] for topic_id in topic_ids)
    share, extra = divmod(total, len(group.members))
    target: dict[str, Assignment] = {}
    lacking: list[tuple[str, int]] = []
    for remaining, (member_id, member) in zip(range(len(group.members), 0, -1), group.members.items(), strict=True):
        owned = member.assignment
        if not owned.keys() <= topic_ids:
            owned = {topic_id: partitions for topic_id, partitions in owned.items() if topic_id in topic_ids}
        size = sum(map(len, owned.values()))
        # The last members take what is left of the remainder, even if they own less.
        has_extra = extra > 0 and (first_get_extra or size > share or remaining <= extra)
        quota = share + has_extra
        extra -= has_extra
        if size > quota:
            owned, surplus = _split(owned, quota)
            free += surplus
        elif size < quota:
            lacking.append((member_id, quota - size))
        target[member_id] = owned
    unassigned = iter(free)
    for member_id, count in lacking:
        target[member_id] = _with_partitions(target[member_id], islice(unassigned, count))
    for topic_id, partition in unassigned:
        raise PartitionAssignorError(
            f"topic={topic_id.hex()}, partition={partition}: expected a member below its quota, but members own "
            "partitions that do not exist"
        )
    return target


def _free_partitions(group: GroupSpec, topic_ids: list[TopicId]) -> list[tuple[TopicId, int]]:
    """Return the partitions without an owner, in ascending order for each topic."""
    free = {topic_id: set(range(group.partition_counts[topic_id])) for topic_id in topic_ids}
    for member in group.members.values():
        for topic_id, partitions in member.assignment.items():
            if topic_id in free:
                free[topic_id] -= partitions
    return [(topic_id, partition) for topic_id, partitions in free.items() for partition in sorted(partitions)]


def _split(owned: Assignment, quota: int) -> tuple[Assignment, list[tuple[TopicId, int]]]:
    """Return the first `quota` partitions of a member, and the other ones."""
    topic_ids = sorted(owned, key=uuid_order)
    ordered = [(topic_id, partition) for topic_id in topic_ids for partition in hash_set_order(owned[topic_id])]
    return _with_partitions({}, ordered[:quota]), ordered[quota:]


def _with_partitions(owned: Assignment, added: Iterable[tuple[TopicId, int]]) -> Assignment:
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, partition in added:
        by_topic.setdefault(topic_id, []).append(partition)
    return {**owned, **{t: owned.get(t, frozenset()).union(partitions) for t, partitions in by_topic.items()}}
