"""Server-side assignors, by single cases."""

from collections.abc import Mapping

import pytest

from fakebroker.coordinator.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    hash_set_order,
    uuid_order,
)

T, U = bytes([*bytes(15), 1]), bytes([*bytes(15), 2])

Owned = dict[bytes, set[int]]


def group_of(partition_counts: dict[bytes, int], assigned: Mapping[str, Owned]) -> GroupSpec:
    """Return a group of members that subscribe to all topics."""
    members = {
        member_id: MemberSpec(None, partition_counts.keys(), frozen(owned)) for member_id, owned in assigned.items()
    }
    return GroupSpec(members, partition_counts, homogeneous=True)


def frozen(owned: Owned) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def test_uniform_is_the_default() -> None:
    assert list(ASSIGNORS) == ["uniform", "range"]


@pytest.mark.parametrize(
    ("partition_counts", "before", "expected"),
    [
        # Free partitions and the remainder go to the last members.
        ({T: 2, U: 3}, {"A": {}, "B": {}}, {"A": {T: {0, 1}}, "B": {U: {0, 1, 2}}}),
        ({T: 2}, {"A": {}, "B": {}, "C": {}}, {"A": {}, "B": {T: {0}}, "C": {T: {1}}}),
        # Both topics got partitions.
        (
            {T: 5, U: 6},
            {"A": {U: {0, 2}, T: {0}}, "B": {U: {1}, T: {1, 2}}},
            {"A": {U: {0, 2}, T: {0, 3, 4}}, "B": {U: {1, 3, 4, 5}, T: {1, 2}}},
        ),
        # Already balanced, although the second member has fewer than the third.
        (
            {T: 5},
            {"A": {T: {0, 3}}, "B": {T: {1}}, "C": {T: {2, 4}}},
            {"A": {T: {0, 3}}, "B": {T: {1}}, "C": {T: {2, 4}}},
        ),
    ],
)
def test_uniform_gives_the_remainder_to_members_that_own_more(
    partition_counts: dict[bytes, int], before: Mapping[str, Owned], expected: Mapping[str, Owned]
) -> None:
    """The cases are those of Kafka's `UniformHomogeneousAssignmentBuilderTest` (KAFKA-18688)."""
    assert ASSIGNORS["uniform"](group_of(partition_counts, before)) == {
        member_id: frozen(owned) for member_id, owned in expected.items()
    }


def test_uniform_keeps_the_objects_of_unchanged_assignments() -> None:
    group = group_of({T: 4}, {"A": {T: {0, 1}}, "B": {T: {2}}})
    assigned = ASSIGNORS["uniform"](group)
    assert assigned["A"] is group.members["A"].assignment
    assert assigned["B"] == {T: {2, 3}}
    assert group.members["B"].assignment == {T: {2}}


def test_uniform_assigns_topics_with_fewer_subscribers_first() -> None:
    """Of topics with equally many partitions per subscriber, before topics with lower ids."""
    topics = {"A": {T}, "B": {T}, "C": {T}, "D": {T, U}}
    members = {member_id: MemberSpec(None, topic_ids, {}) for member_id, topic_ids in topics.items()}
    assert ASSIGNORS["uniform"](GroupSpec(members, {T: 4, U: 1}, homogeneous=False)) == {
        "A": {T: {0, 3}},
        "B": {T: {1}},
        "C": {T: {2}},
        "D": {U: {0}},
    }


@pytest.mark.parametrize("homogeneous", [True, False])
def test_uniform_fails_if_a_member_owns_a_partition_that_does_not_exist(homogeneous: bool) -> None:
    group = group_of({T: 4}, {"A": {T: {0, 4}}, "B": {}})._replace(homogeneous=homogeneous)
    with pytest.raises(PartitionAssignorError, match=f"^topic={T.hex()}, partition="):
        ASSIGNORS["uniform"](group)
    assert ASSIGNORS["range"](group) == {"A": {T: {0, 1}}, "B": {T: {2, 3}}}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("homogeneous", [True, False])
def test_a_group_without_members_has_no_assignment(name: str, homogeneous: bool) -> None:
    assert ASSIGNORS[name](GroupSpec({}, {T: 3}, homogeneous)) == {}


def test_range_orders_ids_as_java_does() -> None:
    """By UTF-16 units, in which U+1F600 is less than U+FF01."""
    names = ["\uff01", "\U0001f600", "b", "a"]
    group = group_of({T: 4}, {name: {} for name in names})
    assert ASSIGNORS["range"](group) == {"a": {T: {0}}, "b": {T: {1}}, "\U0001f600": {T: {2}}, "\uff01": {T: {3}}}


def test_range_orders_static_members_by_instance_id() -> None:
    members = {
        member_id: MemberSpec(instance_id, {T}, {})
        for member_id, instance_id in [("m1", None), ("m2", "i9"), ("m3", "i10"), ("m0", None)]
    }
    assert ASSIGNORS["range"](GroupSpec(members, {T: 5}, homogeneous=True)) == {
        "m3": {T: {0, 1}},
        "m2": {T: {2}},
        "m0": {T: {3}},
        "m1": {T: {4}},
    }


def test_ids_of_topics_are_ordered_as_two_signed_integers() -> None:
    def topic_id(first: int, second: int) -> bytes:
        return first.to_bytes(8, "big", signed=True) + second.to_bytes(8, "big", signed=True)

    ids = [topic_id(1, 0), topic_id(0, 0), topic_id(0, -1), topic_id(-1, 0)]
    assert sorted(ids, key=uuid_order) == ids[::-1]


@pytest.mark.parametrize(
    ("partitions", "order"),
    [
        ({5, 3, 15, 0}, [0, 3, 5, 15]),
        # 11 are in 16 buckets, 12 in 32.
        ({1, 2, 3, 4, 5, 6, 15, 16, 17, 18, 23}, [16, 1, 17, 2, 18, 3, 4, 5, 6, 23, 15]),
        ({1, 2, 3, 4, 5, 6, 15, 16, 17, 18, 23, 33}, [1, 33, 2, 3, 4, 5, 6, 15, 16, 17, 18, 23]),
        # The hash of a large number has its upper 16 bits, too.
        ({0x20000, 1, 0}, [0, 1, 0x20000]),
    ],
)
def test_order_of_hash_sets(partitions: set[int], order: list[int]) -> None:
    assert hash_set_order(partitions) == order
