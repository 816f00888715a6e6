"""The assignors: range and round robin compared with aiokafka, the sticky ones by their guarantees."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

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
from tests.support.soak import examples, soak

TOPICS = ("t0", "t1", "t2")
counts = st.fixed_dictionaries({}, optional={topic: st.integers(0, 7) for topic in TOPICS})
many_examples = settings(max_examples=examples(30, soak=2_000))
topic_lists = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple)


def member(name: str, *topics: str, instance_id: str | None = None) -> Subscription:
    return Subscription(member_id=name, topics=topics, instance_id=instance_id)


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False, claims: bool = True) -> list[Subscription]:
    """Draw members. With `claims`, they report any partitions as owned, also nonexistent and formerly owned ones."""
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
    subscriptions = {each.member_id: SimpleNamespace(subscription=list(each.topics)) for each in members}
    assigned = assignor.assign(cluster, subscriptions)  # type: ignore[attr-defined]  # aiokafka ships no types
    return {name: [tuple(p) for p in assignment.partitions()] for name, assignment in assigned.items()}


def sorted_each(assignments: Assignments) -> Assignments:
    return {name: sorted(partitions) for name, partitions in assignments.items()}


@soak
@given(groups(claims=False), counts)
@many_examples
def test_range_assigns_as_aiokafka_does(members: list[Subscription], counts: dict[str, int]) -> None:
    expected = by_aiokafka(RangePartitionAssignor, members, counts)
    assert sorted_each(assign_range(members, counts)) == sorted_each(expected)


@soak
@given(groups(claims=False), counts)
@many_examples
def test_round_robin_assigns_as_aiokafka_does(members: list[Subscription], counts: dict[str, int]) -> None:
    expected = by_aiokafka(RoundRobinPartitionAssignor, members, counts)
    assert sorted_each(assign_round_robin(members, counts)) == sorted_each(expected)


def test_round_robin_skips_members_without_a_subscription() -> None:
    """The example in the documentation of Kafka's RoundRobinAssignor."""
    members = [member("c0", "t0"), member("c1", "t0", "t1"), member("c2", "t0", "t1", "t2")]
    assert assign_round_robin(members, {"t0": 1, "t1": 2, "t2": 3}) == {
        "c0": [("t0", 0)],
        "c1": [("t1", 0)],
        "c2": [("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)],
    }


def test_static_members_come_first_in_the_order_of_their_instance_ids() -> None:
    """Member ids change with every restart, and do not affect the order of static members (KIP-345)."""
    members = [member("a", "t"), member("z", "t", instance_id="i1"), member("b", "t", instance_id="i2")]
    assert assign_range(members[1:], {"t": 3}) == {"z": [("t", 0), ("t", 1)], "b": [("t", 2)]}
    assert assign_round_robin(members[1:], {"t": 3}) == {"z": [("t", 0), ("t", 2)], "b": [("t", 1)]}
    assert assign_range(members, {"t": 1})["z"] == assign_round_robin(members, {"t": 1})["z"] == [("t", 0)]


def test_members_are_ordered_as_java_strings() -> None:
    """Java compares UTF-16 code units: U+1F680, a surrogate pair, precedes U+FF5E."""
    assert assign_range([member("\uff5e", "t"), member("\U0001f680", "t")], {"t": 1})["\U0001f680"] == [("t", 0)]


@soak
@given(members=groups(), counts=counts, data=st.data())
@many_examples
def test_assignments_are_valid_and_independent_of_the_order_of_members(
    members: list[Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    """Valid assignments have partitions of subscribed topics only, and no partition twice."""
    topics = {each.member_id: each.topics for each in members}
    shuffled = data.draw(st.permutations(members))
    for name, assign in ASSIGNORS.items():
        assignments = assign(members, counts)
        assigned = Counter(partition for partitions in assignments.values() for partition in partitions)
        assert set(assigned.values()) <= {1}, name
        assert all(topic in topics[owner] for owner, partitions in assignments.items() for topic, _ in partitions), name
        assert assignments.keys() == topics.keys(), name
        assert assign(shuffled, counts) == assignments, name


@soak
@given(members=groups(), counts=counts)
@many_examples
def test_eager_assignors_assign_all_partitions(members: list[Subscription], counts: dict[str, int]) -> None:
    for name in ("range", "roundrobin", "sticky"):
        assignments = ASSIGNORS[name](members, counts)
        assigned = sorted(partition for partitions in assignments.values() for partition in partitions)
        assert assigned == every_partition(members, counts), name


@soak
@given(groups(equal=True), counts)
@many_examples
def test_sticky_balances_equal_subscriptions_within_one_partition(
    members: list[Subscription], counts: dict[str, int]
) -> None:
    loads = [len(partitions) for partitions in assign_sticky(members, counts).values()]
    assert max(loads) - min(loads) <= 1


@soak
@given(groups(), counts)
@many_examples
def test_sticky_assigns_no_partition_to_a_member_with_two_more_than_another_subscriber(
    members: list[Subscription], counts: dict[str, int]
) -> None:
    assignments = assign_sticky(members, counts)
    for owner, partitions in assignments.items():
        for topic, _ in partitions:
            others = [each.member_id for each in members if topic in each.topics]
            assert all(len(partitions) - len(assignments[other]) < 2 for other in others), (owner, topic)


@soak
@given(groups(equal=True, claims=False), counts, st.data())
@many_examples
def test_sticky_moves_as_few_partitions_as_balance_allows(
    members: list[Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    """Each member can keep its partitions up to the smaller share, and some can keep one more."""
    owners = {p: data.draw(st.sampled_from([*members, None])) for p in every_partition(members, counts)}
    held = {each.member_id: [p for p, owner in owners.items() if owner is each] for each in members}
    members = [replace(each, owned_partitions=tuple(held[each.member_id])) for each in members]
    share, larger = divmod(len(owners), len(members))
    can_stay = sum(min(len(partitions), share) for partitions in held.values())
    can_stay += min(larger, sum(len(partitions) > share for partitions in held.values()))
    stayed = sum(len(set(partitions) & set(held[name])) for name, partitions in assign_sticky(members, counts).items())
    assert stayed == can_stay


@soak
@given(groups(claims=False), counts)
@many_examples
def test_sticky_keeps_a_balanced_assignment(members: list[Subscription], counts: dict[str, int]) -> None:
    before = assign_sticky(members, counts)
    members = [replace(each, owned_partitions=tuple(before[each.member_id])) for each in members]
    assert sorted_each(assign_sticky(members, counts)) == sorted_each(before)


def test_the_claim_of_the_later_generation_wins() -> None:
    for generations, owners in (
        ((3, 2), {"a": [("t", 0)], "b": [("t", 1)]}),
        ((2, 3), {"b": [("t", 0)], "a": [("t", 1)]}),
    ):
        members = [
            replace(member(name, "t"), owned_partitions=(("t", 0),), generation_id=generation)
            for name, generation in zip("ab", generations, strict=True)
        ]
        assert assign_sticky(members, {"t": 2}) == owners
        assert assign_cooperative_sticky(members, {"t": 2}) == owners


def test_a_partition_claimed_twice_in_one_generation_is_not_assigned() -> None:
    members = [replace(member(name, "t"), owned_partitions=(("t", 0),), generation_id=1) for name in "ab"]
    assert assign_cooperative_sticky(members, {"t": 2}) == {"a": [], "b": [("t", 1)]}


@soak
@given(groups(), counts)
@many_examples
def test_cooperative_assigns_no_partition_that_another_member_owns(
    members: list[Subscription], counts: dict[str, int]
) -> None:
    held = {each.member_id: set(each.owned_partitions) for each in members}
    for name, partitions in assign_cooperative_sticky(members, counts).items():
        for gained in set(partitions) - held[name]:
            assert not any(gained in held[other] for other in held)


@soak
@given(groups(claims=False), counts, st.data())
@many_examples
def test_cooperative_reaches_the_sticky_assignment_within_a_few_rebalances(
    members: list[Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    owners = {p: data.draw(st.sampled_from(members)) for p in every_partition(members, counts)}
    assigned = {
        each.member_id: [p for p, owner in owners.items() if owner is each and p[0] in each.topics] for each in members
    }
    # One rebalance revokes, the next one assigns. With different subscriptions the next one may revoke again.
    for _ in range(3):
        members = [replace(each, owned_partitions=tuple(assigned[each.member_id])) for each in members]
        assigned = assign_cooperative_sticky(members, counts)
        if sorted(p for partitions in assigned.values() for p in partitions) == every_partition(members, counts):
            break
    else:
        pytest.fail("some partitions are not assigned after 5 rebalances")
    assert sorted_each(assigned) == sorted_each(assign_sticky(members, counts))
