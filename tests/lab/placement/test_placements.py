"""Placements of named groups, by a hash and by size, and plans of placements."""

import re
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.placement.even import dealt, drawn_off
from fakebroker.lab.placement.offsets_leaders import OffsetsLeaders
from fakebroker.lab.placement.placement_plan import PlacementPlan
from tests.support.lab.named_placements import EvenPlacement, HashPlacement

# Java's hash of one character is its code: "a" is 97, so in partitions 1, 2, 0, 1 of 3.
GROUPS = {"a": 4, "b": 3, "c": 2, "d": 1}


def test_the_leader_of_the_partition_of_the_hash_coordinates_a_group() -> None:
    assert [partition_for(group_id, 3) for group_id in GROUPS] == [1, 2, 0, 1]
    placement = HashPlacement(GROUPS, OffsetsLeaders([(1, 2), (2, 3), (3, 1)], (1, 2, 3)))
    assert [placement.coordinator(group_id) for group_id in GROUPS] == [2, 3, 1, 2]
    assert placement.stop(2) == {"a": 3, "d": 3}  # all groups of a partition move to the same broker
    assert placement.coordinator("a") == 3
    assert placement.start(2) == {"a": 2, "d": 2}
    assert placement.start(4) == {}
    assert placement.stop(3) == {"b": 1}
    assert placement.stop(1) == {"c": 2, "b": None}


def test_a_reassignment_moves_all_groups_of_a_partition() -> None:
    placement = HashPlacement(GROUPS, OffsetsLeaders([(1,), (1,), (1,)], (1,)))
    assert placement.start(2) == {}
    assert placement.reassign(2) == {"b": 2}


def test_groups_are_placed_by_size_at_the_broker_with_least_members() -> None:
    placement = EvenPlacement(GROUPS, (1, 2))
    assert [placement.coordinator(group_id) for group_id in GROUPS] == [1, 2, 2, 1]  # 4, 3, 3 + 2, 4 + 1
    assert placement.stop(1) == {"a": 2, "d": 2}
    assert placement.start(3) == {"a": 3, "d": 3}  # its mean is 5, and the largest that are not too large move
    assert placement.stop(3) == {"a": 2, "d": 2}
    assert placement.stop(2) == dict.fromkeys("badc") == dict.fromkeys("abcd")
    assert placement.start(1) == dict.fromkeys("abcd", 1)


@given(
    st.dictionaries(st.integers(1, 30), st.integers(0, 40), max_size=8),
    st.lists(st.integers(0, 100), min_size=1, max_size=6),
)
def test_counts_are_dealt_as_single_groups_are(sizes: dict[int, int], loads: list[int]) -> None:
    expected = [Counter[int]() for _ in loads]
    current = list(loads)
    for size in sorted(Counter(sizes).elements(), reverse=True):
        index = current.index(min(current))
        current[index] += size
        expected[index][size] += 1
    assert dealt(sizes, loads) == expected


@given(st.lists(st.dictionaries(st.integers(1, 20), st.integers(1, 20), max_size=5), min_size=1, max_size=5))
def test_no_broker_gives_more_than_its_excess(held: list[dict[int, int]]) -> None:
    loads = [sum(size * count for size, count in sizes.items()) for sizes in held]
    mean = sum(loads) // (len(held) + 1)
    for sizes, load, taken in zip(held, loads, drawn_off(held), strict=True):
        given_away = sum(size * count for size, count in taken.items())
        assert given_away <= max(0, load - mean)
        rest = {size: count - taken.get(size, 0) for size, count in sizes.items() if count > taken.get(size, 0)}
        assert not any(size <= load - given_away - mean for size in rest)


def test_a_plan_names_the_value_that_is_wrong() -> None:
    for values, error in (
        ({"groups": (10, 5)}, "groups=(10, 5): expected ascending integers >= 1"),
        ({"name_pattern": "g"}, "name_pattern='g': expected one {}"),
        ({"partitions": (0,)}, "partitions=(0,): expected integers >= 1"),
        ({"seeds": ()}, "seeds=(): expected one or more"),
        ({"groups": (10**11,)}, "groups=(100000000000,): expected at most 10000000000"),
        ({"partitions": (997, 991)}, "partitions=(997, 991): expected a common multiple of at most 100000"),
        ({"bootstrap": 0}, "bootstrap=0: expected an integer >= 1"),
        ({"brokers": (101, 100)}, "brokers=(101, 100): expected a common multiple of at most 2000"),
    ):
        with pytest.raises(ValueError, match=re.escape(error)):
            PlacementPlan(**values)
