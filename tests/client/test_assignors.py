"""The assignors: range and round robin partition by partition, the sticky ones by what they promise."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from hypothesis import given, settings, strategies as st

from fakebroker.client.member.assignors import (
    ASSIGNORS,
    Assignments,
    assign_cooperative_sticky,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from fakebroker.protocol.consumer_protocol import Subscription
from fakebroker.topic_partition import TopicPartition

TOPICS = ("t0", "t1", "t2")
counts = st.fixed_dictionaries({}, optional={topic: st.integers(0, 7) for topic in TOPICS})
topic_lists = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple)


def member(name: str, *topics: str, instance_id: str | None = None) -> Subscription:
    return Subscription(member_id=name, topics=topics, instance_id=instance_id)


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False, claims: bool = True) -> list[Subscription]:
    """Members with any claims on partitions, also on such as are gone, double or of an old generation."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True))
    shared = draw(topic_lists)
    owned = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 8)), max_size=8, unique=True).map(tuple)
    return [
        Subscription(
            member_id=name,
            topics=shared if equal else draw(topic_lists),
            owned_partitions=draw(owned) if claims else (),
            generation_id=draw(st.integers(-1, 2)),
        )
        for name in names
    ]


def every_partition(members: Sequence[Subscription], counts: Mapping[str, int]) -> list[TopicPartition]:
    wanted = {topic for each in members for topic in each.topics}
    return [(topic, index) for topic in sorted(wanted) for index in range(counts.get(topic, 0))]


def by_aiokafka(assignor: type, members: Sequence[Subscription], counts: Mapping[str, int]) -> Assignments:
    cluster = SimpleNamespace(
        partitions_for_topic=lambda topic: set(range(counts[topic])) if counts.get(topic) else None
    )
    told = {each.member_id: SimpleNamespace(subscription=list(each.topics)) for each in members}
    given = assignor.assign(cluster, told)  # type: ignore[attr-defined]  # aiokafka ships no types
    return {name: [tuple(p) for p in assignment.partitions()] for name, assignment in given.items()}


def sorted_each(assignments: Assignments) -> Assignments:
    return {name: sorted(partitions) for name, partitions in assignments.items()}


@given(groups(claims=False), counts)
def test_range_gives_what_aiokafka_gives(members: list[Subscription], counts: dict[str, int]) -> None:
    expected = by_aiokafka(RangePartitionAssignor, members, counts)
    assert sorted_each(assign_range(members, counts)) == sorted_each(expected)


@given(groups(claims=False), counts)
def test_round_robin_gives_what_aiokafka_gives(members: list[Subscription], counts: dict[str, int]) -> None:
    expected = by_aiokafka(RoundRobinPartitionAssignor, members, counts)
    assert sorted_each(assign_round_robin(members, counts)) == sorted_each(expected)


def test_round_robin_skips_those_who_do_not_subscribe() -> None:
    """The example of Kafka's RoundRobinAssignor."""
    members = [member("c0", "t0"), member("c1", "t0", "t1"), member("c2", "t0", "t1", "t2")]
    assert assign_round_robin(members, {"t0": 1, "t1": 2, "t2": 3}) == {
        "c0": [("t0", 0)],
        "c1": [("t1", 0)],
        "c2": [("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)],
    }


@pytest.mark.parametrize(
    ("assignor", "first", "second"),
    [
        ("range", [("t", 0), ("t", 1)], [("t", 2)]),
        ("roundrobin", [("t", 0), ("t", 2)], [("t", 1)]),
    ],
)
def test_static_members_come_first_in_the_order_of_their_instance_ids(
    assignor: str, first: list[TopicPartition], second: list[TopicPartition]
) -> None:
    """However their member ids fall, which change with every restart (KIP-345)."""
    members = [member("a", "t"), member("z", "t", instance_id="i1"), member("b", "t", instance_id="i2")]
    assert ASSIGNORS[assignor](members[1:], {"t": 3}) == {"z": first, "b": second}
    assert ASSIGNORS[assignor](members, {"t": 1})["z"] == [("t", 0)]


def test_members_stand_in_the_order_of_java_strings() -> None:
    """U+1F680 is a surrogate pair, and so before U+FF5E in UTF-16 though behind it as a code point."""
    assert assign_range([member("\uff5e", "t"), member("\U0001f680", "t")], {"t": 1})["\U0001f680"] == [("t", 0)]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(members=groups(), counts=counts)
def test_no_assignor_gives_a_partition_twice_or_to_a_stranger(
    assignor: str, members: list[Subscription], counts: dict[str, int]
) -> None:
    assignments = ASSIGNORS[assignor](members, counts)
    topics = {each.member_id: each.topics for each in members}
    assert list(Counter(p for partitions in assignments.values() for p in partitions).values()).count(1) == sum(
        len(partitions) for partitions in assignments.values()
    )
    assert all(topic in topics[name] for name, partitions in assignments.items() for topic, _ in partitions)
    assert assignments.keys() == topics.keys()


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
@given(members=groups(), counts=counts)
def test_an_eager_assignor_leaves_no_partition_out(
    assignor: str, members: list[Subscription], counts: dict[str, int]
) -> None:
    assignments = ASSIGNORS[assignor](members, counts)
    assert sorted(p for partitions in assignments.values() for p in partitions) == every_partition(members, counts)


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(members=groups(), counts=counts, data=st.data())
def test_the_order_in_which_members_are_told_does_not_matter(
    assignor: str, members: list[Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(members))
    assert ASSIGNORS[assignor](shuffled, counts) == ASSIGNORS[assignor](members, counts)


@given(groups(equal=True), counts)
def test_sticky_balances_equal_subscriptions_within_one_partition(
    members: list[Subscription], counts: dict[str, int]
) -> None:
    loads = [len(partitions) for partitions in assign_sticky(members, counts).values()]
    assert max(loads) - min(loads) <= 1


@given(groups(), counts)
def test_sticky_leaves_nobody_with_two_less_who_could_take_one(
    members: list[Subscription], counts: dict[str, int]
) -> None:
    assignments = assign_sticky(members, counts)
    for owner, partitions in assignments.items():
        for topic, _ in partitions:
            others = [each.member_id for each in members if topic in each.topics]
            assert all(len(partitions) - len(assignments[other]) < 2 for other in others), (owner, topic)


@given(groups(equal=True, claims=False), counts, st.data())
@settings(max_examples=200)
def test_sticky_moves_as_little_as_balance_allows(
    members: list[Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    """The most that can stay: everybody's up to the smaller share, and one more each while larger shares last."""
    owners = {p: data.draw(st.sampled_from([*members, None])) for p in every_partition(members, counts)}
    held = {each.member_id: [p for p, owner in owners.items() if owner is each] for each in members}
    members = [replace(each, owned_partitions=tuple(held[each.member_id])) for each in members]
    share, larger = divmod(len(owners), len(members))
    can_stay = sum(min(len(partitions), share) for partitions in held.values())
    can_stay += min(larger, sum(len(partitions) > share for partitions in held.values()))
    stayed = sum(len(set(partitions) & set(held[name])) for name, partitions in assign_sticky(members, counts).items())
    assert stayed == can_stay


@given(groups(claims=False), counts)
def test_sticky_changes_nothing_when_nothing_changed(members: list[Subscription], counts: dict[str, int]) -> None:
    before = assign_sticky(members, counts)
    members = [replace(each, owned_partitions=tuple(before[each.member_id])) for each in members]
    assert sorted_each(assign_sticky(members, counts)) == sorted_each(before)


@pytest.mark.parametrize(
    ("generations", "owners"),
    [((3, 2), {"a": [("t", 0)], "b": [("t", 1)]}), ((2, 3), {"b": [("t", 0)], "a": [("t", 1)]})],
)
def test_of_two_who_claim_a_partition_the_later_generation_keeps_it(
    generations: tuple[int, int], owners: Assignments
) -> None:
    members = [
        replace(member(name, "t"), owned_partitions=(("t", 0),), generation_id=generation)
        for name, generation in zip("ab", generations, strict=True)
    ]
    assert assign_sticky(members, {"t": 2}) == owners
    assert assign_cooperative_sticky(members, {"t": 2}) == owners


def test_what_two_claim_in_one_generation_is_kept_from_both() -> None:
    members = [replace(member(name, "t"), owned_partitions=(("t", 0),), generation_id=1) for name in "ab"]
    assert assign_cooperative_sticky(members, {"t": 2}) == {"a": [], "b": [("t", 1)]}


@given(groups(), counts)
def test_cooperative_hands_nothing_on_that_another_member_holds(
    members: list[Subscription], counts: dict[str, int]
) -> None:
    """Except for the stale claim of a member that somebody of a later generation holds the partition against."""
    held = {each.member_id: set(each.owned_partitions) for each in members}
    for name, partitions in assign_cooperative_sticky(members, counts).items():
        for gained in set(partitions) - held[name]:
            assert not any(gained in held[other] for other in held)


@given(groups(claims=False), counts, st.data())
def test_cooperative_reaches_the_sticky_assignment_in_the_round_after_the_revocations(
    members: list[Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    owners = {p: data.draw(st.sampled_from(members)) for p in every_partition(members, counts)}
    members = [
        replace(each, owned_partitions=tuple(p for p, owner in owners.items() if owner is each and p[0] in each.topics))
        for each in members
    ]
    first = assign_cooperative_sticky(members, counts)
    members = [replace(each, owned_partitions=tuple(first[each.member_id])) for each in members]
    second = assign_cooperative_sticky(members, counts)
    assert sorted(p for partitions in second.values() for p in partitions) == every_partition(members, counts)
    assert sorted_each(second) == sorted_each(assign_sticky(members, counts))
