"""The `uniform` assignor for groups whose members subscribe to different topics."""

from collections.abc import Iterator, Sequence

from fakebroker.coordinator.group.modern.assignors.group_spec import (
    Assignment,
    GroupSpec,
    PartitionAssignorError,
    TopicId,
    uuid_order,
)

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
