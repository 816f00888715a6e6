"""The skew of random distributions of groups over partitions."""

import pytest

from fakebroker.replay.report.chance import skew_by_chance


def test_one_group_is_always_on_one_partition() -> None:
    assert skew_by_chance([7.0], 1, 50) == [50, 50]


def test_few_groups_are_never_distributed_evenly(subtests: pytest.Subtests) -> None:
    """With five groups, the partition with the most has 10 or 20 times the mean; with many, hardly more than others."""
    for groups, expected in ((5, [10, 20]), (200, [2, 2.75]), (100_000, [1.03, 1.07])):
        with subtests.test(groups=groups):
            assert skew_by_chance([1.0] * 100, groups, 50) == pytest.approx(expected, rel=0.15)


def test_unequal_groups_are_less_even() -> None:
    equal, unequal = skew_by_chance([1.0] * 100, 1_000, 50), skew_by_chance([1.0] * 99 + [1_000.0], 1_000, 50)
    assert equal[1] < unequal[0]


def test_nothing_is_known_without_load() -> None:
    assert skew_by_chance([], 0, 50) == skew_by_chance([0.0], 3, 50) == []
