"""Server-side assignors of consumer groups (KIP-848): pure functions from a group to its target assignment.

Depends on `errors` and `assignment` only.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from fakebroker.assignment import java_order
from fakebroker.errors import FakebrokerError

# What assignors are given, and what they return


TopicId = bytes
"""The 16 bytes of a topic's UUID."""

Assignment = Mapping[TopicId, frozenset[int]]
"""The partitions of one member by topic. A topic without partitions is not in it."""


class MemberSpec(NamedTuple):
    """A member, as assignors see it (Kafka's `MemberSubscription` and `MemberAssignment`).

    Attributes:
        instance_id: Its `group.instance.id`; None for a dynamic member.
        topic_ids: The existing topics that it subscribes to.
        assignment: Its current target assignment. It may contain topics that were deleted, or to which the member no
            longer subscribes. A static member that replaces another member starts with the target of that member.
    """

    instance_id: str | None
    topic_ids: Set[TopicId]
    assignment: Assignment


class GroupSpec(NamedTuple):
    """A group, as assignors see it (Kafka's `GroupSpec` and `SubscribedTopicDescriber`).

    Attributes:
        members: The members by member id. The result of `uniform` depends on their order. Kafka has them in the order
            of a hash map, which is arbitrary but fixed for given member ids. Callers sort them by member id instead.
        partition_counts: Number of partitions of each topic that a member subscribes to.
        homogeneous: Whether all members subscribe to the same topics. Kafka compares the names of topics, including
            names of topics that do not exist. So this cannot be derived from `topic_ids`.
    """

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[TopicId, int]
    homogeneous: bool


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""Returns the target assignment of every member, by member id.

In the argument, each partition has at most one owner. In the result, each partition of a subscribed topic has exactly
one owner, and partitions of other topics have none. If the assignment of a member does not change, the result may
contain the same object.

Raises `PartitionAssignorError`; Kafka's response then has UNKNOWN_SERVER_ERROR.
"""


class PartitionAssignorError(FakebrokerError):
    """A group that cannot be assigned, because members own partitions that do not exist."""


_two_longs = Struct(">qq").unpack


def uuid_order(topic_id: TopicId) -> tuple[int, int]:
    """Return a sort key that orders topic ids as Kafka's `Uuid.compareTo` does: as two signed integers of 64 bits."""
    most_significant, least_significant = _two_longs(topic_id)
    return most_significant, least_significant


# The order of a Java `HashSet` of partitions. It decides which partitions a member gives up: Kafka's
# `UniformHomogeneousAssignmentBuilder` keeps the first partitions of such a set. Partitions 0 to 15 are in ascending
# order, because a set has at least 16 buckets.


_MIN_BUCKETS = 16


def hash_set_order(partitions: Collection[int]) -> list[int]:
    """Return partitions in the order of a `java.util.HashSet` that was created from a collection of them.

    Kafka creates such sets when it reads records of target assignments. In Kafka, partitions that share a bucket are in
    the order of the record. That order is not known here, so they are in ascending order.
    """
    buckets = _MIN_BUCKETS
    while buckets * 3 <= len(partitions) * 4:
        buckets *= 2
    return sorted(partitions, key=lambda partition: ((partition ^ partition >> 16) & (buckets - 1), partition))


# The `range` assignor. For classic groups, see `fakebroker.assignment`.


def assign_ranges(group: GroupSpec) -> dict[str, Assignment]:
    """Assign each member one contiguous range of the partitions of each of its topics (Kafka's `RangeAssignor`).

    Static members come first, by instance id. Dynamic members follow, by member id. If a topic's partitions cannot be
    divided evenly, its first subscribers get one more. The current assignment of the members has no effect.
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
    """Return the subscribers of each topic, in the order in which they get ranges."""
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


# The `uniform` assignor for groups whose members subscribe to different topics


_NO_OWNER = -1
_MAX_ROUNDS = 16  # Kafka's `MAX_ITERATION_COUNT`.


def assign_heterogeneous(group: GroupSpec) -> dict[str, Assignment]:
    """Balance a group whose members subscribe to different topics (Kafka's `UniformHeterogeneousAssignmentBuilder`).

    Members keep the partitions of topics that they subscribe to. Free partitions go to the subscribers with the fewest
    partitions. Then, topic by topic, partitions move from the subscribers with the most partitions to the subscribers
    with the fewest. The result can stay uneven: if only moves in several topics together would make it more even, or
    after `_MAX_ROUNDS` rounds.
    """
    return _Builder(group).build()


class _Builder:
    """An assignment in progress. Members are represented by their positions in the group."""

    def __init__(self, group: GroupSpec) -> None:
        self._member_ids = list(group.members)
        self._sizes = [0] * len(group.members)
        subscribers: dict[TopicId, list[int]] = {}
        for member, spec in enumerate(group.members.values()):
            for topic_id in spec.topic_ids:
                subscribers.setdefault(topic_id, []).append(member)

        def order(topic_id: TopicId) -> tuple[float, int, tuple[int, int]]:
            count = len(subscribers[topic_id])
            return -group.partition_counts[topic_id] / count, count, uuid_order(topic_id)

        self._subscribers = {topic_id: subscribers[topic_id] for topic_id in sorted(subscribers, key=order)}
        self._owners = {topic_id: [_NO_OWNER] * group.partition_counts[topic_id] for topic_id in self._subscribers}
        for member, spec in enumerate(group.members.values()):
            for topic_id in spec.assignment.keys() & spec.topic_ids:
                count = group.partition_counts[topic_id]
                for partition in spec.assignment[topic_id]:
                    if partition >= count:
                        raise PartitionAssignorError(
                            f"topic={topic_id.hex()}, partition={partition}: expected a partition below {count}"
                        )
                    self._move(topic_id, partition, member)

    def build(self) -> dict[str, Assignment]:
        self._assign_free_partitions()
        self._balance()
        assigned: list[dict[TopicId, list[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, member in enumerate(owners):
                assigned[member].setdefault(topic_id, []).append(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in by_topic.items()}
            for member_id, by_topic in zip(self._member_ids, assigned, strict=True)
        }

    def _move(self, topic_id: TopicId, partition: int, member: int) -> None:
        owners = self._owners[topic_id]
        if owners[partition] != _NO_OWNER:
            self._sizes[owners[partition]] -= 1
        owners[partition] = member
        self._sizes[member] += 1

    def _assign_free_partitions(self) -> None:
        """Assign the partitions without an owner."""
        for topic_id, owners in self._owners.items():
            if free := [partition for partition, owner in enumerate(owners) if owner == _NO_OWNER]:
                takers = _Levels(self._subscribers[topic_id], self._sizes).takers()
                for partition, member in zip(free, takers, strict=False):
                    self._move(topic_id, partition, member)

    def _balance(self) -> None:
        """Balance one topic after the other, in rounds, until a round moves no partition.

        Stops after 16 rounds, as Kafka does. If all subscribers of a topic have the same subscriptions, one round is
        enough. Kafka assumes that in other groups each round about halves the imbalance. The limit can leave a group
        uneven: for example, a long chain of topics, where each member shares one topic with the next member.
        """
        topic_ids = [topic_id for topic_id, members in self._subscribers.items() if len(members) > 1]
        for _ in range(_MAX_ROUNDS):
            moved = [self._balance_topic(topic_id) for topic_id in topic_ids]
            if not any(moved):
                break

    def _balance_topic(self, topic_id: TopicId) -> bool:
        """Move partitions of one topic until no move makes its subscribers more even. Return whether one has moved."""
        sizes = [self._sizes[member] for member in self._subscribers[topic_id]]
        if max(sizes) - min(sizes) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        levels = _Levels(self._subscribers[topic_id], self._sizes)
        moved = False
        for giver, taker in zip(levels.givers(owned), levels.takers(), strict=False):
            if levels.highest - levels.lowest <= 1:
                break
            self._move(topic_id, owned[giver].pop(), taker)
            moved = True
        return moved


class _Levels:
    """The subscribers of one topic, in the order in which they take and give partitions of the topic.

    A level is a number of partitions. If members A, B and C have 1, 1 and 5 partitions, the takers are A and B on level
    1, then A and B on level 2. The giver is C, on levels 5, 4 and 3. So two partitions move before the levels differ by
    at most 1.

    Attributes:
        lowest: The level of the next taker, before it takes a partition.
        highest: The level of the next giver, before it gives a partition.
    """

    def __init__(self, members: Sequence[int], sizes: Sequence[int]) -> None:
        """Start with the members' current sizes.

        Args:
            members: The subscribers, in ascending order.
            sizes: The number of partitions of each member of the group. The caller updates it with each move.
        """
        self._sizes = sizes
        self._ranked = sorted(members, key=sizes.__getitem__)
        self.lowest = sizes[self._ranked[0]] - 1
        self.highest = sizes[self._ranked[-1]] + 1

    def takers(self) -> Iterator[int]:
        """Yield the member that takes the next partition, without end.

        Each member on the lowest level takes one partition. Then each member on the next level does.
        """
        ranked, sizes = self._ranked, self._sizes
        stop = 0
        while True:
            self.lowest += 1
            while stop < len(ranked) and sizes[ranked[stop]] == self.lowest:
                stop += 1
            for rank in range(stop):
                yield ranked[rank]

    def givers(self, owned: dict[int, list[int]]) -> Iterator[int]:
        """Yield the member that gives the next partition, until no member owns a partition of the topic.

        Each member on the highest level gives one partition. Then each member on the next lower level does. Members
        without a partition of the topic are skipped.

        Args:
            owned: The partitions of the topic by owner. The caller removes a partition of each yielded member.
        """
        ranked, sizes = self._ranked, self._sizes
        start = stop = len(ranked)
        while True:
            # Members from `start` to `stop` are on the highest level. Members from `stop` on have nothing to give.
            self.highest = sizes[ranked[start - 1]] if start == stop and start > 0 else self.highest - 1
            while start > 0 and sizes[ranked[start - 1]] == self.highest:
                start -= 1
            if stop == 0:
                return
            for rank in range(stop - 1, start - 1, -1):
                member = ranked[rank]
                if owned.get(member):
                    yield member
                else:
                    stop -= 1
                    ranked[rank], ranked[stop] = ranked[stop], member


# The `uniform` assignor


def assign_uniformly(group: GroupSpec, *, first_get_extra: bool = False) -> dict[str, Assignment]:
    """Assign members equally many partitions, and move few of them (Kafka's `UniformAssignor`).

    In a homogeneous group, sizes differ by at most one, and no balanced assignment moves fewer partitions. For other
    groups, see `assign_heterogeneous`.

    Args:
        group: The group. The order of its members decides ties between members. `uuid_order` decides ties between
            topics; in Kafka, a hash map decides the order of topics in homogeneous groups.
        first_get_extra: For homogeneous groups whose partitions cannot be divided evenly. False: members that own more
            than an equal share keep one more. True: the first members get one more, as in Kafka 4.0.0.

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
        # The last members take the rest of the remainder, even if they own less.
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
    """Return the first `quota` partitions of a member, and its other partitions."""
    topic_ids = sorted(owned, key=uuid_order)
    ordered = [(topic_id, partition) for topic_id in topic_ids for partition in hash_set_order(owned[topic_id])]
    return _with_partitions({}, ordered[:quota]), ordered[quota:]


def _with_partitions(owned: Assignment, added: Iterable[tuple[TopicId, int]]) -> Assignment:
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, partition in added:
        by_topic.setdefault(topic_id, []).append(partition)
    return {**owned, **{t: owned.get(t, frozenset()).union(partitions) for t, partitions in by_topic.items()}}


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""Kafka's assignors by name, in the default order of `group.consumer.assignors`. The first one is the default."""
