"""The guard fails if a ratio is more than 15 % below the recorded one in two runs in a row."""

import pytest

from tests.bench.guard import Fall, falls

RECORDED = {"keys": 10.0, "commits": 0.8}


def test_ratios_within_15_percent_are_accepted() -> None:
    assert falls({"keys": 8.51, "commits": 0.9}, {}, RECORDED) == []


def test_one_low_run_is_a_warning() -> None:
    [fall] = falls({"keys": 8.4, "commits": 0.8}, {"keys": 8.6, "commits": 0.8}, RECORDED)
    assert fall == Fall("keys", 8.4, 10.0, before=None)
    assert not fall.is_regression
    assert str(fall) == "keys: 8.4, 16% under the recorded 10; a second run in a row with such a ratio fails"


def test_two_low_runs_in_a_row_are_a_regression() -> None:
    [fall] = falls({"keys": 8.0}, {"keys": 8.4}, RECORDED)
    assert fall.is_regression
    assert str(fall) == "keys: 8, 20% under the recorded 10; 8.4 in the run before"


def test_the_run_before_is_compared_with_the_current_recording() -> None:
    [fall] = falls({"keys": 8.0}, {"keys": 9.0}, {"keys": 20.0})
    assert fall.is_regression


@pytest.mark.parametrize("before", [{}, {"keys": 8.0}])
def test_low_ratios_of_different_names_do_not_add_up(before: dict[str, float]) -> None:
    [fall] = falls({"keys": 10.0, "commits": 0.1}, before, RECORDED)
    assert (fall.name, fall.is_regression) == ("commits", False)


def test_ratios_that_were_not_recorded_are_ignored() -> None:
    assert falls({"new": 0.1}, {"new": 0.1}, RECORDED) == []
