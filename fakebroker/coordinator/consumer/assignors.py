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
"""The partitions of one member by topic. There is no empty set in it."""


class MemberSpec(NamedTuple):
    """A member, as assignors see it (Kafka's `MemberSubscription` and `MemberAssignment`).

    Attributes:
        instance_id: Its `group.instance.id`; None for a dynamic member.
        topic_ids: The existing topics that it subscribes to.
        assignment: Its target assignment so far; topics may be deleted or no longer subscribed. A static member that
            replaces another one starts with the other's.
    """

    instance_id: str | None
    topic_ids: Set[TopicId]
    assignment: Assignment


class GroupSpec(NamedTuple):
    """A group, as assignors see it (Kafka's `GroupSpec` and `SubscribedTopicDescriber`).

    Attributes:
        members: The members by member id. `uniform` depends on their order: in Kafka, that of a hash map, which is
            arbitrary but fixed for given member ids. Callers sort by member id.
        partition_counts: Number of partitions of each topic that a member subscribes to.
        homogeneous: Whether all members subscribe to the same topics. Kafka compares the topics' names, including those
            of topics that do not exist, so this is not derived from `topic_ids`.
    """

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[TopicId, int]
    homogeneous: bool


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""Returns the target assignment of every member, by member id.

A partition has at most one owner in the group's members, and exactly one in the result, unless its topic has no
subscriber. The assignment of a member may be the object that it had before, if nothing has changed.

Raises `PartitionAssignorError`, which Kafka answers with UNKNOWN_SERVER_ERROR.
"""


class PartitionAssignorError(FakebrokerError):
    """A group that cannot be assigned, because members own partitions that do not exist."""


_two_longs = Struct(">qq").unpack


def uuid_order(topic_id: TopicId) -> tuple[int, int]:
    """Return a sort key that orders topic ids as Kafka's `Uuid.compareTo` does: as two signed integers of 64 bits."""
    most_significant, least_significant = _two_longs(topic_id)
    return most_significant, least_significant


# The order of a Java `HashSet` of partitions. It decides which partitions a member gives up: Kafka's
# `UniformHomogeneousAssignmentBuilder` keeps the first ones of such a set. The order is ascending below 16.


_MIN_BUCKETS = 16


def hash_set_order(partitions: Collection[int]) -> list[int]:
    """Return partitions in the order of a `java.util.HashSet` that was created from a collection of them.

    Kafka creates such sets when it reads records of target assignments. The order of partitions that share a bucket is
    that of the record, which is not known here: they are in ascending order.
    """
    buckets = _MIN_BUCKETS
    while buckets * 3 <= len(partitions) * 4:
        buckets *= 2
    return sorted(partitions, key=lambda partition: ((partition ^ partition >> 16) & (buckets - 1), partition))


# The `range` assignor. For classic groups, see `fakebroker.assignment`.


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


# The `uniform` assignor for groups whose members subscribe to different topics


_NO_OWNER = -1
_MAX_ROUNDS = 16


def assign_heterogeneous(group: GroupSpec) -> dict[str, Assignment]:
    """Balance a group whose members subscribe to different topics (Kafka's `UniformHeterogeneousAssignmentBuilder`).

    Members keep the partitions of topics that they subscribe to. Free partitions go to the subscribers with the fewest
    partitions. Then, topic by topic, partitions move from the subscribers with the most partitions to those with the
    fewest. The result stays uneven where only a chain of moves in several topics would make it even.
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
        """Balance one topic after the other, until a round moves nothing."""
        topic_ids = [topic_id for topic_id, members in self._subscribers.items() if len(members) > 1]
        for _ in range(_MAX_ROUNDS):
            moved = [self._balance_topic(topic_id) for topic_id in topic_ids]
            if not any(moved):
                break

    def _balance_topic(self, topic_id: TopicId) -> bool:
        """Move partitions of one topic until no move makes its subscribers more even. Return whether any has moved."""
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
    """The subscribers of a topic, whose lowest sizes rise and highest sizes fall level by level.

    Attributes:
        lowest: Size of the members that take partitions, before they take one.
        highest: Size of the members that give partitions, before they give one.
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
        """Yield the member that takes the next partition, without end: all at the lowest level, then at the next."""
        ranked, sizes = self._ranked, self._sizes
        stop = 0
        while True:
            self.lowest += 1
            while stop < len(ranked) and sizes[ranked[stop]] == self.lowest:
                stop += 1
            for rank in range(stop):
                yield ranked[rank]

    def givers(self, owned: dict[int, list[int]]) -> Iterator[int]:
        """Yield the member that gives the next partition, until no member with more than the others owns one.

        Args:
            owned: The partitions of the topic by owner. The caller removes a partition of each yielded member.
        """
        ranked, sizes = self._ranked, self._sizes
        start = stop = len(ranked)
        while True:
            # Members from `start` to `stop` are on the highest level. Those after them have nothing to give.
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


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""Kafka's assignors by name, in the default order of `group.consumer.assignors`. The first one is the default."""
