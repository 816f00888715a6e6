"""Confidence intervals over seeds."""

import pytest

from fakebroker.lab.estimate import Estimate, estimate_of


def test_the_interval_is_that_of_students_t_distribution() -> None:
    found = estimate_of([1.0, 2.0, 3.0])  # standard error 1 / sqrt(3), quantile 4.303
    assert (found.mean, found.seeds) == (2.0, 3)
    assert (found.low, found.high) == pytest.approx((2 - 2.4843, 2 + 2.4843), abs=1e-4)


def test_many_seeds_have_quantiles_close_to_the_tables() -> None:
    values = [0.0, 2.0] * 10  # 19 degrees of freedom: 2.0930
    found = estimate_of(values)
    assert found.high - found.mean == pytest.approx(2.0930 * (20 / 19) ** 0.5 / 20**0.5, rel=1e-3)


def test_one_seed_and_equal_seeds_have_no_interval() -> None:
    assert estimate_of([4.0]) == Estimate(4.0, 4.0, 4.0, 1)
    assert estimate_of([4.0, 4.0]) == Estimate(4.0, 4.0, 4.0, 2)


def test_no_values_are_an_error() -> None:
    with pytest.raises(ValueError, match="expected one or more"):
        estimate_of([])
