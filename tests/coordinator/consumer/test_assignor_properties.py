"""What holds for the assignments of all consumer groups, by seeds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from fakebroker.coordinator.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    GroupSpec,
    MemberSpec,
    TopicId,
    uuid_order,
)
from tests.support.coordinator.assignors_of_4_0_0 import ASSIGNORS_OF_4_0_0
from tests.support.soak import cases, soak

T = TypeVar("T")
Result = dict[str, Assignment]
Owners = dict[tuple[TopicId, int], str]

uniform = ASSIGNORS["uniform"]
range_ = ASSIGNORS["range"]


@dataclass
class RandomGroup:
    """A group whose members come, go and change, between assignments by `uniform`."""

    random: Random
    group: GroupSpec

    @classmethod
    def create(cls, seed: int) -> "RandomGroup":
        random = Random(seed)
        largest = random.choice([4, 20, 60])
        counts = {random.randbytes(16): random.randint(1, largest) for _ in range(random.randint(1, 6))}
        created = cls(random, GroupSpec({}, counts, random.random() < 0.5))
        for _ in range(random.randint(1, 12)):
            created.join()
        changes = [created.join, created.leave, created.subscribe, created.grow, created.rename, created.scatter]
        for _ in range(random.randint(0, 3)):
            created.assign()
            for change in random.choices(changes, k=random.randint(1, 3)):
                change()
        return created

    def join(self) -> None:
        members = dict(self.group.members)
        instance_id = f"i{self.random.randrange(10**6)}" if self.random.random() < 0.3 else None
        topic_ids = self.topics()
        if self.group.homogeneous and members:
            topic_ids = frozenset(next(iter(members.values())).topic_ids)
        members[f"m{self.random.randrange(10**9)}"] = MemberSpec(instance_id, topic_ids, {})
        self.group = self.group._replace(members=dict(sorted(members.items())))

    def leave(self) -> None:
        members = dict(self.group.members)
        if len(members) > 1:
            del members[self.random.choice(list(members))]
        self.group = self.group._replace(members=members)

    def subscribe(self) -> None:
        """Change the subscription of a member, or of all members of a homogeneous group."""
        changed = list(self.group.members) if self.group.homogeneous else [self.random.choice(list(self.group.members))]
        topic_ids = self.topics()
        members = dict(self.group.members)
        self.group = self.group._replace(
            members=members | {name: members[name]._replace(topic_ids=topic_ids) for name in changed}
        )

    def grow(self) -> None:
        """Add partitions to a topic."""
        counts = dict(self.group.partition_counts)
        counts[self.random.choice(list(counts))] += self.random.randint(1, 9)
        self.group = self.group._replace(partition_counts=counts)

    def rename(self) -> None:
        """Replace a member by one with another id, such as a static member that restarts."""
        members = dict(self.group.members)
        members[f"m{self.random.randrange(10**9)}"] = members.pop(self.random.choice(list(members)))
        self.group = self.group._replace(members=dict(sorted(members.items())))

    def scatter(self) -> None:
        """Give partitions to random members, whether they subscribe or not."""
        owners: list[dict[TopicId, set[int]]] = [{} for _ in self.group.members]
        for topic_id, count in self.group.partition_counts.items():
            for partition in range(count):
                if self.random.random() < 0.8:
                    owners[int(len(owners) * self.random.random() ** 2)].setdefault(topic_id, set()).add(partition)
        self.group = with_assignment(
            self.group,
            {
                name: {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
                for name, owned in zip(self.group.members, owners, strict=True)
            },
        )

    def assign(self) -> None:
        self.group = with_assignment(self.group, uniform(self.group))

    def topics(self) -> frozenset[TopicId]:
        topic_ids = list(self.group.partition_counts)
        return frozenset(self.random.sample(topic_ids, self.random.randint(0, len(topic_ids))))


def with_assignment(group: GroupSpec, assigned: Result) -> GroupSpec:
    members = {name: member._replace(assignment=assigned[name]) for name, member in group.members.items()}
    return group._replace(members=members)


def kept(group: GroupSpec) -> Result:
    """Return what members own of the topics that they subscribe to."""
    return {
        name: {topic_id: owned for topic_id, owned in member.assignment.items() if topic_id in member.topic_ids}
        for name, member in group.members.items()
    }


def owners_of(result: Result) -> Owners:
    owners = [
        ((topic_id, partition), name)
        for name, assignment in result.items()
        for topic_id, partitions in assignment.items()
        for partition in partitions
    ]
    assert len(dict(owners)) == len(owners), "a partition with two owners"
    return dict(owners)


def sizes_of(result: Result) -> dict[str, int]:
    return {name: sum(map(len, assignment.values())) for name, assignment in result.items()}


def improving_moves(group: GroupSpec, result: Result) -> Iterator[tuple[str, TopicId, str]]:
    """Yield each move of one partition to another subscriber that makes the sizes more even."""
    sizes = sizes_of(result)
    for giver, assignment in result.items():
        for topic_id in assignment:
            for taker, member in group.members.items():
                if topic_id in member.topic_ids and sizes[giver] - sizes[taker] > 1:
                    yield giver, topic_id, taker


def least_taken(group: GroupSpec) -> int:
    """Return how many partitions must leave their owners so that sizes in a homogeneous group differ by at most one."""
    sizes = sizes_of(kept(group)).values()
    total = sum(group.partition_counts[topic_id] for topic_id in next(iter(group.members.values())).topic_ids)
    share, extra = divmod(total, len(sizes))
    return sum(max(0, size - share) for size in sizes) - min(extra, sum(size > share for size in sizes))


def check_complete(group: GroupSpec, result: Result) -> None:
    subscribed = {topic_id for member in group.members.values() for topic_id in member.topic_ids}
    owners = owners_of(result)
    assert set(owners) == {
        (topic_id, each) for topic_id in subscribed for each in range(group.partition_counts[topic_id])
    }
    assert all(topic_id in group.members[name].topic_ids for (topic_id, _), name in owners.items())
    assert list(result) == list(group.members)
    assert all(partitions for assignment in result.values() for partitions in assignment.values())


def check_homogeneous(group: GroupSpec, result: Result) -> None:
    sizes = sizes_of(result).values()
    assert max(sizes) - min(sizes) <= 1
    before, after = owners_of(kept(group)), owners_of(result)
    assert sum(after[partition] != owner for partition, owner in before.items()) == least_taken(group)


def check_heterogeneous(group: GroupSpec, result: Result) -> None:
    assert not list(improving_moves(group, result))
    before = kept(group)
    if not list(improving_moves(group, before)) and owners_of(before).keys() == owners_of(result).keys():
        assert owners_of(before) == owners_of(result)


@soak
def test_uniform_is_even_and_takes_nothing_away_without_need() -> None:
    for seed in cases(400, soak=10_000):
        group = RandomGroup.create(seed).group
        result = uniform(group)
        check_complete(group, result)
        if group.homogeneous:
            check_homogeneous(group, result)
        else:
            check_heterogeneous(group, result)
        assert uniform(with_assignment(group, result)) == result


@soak
def test_uniform_of_4_0_0_is_even_and_stable() -> None:
    for seed in cases(100, soak=10_000):
        group = RandomGroup.create(seed).group
        result = ASSIGNORS_OF_4_0_0["uniform"](group)
        check_complete(group, result)
        if group.homogeneous:
            sizes = list(sizes_of(result).values())
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1
        else:
            assert result == uniform(group)
        assert ASSIGNORS_OF_4_0_0["uniform"](with_assignment(group, result)) == result


def rank(item: tuple[str, MemberSpec]) -> tuple[int, str]:
    name, member = item
    return (1, name) if member.instance_id is None else (0, member.instance_id)


@soak
def test_range_assigns_contiguous_blocks_in_the_order_of_members() -> None:
    for seed in cases(200, soak=10_000):
        group = RandomGroup.create(seed).group
        result = range_(group)
        check_complete(group, result)
        ranked = sorted(group.members.items(), key=rank)
        for topic_id, count in group.partition_counts.items():
            blocks = [sorted(result[name].get(topic_id, ())) for name, each in ranked if topic_id in each.topic_ids]
            sizes = [len(block) for block in blocks]
            if blocks:
                assert [partition for block in blocks for partition in block] == list(range(count))
                assert sizes == sorted(sizes, reverse=True)
                assert sizes[0] - sizes[-1] <= 1
        assert range_(with_assignment(group, {name: {} for name in group.members})) == result


@soak
def test_results_do_not_depend_on_the_order_of_sets_and_mappings() -> None:
    for seed in cases(100, soak=10_000):
        created = RandomGroup.create(seed)
        group, random = created.group, created.random

        def shuffled(mapping: Mapping[TopicId, T], random: Random = random) -> dict[TopicId, T]:
            return dict(random.sample(list(mapping.items()), len(mapping)))

        members = {name: each._replace(assignment=shuffled(each.assignment)) for name, each in group.members.items()}
        other = group._replace(members=members, partition_counts=shuffled(group.partition_counts))
        for assign in ASSIGNORS.values():
            assert assign(other) == assign(group)
        for assignment in range_(group).values():
            assert list(assignment) == sorted(assignment, key=uuid_order)
